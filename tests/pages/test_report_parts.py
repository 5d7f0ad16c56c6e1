"""The parts that drawings are made of: labels, scales, pictures, colours."""

import base64
import re
import struct
import zlib
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.pages.labels import Mark, place_labels, spread
from fedmoments.pages.scales import linear_axis, log_axis
from fedmoments.pages.sections.holders import shade_uri

BOUNDS = (0.0, 0.0, 400.0, 300.0)
places = st.tuples(st.floats(0, 400), st.floats(0, 300))


@settings(max_examples=25, deadline=None)
@given(st.lists(places, min_size=1, max_size=18))
def test_no_two_labels_overlap_or_leave_the_chart(points: list[tuple[float, float]]) -> None:
    marks = [Mark(x, y, f"head-number-{i}", priority=i) for i, (x, y) in enumerate(points)]
    labels = [label for label in place_labels(marks, BOUNDS) if label]
    assert all(a.overlap(b) == 0 for a, b in combinations(labels, 2))
    assert all(label.x >= 0 and label.x + label.width <= 400 for label in labels)
    assert all(7.5 <= label.y <= 292.5 for label in labels)


def test_a_cluster_of_heads_keeps_all_its_labels() -> None:
    marks = [Mark(60 + i % 3, 150 + 2 * i, f"fedcof-{i}") for i in range(8)]
    assert all(place_labels(marks, BOUNDS))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_spread_places_keep_their_gap_and_order(wished: list[float]) -> None:
    found = spread(wished, 0, 200, gap=15)
    assert all(b - a >= 15 - 1e-9 for a, b in zip(sorted(found), sorted(found)[1:], strict=False))
    assert sorted(range(len(wished)), key=lambda i: wished[i]) == sorted(range(len(wished)), key=lambda i: found[i])
    assert all(-1e-9 <= place <= 200 + 1e-9 for place in found)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_linear_axis_holds_its_values(values: list[float]) -> None:
    axis = linear_axis(values, 300, 0, str, bounds=(0, 1))
    assert axis.low <= min(values) + 1e-9
    assert axis.high >= max(values) - 1e-9
    assert 1 <= len(axis.ticks) <= 12


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=9))
def test_log_axis_holds_its_values(values: list[float]) -> None:
    axis = log_axis(values, 0, 800, str)
    assert all(0 < axis(value) < 800 for value in values)
    assert 1 <= len(axis.ticks) <= 20


def test_picture_holds_the_shades() -> None:
    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    picture = base64.b64decode(shade_uri(shades, (1, 2, 3)).partition(",")[2])
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, {}
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        kind, data = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        assert struct.unpack(">I", picture[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        place += length + 12
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (4, 3)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 5)
    assert np.array_equal(lines[:, 1:], shades)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


STYLE = files("fedmoments.pages").joinpath("report.css").read_text("utf-8")
BLOCKS = re.findall(r"\{([^{}]*--ground: [^{}]*)\}", STYLE)
THEMES = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in BLOCKS]


def test_both_ways_to_dark_are_the_same() -> None:
    light, system, chosen = THEMES
    assert system == chosen
    assert light.keys() == system.keys()


@pytest.mark.parametrize("theme", THEMES[:2], ids=["light", "dark"])
def test_words_stand_out_from_the_ground(theme: dict[str, str]) -> None:
    for name in ("ink", "quiet", "accent", "first", "bad", *(f"s{i}" for i in range(7))):
        assert contrast(theme[name], theme["ground"]) >= 4.5, name
    assert contrast(theme["ink"], theme["raised"]) >= 7
    for name in ("bar", "dot"):
        assert contrast(theme[name], theme["ground"]) >= 2.3, name
