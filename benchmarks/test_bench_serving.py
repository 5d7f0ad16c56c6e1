"""A served model against its encoder alone, both with decoding, by CPU time: other programs hardly count."""

import http.client
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.handover.answers import encoded
from fedmoments.handover.model import Model
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.samples import Samples

ROUNDS = 3

Note = Callable[[str, str, str], None]
EDGE = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'


def spent(process: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port: int, bodies: list[bytes], kind: str, connections: int) -> None:
    """Send all bodies over some connections."""
    left = list(bodies)

    def work() -> None:
        line = http.client.HTTPConnection("127.0.0.1", port)
        while left:
            line.request("POST", "/predict", left.pop(), {"Content-Type": kind})
            answer = line.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        line.close()

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time of another process is read from /proc")
@pytest.mark.parametrize(("size", "n", "single"), [(224, 128, 0.9), (96, 512, 0.8)])  # 224 is the encoder's own size
def test_serving_costs_at_most_a_tenth_more_than_encoding(
    note: Note, tmp_path: Path, size: int, n: int, single: float
) -> None:
    image_of = pytest.importorskip("PIL.Image").fromarray
    rng = np.random.default_rng(0)
    files = []
    for _ in range(64):
        buffer = io.BytesIO()
        image_of(rng.integers(0, 256, (14, 15, 3), np.uint8)).resize((120, 112)).save(buffer, "png")
        files.append(buffer.getvalue())
    encoder = load_encoder("efficientnet-lite0", size=size, runtime="onnx")
    features = encoder.encode([encoder.prepare(file) for file in files]).astype(np.float64)
    head = fm.fit("fedncm", {"a": (features, np.arange(64) % 10)}).noting(encoder=encoder.note({"size": size}))
    head.save(tmp_path / "head.safetensors")
    samples = Samples(files * (n // 64), np.zeros(n, np.int64), (), "image")
    forms = [b"".join(EDGE + file + b"\r\n" for file in files[:8]) + b"--edge--\r\n"] * (n // 8)
    ways: dict[str, tuple[list[bytes], str, int]] = {
        "8 images a form": (forms, "multipart/form-data; boundary=edge", 4),
        "1 image a request": (files * (n // 64), "image/png", 16),
    }
    command = [sys.executable, "-m", "fedmoments", "serve", str(tmp_path / "head.safetensors")]
    with subprocess.Popen([*command, "--port", "0", "--runtime", "onnx", "--json"], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = int(json.loads(server.stdout.readline())["address"].rpartition(":")[2])
            ask(port, forms[:4], ways["8 images a form"][1], 2)
            times: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                start = spent(os.getpid())
                encoded(Model(head, encoder), samples, cache_dir=False)
                times.setdefault("encoding", []).append(spent(os.getpid()) - start)
                for name, way in ways.items():
                    start = spent(server.pid)
                    ask(port, *way)
                    times.setdefault(name, []).append(spent(server.pid) - start)
        finally:
            server.terminate()
            server.wait(60)
    best = {name: min(seconds) for name, seconds in times.items()}
    for name, least in (("8 images a form", 0.9), ("1 image a request", single)):
        share = best["encoding"] / best[name]
        note(f"serve, {size} pixels, {name}, against encoding alone", f"{share:.2f}", f">= {least:g}")
        assert share >= least - 0.05, times  # clocks tick in hundredths of a second
