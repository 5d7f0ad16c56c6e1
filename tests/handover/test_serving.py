"""A served model: right answers, hostile requests, limits, and a swap under load that drops nothing."""

import base64
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG, until

import fedmoments as fm
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.errors import InputError
from fedmoments.handover.answers import Asked
from fedmoments.handover.model import Model
from fedmoments.handover.serving.app import Limits, application
from fedmoments.handover.serving.patience import patient_server
from fedmoments.handover.serving.served import Served

DIM = 5


def fitted(shift: float) -> fm.Classifier:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    X = rng.normal(size=(90, DIM)) + 3.0 * np.eye(3, DIM)[labels] + shift
    return fm.fit("gh-lda", {"a": (X[::2], labels[::2]), "b": (X[1::2], labels[1::2])}, class_names=["x", "y", "z"])


def asked(address: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": kind} if data is not None else {})
    try:
        with urllib.request.urlopen(request, timeout=HANG) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@contextmanager
def serving(app: Any, **limits: Any) -> Iterator[str]:
    """Serve an application from a thread on a free port; yield its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    running = patient_server(app, **limits)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: running.started or not thread.is_alive())
        assert running.started
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
        listening.close()


def multipart(files: list[bytes]) -> bytes:
    """Return the body of a form whose parts are separated by ``edge``."""
    head = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    return b"".join(head + data + b"\r\n" for data in files) + b"--edge--\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Start ``fedmoments serve`` on a free port; yield its address and the model's file."""
    file = tmp_path_factory.mktemp("served") / "head.safetensors"
    fitted(0.0).save(file)
    command = [sys.executable, "-m", "fedmoments", "serve", str(file), "--port", "0", "--json"]
    limits = ["--max-request-bytes", "20000", "--max-samples", "50"]
    with subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], file
        finally:
            process.terminate()
            process.wait(HANG)


def test_answers_are_those_of_the_classifier(server: tuple[str, Path]) -> None:
    address, file = server
    X = np.random.default_rng(1).normal(size=(20, DIM)) * 3
    status, answer = asked(f"{address}/predict", {"features": X.tolist(), "top": 2})
    classifier = fm.load(file)
    assert status == 200
    assert answer["model"] == classifier.digest()
    assert [row["class"] for row in answer["predictions"]] == classifier.predict_names(X)
    shares = classifier.predict_proba(X).max(axis=1)
    assert np.abs([row["probability"] for row in answer["predictions"]] - shares).max() < 1e-12
    assert {len(row["top"]) for row in answer["predictions"]} == {2}


def test_one_bad_sample_is_nobody_elses_fault(server: tuple[str, Path]) -> None:
    status, answer = asked(f"{server[0]}/predict", {"features": [[0.0] * DIM, [1.0], ["a"], [], [0.0] * DIM]})
    assert status == 200
    assert ["error" in row for row in answer["predictions"]] == [False, True, True, True, False]
    assert "features of 5 dimensions, but 1 arrived" in answer["predictions"][1]["error"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "why"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"[" * 9000, "application/json", 400, "not JSON"),
        (b"[]", "application/json", 400, "this model takes"),
        (b'{"texts": ["a"]}', "application/json", 400, "this model takes"),
        (b'{"features": []}', "application/json", 400, "1 to 50 samples, not 0"),
        (json.dumps({"features": [[0.0]] * 51}).encode(), "application/json", 413, "1 to 50 samples, not 51"),
        (b'{"features": [[0]], "top": 0}', "application/json", 400, "top must be"),
        (b'{"features": [[0]], "top": true}', "application/json", 400, "top must be"),
        (b" " * 20_001, "application/json", 413, "at most 20,000 bytes"),
        (b"x", "text/plain", 415, "application/json"),
        (b"x", "multipart/form-data; boundary=b", 400, "this model takes features"),
    ],
)  # fmt: skip
def test_hostile_requests_are_refused_in_words(
    server: tuple[str, Path], body: bytes, kind: str, status: int, why: str
) -> None:
    got, answer = asked(f"{server[0]}/predict", body, kind)
    assert got == status
    assert why in answer["error"]
    assert asked(f"{server[0]}/health")[1]["status"] == "ready"


