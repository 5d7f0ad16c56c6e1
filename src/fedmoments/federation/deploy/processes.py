"""A child process that is watched, speaks through its log, and never outlives us."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy import guard

__all__ = ["Process"]

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Process:
    """One command, run without a shell in a session of its own, behind a guard that leaves nothing of it behind.

    Processes that the command starts itself end with it, wherever they hide, also when we are killed: see
    :mod:`fedmoments.federation.deploy.guard`. As a context manager it is started on entry and stopped on exit.

    Parameters
    ----------
    name
        How messages call it.
    command
        The executable's path and its arguments.
    environment
        Its environment variables, all of them.
    log
        File to which its output is appended.
    output
        File that receives its standard output instead, replacing what is there.
    folder
        Where it runs.
    grace
        Seconds between the request to end and being killed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     command = ["/bin/sh", "-c", "echo ready; exec sleep 60"]
    ...     with Process("sleeper", command, environment={}, log=Path(folder, "sleeper.log")) as process:
    ...         process.wait_ready(lambda: "ready" in process.text(), timeout=20)
    ...         process.alive
    ...     process.alive
    True
    False
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        *,
        environment: Mapping[str, str],
        log: Path,
        output: Path | None = None,
        folder: Path | None = None,
        grace: float = 10.0,
    ) -> None:
        self.name, self.log, self.grace = name, log, grace
        self._command = [os.fspath(part) for part in command]
        self._environment, self._output, self._folder = dict(environment), output, folder
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> Self:
        """Start the command; it may be started again after it ended."""
        if self.alive:
            raise DeploymentError(f"{self.name} runs already (process {self.pid}): stop it before it is started again")
        self._check_executable()
        head = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(self.grace)]
        with contextlib.ExitStack() as files:
            log = files.enter_context(_open_private(self.log, os.O_APPEND))
            self._log_start = os.fstat(log.fileno()).st_size
            output = log if self._output is None else files.enter_context(_open_private(self._output, os.O_TRUNC))
            self._child = subprocess.Popen(  # noqa: S603 - a list, no shell
                [*head, *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        return self

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self.exit_code is None

    @property
    def pid(self) -> int | None:
        """Process id of its guard, whose descendants are the command and what that started."""
        return self._child.pid if self._child is not None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended: None while it runs; 128 + n after signal n."""
        return self.wait(0.0)

    def text(self) -> str:
        """Return what it wrote to its log since it was last started, without colours."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return _COLOUR.sub("", file.read().decode(errors="replace"))
        except FileNotFoundError:
            return ""

    def last_lines(self, count: int = 12) -> str:
        """Return the last lines of its log that say anything, for messages: of a traceback only the error."""
        text = _TRACEBACK.sub("", self.text())
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n".join(f"    {line}" for line in lines[-count:]) or "    (it wrote nothing)"

    def wait(self, timeout: float) -> int | None:
        """Wait until it ends, and return its exit code; None if it still runs after `timeout` seconds."""
        if self._child is None:
            return None
        try:
            code = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._let_go()
        return code

    def wait_ready(self, ready: Callable[[], bool], *, timeout: float, hint: str = "") -> None:
        """Wait until `ready` says so.

        Raises
        ------
        DeploymentError
            When it ends first, or is not ready after `timeout` seconds; then it is stopped.
        """
        end = time.monotonic() + timeout
        while not ready():
            self.check(hint)
            if time.monotonic() > end:
                self.stop()
                raise DeploymentError(
                    f"{self.name} was not ready after {timeout:g} s and was stopped{_aside(hint)}. "
                    f"The end of its log ({self.log}):\n{self.last_lines()}"
                )
            time.sleep(0.1)

    def check(self, hint: str = "") -> None:
        """Raise what is known if it has ended though it was not stopped."""
        if not self.alive:
            raise DeploymentError(
                f"{self.name} ended unexpectedly with exit code {self.exit_code}{_aside(hint)}. "
                f"The end of its log ({self.log}):\n{self.last_lines()}"
            )

    def stop(self, *, wait: bool = True) -> None:
        """Ask it to end, kill it after its grace, and return when nothing of it runs any more.

        With ``wait=False`` it returns at once, so that many can end at the same time; stop each again to wait for it.
        """
        self._let_go()
        if wait:
            self._end()

    def kill(self) -> None:
        """Kill it and all that it started at once, without asking (signal 9): what a power cut does."""
        self._let_go(b"k")
        self._end()

    def _end(self) -> None:
        child = self._child
        if child is None:
            return
        try:
            child.wait(self.grace + 20.0)
        except subprocess.TimeoutExpired:  # the guard itself hangs: its death is its child's
            child.kill()
            child.wait()

    def _let_go(self, order: bytes = b"") -> None:
        """Close the line to the guard, after one last order."""
        line = self._child.stdin if self._child is not None else None
        if line is not None and not line.closed:
            with contextlib.suppress(BrokenPipeError):
                os.write(line.fileno(), order)
            line.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check_executable(self) -> None:
        if os.name != "posix":
            raise DeploymentError(f"{self.name} cannot be started: processes are supervised on Linux and macOS only")
        if not os.access(self._command[0], os.X_OK):
            raise DeploymentError(
                f"{self.name} cannot be started: there is no executable {self._command[0]}. "
                "Flower's commands come with pip install 'fedmoments[flower]', into the environment of this Python."
            )


def _open_private(path: Path, flags: int) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600), "wb")


def _aside(hint: str) -> str:
    return f" ({hint})" if hint else ""
