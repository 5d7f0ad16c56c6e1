"""Curves of tuning as charts: on the page, in a browser, and as figures of their own."""

import copy
import html
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.pages.pointer import told_of

from fedmoments.core.observations import Report
from fedmoments.core.observations.tuning import Tuning
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.pages import render, write_report
from fedmoments.pages.tuning_chart import tuning_figure

ATTACK = '</script><img src=x onerror="window.hit=1">" onmouseover="window.hit=1'


@pytest.fixture(scope="module")
def whole(world: Any) -> dict[str, Any]:
    made: dict[str, Any] = world.document()
    return made


@pytest.fixture
def small(world: Any) -> dict[str, Any]:
    """Return two starts, two seeds and few points."""
    made: dict[str, Any] = world.document(("random", "fedcof"), ("fedavg",), seeds=2, rounds=4, every=2)
    return made


def words_of(page: str) -> str:
    shown = re.sub(r"<(script|style)>.*?</\1>|<[^>]+>", "", page, flags=re.S)
    return " ".join(html.unescape(shown).replace("\u202f", " ").split())


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "plan" else poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value}{ATTACK}" if isinstance(value, str) else value


def charts(page: str) -> list[str]:
    return re.findall(r"<svg .*?</svg>", page.split('<section id="curves"')[1].partition("</section>")[0], re.S)


def tuning_of(document: dict[str, Any]) -> Tuning:
    return Report.from_dict(document).tuning or Tuning()


def looks(chart: str) -> dict[str, str]:
    """Return the classes of every line by its start."""
    return {head: style for style, head in re.findall(r'<g class="series ([^"]*)" data-head="([^"]*)"', chart)}


def test_three_charts_an_optimiser_with_a_line_a_start(world: Any, whole: dict[str, Any]) -> None:
    found = charts(render(whole))
    assert len(found) == 2 * 3 * 2, "two optimisers, three axes, wide and narrow"
    for chart in found:
        assert set(looks(chart)) == set(world.starts)
        assert chart.count('class="band"') == len(world.starts)
        assert set(re.findall(r'class="point shot[^"]*" data-head="([^"]*)"', chart)) == {
            *world.starts,
            *world.others,
        } - {"random"}
    titles = [re.search(r"<title>([^<]*)</title>", chart) for chart in found]
    assert [title.group(1).split(":")[0] for title in titles if title][::2] == [
        f"Accuracy against {what}, {how}" for how in ("FedAvg", "FedAdam") for what in ("rounds", "bytes", "compute")
    ]


def test_a_start_looks_the_same_in_all_charts_and_random_is_grey(world: Any, whole: dict[str, Any]) -> None:
    known = [looks(chart) for chart in charts(render(whole))]
    assert all(each == known[0] for each in known)
    assert len(set(known[0].values())) == len(world.starts)
    assert "baseline" in known[0]["random"]
    few = world.document(("random", "fedcof", "fed3r"), ("fedavg", "fedadam"), rounds=5)
    few["tuning"]["curves"] = [
        each for each in few["tuning"]["curves"] if (each["start"], each["optimiser"]) != ("fedcof", "fedavg")
    ]
    per = [looks(chart) for chart in charts(render(few))]
    assert {each["fed3r"] for each in per} == {per[0]["fed3r"]}, "a start that is missing once shifts no colour"


def test_points_tell_accuracy_seeds_bytes_and_compute(world: Any, whole: dict[str, Any]) -> None:
    values = [100 * world.accuracy("fedcof", "fedavg", seed, 200) for seed in range(3)]
    last = next(each for each in whole["tuning"]["curves"] if each["start"] == "fedcof")["points"][-1]
    told = f"fedcof, round 200: {fmean(values):.1f} % ({min(values):.1f} to {max(values):.1f} over 3 seeds), "
    told += f"{(last['up'] + last['down']) / 1e9:.1f} GB, {last['flops'] / 1e9:.0f} GFLOP"
    assert told in render(whole).replace("\u202f", " ")


def test_the_first_point_of_a_line_lies_on_the_ring_of_its_head(whole: dict[str, Any]) -> None:
    for chart in charts(render(whole)):
        start = re.search(r'data-head="fedcof">.*?<path d="M([\d.]+),([\d.]+)', chart)
        ring = re.search(r'shot[^>]*data-head="fedcof"[^>]*>.*?cx="([\d.]+)" cy="([\d.]+)"', chart)
        assert start
        assert ring
        assert [float(v) for v in start.groups()] == pytest.approx([float(v) for v in ring.groups()], abs=0.11)


def test_the_axis_begins_where_heads_are_and_says_where_random_begins(whole: dict[str, Any]) -> None:
    page = render(whole)
    for chart in charts(page):
        ticks = [float(tick) for tick in re.findall(r'text-anchor="end" class="tick">([\d.]+)<', chart)]
        assert ticks
        assert min(ticks) > 60
        floor = max(float(y) for y in re.findall(r'class="grid"', chart) and re.findall(r'y1="([\d.]+)"', chart))
        path = re.search(r'data-head="random">.*?<path d="([^"]*)"', chart)
        assert path
        drawn = [float(y) for y in re.findall(r"[ML][\d.]+,([\d.]+)", path.group(1))]
        assert drawn
        assert max(drawn) <= floor + 0.1, "nothing is drawn below the axis"
    assert "The random start begins at 1.3 %, below the axis." in words_of(page)


