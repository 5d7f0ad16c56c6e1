"""The page as text: well formed, self-contained, and with exactly the sections that the results allow."""

import base64
import contextlib
import copy
import hashlib
import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fedmoments.errors import FileFormatError, InputError
from fedmoments.pages import render, write_report

VOID = {"meta", "link", "br", "img", "input", "wbr", "hr"}
SECTIONS = {"bytes", "heads", "rounds", "holders", "classes", "calibration", "bias", "notes", "reproduce"} | {
    "differences"
}


class Reader(HTMLParser):
    """Checks nesting, and collects elements, ids and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute of <{tag}> is given twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def sections(page: str) -> set[str]:
    return {str(attributes["id"]) for tag, attributes in read(page).elements if tag == "section"}


def test_page_is_well_formed_with_unique_ids(results: dict[str, Any]) -> None:
    reader = read(render(results))
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = [str(attributes.get("href")) for tag, attributes in reader.elements if tag == "a"]
    assert {anchor.removeprefix("#") for anchor in anchors} <= set(ids)
    assert [tag for tag, _ in reader.elements].count("h1") == 1


def test_page_refers_to_nothing_outside(results: dict[str, Any]) -> None:
    page = render(results)
    for tag, attributes in read(page).elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    assert not re.search(r"@import|url\(", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_policy_allows_only_our_own_script(results: dict[str, Any]) -> None:
    page = render(results)
    policy = next(str(a["content"]) for _, a in read(page).elements if a.get("http-equiv") == "Content-Security-Policy")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_every_drawing_has_a_title(results: dict[str, Any]) -> None:
    page = render(results)
    assert page.count("<svg ") == len(re.findall(r"<svg [^>]*><title>[^<]+</title>", page)) > 8


def test_all_sections_are_there(results: dict[str, Any]) -> None:
    assert sections(render(results)) == SECTIONS


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("rounds", {"rounds"}),
        ("holders", {"holders"}),
        ("details", {"classes", "calibration"}),
        ("bias", {"bias"}),
        ("config", set()),
        ("command", set()),
        ("timings", set()),
        ("splits", set()),
        ("seconds", set()),
    ],
)
@pytest.mark.parametrize("how", ["missing", "null"])
def test_a_section_without_its_part_is_left_out(results: dict[str, Any], part: str, gone: set[str], how: str) -> None:
    if how == "missing":
        del results[part]
    else:
        results[part] = None
    assert sections(render(results)) == SECTIONS - gone


def test_any_key_of_any_depth_that_is_null_is_drawn_or_refused_by_name(results: dict[str, Any]) -> None:
    def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        entries = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for key, inner in entries:
            found += [(*path, key), *paths(inner, (*path, key))]
        return found

    for path in paths(results):
        if path in (("rows",), ("data",), ("seeds",)):
            continue
        changed = copy.deepcopy(results)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = None
        if len(path) == 1:
            assert "<h1>" in render(changed), path
            continue
        with contextlib.suppress(FileFormatError):
            assert "<h1>" in render(changed), path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": 5}, "holds 5 as Row.head, where a value of type str belongs"),
        ({"seeds": []}, "holds a row without 'seeds'"),
        ({"seeds": [{"seed": 0}]}, "lacks 'accuracy' of a Outcome"),
        ({"clients": "many"}, "holds 'many' as Setting.clients, where a value of type int belongs"),
        ({"colour": "red"}, "holds 'colour', which a Row does not have"),
    ],
)
def test_a_row_that_somebody_else_wrote_is_refused_by_the_name_of_what_is_wrong(
    results: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    results["rows"][1] |= change
    with pytest.raises(FileFormatError, match=f"results.json {re.escape(message)}"):
        render(results)
    results["rows"][1] = "fedcof"
    with pytest.raises(FileFormatError, match=r"results\.json holds 'fedcof' where a Row belongs"):
        render(results)


def test_figures_of_a_row_are_those_of_its_seeds(results: dict[str, Any]) -> None:
    page = render(results)
    for row in results["rows"]:
        row["accuracy"], row["up_bytes_per_client"] = 0.123, 7.0
    assert render(results) == page


def test_digests_are_shown_or_the_reason_why_not(results: dict[str, Any]) -> None:
    without = {"digest": None, "statistics_digest": None, "measured": None, "digest_reason": "it is <too> large"}
    results["details"][2] |= without
    words = " ".join(html.unescape(" ".join(read(render(results)).words)).split())
    for detail in results["details"][:2]:
        assert f"{detail['head']} {detail['digest'][:16]} from statistics {detail['statistics_digest'][:16]}" in words
        assert detail["digest"][:17] not in words
    assert "gh-qda none: it is <too> large" in words
    assert "each sending counts + class_grams, merges the same statistics bit for bit" in words
    for detail in results["details"]:
        detail.update(without)
    assert "bit for bit" not in render(results)
    for detail in results["details"]:
        del detail["digest_reason"]
    assert "Digests" not in render(results)


def test_results_are_not_changed_and_rendering_is_deterministic(results: dict[str, Any]) -> None:
    before = copy.deepcopy(results)
    assert render(results) == render(results)
    assert results == before


def test_written_report_is_the_rendered_page(results: dict[str, Any], tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", results)
    assert (tmp_path / "report.html").read_text("utf-8") == render(results)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("wrong", [{}, {"rows": None}, {"rows": "none"}, [], {"rows": [], "format": 1}])
def test_what_is_not_results_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="results"):
        render(wrong)


def test_numbers_of_the_table_can_be_read(results: dict[str, Any]) -> None:
    words = html.unescape(" ".join(read(render(results)).words)).replace("\u202f", " ")
    for expected in ("92.0 %", "± 0.4", "5.2 kB", "600 kB", "not fitted", "the covariance is singular", "20 ms"):
        assert expected in words
    assert "None" not in words
    assert "nan" not in words.split()
