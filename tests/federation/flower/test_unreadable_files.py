"""Unreadable files and classes that rules withhold: named in the party's own record, counted for the server."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("PIL")
pytest.importorskip("torch")

from fedmoments import make_head
from fedmoments.cli.client_plan import show_plan
from fedmoments.federation.drawing_up import draw_up_terms
from fedmoments.federation.flower.node import Node
from fedmoments.federation.flower.testing import Examiner
from fedmoments.federation.keys import make_client
from fedmoments.federation.keys.parties import load_identity
from fedmoments.samples.reading import choose_encoder, read_data
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.server import TermsSettings
from fedmoments.wire import decode, unpack_bundle


def test_unreadable_files_are_named_at_home_and_counted_in_the_contribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, n in (("cat", 6), ("dog", 6), ("owl", 2)):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(n):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / f"{number}.png")
    for broken in ("cat/x.png", "dog/y.png", "dog/z.png"):
        (tmp_path / "photos" / broken).write_bytes(b"no image")
    keys = make_client(tmp_path / "keys", "clinic")
    settings = ClientSettings(
        name="clinic", keys=str(keys.folder), folder=str(tmp_path / "clinic"), data=f"folder:{tmp_path / 'photos'}",
        test_share=0.0, cache=str(tmp_path / "cache"),
    )  # fmt: skip
    encoder = choose_encoder(settings.with_encoder(None, size=32), "image", None)
    classes = read_data(settings).class_names
    terms = draw_up_terms("pets", TermsSettings(size=32), encoder, classes, ["fedncm"])
    show_plan(tmp_path / "client.toml", settings, terms, json=False)
    plan = capsys.readouterr().out
    assert "withheld: 1 class, 5 samples" in plan
    assert "withheld by this client's own rules, as too small: owl" in plan
    assert "3 files could not be read, and would be left out: cat/x.png, dog/y.png, dog/z.png" in plan
    offer = Node(settings).contribute(terms, most_bytes=2**30)
    assert not offer.declined
    (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)
    sent = decode(item, terms.agreement, lambda _: load_identity(keys.identity).public)
    assert sent.statistics.n_samples == 12
    assert (sent.withheld.classes, sent.withheld.samples) == (1, 2 + 3)
    lines = [json.loads(line) for line in (tmp_path / "clinic" / "record.jsonl").read_text().splitlines()]
    audited = next(line for line in lines if line["event"] == "audited")
    assert audited["classes_kept_back"] == ["owl"]
    assert audited["unreadable"]["samples"] == 3
    assert sorted(Path(name).name for name in audited["unreadable"]["names"]) == ["x.png", "y.png", "z.png"]


def test_unreadable_files_among_those_to_test_on_are_named_in_the_record(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(12):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / f"{number}.png")
    broken = [f"{name}/x{number}.png" for name in ("cat", "dog") for number in range(4)]
    for path in broken:
        (tmp_path / "photos" / path).write_bytes(b"no image")
    keys = make_client(tmp_path / "keys", "clinic")
    settings = ClientSettings(
        name="clinic", keys=str(keys.folder), folder=str(tmp_path / "clinic"), cache=str(tmp_path / "cache"),
        data=f"folder:{tmp_path / 'photos'}", test_share=0.5, policy={"min_count": 1},
    )  # fmt: skip
    encoder = choose_encoder(settings.with_encoder(None, size=32), "image", None)
    terms = draw_up_terms("pets", TermsSettings(size=32), encoder, ("cat", "dog"), ["fedncm"])
    node = Node(settings)
    offer = node.contribute(terms, most_bytes=2**30)
    assert not offer.declined
    (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)
    sent = decode(item, terms.agreement, lambda _: load_identity(keys.identity).public)
    head = make_head("fedncm").fit(sent.statistics.restricted(make_head("fedncm").needs))
    Examiner(node).answer(terms, [replace(head, class_names=terms.classes).to_bytes()])
    lines = [json.loads(line) for line in (tmp_path / "clinic" / "record.jsonl").read_text().splitlines()]
    audited, tested = (next(line for line in lines if line["event"] == event) for event in ("audited", "evaluated"))
    assert tested["samples"] + audited["kept_back"]["samples"] + sent.statistics.n_samples == 24
    assert tested["unreadable"]["samples"] == len(tested["unreadable"]["names"]) > 0
    assert sorted(audited["unreadable"]["names"] + tested["unreadable"]["names"]) == broken
