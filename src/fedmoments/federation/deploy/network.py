"""Free ports, and health checks of servers."""

import ipaddress
import random
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from fedmoments.errors import DeploymentError

__all__ = ["choose_port", "is_healthy", "is_loopback", "joined", "listens", "reachable", "why_silent"]

#: Below the range from which Linux takes ports for outgoing connections: it may take one between our look and its use.
_RANGE = range(20000, 32768)
_given: set[int] = set()


def choose_port(host: str, port: int | None = None) -> int:
    """Return a port on which nobody listens: the one asked for, or any.

    Raises
    ------
    DeploymentError
        When the one asked for is taken, or the host is not this machine.

    Examples
    --------
    >>> 1024 <= choose_port("127.0.0.1") < 65536
    True
    """
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeploymentError(f"cannot listen at {host} ({error}): choose an address of this machine") from error
    family, address = addresses[0][0], str(addresses[0][4][0])
    if port is not None:
        problem = _problem(family, address, port)
        if problem is not None:
            raise DeploymentError(f"cannot listen at {host}:{port} ({problem}): choose another host or port")
        return port
    for any_port in random.sample(_RANGE, 200):
        if any_port not in _given and _problem(family, address, any_port) is None:
            _given.add(any_port)
            return any_port
    raise DeploymentError(f"found no free port at {host}: choose an address of this machine")


def listens(address: str) -> bool:
    """Say whether somebody listens at ``host:port``.

    Examples
    --------
    >>> listens("127.0.0.1:0")
    False
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _problem(family: int, address: str, port: int) -> Exception | None:
    """Say why nobody can listen there now."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except (OSError, OverflowError) as error:
            return error
    return None


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens at a host.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable(host: str) -> str:
    """Return the host under which this machine reaches what listens at a host.

    Examples
    --------
    >>> reachable("0.0.0.0"), reachable("example.org")
    ('127.0.0.1', 'example.org')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def joined(host: str, port: int) -> str:
    """Write an address.

    Examples
    --------
    >>> joined("::1", 9092), joined("example.org", 443)
    ('[::1]:9092', 'example.org:443')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_healthy(address: str, root_certificates: Path | None, timeout: float = 2.0) -> bool:
    """Ask a server of Flower's for its health, over TLS if there is a root certificate to check it against.

    Examples
    --------
    >>> is_healthy("127.0.0.1:9", None)
    False
    """
    try:
        with _opener(root_certificates, urllib.request.ProxyHandler({})).open(
            _health(address, root_certificates), timeout=timeout
        ) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def why_silent(address: str, root_certificates: Path | None, timeout: float = 5.0) -> str:
    """Return why nobody can be spoken to at an address, by the way that a node goes; empty if somebody answers.

    Examples
    --------
    >>> why_silent("127.0.0.1:9", None).partition(" (")[0]
    'nobody answers there'
    """
    local = is_loopback(address.rpartition(":")[0].strip("[]"))
    proxies = [urllib.request.ProxyHandler({})] if local else []  # else those that the environment names
    try:
        _opener(root_certificates, *proxies).open(_health(address, root_certificates), timeout=timeout).close()
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return f"its certificate is not signed by the one of this federation ({reason.verify_message})"
        if isinstance(reason, ssl.SSLError):
            return f"what answers there does not speak TLS as it should ({reason})"
        return f"nobody answers there ({reason}): start it ('fedmoments server run'), or correct the address"
    return ""


def _health(address: str, root_certificates: Path | None) -> str:
    return f"{'http' if root_certificates is None else 'https'}://{address}/health"


def _opener(root_certificates: Path | None, *handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    if root_certificates is None:
        return urllib.request.build_opener(*handlers)
    context = ssl.create_default_context(cafile=root_certificates)
    return urllib.request.build_opener(*handlers, urllib.request.HTTPSHandler(context=context))