def test_numbers_that_are_not_finite_are_named(server: tuple[str, Path]) -> None:
    _, answer = asked(f"{server[0]}/predict", b'{"features": [[NaN, 0, 0, 0, 0], [1e999, 0, 0, 0, 0]]}')
    assert ["finite" in row["error"] for row in answer["predictions"]] == [True, True]


def test_another_model_takes_its_place_without_dropping_a_request(server: tuple[str, Path]) -> None:
    address, file = server
    first, second = fm.load(file), fitted(2.0)
    seen: list[tuple[int, str]] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            status, answer = asked(f"{address}/predict", {"features": [[0.5] * DIM] * 3})
            seen.append((status, answer.get("model", str(answer))))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        until(lambda: len(seen) > 20)
        second.save(file)  # appears whole
        until(lambda: seen[-1][1] == second.digest())
        file.with_name("broken").write_bytes(b"not a model")
        file.with_name("broken").replace(file)
        until(lambda: asked(f"{address}/health")[1]["problem"])
        served = len(seen)
        until(lambda: len(seen) > served + 20)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert {status for status, _ in seen} == {200}
    assert {digest for _, digest in seen} == {first.digest(), second.digest()}
    assert seen[-1][1] == second.digest()  # a file that cannot be read changes nothing
    first.save(file)
    until(lambda: asked(f"{address}/health")[1]["model"] == first.digest())
    assert "fedmoments_model_swaps_total 2" in asked(f"{address}/metrics")[1]


def test_metrics_and_the_model_are_described(server: tuple[str, Path]) -> None:
    address, _ = server
    asked(f"{address}/predict", {"features": [[0.5] * DIM]})
    metrics = asked(f"{address}/metrics")[1]
    assert 'fedmoments_requests_total{status="200"}' in metrics
    described = asked(f"{address}/model")[1]
    assert described["class_names"] == ["x", "y", "z"]
    assert described["model_card"].startswith("# Model card")


def probabilities(answer: dict[str, Any]) -> dict[str, float]:
    return {row["class"]: row["probability"] for row in answer["top"]}


def test_images_come_as_files_or_as_base64(tmp_path: Path) -> None:
    from PIL import Image

    from fedmoments.samples.encoders import load_encoder

    encoder = load_encoder("efficientnet-lite0", size=64, threads=1)
    pictures = [np.full((70, 80, 3), level, np.uint8) for level in (0, 30, 220, 255)]
    features = encoder.encode([encoder.prepare(picture) for picture in pictures]).astype(np.float64)
    classifier = fm.fit("fedncm", {"a": (features, [0, 0, 1, 1])}, class_names=["dark", "light"])
    files = []
    for picture in pictures:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "png")
        files.append(buffer.getvalue())
    served = Served(tmp_path, lambda _file, _before: Model(classifier, encoder))
    secret = tmp_path / "secret.png"
    secret.write_bytes(files[0])
    encoded = [base64.b64encode(data).decode() for data in files]
    with serving(application(served, Limits(), batch_size=8)) as address:
        form = asked(f"{address}/predict", multipart(files), "multipart/form-data; boundary=edge")[1]["predictions"]
        (single,) = asked(f"{address}/predict", files[0], "image/png")[1]["predictions"]
        (damaged,) = asked(f"{address}/predict", b"no image", "image/png")[1]["predictions"]
        rows = asked(f"{address}/predict", {"images": [*encoded, str(secret), "%%%", None]})[1]["predictions"]
    expected = ["dark", "dark", "light", "light"]
    assert [row["class"] for row in form] == expected
    assert [row["class"] for row in rows[:4]] == expected
    assert all("error" in row for row in rows[4:])  # a path names nothing here
    assert "error" in damaged
    # A network rounds float32 otherwise in batches of another size, by how much depends on the processor.
    for answer in (single, rows[0]):
        assert probabilities(answer) == pytest.approx(probabilities(form[0]), abs=1e-5)


def test_too_many_samples_that_wait_are_told_to_come_again(tmp_path: Path) -> None:
    served = Served(tmp_path, lambda _file, _before: Model(fitted(0.0)))
    with serving(application(served, Limits(waiting=3), batch_size=8)) as address:
        status, answer = asked(f"{address}/predict", {"features": [[0.0] * DIM] * 4})
        assert (status, "try again later" in answer["error"]) == (503, True)
        assert asked(f"{address}/predict", {"features": [[0.0] * DIM] * 3})[0] == 200


