"""Dask clusters on loopback, of processes of their own, for tests."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.waiting import HANG

__all__ = ["dask_cluster"]


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a key and a certificate that is its own authority, for loopback."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "tls.key").write_bytes(pem)
    return folder / "tls.crt", folder / "tls.key"


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


@contextmanager
def dask_cluster(
    folder: Path, *, workers: int = 2, threads: int = 1
) -> Iterator[tuple[Any, list[subprocess.Popen[bytes]], dict[str, str]]]:
    """A scheduler and workers over TLS on loopback, and a client of them."""
    distributed: Any = import_module("distributed")
    crt, key = certificate(folder)
    known = folder / "scheduler.json"
    place = ["--host", "tls://127.0.0.1", "--scheduler-file", str(known)]
    tls = ["--tls-ca-file", str(crt), "--tls-cert", str(crt), "--tls-key", str(key)]
    small = ["--nthreads", str(threads), "--no-nanny", "--no-dashboard"]
    scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *place, *tls]
    worker = ["distributed.cli.dask_worker", "--local-directory", str(folder), *place, *small, *tls]
    security = distributed.Security(
        tls_ca_file=str(crt), tls_client_cert=str(crt), tls_client_key=str(key), require_encryption=True
    )
    with ExitStack() as stack:
        stack.enter_context(running(*scheduler))
        running_workers = [stack.enter_context(running(*worker)) for _ in range(workers)]
        client = stack.enter_context(
            distributed.Client(scheduler_file=str(known), security=security, timeout=f"{HANG:.0f}s")
        )
        if workers:
            client.wait_for_workers(workers, timeout=HANG)
        settings = {"CA_FILE": crt, "CLIENT__CERT": crt, "CLIENT__KEY": key}
        yield client, running_workers, {f"DASK_DISTRIBUTED__COMM__TLS__{n}": str(v) for n, v in settings.items()}
