"""What a client and a helper share: how they reach the server, how long they stay, where their settings are kept."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import typed
from fedmoments.cli.output import LOG_JSON, log_json
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.settings.files import FromFile
from fedmoments.settings.option import option

__all__ = ["Config", "Joining", "PlanOnly", "TermsFile", "keep_settings", "read_terms"]

#: Seconds for which a node tries to reach a server that may start later.
JOIN = 600.0
#: Seconds after which a key that is refused gets advice.
ADVICE = 60.0
#: Seconds for which a refused key is tried again: a server that has just begun may still be registering keys.
PATIENCE = 120.0

Config = Annotated[Path | None, typed(help="A settings file; options on the command line win.", metavar="FILE")]
TermsFile = Annotated[
    Path | None,
    typed(help="The federation's terms that you read; the client answers no server under other terms.", metavar="FILE"),
]
PlanOnly = Annotated[bool, typed("--plan", help="Write the settings file and show the plan; nothing is sent.")]

_server = partial(option, group="Server")


@dataclass(frozen=True)
class Joining:
    """How a node joins a federation."""

    server: str | None = option(None, "Address of the server.", metavar="HOST:PORT", common=1)
    ca: str | None = option(None, "The server's ca.crt.", metavar="FILE", common=1)
    stay: bool = _server(False, "Stay for later runs; Ctrl-C ends it.", "--stay")  # noqa: FBT003 - a default
    timeout: float | None = _server(None, "Seconds until this process gives up; never by default.", metavar="SECONDS")
    insecure: bool = _server(
        False,  # noqa: FBT003 - a default
        "Without certificates, on this machine only: for trials.",
        "--insecure",
    )
    metrics: str | None = _server(
        None, "Serve /metrics and /health on this machine.", metavar="[PORT]", bare="127.0.0.1:0"
    )
    log_json: bool = option(False, LOG_JSON, "--log-json", group="Output")  # noqa: FBT003 - a default

    @contextmanager
    def showing(self, facts: Callable[[], Any]) -> Iterator[None]:
        """Show a party's own numbers to a monitor meanwhile, if that was requested; on this machine only.

        Parameters
        ----------
        facts
            As in :func:`fedmoments.federation.deploy.metrics.own_metrics`.
        """
        from fedmoments.cli.federation_runs import tell
        from fedmoments.federation.deploy.metrics import own_metrics
        from fedmoments.federation.deploy.network import is_loopback
        from fedmoments.federation.deploy.web import Web, parse_address

        if self.metrics is None:
            yield
            return
        host, port = parse_address(self.metrics)
        if not is_loopback(host):
            raise InputError(f"a party's numbers are for this machine: --metrics PORT, not {self.metrics}")
        with Web(own_metrics(facts), host, port, what="the monitor's page") as web:
            tell(f"numbers for a monitor: {web.url}/metrics")
            yield

    def require(self) -> None:
        """Refuse an address or a certificate that cannot lead to a server."""
        from fedmoments.extras import require

        require("flwr", "A client of a federation", "flower")
        log_json(on=self.log_json)
        if self.server is None or not re.fullmatch(r".+:\d{1,5}", self.server):
            arrived = f", not {self.server!r}" if self.server else ""
            raise InputError(f"the server's address is missing: give --server HOST:PORT{arrived}")
        if self.insecure == (self.ca is not None):
            raise InputError(
                "cannot verify the server: give its certificate, --ca ca.crt, or --insecure for a trial on this machine"
            )
        if self.ca is not None:
            from fedmoments.cli.federation_runs import tell
            from fedmoments.federation.keys.expiry import require_valid, server_note

            root = existing_file(Path(self.ca))
            for note in [*require_valid(root, "the root certificate"), server_note(self.server, root)]:
                if note:
                    tell(f"warning: {note}")

    def node(
        self,
        folder: Path,
        config: Mapping[str, str],
        key: Path,
        *,
        secrets: list[Path],
        private: list[Path] | None = None,
        remembers: bool = False,
        **more: Any,
    ) -> Any:
        """Return the node that joins, not started yet.

        Parameters
        ----------
        folder
            Where it keeps what it must not forget; made here.
        config
            The node's settings.
        key
            Its private key, which is of no use without certificates.
        secrets, private
            As in :class:`fedmoments.federation.deploy.nodes.SuperNode`; what is in the folder is private anyway.
        remembers
            Whether the folder holds a memory that is as secret as the key.
        more
            As in :class:`fedmoments.federation.deploy.nodes.SuperNode`.
        """
        from fedmoments.federation.deploy.home import FlowerHome
        from fedmoments.federation.deploy.nodes import SuperNode

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = [part for part in folder.iterdir() if part.name != "flower"]
        return SuperNode(
            FlowerHome(folder / "flower"),
            str(self.server),
            root_certificates=None if self.ca is None else Path(self.ca),
            key=None if self.insecure else key,
            config=dict(config),
            secrets=[*secrets, *(kept if remembers else [])],
            private=[*(private or []), *kept],
            timeout=self.timeout or JOIN,
            patience=min(PATIENCE, self.timeout or JOIN),
            on_refused=_RefusedKey(),
            **more,
        )


class _RefusedKey:
    """Tells why a key may be refused: at first that it is tried again, and after a minute what can be done."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._advised = False

    def __call__(self, _: str) -> None:
        from fedmoments.cli.federation_runs import tell

        now = time.monotonic()
        if self._start is None:
            self._start = now
            tell("the server does not admit this key yet; trying again")
        elif now - self._start > ADVICE and not self._advised:
            self._advised = True
            tell(
                "the server still does not admit this key: if its card was not enrolled, hand it to the operator, who "
                "enrols it and starts the server again; if this client was killed a moment ago, the server notices soon"
            )


def read_terms(path: Path | None) -> Any:
    """Return the terms that a file holds; None where there is no file."""
    from fedmoments.federation.terms import Terms

    return None if path is None else Terms.from_json(existing_file(path).read_text("utf-8", errors="replace"))


def keep_settings(settings: FromFile, folder: str, name: str) -> Path:
    """Write settings into a party's own folder, and return the file."""
    from fedmoments.files import write_whole

    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(place / name, settings.to_toml().encode())
    return place / name
