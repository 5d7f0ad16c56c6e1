"""A new certificate for a server before the old one ends: the same names, a new key, the same root."""

import datetime
import os
from pathlib import Path

from fedmoments.errors import InputError
from fedmoments.federation.keys.certificates import sign_server
from fedmoments.federation.keys.expiry import require_valid
from fedmoments.federation.keys.files import crypto, load_private, private_pem, write_new
from fedmoments.federation.keys.parties import Authority

__all__ = ["renew_server"]


def renew_server(folder: str | os.PathLike[str], days: int = 825) -> tuple[Authority, datetime.datetime]:
    """Replace a server's certificate and key by new ones for the same names; return where they are, and their end.

    Parameters
    ----------
    folder
        That :func:`~fedmoments.federation.keys.parties.make_authority` filled; the root's key must be there.
    days
        How long it is valid; never longer than its root.

    Raises
    ------
    InputError
        When the root has ended itself, or its key is elsewhere: then make a new authority, and hand out its ca.crt.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments.federation.keys.parties import make_authority
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     before = make_authority(folder, ["fed.example.org"], 20).certificate.read_bytes()
    ...     authority, end = renew_server(folder, 10)
    ...     authority.certificate.read_bytes() != before
    True
    """
    if not 1 <= days <= 3650:
        raise InputError(f"certificates must be valid for 1 to 3650 days, not {days}")
    authority = Authority(Path(folder))
    x509, ec = crypto("x509"), crypto("hazmat.primitives.asymmetric.ec")
    coding = crypto("hazmat.primitives.serialization")
    require_valid(authority.root, "the root certificate")
    root = x509.load_pem_x509_certificate(authority.root.read_bytes())
    former = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    names = list(former.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    now = datetime.datetime.now(datetime.UTC)
    days = min(days, (root.not_valid_after_utc - now).days)
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = sign_server(key, load_private(authority.root_key, "ca.key"), names, max(days, 1))
    parts = {authority.key: (private_pem(key), 0o600)}
    parts[authority.certificate] = (certificate.public_bytes(coding.Encoding.PEM), 0o644)
    for path, (data, mode) in parts.items():
        part = path.with_name(f"{path.name}.next")
        part.unlink(missing_ok=True)
        write_new(part, data, mode)
    for path in parts:
        path.with_name(f"{path.name}.next").replace(path)
    return authority, certificate.not_valid_after_utc
