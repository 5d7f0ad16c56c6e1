"""What is asked of a running SuperLink: who may join, which app runs, and what became of the run."""

import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.home import ConfigValue, FlowerHome, to_toml
from fedmoments.federation.deploy.processes import Process
from fedmoments.files import write_whole

__all__ = ["Control", "RunStatus"]

_CONNECTION = "federation"
#: Seconds between questions about a run whose log is being followed; the end of the log ends the wait at once.
_POLL = 30.0
#: Seconds that one question may take before it is asked again.
_ANSWER = 20.0


@dataclass(frozen=True)
class RunStatus:
    """What Flower says about a run.

    Parameters
    ----------
    run_id
        Its number.
    status
        ``pending``, ``starting``, ``running``, or ``finished:`` with ``completed``, ``failed`` or ``stopped``.
    details
        Why, as far as Flower knows.
    seconds
        How long it has run.
    bytes_received, bytes_sent
        What went through the SuperLink for it, seen from there.

    Examples
    --------
    >>> RunStatus(7, "finished:failed", "out of memory").succeeded
    False
    """

    run_id: int
    status: str
    details: str = ""
    seconds: float = 0.0
    bytes_received: int = 0
    bytes_sent: int = 0

    @property
    def finished(self) -> bool:
        """Whether it is over, well or badly."""
        return self.status.startswith("finished")

    @property
    def succeeded(self) -> bool:
        """Whether it is over and did all that it should: ``finished:completed``, and nothing else."""
        return self.status == "finished:completed"


