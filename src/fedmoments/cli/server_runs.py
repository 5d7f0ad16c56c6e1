"""What commands that serve a run share: certificates, following it to its end, stopping it when it must not go on."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.federation_runs import fail_run, follow, tell, why
from fedmoments.cli.generate import typed
from fedmoments.cli.given import Given
from fedmoments.cli.places import existing_file
from fedmoments.errors import DeploymentError, InputError

__all__ = ["SLACK", "Home", "Host", "Insecure", "Keys", "Port", "RunTimeout", "authority_of", "lifetime", "serve_run"]

Keys = Annotated[Path | None, typed(help="Folder that 'fedmoments keys server' filled.", metavar="FOLDER")]
Host = Annotated[str, typed(help="Address to listen at; 0.0.0.0 for all of this machine.")]
Port = Annotated[int, typed(help="Port to listen at.")]
Home = Annotated[
    Path | None,
    typed(help="Folder for Flower's state and logs; LEDGER.flower by default.", metavar="FOLDER", group="Server"),
]
RunTimeout = Annotated[
    float | None,
    typed(help="Seconds until it is given up; all waits together by default.", metavar="SECONDS", group="Server"),
]
Insecure = Annotated[
    bool, typed("--insecure", help="Without certificates, on this machine only: for trials.", group="Server")
]

#: Seconds that a run may take beyond its own waits: starting processes, fitting, writing.
SLACK = 300.0


def authority_of(keys: Path | None, *, insecure: bool) -> Any:
    """Return the certificates that a folder holds; None for a trial on this machine.

    Parameters
    ----------
    keys
        The folder that ``fedmoments keys server`` filled.
    insecure
        Whether to do without.
    """
    from fedmoments.federation.keys.expiry import require_valid
    from fedmoments.federation.keys.parties import Authority

    if insecure == (keys is not None):
        raise InputError(
            "say how clients know the server: --keys FOLDER with the certificates that 'fedmoments keys server' made, "
            "or --insecure for a trial on this machine"
        )
    if keys is None:
        return None
    authority = Authority(keys.resolve())
    for path in (authority.root, authority.certificate, authority.key):
        existing_file(path)
    for path, what in ((authority.root, "the root certificate"), (authority.certificate, "the server's certificate")):
        for note in require_valid(path, what):
            tell(f"warning: {note}")
    return authority


def lifetime(given: Given[Any]) -> dict[str, float]:
    """Return how long messages live where only the deadline was typed: half as long again.

    Parameters
    ----------
    given
        What was typed of a server's settings.
    """
    typed_alone = "deadline" in given.values and "ttl" not in given.values
    return {"ttl": 1.5 * given.values["deadline"]} if typed_alone else {}


def serve_run(settings: Any, home: Path, timeout: float, *, authority: Any, host: str, port: int) -> Any:
    """Serve until the run is over, and return its status.

    Parameters
    ----------
    settings
        The server's.
    home
        Folder for Flower's state and logs.
    timeout
        Seconds.
    authority, host, port
        Certificates, or None; where to listen.
    """
    from fedmoments.federation.deploy.home import FlowerHome
    from fedmoments.federation.deploy.serving import serve

    with serve(settings, FlowerHome(home), authority=authority, host=host, port=port) as server:
        tell(f"serving at {server.link.address}, {'with TLS' if authority else 'without TLS'}; Ctrl-C stops it")
        return _finish(server, timeout)


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
