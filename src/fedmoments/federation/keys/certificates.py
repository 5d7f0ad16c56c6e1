"""Certificates of a federation: how they are put together and signed."""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.federation.keys.files import crypto

__all__ = ["certificate", "general_name", "hosts_of", "named", "sign_server", "usage"]

_DNS = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


def general_name(host: str) -> Any:
    """Return a DNS name or an address as certificates hold it."""
    x509 = crypto("x509")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _DNS.fullmatch(host.lower()) or host.replace(".", "").isdigit():
        raise InputError(f"a server's host must be a DNS name or an IP address without a port, not {host!r}")
    return x509.DNSName(host.lower())


def hosts_of(path: Path) -> list[str]:
    """Return the names and addresses that a server's certificate is for, in its order.

    Raises
    ------
    InputError
        When the file is not a certificate of a server.
    """
    x509 = crypto("x509")
    try:
        known = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        names = known.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise InputError(
            f"{path} is not a certificate of a server ({error}): 'fedmoments keys server' makes one"
        ) from error
    return [str(name.value) for name in names]


def sign_server(key: Any, root_key: Any, names: Sequence[Any], days: int) -> Any:
    """Return a certificate for a server's key and names, signed by the root."""
    x509 = crypto("x509")
    server = certificate(named("fedmoments server"), key, named("fedmoments federation"), root_key, days)
    server = server.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    server = server.add_extension(usage(signs_certificates=False), critical=True)
    server = server.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    server = server.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return server.sign(root_key, crypto("hazmat.primitives.hashes").SHA384())


def named(name: str) -> Any:
    """Return the name of a party in a certificate."""
    x509 = crypto("x509")
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def certificate(subject: Any, key: Any, issuer: Any, issuer_key: Any, days: int) -> Any:
    """Return a certificate that is not signed yet."""
    x509 = crypto("x509")
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    own, above = x509.SubjectKeyIdentifier, x509.AuthorityKeyIdentifier
    builder = builder.add_extension(own.from_public_key(key.public_key()), critical=False)
    return builder.add_extension(above.from_issuer_public_key(issuer_key.public_key()), critical=False)


def usage(*, signs_certificates: bool) -> Any:
    """Return what a key may be used for."""
    return crypto("x509").KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