class Control:
    """The Control API of a SuperLink, spoken through Flower's own command.

    Whoever reaches the SuperLink's port and has its root certificate can do all of this: Flower's open-source Control
    API has no login. Keep the port behind a firewall that lets only the clients in.

    Parameters
    ----------
    home
        Where settings and logs go.
    address
        ``host:port`` of the SuperLink.
    root_certificates
        File of the certificate that signed the SuperLink's; None if it speaks plain HTTP.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     control = Control(FlowerHome(folder), "127.0.0.1:9")
    ...     control.run_status(1, timeout=0.2)
    Traceback (most recent call last):
    fedmoments.errors.DeploymentError: flwr list got no answer from the SuperLink at 127.0.0.1:9 within 0.2 s...
    """

    def __init__(self, home: FlowerHome, address: str, root_certificates: Path | None = None) -> None:
        self.home, self.address, self.root_certificates = home, address, root_certificates
        self._name = "control-" + "".join(c if c.isalnum() else "-" for c in address)
        self._folder = home.of(self._name)
        trust: dict[str, ConfigValue] = {"insecure": True}
        if root_certificates is not None:
            trust = {"root-certificates": str(Path(root_certificates).resolve())}
        settings = to_toml({"address": address, **trust})
        default = to_toml({"default": _CONNECTION})
        write_whole(
            self._folder / "config.toml", f"[superlink]\n{default}\n[superlink.{_CONNECTION}]\n{settings}".encode()
        )

    def register_node(self, public_key: str, *, timeout: float = 60.0) -> int | None:
        """Let the holder of a node key join; return the node's number, or None if it was registered before.

        Parameters
        ----------
        public_key
            One line in OpenSSH's format: a card's `node_key`, or the content of ``NAME.node.pub``.
        timeout
            Seconds.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder, "node.pub")
            path.write_text(public_key, encoding="utf-8")
            try:
                answer = self._flwr(["supernode", "register", path, _CONNECTION], timeout)
            except DeploymentError as error:
                if "Public key already in use" in str(error):
                    return None
                raise
        return int(answer["node-id"])

    def unregister_node(self, node_id: int, *, timeout: float = 60.0) -> None:
        """Let a node join no more."""
        self._flwr(["supernode", "unregister", str(node_id), _CONNECTION], timeout)

    def nodes(self, *, timeout: float = 60.0) -> dict[int, str]:
        """Return the numbers of the nodes that are registered, each with its status (``online``, ``offline`` …)."""
        answer = self._flwr(["supernode", "list", _CONNECTION], timeout)
        return {int(node["node-id"]): str(node["status"]) for node in answer["nodes"]}

    def submit_run(
        self,
        app: str | os.PathLike[str],
        config: Mapping[str, ConfigValue] | None = None,
        *,
        federation: Mapping[str, ConfigValue] | None = None,
        timeout: float = 60.0,
    ) -> int:
        """Start an app; return the run's number without waiting for its end.

        Parameters
        ----------
        app
            Folder with the app's ``pyproject.toml``.
        config
            Settings that replace those declared there, which must exist there. Paths should be absolute: the app
            runs in a folder of its own.
        federation
            Of the simulation: ``num-supernodes``, ``client-resources-num-cpus``, ``init-args-num-cpus`` …
        """
        command: list[str | os.PathLike[str]] = ["run", Path(app).resolve(), _CONNECTION]
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            for option, values in (("--run-config", config), ("--federation-config", federation)):
                if values:
                    path = Path(folder, f"{option.strip('-')}.toml")
                    path.write_text(to_toml(values), encoding="utf-8")
                    command += [option, path]
            answer = self._flwr(command, timeout)
        return int(answer["run-id"])

    def run_status(self, run_id: int, *, timeout: float = 60.0) -> RunStatus:
        """Ask what became of a run."""
        answer = self._flwr(["list", _CONNECTION, "--run-id", str(run_id)], timeout)
        run = answer["runs"][0]
        traffic = run["network-traffic"]
        return RunStatus(
            run_id,
            run["status"],
            "" if run["status-details"] == "N/A" else run["status-details"],
            float(run["elapsed"]),
            int(traffic["inbound-bytes"]),
            int(traffic["outbound-bytes"]),
        )

    def stop_run(self, run_id: int, *, timeout: float = 60.0) -> None:
        """Stop a run."""
        self._flwr(["stop", str(run_id), _CONNECTION], timeout)

    def run_log(self, run_id: int) -> Path:
        """Return where :meth:`wait_for_run` writes what the run's server app printed."""
        return self._folder / f"run-{run_id}.log"

    def wait_for_run(self, run_id: int, timeout: float, *, watch: Iterable[Process] = ()) -> RunStatus:
        """Wait until a run is over, following its log into :meth:`run_log`.

        A SuperLink that does not answer for a while is waited for: it may be restarting.

        Parameters
        ----------
        timeout
            Seconds, and those of one last question.
        watch
            Processes without which the run cannot end: when one of them dies, the wait ends with its error.

        Returns
        -------
        RunStatus
            Look at `succeeded`: a run that failed is an answer, not an error.

        Raises
        ------
        DeploymentError
            When time is over, or a watched process died.
        """
        watched = list(watch)
        end = time.monotonic() + timeout
        last = "no answer yet"
        with self._follower(run_id) as follower:
            while (left := end - time.monotonic()) > 0:
                _wait_any([follower, *watched], min(_POLL, left))
                try:
                    status = self.run_status(run_id, timeout=_ANSWER)
                except DeploymentError as error:
                    last = str(error)
                else:
                    if status.finished:
                        follower.wait(5.0)
                        return status
                    last = f"the run is {status.status}"
                for process in watched:
                    process.check(f"run {run_id} was waiting for it")
                if not follower.alive:
                    time.sleep(1.0)
                    follower.start()
        raise DeploymentError(
            f"run {run_id} was not over after {timeout:g} s ({last}). It was left running: "
            f"look into {self.run_log(run_id)} and wait longer, or stop the run"
        )

    def _follower(self, run_id: int) -> Process:
        return self._process(["log", str(run_id), _CONNECTION, "--stream"], self.run_log(run_id))

    def _process(self, arguments: list[str | os.PathLike[str]], output: Path) -> Process:
        return Process(
            f"flwr {arguments[0]}",
            [self.home.executable("flwr"), *arguments],
            environment=self.home.environment(self._name),
            log=self.home.log(self._name),
            output=output,
            folder=self._folder,
            grace=2.0,
        )

    def _flwr(self, arguments: list[str | os.PathLike[str]], timeout: float) -> dict[str, Any]:
        """Run one of Flower's commands and return its answer."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            output = Path(folder, "answer")
            with self._process([*arguments, "--format", "json"], output) as process:
                code = process.wait(timeout)
            text = output.read_text(encoding="utf-8", errors="replace")
        if code is None:
            raise DeploymentError(
                f"{process.name} got no answer from the SuperLink at {self.address} within {timeout:g} s: "
                "is it running, and reachable with this root certificate?"
            )
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"error-message": text or process.last_lines()}
        if not answer.get("success"):
            raise DeploymentError(f"{process.name} at {self.address} failed: {_error(answer['error-message'])}")
        return dict(answer)


def _error(said: str) -> str:
    """Return the error in what Flower said: it puts what it printed before the error, and an empty line between."""
    printed, _, error = said.partition("\n\n")
    return " ".join((said if said.startswith("\n") else error or printed).split())


def _wait_any(processes: list[Process], seconds: float) -> None:
    """Wait until one of the processes ends, but not forever."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(process.alive for process in processes):
        time.sleep(0.1)
