"""Budget curves on the page: every number, the chart, and documents that lack parts or are hostile."""

import copy
import html
import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.pages.conftest import read_unless_refused

from fedmoments.core.observations import Report
from fedmoments.pages import render
from fedmoments.pages.budget_chart import budget_figure
from fedmoments.pages.labels import Label, text_width

ATTACK = '</script><img src=x onerror="window.hit=1">" onmouseover="window.hit=1'


@pytest.fixture
def document(budgets: Any) -> dict[str, Any]:
    """Return two heads on sketches, four others and two re-compressions."""
    made: dict[str, Any] = budgets.document()
    return made


def section(page: str, name: str = "budget") -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>', page, re.S)
    return str(found)


def words_of(page: str) -> str:
    shown = re.sub(r"<(script|style|title)[^>]*>.*?</\1>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", shown)).replace("\u202f", " ").split())


def answer_of(page: str) -> str:
    (found,) = re.findall(r'<p class="answer">(.*?)</p>', page, re.S)
    return html.unescape(re.sub("<[^>]+>", "", found)).replace("\u202f", " ")


def charts(page: str) -> list[str]:
    return re.findall(r"<svg .*?</svg>", section(page), re.S)


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value}{ATTACK}" if isinstance(value, str) else value


def size_words(size: float) -> str:
    return f"{size / 1000:.1f} kB" if size < 99_950 else f"{size / 1000:.0f} kB"


# ---------------------------------------------------------------------------------------------- what is told


def test_every_number_of_the_document_is_on_the_page(budgets: Any, document: dict[str, Any]) -> None:
    page = section(render(document))
    rows = [words_of(row) for row in re.findall(r"<tr data-head=.*?</tr>", page.split("<details")[1], re.S)]
    for curve in document["budget_curve"]["curves"]:
        for point in curve["points"]:
            accuracy = f"{point['accuracy'] * 100:.1f} % ± {point['std'] * 100:.1f}"
            rank = "–" if point["rank"] is None else f"{point['rank']:.1f}"
            published = " as published" if point["own"] else ""
            figures = f"{size_words(point['bytes'])} {point['dimensions'] or 'full'} {rank} 3"
            assert f"{curve['head']}{published} {point['budget'] or '–'} {accuracy} {figures}" in rows
    words = words_of(page)
    for known in (budgets.means, budgets.gram):
        assert size_words(known) in words
    for each in document["budget_curve"]["recompressed"]:
        found = f"{each['head']} {each['rows']:,} {each['blocks']} {each['accuracy'] * 100:.1f} % "
        assert f"{found}{each['unbounded'] * 100:.1f} %" in words
    assert "100 clients (Dirichlet 0.1)" in words
    assert "one standard deviation over 3 seeds" in words


def test_points_of_the_chart_tell_what_they_are(document: dict[str, Any]) -> None:
    drawn = html.unescape(charts(render(document))[0]).replace("\u202f", " ")
    assert "auto, budget means/8: 82.0 % ± 0.8 over 3 seeds, 2.1 kB per client, 241 dimensions, rank 0.4<" in drawn
    assert "fedcof: 89.4 % ± 0.4 over 3 seeds, 17.1 kB per client, as published<" in drawn


def test_the_table_has_a_column_a_budget_with_its_highest_bold(budgets: Any, document: dict[str, Any]) -> None:
    table = section(render(document)).partition('class="grid-table"')[2].partition("</table>")[0]
    heads = re.findall(r'<th scope="col" class="number">([^<]*)<br>', table)
    assert heads == list(budgets.sizes)
    rows = {found[0]: found[1] for found in re.findall(r'<tr data-head="([^"]*)".*?>(.*?)</tr>', table, re.S)}
    assert list(rows) == ["auto", "sketch", *budgets.others]
    bold = {head: re.findall(r"<b>([\d.]+)</b>", row) for head, row in rows.items()}
    ours = [f"{point['accuracy'] * 100:.1f}" for point in document["budget_curve"]["curves"][0]["points"]]
    assert bold.pop("auto") == ours[1:]
    assert bold.pop("fedcof") == [f"{100 * (0.894 - 0.03 * math.log(8)):.1f}"], "the least budget is better spent so"
    assert not any(bold.values())
    assert words_of(rows["fedcof"]).endswith("89.4 · 17.1 kB")
    assert "○" not in table
    document["budget_curve"]["curves"][3]["points"][-1]["budget"] = "means"
    again = words_of(section(render(document)))
    assert re.search(r"fedcof [\d. ]*○ 89\.4", again)
    assert "○ As published." in again


