"""The section on assumptions: drawn from real diagnostics, alone on a page or beside heads, whatever is missing."""

import copy
import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pages.conftest import read_unless_refused

from fedmoments.core.diagnostics import NEEDS, diagnose
from fedmoments.core.observations.codec import to_plain
from fedmoments.core.statistics import Ledger, StatisticsSpec
from fedmoments.pages import render, write_report
from fedmoments.pages.markup import join
from fedmoments.pages.sections.diagnostics import diagnosis_answer, diagnosis_question, diagnostics_section

CLASSES = ["cat", "dog", "tree frog", "oak", "newt", "elm"]
STRANGE: list[Any] = [None, "text", {}]
ATTACK = '</script><img src=x onerror="window.hit=1">" onmouseover="window.hit=1'


def found(spec: StatisticsSpec = NEEDS, *, tested: bool = True) -> dict[str, Any]:
    """Return diagnostics of six classes, of which one is empty, one twice there and one at one client only."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, size=400)
    means = 4 * np.eye(6, 8)
    means[1] = means[0]
    X = means[y] + rng.exponential(size=(400, 8)) ** 2
    clients = np.where(y == 3, 0, rng.integers(0, 40, size=400))
    ledger = Ledger.of(X, y, clients, spec, n_classes=6)
    return dict(to_plain(diagnose(ledger, test=(X[::3], y[::3]) if tested else None)))


@pytest.fixture(scope="module")
def diagnostics() -> dict[str, Any]:
    return {"clients": 40, "split": "iid", "seed": 0, "diagnostics": found()}


@pytest.fixture
def alone(diagnostics: dict[str, Any]) -> dict[str, Any]:
    """Return a document of diagnostics without any head."""
    data = {"name": "photos", "train": 400, "dim": 8, "classes": 6, "class_names": [*CLASSES]}
    return {"data": data, "rows": [], "diagnosis": copy.deepcopy(diagnostics)}


class Reader(HTMLParser):
    """Checks nesting, and collects visible words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        if tag not in ("meta", "link", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


def words_of(page: str) -> str:
    return " ".join(html.unescape("".join(read(page).words)).replace("\u202f", " ").split())


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def test_a_page_of_diagnostics_alone_asks_and_answers_its_own_question(alone: dict[str, Any]) -> None:
    page = render(alone)
    words = words_of(page)
    assert sections(page) == ["diagnostics", "reproduce"]
    assert "With 40 clients (IID), do the assumptions of Gaussian heads hold?" in words
    assert "coordinates are far from Gaussian" in words
    assert "No head could be fitted" not in words
    assert "None" not in words
    assert "nan" not in words.lower().split()


def test_the_section_stands_beside_heads(results: dict[str, Any], diagnostics: dict[str, Any]) -> None:
    before = sections(render(results))
    page = render({**results, "diagnosis": diagnostics})
    assert sections(page) == [*before[: before.index("bias")], "diagnostics", *before[before.index("bias") :]]
    assert "what can be learned from one upload?" in words_of(page)
    assert "coordinates are far from Gaussian" in words_of(page)


def test_every_figure_and_every_caution_is_there(alone: dict[str, Any]) -> None:
    page, words = render(alone), words_of(render(alone))
    for title in ("Accuracy of LDA", "Fisher energy", "|skewness|", "|excess kurtosis|", "Means per class"):
        assert f"<h3>{title}" in page
    titles = re.findall(r"<svg [^>]*><title>([^<]+)</title>", page)
    assert len(titles) == page.count("<svg ") == 10, "each of five charts is drawn twice, wide and narrow"
    for caution in alone["diagnosis"]["diagnostics"]["cautions"]:
        assert caution["what"] in words
        assert caution["advice"] in words
    kinds = {caution["kind"] for caution in alone["diagnosis"]["diagnostics"]["cautions"]}
    assert kinds >= {"empty-class", "one-client", "near-duplicates", "single-sample", "heavy-tails"}
    assert "cat and dog" in words
    assert "exact (gram) before shrinkage" in words


def test_figures_of_the_page_are_those_of_the_document(alone: dict[str, Any]) -> None:
    page, known = render(alone), alone["diagnosis"]["diagnostics"]
    curve = known["curves"]["free"]
    for k, accuracy in zip(curve["directions"], curve["accuracy"], strict=True):
        assert f"free covariance, {k} directions: {100 * accuracy:.1f}\u202f%" in page
    bars = re.findall(r"<title>([\d,]+) coordinates? between", page)
    counted = sum(int(bar.replace(",", "")) for bar in bars)
    assert counted == 2 * sum(sum(known["gaussianity"][name]["counts"]) for name in ("skewness", "kurtosis"))
    classes = [int(number) for number in re.findall(r"<title>(\d+) class(?:es)? with", page)]
    assert sum(classes) == 2 * 5


def test_nothing_to_worry_about_is_said(alone: dict[str, Any]) -> None:
    alone["diagnosis"]["diagnostics"]["cautions"] = []
    assert "No check found a problem." in words_of(render(alone))


def test_the_reason_why_nothing_was_diagnosed_is_shown(results: dict[str, Any]) -> None:
    reason = "features have 5,000 dimensions, more than <some>"
    words = words_of(render({**results, "diagnosis": {"clients": 8, "reason": reason}}))
    assert f"Not diagnosed: {reason}." in words


@pytest.mark.parametrize(
    "spec", [StatisticsSpec(), StatisticsSpec.of("client_means"), StatisticsSpec.of("gram"), NEEDS.additive]
)
@pytest.mark.parametrize("tested", [True, False])
def test_what_was_not_measured_is_named_and_not_drawn(spec: StatisticsSpec, tested: bool) -> None:
    known = found(spec, tested=tested)
    page = render({"data": {"class_names": CLASSES}, "rows": [], "diagnosis": {"diagnostics": known}})
    words = words_of(page)
    assert sections(page) == ["diagnostics"]
    for each in known["unknown"]:
        assert f"{each['what']}: {each['why']}" in words
    assert ("Accuracy of LDA" in words) == (tested and bool(known["curves"]))
    assert ("Means per class" in words) == spec.keeps_clients_apart


def test_any_key_of_any_depth_that_is_strange_is_drawn_or_refused_by_name(alone: dict[str, Any]) -> None:
    def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        entries = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
        return [place for key, inner in entries for place in [(*path, key), *paths(inner, (*path, key))]]

    refused = 0
    for path in paths(alone["diagnosis"]):
        for strange in STRANGE:
            changed = copy.deepcopy(alone)
            inner = changed["diagnosis"]
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = strange
            report = read_unless_refused(changed)
            if report is None:
                refused += 1
                continue
            assert report.diagnosis is not None
            opening = [told(report, report.diagnosis) for told in (diagnosis_question, diagnosis_answer)]
            read(str(join([*opening, diagnostics_section(report)])))
    assert refused > 100


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value}{ATTACK}" if isinstance(value, str) else value


