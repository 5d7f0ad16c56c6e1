"""What runs at a party: Flower's SuperNode, which speaks to the server, and our own process, which answers."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.deploy.app_folder import BUNDLE
from fedmoments.federation.deploy.home import ConfigValue, FlowerHome, to_toml
from fedmoments.federation.deploy.network import choose_port, why_silent
from fedmoments.federation.deploy.processes import Process
from fedmoments.federation.deploy.sandbox import wrapped
from fedmoments.federation.deploy.servers import superexec_secret
from fedmoments.federation.keys.files import check_private
from fedmoments.files import write_whole

__all__ = ["InstalledApp", "SuperNode"]

_JOINED = re.compile(r"SuperNode ID: (\d+)")
_REFUSED = re.compile(r"\[code: (\d+)\]")
_KEY_REFUSED = "2004"
_EXECUTOR = "fedmoments.federation.flower.executor"
#: Seconds between two attempts.
_AGAIN = 5.0
_WHY = {
    "2001": "the SuperLink admits registered nodes only, and this one has no key",
    "2004": "the SuperLink does not know this node's key, or a node with it is there already: register the "
    "public key, and run one node a key",
}


class _KeyRefusedError(DeploymentError):
    """The SuperLink does not know the key, or believes that another process with it is there."""


@dataclass(frozen=True)
class InstalledApp:
    """The client app that a node runs, whatever bundle the server sends.

    Parameters
    ----------
    reference
        ``module:name`` of the app, as it is installed on this machine.
    bundle
        ``publisher/name`` of the bundles for whose runs it answers; runs of others are refused.
    """

    reference: str = "fedmoments.federation.flower.client_app:app"
    bundle: str = BUNDLE


class SuperNode(Process):
    """Flower's client: fetches messages for one client (or several partitions), which our own process answers.

    A SuperNode runs no app itself (``--isolation process``): beside it runs an :mod:`executor
    <fedmoments.federation.flower.executor>` of ours, which has the settings and the keys, and which nothing that the
    server sends can replace. The SuperNode has the key of its transport and nothing else of the party's: neither
    paths nor environment, and where the system can do that, it cannot open what is hidden from it.
    A node that loses its SuperLink keeps trying to come back.

    Parameters
    ----------
    home
        Where it keeps its things.
    superlink
        ``host:port``; the host must be one of those that the server's certificate names.
    root_certificates
        File with the certificate that signed the server's; None for a SuperLink that speaks plain HTTP.
    key
        File with the node's private key (``NAME.node``), if the SuperLink admits registered nodes only.
    config
        Settings that the client app finds in its context's ``node_config``.
    app
        What answers.
    secrets
        Files and folders that neither Flower's process nor the one that works on messages can open.
    private
        Further ones, that Flower's process cannot open.
    port
        Where its app asks it for work, on this machine only; a free one if none is given.
    timeout
        Seconds until it must have joined.
    patience
        Seconds for which it tries again when the SuperLink refuses its key: after a kill the SuperLink believes for
        about a minute that the former process is still there, and says the same as of an unknown key.
    on_refused
        Called with the reason each time that its key is refused and will be tried again.
    name
        Of its subfolder in the home; different for each node.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     SuperNode(FlowerHome(folder), "localhost:9092", config={"partition-id": 0}).alive
    False
    """

    def __init__(
        self,
        home: FlowerHome,
        superlink: str,
        *,
        root_certificates: Path | None = None,
        key: Path | None = None,
        config: Mapping[str, ConfigValue] | None = None,
        app: InstalledApp = InstalledApp(),  # noqa: B008 - frozen
        secrets: Iterable[Path] = (),
        private: Iterable[Path] = (),
        port: int | None = None,
        timeout: float = 60.0,
        patience: float = 0.0,
        on_refused: Callable[[str], None] | None = None,
        name: str = "supernode",
    ) -> None:
        if key is not None and root_certificates is None:
            raise InputError("a node proves its key over TLS only: pass the root certificate, or no key")
        self.superlink, self.timeout, self.patience = superlink, timeout, patience
        self._root = root_certificates
        self._on_refused = on_refused
        self.port = choose_port("127.0.0.1", port)
        folder, secret = home.of(name), superexec_secret(home.of(name) / "superexec.secret")
        arguments: list[str | os.PathLike[str]] = ["--superlink", superlink, "--host", "127.0.0.1"]
        arguments += ["--port", str(self.port), "--isolation", "process", "--superexec-auth-secret-file", secret]
        arguments += _proofs(root_certificates, key)
        own, secrets = home.of(f"{name}-app"), [Path(path).resolve() for path in secrets]
        hidden = _hidden([*secrets, *private, own], (key, root_certificates))
        settings = own / "node.toml"
        write_whole(settings, to_toml(config or {}).encode())
        super().__init__(
            f"the SuperNode {name!r}",
            wrapped([home.executable("flower-supernode"), *arguments], hidden),
            environment={key: text for key, text in _environment(home, name).items() if not key.startswith("FEDMOM")},
            log=home.log(name),
            folder=folder,
        )
        work: list[str | os.PathLike[str]] = ["--address", f"127.0.0.1:{self.port}", "--secret", secret]
        work += ["--config", settings, "--app", app.reference, "--bundle", app.bundle]
        self._executor = Process(
            f"the process that answers for {name!r}",
            [sys.executable, "-P", "-m", _EXECUTOR, *work, *(part for path in secrets for part in ("--hide", path))],
            environment=_environment(home, own.name),
            log=home.log(name),
            folder=own,
        )

    @property
    def node_id(self) -> int | None:
        """The number under which the SuperLink knows it; None until it has joined."""
        match = _JOINED.search(self.text())
        return int(match[1]) if match else None

    def start(self, *, wait: bool = True) -> "SuperNode":
        """Start it, and return when it has joined; with ``wait=False`` at once, for :meth:`wait_joined` to follow.

        Raises
        ------
        DeploymentError
            When it is refused, its port is taken, or it has not joined in time.
        """
        super().start()
        if not self._executor.alive:
            self._executor.start()
        if wait:
            self.wait_joined()
        return self

    def check(self, hint: str = "") -> None:
        """Raise what is known if it, or what answers for it, has ended though it was not stopped."""
        super().check(hint)
        self._executor.check(hint)

    def stop(self, *, wait: bool = True) -> None:
        """Stop both processes."""
        self._executor.stop(wait=False)
        super().stop(wait=wait)
        self._executor.stop(wait=wait)

    def kill(self) -> None:
        """Kill both processes and all that they started."""
        self._executor.kill()
        super().kill()

    def wait_joined(self) -> int:
        """Return the number under which it joined, once it has."""
        start = time.monotonic()
        until = start + self.patience
        end = start + max(self.timeout, self.patience)
        while True:
            try:
                return self._wait_joined(round(max(1.0, end - time.monotonic()), 1))
            except _KeyRefusedError as error:
                if time.monotonic() + _AGAIN >= until:
                    raise DeploymentError(str(error)) from error
                if self._on_refused:
                    self._on_refused(str(error))
                time.sleep(_AGAIN)
                self.start(wait=False)

    def _wait_joined(self, timeout: float) -> int:
        hint = f"it could not join the SuperLink at {self.superlink}"
        try:
            self.wait_ready(lambda: self.node_id is not None, timeout=timeout, hint=hint)
        except BaseException as error:
            self.stop()
            refused = _REFUSED.search(self.text())
            if isinstance(error, DeploymentError) and refused is not None:
                kind = _KeyRefusedError if refused[1] == _KEY_REFUSED else DeploymentError
                raise kind(
                    f"{self.name} was refused by the SuperLink at {self.superlink} (Flower's code {refused[1]}): "
                    f"{_WHY.get(refused[1], self.last_lines().strip())}. Its log is {self.log}"
                ) from error
            if isinstance(error, DeploymentError) and (silent := why_silent(self.superlink, self._root)):
                raise DeploymentError(
                    f"{self.name} was not ready after {timeout:g} s and was stopped ({hint}): {silent}. Its log is "
                    f"{self.log}"
                ) from error
            raise
        joined = self.node_id
        if joined is None:
            raise DeploymentError(f"{self.name} has joined, but its log {self.log} does not say as which node")
        return joined


def _proofs(root_certificates: Path | None, key: Path | None) -> list[str | os.PathLike[str]]:
    """Return how the node checks the server, and proves itself."""
    arguments: list[str | os.PathLike[str]] = ["--insecure"]
    if root_certificates is not None:
        arguments = ["--root-certificates", Path(root_certificates).resolve()]
    if key is not None:
        check_private(key)
        arguments += ["--auth-supernode-private-key", Path(key).resolve()]
    return arguments


def _hidden(paths: Iterable[Path], needed: Iterable[Path | None]) -> list[Path]:
    """Return what of paths a SuperNode may not see: all but the files that it needs."""
    kept = {Path(path).resolve() for path in needed if path is not None}
    return [part for path in paths for part in _all_but(Path(path).resolve(), kept)]


def _all_but(path: Path, kept: set[Path]) -> list[Path]:
    """Return a path, or, where something below it is kept, everything beside that."""
    if path in kept:
        return []
    if not any(path in keeping.parents for keeping in kept):
        return [path]
    return [part for entry in path.iterdir() for part in _all_but(entry, kept)]


def _environment(home: FlowerHome, name: str) -> dict[str, str]:
    """Return the environment of a process that may be unable to make files where others make theirs."""
    temporary = home.of(name) / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    return home.environment(name) | {"TMPDIR": str(temporary)}
