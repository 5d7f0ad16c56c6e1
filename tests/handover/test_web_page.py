"""The page that classifies in a browser: the same pixels, token ids and probabilities as ours, and no other address."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import until

import fedmoments as fm
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.handover import web_runtime
from fedmoments.handover.answers import answers_of
from fedmoments.handover.export import export
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.images import ImagePreprocessing

SENTENCES = [
    "My card was stolen!",
    "Ångström naïve ﬁle; don't re-enter 3.14 %\t中文 العربية 🙂 Donaudampfschifffahrt straße\u00a0end",
    "ΟΔΟΣ [SEP] a\u200bb \x07 ½ e\u0301 $5+3=8 ~`^|",
    "x" * 101 + " " + "word " * 300,
]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder as any web server would; yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def runtime() -> Path:
    """Return a folder with onnxruntime for browsers; skip where npm cannot fetch it."""
    try:
        return next(iter(web_runtime.runtime_files().values())).parent
    except FedMomentsError as error:
        pytest.skip(str(error))


def ran(browser: Any, script: str, *arguments: Any) -> Any:
    """Return what an asynchronous script answers."""
    browser.set_script_timeout(300)
    run = f"(async () => {{ {script} }})().then(done, (error) => done(`${{error}}`))"
    return browser.execute_async_script(f"const done = arguments[arguments.length - 1]; {run}", *arguments)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pixels_are_those_of_pillow(browser: Any, tmp_path: Path, interpolation: Any) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    images = ImagePreprocessing(size=48, interpolation=interpolation)
    page = files("fedmoments.handover.page")
    (tmp_path / "pixels.js").write_bytes(page.joinpath("pixels.js").read_bytes())
    expected = {}
    for height, width in [(8, 8), (48, 61), (97, 55), (211, 333), (500, 290), (401, 1203)]:
        coarse = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST)
        name = f"{height}x{width}.png"
        picture.save(tmp_path / name)
        expected[name] = images.prepare(tmp_path / name)
    script = """
        const { decode, prepare } = await import("./pixels.js");
        const file = await (await fetch(arguments[0])).blob();
        return Array.from(prepare(await decode(file), arguments[1]));
    """
    (tmp_path / "index.html").write_text("<!doctype html>")
    with served(tmp_path) as address:
        browser.get(address)
        for name, pixels in expected.items():
            got = ran(browser, script, name, images.describe())
            assert np.array_equal(np.array(got, np.uint8).reshape(pixels.shape), pixels), name


def test_token_ids_are_those_of_the_tokenizer(browser: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    beside = load_encoder("minilm", threads=1).onnx_parts().beside  # type: ignore[attr-defined]
    tokenizer = Tokenizer.from_file(str(beside["tokenizer.json"]))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    (tmp_path / "tokenizer.json").write_bytes(beside["tokenizer.json"].read_bytes())
    (tmp_path / "tokens.js").write_bytes(files("fedmoments.handover.page").joinpath("tokens.js").read_bytes())
    (tmp_path / "index.html").write_text("<!doctype html>")
    script = """
        const { WordPiece } = await import("./tokens.js");
        const tokens = new WordPiece(await (await fetch("./tokenizer.json")).json(), 256);
        return arguments[0].map((sentence) => tokens.encode(sentence));
    """
    with served(tmp_path) as address:
        browser.get(address)
        got = ran(browser, script, SENTENCES)
    assert got == [tokenizer.encode(sentence).ids for sentence in SENTENCES]


def photographs(folder: Path) -> list[Path]:
    """Return two photographs (JPEG), and a place for a file that is none."""
    import sklearn.datasets

    found = Path(sklearn.datasets.__file__).parent / "images"
    return [found / "china.jpg", found / "flower.jpg", folder / "none.jpg"]


def test_a_page_answers_as_predict_does_and_asks_nobody_else(browser: Any, runtime: Path, tmp_path: Path) -> None:
    encoder = load_encoder("efficientnet-lite0", size=192, threads=1)
    china, flower, broken = photographs(tmp_path)
    broken.write_bytes(b"no image")
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (70, 80, 3), np.uint8) for _ in range(3)]
    prepared = [encoder.prepare(sample) for sample in (china, flower, *noise)]
    features = encoder.encode(prepared)
    names = ["<b>temple", "flower", "noise"]
    parties = {"a": (features, [0, 1, 2, 2, 2])}
    classifier = fm.fit("fedncm", parties, class_names=names).noting(encoder=encoder.note({})).tempered(16.0)
    export(classifier, "web", tmp_path / "page", encoder=encoder, runtime_folder=runtime)
    browser.get_log("browser")  # what other pages said
    with served(tmp_path / "page") as address:
        browser.get(address)
        until(lambda: browser.find_element("tag name", "body").get_attribute("data-state") != "loading")
        assert "nothing is sent" in browser.find_element("id", "status").text
        chosen = browser.find_element("css selector", "input[type=file]")
        chosen.send_keys("\n".join(map(str, (china, flower, broken))))
        until(lambda: len(browser.find_elements("css selector", ".answer h2")) == 3)
        cards = browser.find_elements("css selector", ".answer")[::-1]  # the latest stands first
        answers = [json.loads(card.get_attribute("data-probabilities") or "null") for card in cards]
        titles = [card.find_element("tag name", "h2").text for card in cards]
        asked = ran(browser, "return performance.getEntriesByType('resource').map((entry) => entry.name)")
        problems = browser.get_log("browser")
    assert titles == ["<b>temple", "flower", "Not classified"]
    ours = classifier.predict_proba(features[:2])
    for answer, expected in zip(answers, ours, strict=False):
        assert np.abs(np.array([answer[name] for name in names]) - expected).max() < 1e-4
    assert 0.2 < ours[0].max() < 0.9999  # far from sure, so that the comparison means something
    assert all(name.startswith((address, "blob:", "data:")) for name in asked), asked
    assert not problems, problems


def test_sentences_are_classified_in_the_page(browser: Any, runtime: Path, tmp_path: Path) -> None:
    encoder = load_encoder("minilm", threads=1)
    prepared = [encoder.prepare(sentence) for sentence in SENTENCES]
    features = encoder.encode(prepared)
    parties = {"a": (features, [0, 1, 1, 1])}
    classifier = fm.fit("fedncm", parties, class_names=["card", "other"]).noting(encoder=encoder.note({})).tempered(0.3)
    export(classifier, "web", tmp_path / "page", encoder=encoder, runtime_folder=runtime)
    with served(tmp_path / "page") as address:
        browser.get(address)
        until(lambda: browser.find_element("tag name", "body").get_attribute("data-state") == "ready")
        browser.find_element("tag name", "textarea").send_keys(f"{SENTENCES[0]}\n\nhow much is a dollar")
        browser.find_element("tag name", "button").click()
        until(lambda: len(browser.find_elements("css selector", ".answer h2")) == 2)
        first = browser.find_elements("css selector", ".answer")[-1]
        answer = json.loads(first.get_attribute("data-probabilities"))
    assert np.abs(np.array([answer["card"], answer["other"]]) - classifier.predict_proba(features[:1])[0]).max() < 1e-3


def test_numbers_are_classified_in_the_page(browser: Any, runtime: Path, tmp_path: Path) -> None:
    classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])})
    export(classifier, "web", tmp_path / "page", runtime_folder=runtime)
    with served(tmp_path / "page") as address:
        browser.get(address)
        until(lambda: browser.find_element("tag name", "body").get_attribute("data-state") == "ready")
        browser.find_element("tag name", "textarea").send_keys("0.2, 0.7\n1 2 3")
        browser.find_element("tag name", "button").click()
        until(lambda: len(browser.find_elements("css selector", ".answer h2")) == 2)
        wrong, right = browser.find_elements("css selector", ".answer")
        answer = json.loads(right.get_attribute("data-probabilities"))
    assert "a sample is 2 numbers; 3 arrived" in wrong.text
    assert abs(answer["0"] - classifier.predict_proba([[0.2, 0.7]])[0, 0]) < 1e-6


def test_a_page_abstains_and_shows_sets_as_predict_does(browser: Any, runtime: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = 2.0 * np.eye(3)[y] + rng.normal(size=(600, 3))
    classifier = fm.fit("gh-lda", {"a": (X[::2], y[::2])}, class_names=["ant", "bee", "cat"])
    tested = classifier.ranked(Ranks.of(classifier, X[1::2], y[1::2])).tempered(2.0)  # sets keep that of the test
    samples = np.array([[2.0, 0.1, 0.0], [1.0, 1.0, 0.0], [0.7, 0.7, 0.7], [40.0, -40.0, 9.0]])
    export(tested, "web", tmp_path / "page", runtime_folder=runtime, abstain=0.01, coverage=0.9)
    with served(tmp_path / "page") as address:
        browser.get(address)
        until(lambda: browser.find_element("tag name", "body").get_attribute("data-state") == "ready")
        lines = "\n".join(" ".join(map(str, sample)) for sample in samples)
        browser.find_element("tag name", "textarea").send_keys(lines)
        browser.find_element("tag name", "button").click()
        until(lambda: len(browser.find_elements("css selector", ".answer h2")) == len(samples))
        cards = browser.find_elements("css selector", ".answer")[::-1]
        titles = [card.find_element("tag name", "h2").text for card in cards]
        sets = [json.loads(card.get_attribute("data-set")) for card in cards]
        words, of_unknown = cards[1].text, cards[-1].text
    ours = list(answers_of(tested, samples, abstain=0.01, coverage=0.9))
    assert titles == [answer.name for answer in ours]
    assert titles[-1] == "unknown" != titles[0]
    assert [sorted(own) for own in sets] == [sorted(answer.likely or ()) for answer in ours]
    assert {len(own) for own in sets[:3]} > {1}
    assert "With a probability of 90 %, one of: " in words
    assert sets[-1] == []
    assert "With a probability" not in of_unknown


def test_a_page_of_a_head_that_cannot_abstain_is_refused(runtime: Path, tmp_path: Path) -> None:
    classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"abstain": 0.01}, "cannot abstain"),
        ({"coverage": 0.9}, "no prediction sets"),
    ]
    for asked, words in cases:
        with pytest.raises(InputError, match=words):
            export(classifier, "web", tmp_path / "page", runtime_folder=runtime, **asked)
    assert not (tmp_path / "page").exists()


def test_a_folder_without_the_runtime_is_named(tmp_path: Path) -> None:
    classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])})
    with pytest.raises(InputError, match=r"does not hold ort\.wasm\.bundle\.min\.mjs of the npm package"):
        export(classifier, "web", tmp_path / "page", runtime_folder=tmp_path)
    assert not (tmp_path / "page").exists()


def test_where_there_is_no_npm_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FedMomentsError, match="there is no npm here to fetch it: run 'npm install onnxruntime-web@"):
        web_runtime.runtime_files()


def test_another_package_than_the_published_one_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\necho forged > "$5/{web_runtime.PACKAGE}-{web_runtime.VERSION}.tgz"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(FedMomentsError, match="not the published one"):
        web_runtime.runtime_files()
    assert not (tmp_path / "cache").exists()


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])})
    with pytest.raises(InputError, match="the format 'onnx' has no option 'runtime_folder': it has none"):
        export(classifier, "onnx", tmp_path / "model.onnx", runtime_folder=tmp_path)
