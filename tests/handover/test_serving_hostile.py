"""What arrives at a served model is hostile: sizes, bombs, slow senders, texts and numbers that no program writes."""

import asyncio
import base64
import io
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.handover.test_serving import DIM, asked, fitted, serving
from tests.waiting import HANG, until

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.handover.model import Model
from fedmoments.handover.serving import app as serving_app
from fedmoments.handover.serving.app import Limits, application
from fedmoments.handover.serving.room import IMAGES, Admission
from fedmoments.handover.serving.served import Served
from fedmoments.samples.encoders import load_encoder


def image(width: int, height: int, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, kind)
    return buffer.getvalue()


def icon_with_a_large_image() -> bytes:
    """Return an icon of 16 × 16 by its directory, with a PNG of 300 × 300 inside."""
    inside = image(300, 300)
    entry = bytes([16, 16, 0, 0]) + b"\1\0\x20\0" + len(inside).to_bytes(4, "little") + (22).to_bytes(4, "little")
    return b"\0\0\1\0\1\0" + entry + inside


def dicom(deflated: bool) -> bytes:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian if deflated else ExplicitVRLittleEndian
    data = pydicom.dataset.FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
    data.SOPClassUID = meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID = "1.2.3"
    data.Rows = data.Columns = 300
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    data.PixelData = bytes(300 * 300)
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, data, enforce_file_format=True)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def images() -> Model:
    encoder = load_encoder("squeezenet-1.1", size=64, threads=1)
    pictures = [np.full((70, 80, 3), level, np.uint8) for level in (0, 255)]
    features = encoder.encode([encoder.prepare(picture) for picture in pictures]).astype(np.float64)
    return Model(fm.fit("fedncm", {"a": (features, [0, 1])}, class_names=["dark", "light"]), encoder)


@pytest.fixture(scope="module")
def sentences() -> Model:
    encoder = load_encoder("wordllama")
    features = encoder.encode([encoder.prepare(text) for text in ("sun", "rain")]).astype(np.float64)
    return Model(fm.fit("fedncm", {"a": (features, [0, 1])}, class_names=["dry", "wet"]), encoder)


def test_numbers_and_texts_that_no_program_writes_are_no_failures(tmp_path: Path) -> None:
    whole = b"9" * 400  # a whole number that no float holds
    with serving(application(Served(tmp_path, lambda *_: Model(fitted(0.0))), Limits(), batch_size=8)) as address:
        status, answer = asked(f"{address}/predict", b'{"features": [[' + whole + b", 0, 0, 0, 0], [0, 0, 0, 0, 0]]}")
        assert (status, ["error" in row for row in answer["predictions"]]) == (200, [True, False])
        status, answer = asked(f"{address}/predict", b'{"features": [[0, 0, 0, 0, 0]], "top": "\\ud800"}')
        assert (status, answer["error"]) == (400, "top must be a whole number from 1 on, not \ud800")


def test_small_files_that_hold_large_images_are_not_opened(tmp_path: Path, images: Model) -> None:
    limits = Limits(pixels=20_000)
    served = Served(tmp_path, lambda *_: images)
    hostile = [image(300, 300), icon_with_a_large_image(), image(150, 150), image(10, 10)]
    with serving(application(served, limits, batch_size=8)) as address:
        rows = asked(f"{address}/predict", {"images": [base64.b64encode(data).decode() for data in hostile]})[1]
        several = [base64.b64encode(image(140, 140)).decode()] * (IMAGES + 3)
        (_, together) = asked(f"{address}/predict", {"images": several})
        again = asked(f"{address}/predict", {"images": several[:IMAGES]})[1]["predictions"]
    errors = [row.get("error", "") for row in rows["predictions"]]
    assert "at most 20,000 pixels here, not 90,000" in errors[0]
    assert "not an image that is read here" in errors[1]
    assert "at most 20,000 pixels" in errors[2]
    assert errors[3] == ""
    assert sum("together" in row.get("error", "") for row in together["predictions"]) == 3
    assert not any("error" in row for row in again)  # an account is of one request


def test_no_more_is_decoded_at_once_than_the_server_allows() -> None:
    admission = Admission(pixels=25_000, characters=10)
    now, most, count = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal now, most
        with admission.admitted(admission.account(), image(100, 100)):
            with count:
                now += 1
                most = max(most, now)
            time.sleep(0.02)
            with count:
                now -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert (now, most) == (0, 2)


def test_a_deflated_dicom_file_is_refused_before_it_is_inflated() -> None:
    admission = Admission(pixels=100_000, characters=10)
    with pytest.raises(InputError, match="compressed as a whole"), admission.admitted(admission.account(), dicom(True)):
        pass
    with admission.admitted(admission.account(), dicom(False)):
        pass
    damaged = dicom(False)[:150]
    with pytest.raises(InputError, match="header cannot be read"), admission.admitted(admission.account(), damaged):
        pass


def test_no_image_starts_another_program() -> None:
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(InputError, match="EPS files are programs"):
        load_encoder("squeezenet-1.1", size=64, threads=1).prepare(drawing)