def test_a_page_of_budget_curves_alone_answers_its_own_question(budgets: Any, document: dict[str, Any]) -> None:
    page = render(document)
    assert "With 100 clients (Dirichlet 0.1), what does a budget of bytes buy?" in words_of(page)
    assert answer_of(page) == (
        "At FedCOF’s payload, 17.1 kB per client, auto reaches 90.0 %, 0.6 points above the best of all others, fedcof "
        "(89.4 %), within the noise of 3,080 test samples; at half of it, 89.1 %."
    )
    document["data"]["test"] = 10**6
    assert "fedcof (89.4 %); at half" in answer_of(render(document))
    document["budget_curve"]["curves"][3] = budgets.projected("fedcof", 0.93, budgets.means)
    assert "3.0 points below the best of all others, fedcof (93.0 %)" in answer_of(render(document))
    document["budget_curve"]["curves"][3] = budgets.projected("fedcof", 0.8998, budgets.means)
    assert "as much as the best of all others, fedcof (90.0 %); at half" in answer_of(render(document))


def test_beside_heads_the_section_compares_and_the_page_answers_as_ever(
    document: dict[str, Any], make_row: Callable[..., dict[str, Any]]
) -> None:
    page = render(document | {"rows": [make_row("fedncm", 0.8, 500.0)]})
    assert answer_of(page) == "fedncm reaches 80.0 % with 500 B per client."
    told = re.sub("<[^>]+>", "", section(page)).replace("\u202f", " ")
    assert "At FedCOF’s payload, 17.1 kB per client, auto reaches 90.0 %, 0.6 points above" in told


# ---------------------------------------------------------------------------------------------- the chart


def test_sketches_are_heavy_and_others_thin_with_a_ring_where_they_are_published(
    budgets: Any, document: dict[str, Any]
) -> None:
    for chart in charts(render(document)):
        looks = {head: look for look, head in re.findall(r'<g class="series ([^"]*)" data-head="([^"]*)"', chart)}
        assert set(looks) == {"auto", "sketch", *budgets.others}
        assert [head for head, look in looks.items() if look.endswith("ours")] == ["sketch", "auto"], "auto on top"
        assert len(set(looks.values())) == len(looks), "every look once"
        assert chart.count('class="band"') == 2
        rings = re.findall(r'<g class="point own" data-head="([^"]*)" tabindex="0" role="img">', chart)
        assert rings == list(budgets.others)
        dots = re.findall(r'<g class="point speck" data-head="(auto|sketch)" tabindex="0"', chart)
        assert len(dots) == 2 * len(budgets.sizes), "every dot of a sketch can be reached by the keyboard"


def test_places_are_logarithmic_in_bytes_and_linear_in_accuracy(budgets: Any, document: dict[str, Any]) -> None:
    chart = charts(render(document))[0]
    group = re.search(r'ours" data-head="auto">(.*?)</g></g>', chart, re.S)
    assert group
    places = [
        (float(a), float(b)) for a, b in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="4" class="dot"', group.group(1))
    ]
    points = document["budget_curve"]["curves"][0]["points"]
    assert len(places) == len(points)

    def slopes(values: list[float], pixels: list[float]) -> list[float]:
        return [(pixels[i] - pixels[0]) / (values[i] - values[0]) for i in range(2, 5)]

    across = slopes([math.log(point["bytes"]) for point in points], [place[0] for place in places])
    down = slopes([point["accuracy"] for point in points], [place[1] for place in places])
    assert across == pytest.approx([across[0]] * 3, rel=5e-3)
    assert across[0] > 0
    assert down == pytest.approx([down[0]] * 3, rel=5e-3)
    assert down[0] < 0
    lines = [float(x) for x in re.findall(r'<line x1="([\d.]+)"[^>]*class="payload"', chart)]
    assert (lines[1] - lines[0]) / math.log(budgets.gram / budgets.means) == pytest.approx(across[0], rel=5e-3)
    rings = [float(x) for x in re.findall(r'cx="([\d.]+)" cy="[\d.]+" r="5.4"', chart)]
    assert rings == pytest.approx([lines[0]] * 2 + [lines[1]] * 2, abs=0.11), "published payloads are on their lines"


def test_lines_from_far_below_are_cut_at_the_axis_and_told(document: dict[str, Any]) -> None:
    page = render(document)
    for chart in charts(page):
        floor = max(float(y) for y in re.findall(r'y1="([\d.]+)" y2="\1" class="axis"', chart))
        for path in re.findall(r'<path d="([^"]*)" class="line"', chart):
            assert max(float(y) for y in re.findall(r"[ML][\d.]+,([\d.]+)", path)) <= floor + 0.1
    lowest = 0.806 - 0.03 * math.log(8)
    assert lowest < 0.756, "as this test needs it"
    others = [curve["points"][0]["accuracy"] for curve in document["budget_curve"]["curves"][2:]]
    said = re.search(r"(\d) thin lines come from below the axis, the lowest from ([\d.]+) %", words_of(page))
    assert said
    assert said.group(2) == f"{min(others) * 100:.1f}"
    floor = min(float(tick) for tick in re.findall(r'text-anchor="end" class="tick">([\d.]+)<', charts(page)[0]))
    assert int(said.group(1)) == sum(accuracy * 100 < floor for accuracy in others)


