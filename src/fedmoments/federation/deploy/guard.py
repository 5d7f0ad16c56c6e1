"""A small process between us and a command: whatever happens to us or to the command, nothing of it stays behind.

Run by path, with the standard library only: ``python -I -S guard.py PARENT GRACE COMMAND ...``. It starts the command
and ends with the command's exit code (128 + n after signal n). Before it ends, it ends every process that the command
started, also those in other sessions or without a living parent. It stops the command when

* its standard input is closed (asked to stop: terminate, and kill after GRACE seconds) or gives ``k`` (kill now),
* the process PARENT is no longer its parent (we were killed), or
* it is itself asked to terminate.

Why not only a signal on the parent's death: that signal is bound to the thread that started the child, reaches only
the child and not what that started, and needs code between fork and exec in a process that may have threads.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

__all__ = ["descendants", "main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
#: Seconds that processes which the command left behind have between the request to end and being killed.
_SHORT = 2.0
_REQUESTS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


def descendants(root: int) -> list[int]:
    """Return the ids of all living processes below a process (Linux; empty elsewhere).

    Examples
    --------
    >>> import subprocess
    >>> with subprocess.Popen(["sleep", "5"]) as child:
    ...     child.pid in descendants(os.getpid()) or not _LINUX
    ...     child.kill()
    True
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat") if _LINUX else ():
        try:
            fields = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    below_root, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        below_root += below
        waiting += below
    return below_root


def main(arguments: list[str]) -> int:
    """Run the command to its end, or to ours; return its exit code.

    Examples
    --------
    >>> import subprocess
    >>> command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), "5", "/bin/sh", "-c", "exit 7"]
    >>> with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
    ...     guard.wait()
    7
    """
    parent, grace, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, received = _listen()
    family = _Family(command)
    while family.code is None:
        ready = select.select([0, wake], [], [], 1.0)[0]
        if wake in ready:
            os.read(wake, 4096)
        family.reap()
        orphaned = os.getppid() != parent
        asked = 0 in ready or orphaned or not set(received).isdisjoint(_REQUESTS)
        if asked and family.code is None:
            now = 0 in ready and os.read(0, 1) == b"k"
            family.stop(0.0 if now else grace)
    family.sweep(0.0 if family.code == 128 + signal.SIGKILL else _SHORT)
    return family.code


def _listen() -> tuple[int, list[int]]:
    """Catch signals; return a descriptor that becomes readable when one arrives, and the list that they end up in."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    received: list[int] = []
    for number in [*_REQUESTS, signal.SIGCHLD]:
        signal.signal(number, lambda number, _: received.append(number))
    return wake, received


class _Family:
    """The command's process and all that it started."""

    def __init__(self, command: list[str]) -> None:
        self.code: int | None = None  # of the command, once it ended
        self.none_left = False
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)  # none may be lost between fork and exec
        self.child = os.fork()
        if not self.child:
            _become(command, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def reap(self) -> None:
        """Take note of whatever ended."""
        while not self.none_left:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.none_left = True
                return
            if ended == 0:
                return
            if ended == self.child:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code

    def stop(self, grace: float) -> None:
        """Ask the command to end, and kill it after `grace` seconds."""
        if grace > 0:
            _signal(self.child, signal.SIGTERM)
            if self._until(lambda: self.code is not None, grace):
                return
        _signal(self.child, signal.SIGKILL)
        while not self._until(lambda: self.code is not None, 60.0):
            pass  # nothing survives this signal, but the disk may be slow

    def sweep(self, grace: float) -> None:
        """End whatever the command left behind."""
        if not _LINUX:
            _signal(-self.child, signal.SIGKILL)
            return
        if grace > 0:
            for pid in descendants(os.getpid()):
                _signal(pid, signal.SIGTERM)
            if self._until(lambda: self.none_left, grace):
                return
        for _ in range(100):  # what is killed may have started another meanwhile
            for pid in descendants(os.getpid()):
                _signal(pid, signal.SIGKILL)
            if self._until(lambda: self.none_left, 0.1):
                return

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so, or the time is over."""
        end = time.monotonic() + seconds
        self.reap()
        while not done() and time.monotonic() < end:
            time.sleep(0.02)
            self.reap()
        return done()


def _become(command: list[str], mask: set[int | signal.Signals]) -> NoReturn:
    """Turn this process, which was just forked, into the command."""
    guard = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the guard has one thread: this is its death, not a thread's
    if guard != os.getppid():
        os._exit(1)
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in [*_REQUESTS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ]:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or became somebody else's
        (os.kill if pid > 0 else os.killpg)(abs(pid), number)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
