"""A lake on a cluster: a Dask scheduler and workers in processes of their own, over TLS; Ray tasks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm

distributed = pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
SPEC = fm.StatisticsSpec.of("client_means", "gram", "scatter_sketch")
PARTS = 24


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(PARTS):
        y = rng.integers(0, 4, size=20_000)
        X = (rng.normal(size=(20_000, 64)) + np.eye(4, 64)[y]).astype(np.float32)
        table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 64), "label": y})
        parquet.write_table(table, folder / f"part-{number}.parquet")
    return folder


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
def dask_cluster(folder: Path) -> Iterator[tuple[Any, list[subprocess.Popen[bytes]], dict[str, str]]]:
    """A scheduler and two workers over TLS on loopback, and a client of them."""
    crt, key = certificate(folder)
    known = folder / "scheduler.json"
    place = ["--host", "tls://127.0.0.1", "--scheduler-file", str(known)]
    tls = ["--tls-ca-file", str(crt), "--tls-cert", str(crt), "--tls-key", str(key)]
    small = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
    scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *place, *tls]
    worker = ["distributed.cli.dask_worker", "--local-directory", str(folder), *place, *small, *tls]
    security = distributed.Security(
        tls_ca_file=str(crt), tls_client_cert=str(crt), tls_client_key=str(key), require_encryption=True
    )
    with ExitStack() as stack:
        stack.enter_context(running(*scheduler))
        workers = [stack.enter_context(running(*worker)) for _ in range(2)]
        client = stack.enter_context(distributed.Client(scheduler_file=str(known), security=security, timeout="60s"))
        client.wait_for_workers(2, timeout=60)
        settings = {"CA_FILE": crt, "CLIENT__CERT": crt, "CLIENT__KEY": key}
        yield client, workers, {f"DASK_DISTRIBUTED__COMM__TLS__{n}": str(v) for n, v in settings.items()}


def test_a_killed_worker_of_a_dask_cluster_loses_nothing_and_changes_no_bit(lake: Path, tmp_path: Path) -> None:
    alone = fm.measure_files(lake, SPEC)
    killed: list[int] = []
    with dask_cluster(tmp_path) as (client, workers, _):
        assert client.scheduler.address.startswith("tls://")

        def kill_one(done: int, _: int) -> None:
            if done == 3 and not killed:
                os.kill(workers[0].pid, signal.SIGKILL)
                killed.append(done)

        stats = fm.measure_files(lake, SPEC, executor=client, progress=kill_one)
        assert len(client.scheduler_info()["workers"]) == 1
    assert killed
    assert stats == alone


def test_the_command_measures_on_the_cluster_and_on_two_processes(lake: Path, tmp_path: Path) -> None:
    def measured(name: str, *options: str, **env: str) -> fm.Statistics:
        out = tmp_path / name
        command = [sys.executable, "-m", "fedmoments", "measure", f"parquet:{lake}", "--head", "fedcof", "-o", str(out)]
        subprocess.run([*command, *options], check=True, env={**os.environ, **env}, timeout=300)
        return fm.load_statistics(out)[0]

    alone = measured("alone.stats")
    assert measured("two.stats", "--workers", "2") == alone
    with dask_cluster(tmp_path) as (client, _, env):
        assert measured("cluster.stats", "--cluster", client.scheduler.address, **env) == alone


def test_ray_tasks_give_the_same_bits(lake: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        seen: list[int] = []
        stats = fm.measure_files(lake, SPEC, executor=ray, progress=lambda done, _: seen.append(done))
    finally:
        ray.shutdown()
    assert stats == fm.measure_files(lake, SPEC)
    assert seen == list(range(1, PARTS + 1))
