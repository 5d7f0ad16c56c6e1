"""Flower's two processes on the server's side: the SuperLink that everybody talks to, and what runs the server app."""

import os
import secrets
from importlib.util import find_spec
from pathlib import Path

from fedmoments.errors import InputError
from fedmoments.federation.deploy.control import Control
from fedmoments.federation.deploy.home import FlowerHome
from fedmoments.federation.deploy.network import choose_port, is_healthy, is_loopback, joined, reachable
from fedmoments.federation.deploy.processes import Process
from fedmoments.federation.keys.files import check_private, write_new
from fedmoments.federation.keys.parties import Authority

__all__ = ["SuperExec", "SuperLink", "superexec_secret"]


class SuperLink(Process):
    """Flower's server: nodes, command line and server app meet here.

    With an authority it speaks TLS and admits registered nodes only. Without one it speaks plain HTTP and admits
    everybody, and so listens on this machine only. It runs no app itself: start a :class:`SuperExec` beside it. So a
    run survives a SuperLink that is killed and started again on the same database and port.

    Parameters
    ----------
    home
        Where it keeps its things.
    authority
        Certificate and key (:func:`fedmoments.federation.deploy.make_authority`).
    simulation
        Run apps in Flower's own simulation (Ray) instead of on nodes.
    host, port
        Where it listens; a free port if none is given.
    database
        File with its state; without one the state is in memory and lost with the process.
    timeout
        Seconds until it must be ready.

    Examples
    --------
    >>> SuperLink(FlowerHome("/tmp"), host="0.0.0.0")
    Traceback (most recent call last):
    fedmoments.errors.InputError: a SuperLink without certificates ... must listen at 127.0.0.1 or localhost...
    """

    def __init__(
        self,
        home: FlowerHome,
        *,
        authority: Authority | None = None,
        simulation: bool = False,
        host: str = "127.0.0.1",
        port: int | None = None,
        database: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        name: str = "superlink",
    ) -> None:
        if authority is None and not is_loopback(host):
            raise InputError(
                f"a SuperLink without certificates speaks plain HTTP and lets everybody in: it must listen at "
                f"127.0.0.1 or localhost, not at {host!r}; make certificates and pass the authority to listen there"
            )
        _require_plain_path()
        self.home, self.authority, self.simulation, self.timeout = home, authority, simulation, timeout
        self.host, self.port = host, choose_port(host, port)
        self.secret = superexec_secret(home.of(name) / "superexec.secret")
        super().__init__(
            "the SuperLink",
            [home.executable("flower-superlink"), *self._arguments(database)],
            environment=home.environment(name),
            log=home.log(name),
            folder=home.of(name),
        )

    @property
    def address(self) -> str:
        """``host:port`` as this machine reaches it."""
        return joined(reachable(self.host), self.port)

    @property
    def root_certificates(self) -> Path | None:
        """What its certificate is checked against."""
        return None if self.authority is None else self.authority.root

    @property
    def control(self) -> Control:
        """What can be asked of it."""
        return Control(self.home, self.address, self.root_certificates)

    def start(self) -> "SuperLink":
        """Start it, and return when it answers.

        Raises
        ------
        DeploymentError
            When its port is taken, it ends, or it is not ready in time.
        """
        if not self.alive:
            choose_port(self.host, self.port)
        super().start()
        try:
            self.wait_ready(lambda: is_healthy(self.address, self.root_certificates), timeout=self.timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def _arguments(self, database: str | os.PathLike[str] | None) -> list[str | os.PathLike[str]]:
        arguments: list[str | os.PathLike[str]] = ["--host", self.host, "--port", str(self.port)]
        arguments += ["--isolation", "process", "--superexec-auth-secret-file", self.secret]
        arguments += ["--disable-runtime-dependency-installation"]
        if self.simulation:
            arguments += ["--simulation"]
        if database is not None:
            arguments += ["--database", Path(database).resolve()]
        if self.authority is None:
            return [*arguments, "--insecure"]
        check_private(self.authority.key)
        arguments += ["--ssl-ca-certfile", self.authority.root, "--ssl-certfile", self.authority.certificate]
        arguments += ["--ssl-keyfile", self.authority.key]
        return arguments if self.simulation else [*arguments, "--enable-supernode-auth"]


def _require_plain_path(folder: str | None = None) -> None:
    """Refuse an environment whose path Flower cannot use: it splits its list of migrations at commas and spaces.

    It then makes no tables, and all that one reads is "Internal server error".

    Examples
    --------
    >>> _require_plain_path("/srv/a,b/.venv/lib")
    Traceback (most recent call last):
    fedmoments.errors.InputError: Flower is installed in /srv/a,b/.venv/lib, and a path with a comma or a space ...
    """
    if folder is None:
        spec = find_spec("flwr")
        folder = str(Path(spec.origin).parent) if spec and spec.origin else ""
    if "," in folder or " " in folder:
        raise InputError(
            f"Flower is installed in {folder}, and a path with a comma or a space makes it skip the tables of its "
            "database: make the virtual environment in a folder without them"
        )


class SuperExec(Process):
    """What runs the server apps of a SuperLink, each in a process of its own.

    It proves to the SuperLink with a secret in a file that it may: otherwise whoever reaches the port could fetch a run
    and its token.

    Parameters
    ----------
    link
        Its SuperLink, on this machine.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     SuperExec(SuperLink(FlowerHome(folder))).alive
    False
    """

    def __init__(self, link: SuperLink, *, timeout: float = 60.0, name: str = "superexec") -> None:
        self.timeout = timeout
        trust: list[str | os.PathLike[str]] = ["--insecure"]
        if link.root_certificates is not None:
            trust = ["--root-certificates", link.root_certificates]
        arguments = ["--runtime-api-address", link.address, "--superexec-auth-secret-file", link.secret, *trust]
        super().__init__(
            "the SuperExec",
            [link.home.executable("flower-superexec"), *arguments],
            environment=link.home.environment(name),
            log=link.home.log(name),
            folder=link.home.of(name),
        )

    def start(self) -> "SuperExec":
        """Start it, and return when it has begun to ask for work."""
        super().start()
        try:
            self.wait_ready(lambda: "Starting Flower SuperExec" in self.text(), timeout=self.timeout)
        except BaseException:
            self.stop()
            raise
        return self


def superexec_secret(path: Path) -> Path:
    """Return a file with a secret that only its owner can read, made if it is missing."""
    try:
        write_new(path, secrets.token_bytes(32), 0o600)
    except FileExistsError:
        check_private(path)
    return path
