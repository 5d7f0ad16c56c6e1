"""What commands that serve a run share: certificates, following it to its end, stopping it when it must not go on."""

from pathlib import Path
from typing import Any

from fedmoments.cli.federation_runs import fail_run, follow, tell, why
from fedmoments.cli.options import existing_file
from fedmoments.errors import DeploymentError, InputError

__all__ = ["SLACK", "authority_of", "finish"]

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
    from fedmoments.deploy.keys import Authority

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
    return authority


def finish(server: Any, timeout: float) -> Any:
    """Run to the end; a run that does not complete is stopped, and ends the command with exit code 1.

    Parameters
    ----------
    server
        A :class:`fedmoments.deploy.serving.Server`.
    timeout
        Seconds.
    """
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