def test_compute_is_left_out_where_it_is_unknown(whole: dict[str, Any]) -> None:
    changed = copy.deepcopy(whole)
    for each in changed["tuning"]["curves"]:
        for point in each["points"]:
            point["flops"] = None
    page = render(changed)
    assert len(charts(page)) == 2 * 2 * 2
    assert "FLOPs" not in words_of(page)
    assert "Compute" not in words_of(page)


def test_no_random_start_needs_no_comparison(world: Any) -> None:
    page = render(world.document(("fedcof", "fed3r"), ("fedavg",), seeds=1))
    words = words_of(page)
    assert "From fedcof, FedAvg reaches" in words
    assert "a random start" not in words
    assert "random start ends" not in words
    assert "Rounds to target" not in words
    assert 'class="target"' not in page
    assert 'class="band"' not in page, "one seed has no spread"


@pytest.mark.parametrize("rounds", [0, 1])
def test_one_point_is_enough(world: Any, rounds: int) -> None:
    page = render(world.document(rounds=rounds, seeds=1))
    assert len(charts(page)) == 12
    assert "fedcof, round 0" in page


def test_a_long_run_stays_small(world: Any) -> None:
    page = render(world.document(rounds=2000, optimisers=("fedavg",), seeds=2))
    assert len(page) < 400_000


# ---------------------------------------------------------------------------------------------- a figure of its own


@pytest.mark.parametrize("against", ["rounds", "bytes", "flops"])
def test_a_figure_is_the_chart_of_the_page_and_sound_xml(whole: dict[str, Any], against: str) -> None:
    drawn = tuning_figure(tuning_of(whole), against, "fedadam")
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert looks(drawn) == looks(charts(render(whole))[0])
    assert "prefers-color-scheme: dark" in drawn
    assert ".series .band" in drawn
    assert "round 200" in drawn


def test_a_figure_that_cannot_be_drawn_says_why(small: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError, match="seconds"):
        tuning_figure(tuning_of(small), "seconds")
    with pytest.raises(UnknownNameError, match="scaffold"):
        tuning_figure(tuning_of(small), optimiser="scaffold")
    for each in small["tuning"]["curves"]:
        for point in each["points"]:
            point["flops"] = None
    with pytest.raises(InputError, match="has both an accuracy and compute"):
        tuning_figure(tuning_of(small), "flops")
    with pytest.raises(InputError, match="needs curves with accuracies"):
        tuning_figure(Tuning())


def test_a_figure_of_hostile_names_is_sound_xml(small: dict[str, Any]) -> None:
    drawn = tuning_figure(tuning_of(poisoned(small)))
    assert {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(drawn).iter()} <= {
        *("svg", "style", "title", "g", "line", "text", "path", "polygon", "circle")
    }


# ---------------------------------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_the_window_and_fails_at_nothing(
    browser: Any, tmp_path: Path, whole: dict[str, Any], width: int, dark: bool
) -> None:
    path = tmp_path / "report.html"
    write_report(path, whole)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    outside = browser.execute_script(
        """return Array.from(document.querySelectorAll('#curves svg')).filter(s => s.getClientRects().length)
             .flatMap(s => Array.from(s.querySelectorAll('text')).filter(t => t.textContent).map(t =>
               [t.textContent, t.getBoundingClientRect(), s.getBoundingClientRect()]))
             .filter(([, t, s]) => t.left < s.left - 2 || t.right > s.right + 2).map(([words]) => words)"""
    )
    assert outside == []
    touching: Callable[[str], Any] = lambda kind: browser.execute_script(  # noqa: E731
        """return Array.from(document.querySelectorAll('#curves svg')).filter(s => s.getClientRects().length)
             .flatMap(s => { const b = Array.from(s.querySelectorAll(arguments[0])).map(t =>
                 [t.textContent, t.getBoundingClientRect()]);
               return b.flatMap(([n, p], i) => b.slice(i + 1).filter(([, q]) => p.left < q.right && q.left < p.right
                 && p.top + 2 < q.bottom - 2 && q.top + 2 < p.bottom - 2).map(([m]) => [n, m])) })""",
        kind,
    )
    assert touching("text.label") == []
    assert touching("text.tick") == []


def test_points_tell_and_light_the_rows_of_their_start(browser: Any, tmp_path: Path, whole: dict[str, Any]) -> None:
    write_report(tmp_path / "report.html", whole)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.get((tmp_path / "report.html").as_uri())
    ring = browser.find_element("css selector", '#curves .facet .wide [data-head="fedcof"] .dot')
    assert told_of(browser, ring).startswith("fedcof, one shot: 89.6 %, 6.2 MB")
    lit = browser.execute_script("return Array.from(document.querySelectorAll('tr.lit')).map(row => row.dataset.head)")
    assert set(lit) == {"fedcof"}
