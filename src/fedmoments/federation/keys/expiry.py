"""When certificates end, in words: before it happens, on both sides."""

import datetime
import socket
import ssl
from pathlib import Path

from fedmoments.errors import InputError
from fedmoments.federation.keys.files import crypto

__all__ = ["WARNING_DAYS", "expiry_note", "require_valid", "server_note"]

#: From so many days before its end on, a certificate is warned of.
WARNING_DAYS = 30
_RENEW = "let the server's operator run 'fedmoments keys renew FOLDER' and hand out what changed"
#: Seconds within which a server answers, or is not asked for its certificate.
_PATIENCE = 3.0


def expiry_note(path: Path, what: str, now: datetime.datetime | None = None) -> str | None:
    """Return a warning if a certificate ends within 30 days; None if there is time.

    Parameters
    ----------
    path
        A certificate in PEM.
    what
        Whose, for the sentence.
    now
        The time; the clock's by default.

    Raises
    ------
    InputError
        When it has ended, or is not valid yet.
    """
    x509 = crypto("x509")
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise InputError(
            f"{path} is not a certificate ({error}): ask for the file that 'fedmoments keys server' made"
        ) from error
    return _note(f"{what} ({path})", certificate.not_valid_before_utc, certificate.not_valid_after_utc, now)


def require_valid(path: Path, what: str) -> list[str]:
    """Return the warnings of a certificate, at most one; refuse one that has ended."""
    note = expiry_note(path, what)
    return [note] if note else []


def server_note(address: str, root: Path) -> str | None:
    """Return a warning if the certificate that a server shows ends soon; None if not, or if it does not answer now.

    Parameters
    ----------
    address
        ``host:port``.
    root
        The certificate that the server's is checked against.

    Raises
    ------
    InputError
        When the server's certificate has ended, is for another name, or was signed by somebody else.
    """
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(root))
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"the certificate that {address} shows is not accepted ({error.verify_message}): if it ended, {_RENEW}; "
            "else this is not the server that your ca.crt belongs to"
        ) from error
    except OSError:  # not there yet: the node waits for it
        return None
    if shown is None:
        return None
    certificate = crypto("x509").load_der_x509_certificate(shown)
    return _note(
        f"the certificate of {address}", certificate.not_valid_before_utc, certificate.not_valid_after_utc, None
    )


def _note(what: str, begin: datetime.datetime, end: datetime.datetime, now: datetime.datetime | None) -> str | None:
    now = now or datetime.datetime.now(datetime.UTC)
    if now < begin:
        raise InputError(
            f"{what} is valid from {begin:%Y-%m-%d %H:%M} UTC on, but this machine's clock says {now:%Y-%m-%d %H:%M}"
        )
    if now >= end:
        raise InputError(f"{what} ended on {end:%Y-%m-%d}, so that nobody can connect: {_RENEW}")
    left = (end - now).days
    return f"{what} ends on {end:%Y-%m-%d}, in {left} days: {_RENEW}" if left < WARNING_DAYS else None