def test_a_text_of_any_length_is_not_encoded(tmp_path: Path, sentences: Model) -> None:
    with serving(application(Served(tmp_path, lambda *_: sentences), Limits(characters=50), batch_size=8)) as address:
        (long, short) = asked(f"{address}/predict", {"texts": ["a" * 51, "a" * 50]})[1]["predictions"]
    assert "at most 50 characters here, not 51" in long["error"]
    assert "error" not in short


def begun(address: str, announced: int, sent: bytes) -> socket.socket:
    """Return a connection that announced a body and sent the beginning of it."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=HANG)
    head = f"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {announced}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


def test_slow_senders_hold_no_more_than_they_sent_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"features": [[0.5] * DIM]}
    monkeypatch.setattr(serving_app, "BODIES", 2)
    app = application(Served(tmp_path, lambda *_: Model(fitted(0.0))), Limits(body=1000), batch_size=8)
    with serving(app) as address:
        idle = [begun(address, 1000, b"") for _ in range(20)]  # who announces much and sends nothing takes nothing
        assert asked(f"{address}/predict", body)[0] == 200
        slow = [begun(address, 1000, b" " * 990) for _ in range(2)]
        until(lambda: asked(f"{address}/predict", body)[0] == 503)
        for connection in (*idle, *slow):
            connection.close()
        until(lambda: asked(f"{address}/predict", body)[0] == 200)
        monkeypatch.setattr(serving_app, "ARRIVAL", 0.2)
        with begun(address, 1000, b" " * 10) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_forms_that_never_end_keep_nobody_out(tmp_path: Path, images: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_app, "APART", 2)
    app = application(Served(tmp_path, lambda *_: images), Limits(), batch_size=8)
    head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.png"\r\n\r\n'
    kind = b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n"
    with serving(app) as address:
        host, port = address.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port)), timeout=HANG) for _ in range(3)]
        for connection in slow:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: h\r\n" + kind + head)
        picture = base64.b64encode(image(20, 20)).decode()
        assert asked(f"{address}/predict", {"images": [picture]})[0] == 200
        monkeypatch.setattr(serving_app, "ARRIVAL", 0.2)
        with socket.create_connection((host, int(port)), timeout=HANG) as late:
            late.sendall(b"POST /predict HTTP/1.1\r\nHost: h\r\n" + kind + head)
            assert late.recv(100).startswith(b"HTTP/1.1 408")
        for connection in slow:
            connection.close()


def trickled(connection: socket.socket) -> bytes:
    """Send one line of a header after the other until the server answers; return the answer."""
    connection.setblocking(False)
    answer = b""

    def answered() -> bool:
        nonlocal answer
        try:
            answer = connection.recv(100)
        except BlockingIOError:
            connection.send(b"X-A: b\r\n")
            return False
        return True

    until(answered)
    return answer


def test_a_header_that_trickles_or_never_comes_holds_no_connection(tmp_path: Path) -> None:
    app = application(Served(tmp_path, lambda *_: Model(fitted(0.0))), Limits(), batch_size=8)
    body = json.dumps({"features": [[0.5] * DIM]}).encode()
    with serving(app, header=0.3) as address:
        place = (address.removeprefix("http://").split(":")[0], int(address.rpartition(":")[2]))
        with (
            begun(address, len(body), b"") as slow,  # its header is whole: a body has its own time
            socket.create_connection(place, timeout=HANG) as silent,
            socket.create_connection(place, timeout=HANG) as trickling,
            socket.create_connection(place, timeout=HANG) as second,
        ):
            second.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            assert second.recv(1000).startswith(b"HTTP/1.1 200")
            trickling.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n")
            second.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n")
            assert trickled(trickling).startswith(b"HTTP/1.1 408")
            assert trickled(second).startswith(b"HTTP/1.1 408")
            assert silent.recv(100).startswith(b"HTTP/1.1 408")
            slow.sendall(body)
            assert slow.recv(100).startswith(b"HTTP/1.1 200")
        assert asked(f"{address}/predict", body)[0] == 200


def test_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    app = application(Served(tmp_path, lambda *_: Model(fitted(0.0))), Limits(), batch_size=8)
    with serving(app, connections=3, header=HANG) as address:
        place = (address.removeprefix("http://").split(":")[0], int(address.rpartition(":")[2]))
        idle = [socket.create_connection(place, timeout=HANG) for _ in range(6)]
        assert all(connection.recv(100).startswith(b"HTTP/1.1 408") for connection in idle[:3])
        assert asked(f"{address}/predict", {"features": [[0.5] * DIM]})[0] == 200
        for connection in idle:
            connection.close()


def test_whatever_lies_in_the_models_place_the_server_goes_on_looking(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    file.write_bytes(b"first")
    answers: list[Any] = [Model(fitted(0.0)), MemoryError("a reader gave up"), Model(fitted(1.0))]

    def read(_file: Path, _before: Model | None) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    served = Served(file, read)
    before = served.model
    file.write_bytes(b"second one")
    asyncio.run(served.look())
    assert (served.model, "gave up" in served.problem) == (before, True)
    file.write_bytes(b"the third one")
    asyncio.run(served.look())
    assert (served.model is before, served.problem) == (False, "")