def test_what_takes_more_than_fed3r_is_told_beyond_the_chart(document: dict[str, Any]) -> None:
    before = charts(render(document))
    huge = {"budget": None, "sizes": [3.2e6], "accuracies": [0.917], "seeds": [0], "own": True}
    document["budget_curve"]["curves"][5]["points"].append(huge)
    document["budget_curve"]["curves"].append({"head": "gh-qda", "kind": "projected", "points": [huge]})
    page = render(document)
    assert charts(page) == before
    words = words_of(section(page))
    assert "Beyond the chart: gh-lda 91.7 % with 3.2 MB and gh-qda 91.7 % with 3.2 MB." in words
    assert "gh-qda 91.7 · 3.2 MB" in words
    assert "3.2 MB" not in budget_figure(Report.from_dict(document))
    document["budget_curve"]["curves"] = document["budget_curve"]["curves"][-1:]
    page = render(document)
    assert 'data-head="gh-qda"' in charts(page)[0], "alone, it is drawn"
    assert "Beyond the chart" not in words_of(page)


@pytest.mark.parametrize("number", [1, 12, 40])
def test_many_heads_still_have_looks_and_names_apart(budgets: Any, number: int) -> None:
    others = {f"head-{i}": (0.8 + 0.1 * i / number, (budgets.means, budgets.gram)[i % 2]) for i in range(number)}
    for chart in charts(render(budgets.document(others))):
        series = re.findall(r'<g class="series ([^"]*)" data-head="head-', chart)
        assert len(series) == number
        assert len(set(series)) == min(number, 24)
        names = re.findall(
            r'<text x="([\d.]+)" y="([\d.]+)" dy="0.34em"(?: text-anchor="(\w+)")? class="label[^>]*>([^<]*)<', chart
        )
        assert len(names) >= min(number, 12) + 2
        boxes = []
        for x, y, anchor, name in names:
            width = text_width(name)
            assert 0 <= float(y) <= 440
            boxes.append(Label(float(x) - (width if anchor == "end" else 0.0), float(y), width, led=False))
        for one, other in combinations(boxes, 2):
            assert one.overlap(other) <= 0.2 * max(one.width, other.width), "coordinates have one decimal"


# ---------------------------------------------------------------------------------------------- partial and hostile


@pytest.mark.parametrize("curve", [None, {}, {"curves": []}])
def test_without_points_there_is_no_section(document: dict[str, Any], curve: Any) -> None:
    assert '<section id="budget"' not in render(document | {"budget_curve": curve})
    assert '<section id="budget"' not in render({"rows": []})


def test_any_part_that_is_missing_or_null_is_drawn_or_refused_by_name(document: dict[str, Any]) -> None:
    def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        entries = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
        for key, inner in entries:
            yield (*path, key)
            yield from paths(inner, (*path, key))

    document["budget_curve"]["curves"] = [document["budget_curve"]["curves"][i] for i in (0, 3)]
    for each in document["budget_curve"]["curves"]:
        each["points"] = each["points"][-2:]
    refused = 0
    for path in paths(document["budget_curve"]):
        changed = copy.deepcopy(document)
        inner = changed["budget_curve"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = None
        report = read_unless_refused(changed)
        if report is None:
            refused += 1
            continue
        words = words_of(render(report))
        assert "what does a budget of bytes buy?" in words, path
        assert "None" not in words, path
    assert refused > 10


@pytest.mark.parametrize("kind", ["sketch", "projected"])
def test_one_point_is_enough(kind: str) -> None:
    curve = {"head": "auto", "kind": kind, "points": [{"sizes": [100.0], "accuracies": [0.5]}]}
    page = render({"rows": [], "budget_curve": {"curves": [curve]}})
    assert len(charts(page)) == 2
    assert "auto: 50.0\u202f%, 100\u202fB per client" in page
    assert "payload" not in "".join(charts(page))


def test_recompression_alone_is_shown(document: dict[str, Any]) -> None:
    document["budget_curve"]["curves"] = []
    page = render(document)
    assert charts(page) == []
    words = words_of(section(page))
    assert "Memory bounded to 768 rows: auto reaches 90.1 % against 90.3 %." in words
    assert "auto 768 7 90.1 % 90.3 % −0.2" in words
    assert "sketch 1,234 4 89.8 % 89.5 % +0.2" in words


def test_names_cannot_become_code(budgets: Any, document: dict[str, Any]) -> None:
    hostile = poisoned(document)
    for curve, kind in zip(hostile["budget_curve"]["curves"], ("sketch", "sketch", *budgets.others), strict=True):
        curve["kind"] = kind
    page = render(hostile)
    assert "<img" not in page
    assert "onmouseover=" not in re.sub(r'"[^"]*"|>[^<]*<', "", section(page))
    drawn = budget_figure([Report.from_dict(hostile)] * 2, title=ATTACK)
    known = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(drawn).iter()}
    assert known <= {"svg", "style", "title", "g", "line", "text", "path", "polygon", "circle"}