def test_names_never_become_markup(alone: dict[str, Any]) -> None:
    changed = poisoned(alone)
    known = changed["diagnosis"]["diagnostics"]
    known["spectra"][ATTACK] = known["spectra"]["exact"]
    known["curves"][ATTACK] = known["curves"]["exact"]
    page = render(changed)
    assert "<img" not in page
    assert read(page).found.count("script") == 1
    assert "onmouseover=&quot;" in page
    assert not re.search(r'<[^>]* onmouseover="', page)


def test_a_thousand_classes_stay_small(alone: dict[str, Any]) -> None:
    known = alone["diagnosis"]["diagnostics"]
    for part in (known["holdings"], known["bias"], known["neighbours"]):
        for name, column in part.items():
            part[name] = np.resize(column, 1203).tolist() if isinstance(column, list) else column
    for name in ("skewness", "kurtosis"):
        known["gaussianity"][name]["by_class"] = np.resize(known["gaussianity"][name]["by_class"], (1203, 3)).tolist()
    alone["data"]["class_names"] = [f"species {label}" for label in range(1203)]
    known["cautions"][0]["classes"] = list(range(1203))
    page = render(alone)
    assert "The first 200 of 1,203 classes" in words_of(page)
    assert len(page) < 400_000


def test_a_means_histogram_of_many_clients_has_few_bars(alone: dict[str, Any]) -> None:
    alone["diagnosis"]["diagnostics"]["holdings"]["held_by"] = [1, 40, 900, 4321, 9275, 17]
    page = render(alone)
    assert len(re.findall(r"client means</title>", page)) <= 2 * 40


# ---------------------------------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_the_window_and_fails_at_nothing(
    browser: Any, tmp_path: Path, alone: dict[str, Any], width: int, dark: bool
) -> None:
    path = tmp_path / "report.html"
    alone["data"]["class_names"][0] = "a_rather_long_class_name_" * 3
    write_report(path, alone)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get_log("browser")
    browser.get(path.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    outside = browser.execute_script(
        """return Array.from(document.querySelectorAll('#diagnostics svg')).filter(s => s.getClientRects().length)
             .flatMap(s => Array.from(s.querySelectorAll('text')).filter(t => t.textContent).map(t =>
               [t.textContent, t.getBoundingClientRect(), s.getBoundingClientRect()]))
             .filter(([, t, s]) => t.left < s.left - 2 || t.right > s.right + 2).map(([words]) => words)"""
    )
    assert outside == []


def test_classes_sort_by_any_column(browser: Any, tmp_path: Path, alone: dict[str, Any]) -> None:
    write_report(tmp_path / "report.html", alone)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.get((tmp_path / "report.html").as_uri())
    names: Callable[[], Any] = lambda: browser.execute_script(  # noqa: E731
        "return Array.from(document.querySelectorAll('#diagnostics details tbody th')).map(each => each.textContent)"
    )
    assert names() == CLASSES
    browser.execute_script(
        """document.querySelectorAll('#diagnostics details').forEach(each => { each.open = true });
           document.querySelectorAll('#diagnostics details thead button')[1].click()"""
    )
    samples = alone["diagnosis"]["diagnostics"]["holdings"]["counts"]
    assert names() == [CLASSES[label] for label in np.argsort(-np.array(samples), kind="stable")]
