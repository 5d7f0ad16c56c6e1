"""What commands that serve a run share: certificates, following it to its end, stopping it when it must not go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedmoments.cli.federation_runs import fail_run, follow, tell, why
from fedmoments.cli.given import Given
from fedmoments.cli.output import LOG_JSON, log_json
from fedmoments.cli.places import existing_file
from fedmoments.errors import DeploymentError, InputError
from fedmoments.settings.option import option

__all__ = ["SLACK", "Serving", "lifetime"]

#: Seconds that a run may take beyond its own waits: starting processes, fitting, writing.
SLACK = 300.0


def lifetime(given: Given[Any]) -> dict[str, float]:
    """Return how long messages live where only the deadline was typed: half as long again.

    Parameters
    ----------
    given
        What was typed of a server's settings.
    """
    typed_alone = "deadline" in given.values and "ttl" not in given.values
    return {"ttl": 1.5 * given.values["deadline"]} if typed_alone else {}


_server = partial(option, group="Server")


@dataclass(frozen=True)
class Serving:
    """Where and how a run is served."""

    keys: str | None = option(None, "Folder that 'fedmoments keys server' wrote.", metavar="FOLDER")
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for all of this machine.")
    port: int = option(9092, "Port to listen on.")
    desk: int | None = _server(
        None,
        "Port where parties with a kit enrol; open if somebody was invited.",
        metavar="PORT",
        shown="the port after --port",
    )
    page: str | None = _server(
        None,
        "Serve a live page, /metrics and /health, on this machine, or elsewhere with TLS and a token.",
        metavar="[HOST:PORT]",
        bare="127.0.0.1:0",
    )
    home: str | None = _server(None, "Folder for Flower's state and logs.", metavar="FOLDER", shown="LEDGER.flower")
    timeout: float | None = _server(
        None, "Seconds after which the run is given up.", metavar="SECONDS", shown="all waits together"
    )
    insecure: bool = _server(
        False,  # noqa: FBT003 - a default
        "Without certificates, on this machine only: for trials.",
        "--insecure",
    )

    log_json: bool = option(
        False,  # noqa: FBT003 - a default
        LOG_JSON,
        "--log-json",
        group="Output",
    )

    def authority(self) -> Any:
        """Return the certificates of the folder that was named; None for a trial on this machine."""
        from fedmoments.federation.keys.expiry import require_valid
        from fedmoments.federation.keys.parties import Authority

        log_json(on=self.log_json)
        if self.insecure == (self.keys is not None):
            raise InputError(
                "clients cannot verify the server: give --keys FOLDER with certificates that 'fedmoments keys server' "
                "made, or --insecure for a trial on this machine"
            )
        if self.keys is None:
            return None
        authority = Authority(Path(self.keys).resolve())
        for path in (authority.root, authority.certificate, authority.key):
            existing_file(path)
        for path, what in (
            (authority.root, "the root certificate"),
            (authority.certificate, "the server's certificate"),
        ):
            for note in require_valid(path, what):
                tell(f"warning: {note}")
        return authority

    def run(self, settings: Any, ledger: Path, longest: float, authority: Any) -> Any:
        """Serve until the run is over, and return its status.

        Parameters
        ----------
        settings
            The server's.
        ledger
            The federation's, as it was typed.
        longest
            Seconds after which the run must be over unless a time was typed.
        authority
            Certificates, or None.
        """
        from fedmoments.federation.deploy.home import FlowerHome
        from fedmoments.federation.deploy.serving import serve

        home = FlowerHome(self.home or ledger.with_name(f"{ledger.name}.flower"))
        with serve(settings, home, authority=authority, host=self.host, port=self.port) as server:
            tell(f"serving at {server.link.address}, {'with TLS' if authority else 'without TLS'}; Ctrl-C stops it")
            place = Path(settings.ledger)
            with self._desk(server, place, authority), self._live(home.folder, place, authority):
                return _finish(server, self.timeout or longest)

    @contextmanager
    def _live(self, home: Path, ledger: Path, authority: Any) -> Iterator[None]:
        """Serve the live page meanwhile, if it was requested."""
        if self.page is None:
            yield
            return
        from fedmoments.federation.deploy.live_page import LivePage
        from fedmoments.federation.deploy.network import is_loopback
        from fedmoments.federation.deploy.web import Web, parse_address

        host, port = parse_address(self.page)
        here = is_loopback(host)
        if not here and authority is None:
            raise InputError(f"a page at {host} needs TLS: give --keys, or leave the address out")
        page = LivePage(ledger, home, "" if here else LivePage.new_token())
        files = {} if here else {"certificate": authority.certificate, "key": authority.key}
        with Web(page.app, host, port, **files) as web:
            tell(f"live page: {web.url}/{f'?token={page.token}' if page.token else ''}")
            yield

    @contextmanager
    def _desk(self, server: Any, ledger: Path, authority: Any) -> Iterator[None]:
        """Let parties with a kit enrol meanwhile, if anybody was invited or a port was typed."""
        from fedmoments.federation.deploy.web import Web
        from fedmoments.federation.enrolment.invitations import invitations_of

        if authority is None or (self.desk is None and not invitations_of(ledger).exists()):
            yield
            return
        from fedmoments.federation.enrolment.desk import Desk

        port = self.port + 1 if self.desk is None else self.desk
        desk = Desk(ledger, server.admit, tell)
        with Web(
            desk.app, self.host, port, certificate=authority.certificate, key=authority.key, what="the desk"
        ) as web:
            tell(f"parties with a kit enrol at {web.address}")
            yield


def _finish(server: Any, timeout: float) -> Any:
    """Run to the end; a run that does not complete is stopped, and ends the command with exit code 1."""
    try:
        server.submit()
        status = follow(server, timeout)
    except DeploymentError as error:
        _stop(server)
        fail_run(str(error), server.settings.ledger)
    except KeyboardInterrupt:
        _stop(server)
        tell("interrupted; what was taken in stays in the ledger")
        raise
    if not status.succeeded:
        fail_run(why(server.log(), status.status, status.details), server.settings.ledger)
    return status


def _stop(server: Any) -> None:
    """Stop a run that is not over, so that the next start does not find it in the SuperLink's state."""
    from contextlib import suppress

    if server.run_id is not None and server.link.alive:
        with suppress(DeploymentError):
            server.link.control.stop_run(server.run_id, timeout=20.0)