def test_it_abstains_and_gives_sets_where_the_server_was_told_to(tmp_path: Path) -> None:
    plain = fitted(0.0)
    rng = np.random.default_rng(3)
    labels = np.arange(600) % 3
    tested = plain.ranked(Ranks.of(plain, rng.normal(size=(600, DIM)) + 3.0 * np.eye(3, DIM)[labels], labels))
    tested.save(tmp_path / "head.safetensors")
    X = np.vstack([rng.normal(size=(40, DIM)) + 1.5, np.full((2, DIM), -60.0)])
    command = [sys.executable, "-m", "fedmoments", "serve", str(tmp_path / "head.safetensors"), "--port", "0", "--json"]
    options = ["--abstain", "1%", "--coverage", "0.99"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["address"]
            rows = asked(f"{address}/predict", {"features": X.tolist()})[1]["predictions"]
            described = asked(f"{address}/model")[1]
            plain.save(tmp_path / "head.safetensors")  # has no sets: the tested one stays
            until(lambda: asked(f"{address}/health")[1]["problem"])
            problem = asked(f"{address}/health")[1]
        finally:
            process.terminate()
            process.wait(HANG)
    unknown = tested.unknown(X, 0.01)
    assert unknown[-2:].all()
    assert [row["class"] == "unknown" for row in rows] == unknown.tolist()
    assert [row["probability"] is None for row in rows] == unknown.tolist()
    held = tested.prediction_sets(X, 0.99)
    assert [row["set"] is None for row in rows] == unknown.tolist()  # coverage is of samples like those of the test
    known = [(set(row["set"]), one) for row, one in zip(rows, held, strict=True) if row["set"] is not None]
    assert all(given == {"xyz"[label] for label in np.flatnonzero(one)} for given, one in known)
    assert max(len(given) for given, _ in known) > 1
    assert (described["abstain"], described["coverage"]) == (0.01, 0.99)
    assert "nobody tested it" in problem["problem"]
    assert problem["model"] == tested.digest()


def test_a_model_that_cannot_do_what_is_asked_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nobody tested it"):
        Served(tmp_path, lambda _file, _before: Model(fitted(0.0)), Asked(coverage=0.9))
    blind = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])})
    with pytest.raises(InputError, match="cannot abstain"):
        Served(tmp_path, lambda _file, _before: Model(blind), Asked(abstain=0.01))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--abstain", "2"], "--abstain: a share is a number"),
        (["--host", "0.0.0.0"], "in the clear"),
        (["--certificate", "c.pem"], "give --key"),
        (["--key", "k.pem"], "give --certificate"),
        (["--port", "99999"], "at most 65535"),
    ],
)
def test_unsafe_addresses_are_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    from click.testing import CliRunner

    from fedmoments.cli.app import app

    fitted(0.0).save(tmp_path / "head.safetensors")
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "head.safetensors"), *arguments])
    assert result.exit_code == 2
    assert why in result.output


def test_a_certificate_makes_it_https_and_nothing_else(tmp_path: Path) -> None:
    import ssl

    from fedmoments.federation.keys.parties import make_authority

    authority = make_authority(tmp_path / "keys", ["127.0.0.1"])
    fitted(0.0).save(tmp_path / "head.safetensors")
    command = [sys.executable, "-m", "fedmoments", "serve", str(tmp_path / "head.safetensors"), "--port", "0", "--json"]
    options = ["--host", "0.0.0.0", "--certificate", str(authority.certificate), "--key", str(authority.key)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["address"]
            assert address.startswith("https://")
            here = address.replace("0.0.0.0", "127.0.0.1")
            body = json.dumps({"features": [[0.5] * DIM]}).encode()
            request = urllib.request.Request(f"{here}/predict", body, {"Content-Type": "application/json"})
            trusting = ssl.create_default_context(cafile=str(authority.root))
            with urllib.request.urlopen(request, timeout=HANG, context=trusting) as answer:
                assert json.loads(answer.read())["predictions"][0]["class"] in ("x", "y", "z")
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):  # nobody else's word for it
                urllib.request.urlopen(f"{here}/health", timeout=HANG)
            with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
                urllib.request.urlopen(f"{here.replace('https', 'http')}/health", timeout=HANG)
        finally:
            process.terminate()
            process.wait(HANG)
