"""The kit that pages are made of: sections that declare themselves, charts and tables as data."""

import html
import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import combinations
from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core import observations
from fedmoments.core.observations import Outcome, Report, Setting
from fedmoments.errors import InputError
from fedmoments.pages import render, sections
from fedmoments.pages.chart import Chart, Point, Rule, Scale, Series, Style, Trace, bytes_scale, share_scale
from fedmoments.pages.figure import figure, figure_file
from fedmoments.pages.labels import Label, text_width
from fedmoments.pages.markup import Html, tag
from fedmoments.pages.plot import draw, fitted
from fedmoments.pages.report import REPORT
from fedmoments.pages.shell import Section, section
from fedmoments.pages.table import Cell, Column, Row, Table, number_cell

ATTACK = '</script><img src=x onerror="alert(1)">'

# ---------------------------------------------------------------------------------------------- sections


@section("own", "A section of one's own", place=35)
def own_section(results: Report) -> Html | None:
    """Return how many rows there are, or None without any."""
    return tag("p", f"{len(results.rows)} rows") if results.rows else None


@pytest.fixture
def registered() -> Iterator[None]:
    """Register a section for one test."""
    REPORT.registry.register(own_section)
    yield
    REPORT.registry.remove("own")


def anchors(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


@pytest.mark.usefixtures("registered")
def test_a_section_of_ones_own_stands_at_its_place_and_only_where_it_applies(results: dict[str, Any]) -> None:
    page = render(results)
    found = anchors(page)
    assert found[found.index("differences") + 1] == "own"
    assert "<p>4 rows</p>" in page
    assert '<a href="#own">Own</a>' in page
    assert "own" not in anchors(render({"rows": []}))


def test_a_section_of_a_part_is_given_it_and_left_out_without_it() -> None:
    @section("twice", "Twice", place=1, of="rows")
    def twice(report: Report, rows: tuple[Any, ...]) -> Html | None:
        assert rows is report.rows
        return tag("p", 2 * len(rows))

    row = observations.Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 1000, 10, 0.1),))
    assert (twice(Report((row,))), twice(Report())) == ("<p>2</p>", None)


@pytest.mark.parametrize("known", [each for each in REPORT.sections() if each.of], ids=lambda each: each.name)
def test_what_a_section_is_of_is_what_its_function_takes(known: Section[Report]) -> None:
    held = get_type_hints(Report).get(known.of) or get_type_hints(vars(Report)[known.of].func)["return"]
    _, taken = (kind for name, kind in get_type_hints(known.draw).items() if name != "return")
    kinds = [kind for kind in get_args(held) if kind is not type(None)] if isinstance(held, UnionType) else [held]
    assert [taken] == kinds


def test_what_was_registered_goes_again(results: dict[str, Any]) -> None:
    assert "own" not in anchors(render(results))


def test_two_sections_of_one_anchor_are_refused() -> None:
    @section("heads", "Another one", place=1)
    def other(results: Report) -> Html | None:
        return None

    with pytest.raises(InputError, match="two sections call themselves 'heads'"):
        REPORT.registry.register(other)
    with pytest.raises(InputError, match="is not a section"):
        REPORT.registry.register(lambda results: None, "lambda")


def test_every_file_declares_one_section() -> None:
    for module in pkgutil.iter_modules(sections.__path__, f"{sections.__name__}."):
        declared = [each for each in vars(importlib.import_module(module.name)).values() if isinstance(each, Section)]
        assert len(declared) == 1, module.name
    places = [each.place for each in REPORT.sections()]
    assert len(set(places)) == len(places)


# ---------------------------------------------------------------------------------------------- charts


def line(name: str, values: list[float], number: int = 0) -> Series:
    points = [Point(i + 1.0, value, value - 0.1, value + 0.1, f"{name} {i}") for i, value in enumerate(values)]
    return Series(name, tuple(points), Style.numbered(number))


def lines(*names: str) -> Chart:
    return Chart(
        "Lines", Scale("x"), Scale("y"), tuple(line(name, [0.1 * i, 0.5, 0.9], i) for i, name in enumerate(names))
    )


def words(drawn: str, kind: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(rf'<text[^>]*class="{kind}[^"]*"[^>]*>([^<]*)<', drawn)]


@pytest.mark.parametrize(
    ("names", "legend"), [(["one", "two"], False), (["one", "a rather long name of a line"], True)]
)
def test_every_line_is_named_once_at_its_end_or_in_a_legend(names: list[str], legend: bool) -> None:
    drawn = draw(lines(*names), 300).inner
    assert sorted(words(drawn, "label")) == sorted(names)
    assert ('class="legend"' in drawn) == legend


def test_a_legend_takes_room_above_the_plot_and_none_of_it() -> None:
    short, long = (draw(lines("one", name), 300) for name in ("two", "a rather long name of a line"))
    assert long.height > short.height
    assert draw(fitted(lines("one", "a rather long name of a line"), 300, 400), 300).height == pytest.approx(400)


values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None)
@given(st.lists(values, min_size=1, max_size=5), st.sampled_from([348.0, 420.0, 860.0]))
def test_points_of_any_values_lie_inside_the_drawing_and_names_do_not_touch(
    several: list[list[float]], width: float
) -> None:
    chart = Chart("Any", Scale("x"), Scale("y"), tuple(line(f"line {i}", each, i) for i, each in enumerate(several)))
    drawing = draw(chart, width)
    for x, y in re.findall(r'<circle cx="([^"]*)" cy="([^"]*)"', drawing.inner):
        assert 0 <= float(x) <= width
        assert 0 <= float(y) <= drawing.height
    found = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" dy="0.34em"(?: text-anchor="(end)")? class="label[^>]*>([^<]*)<',
        drawing.inner,
    )
    assert len(found) == len(several)
    boxes = [
        Label(float(x) - (text_width(name) if anchor else 0.0), float(y), text_width(name), led=False)
        for x, y, anchor, name in found
    ]
    assert all(one.overlap(other) <= 0.2 * one.width for one, other in combinations(boxes, 2))


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_bars_stand_on_zero_and_are_as_high_as_their_values(heights: list[float]) -> None:
    bars = tuple(Point(0.0, height, tip="bar", span=(i, i + 1.0)) for i, height in enumerate(heights))
    drawn = draw(Chart("Bars", Scale("x", exact=True), Scale("y"), (Series("", bars),)), 400).inner
    rects = re.findall(r'y="([\d.]+)" height="([\d.]+)" class="margin"', drawn)
    assert len(rects) == len(heights)
    feet = [float(y) + float(height) for y, height in rects]
    assert feet == pytest.approx([feet[0]] * len(feet), abs=0.11)
    if max(heights) > 0:
        scale = max(float(height) for _, height in rects) / max(heights)
        assert [float(height) for _, height in rects] == pytest.approx([scale * each for each in heights], abs=0.11)


def test_lines_from_below_a_scale_of_its_own_are_cut_at_its_foot() -> None:
    chart = Chart("Cut", Scale("x"), share_scale(values=(0.5, 1.0)), (line("steep", [0.0, 0.7, 0.9]),))
    drawn = draw(chart, 400).inner
    (foot,) = {float(y) for y in re.findall(r'y1="([\d.]+)" y2="\1" class="axis"', drawn)}
    path = re.search(r'<path d="([^"]*)" class="line"', drawn)
    assert path
    assert max(float(y) for y in re.findall(r"[ML][\d.]+,([\d.]+)", path.group(1))) == pytest.approx(foot, abs=0.11)
    assert "steep 0" not in drawn, "what is not seen tells nothing"


def test_rules_have_words_above_them_that_do_not_touch_and_infinite_places_are_edges() -> None:
    rules = (Rule(1000.0, ("a first payload",)), Rule(1100.0, ("another one",)), Rule(1e9, ("beyond",)))
    trace = Trace(((float("-inf"), 0.5), (float("inf"), 0.5)), "target")
    points = Series("", (Point(500.0, 0.4, tip="a"), Point(5000.0, 0.6, tip="b")), line=False)
    drawn = draw(Chart("Rules", bytes_scale("bytes"), share_scale(), (points,), rules, (trace,)), 860).inner
    assert words(drawn, "rule-words") == ["a first payload", "another one"]
    first, second = (float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*class="rule-words"', drawn))
    assert second - first >= 0.5 * (text_width("a first payload", 12) + text_width("another one", 12))
    assert re.search(r'<path d="M[\d.]+,([\d.]+)L[\d.]+,\1" class="target"', drawn)


def test_words_that_do_not_fit_lean_and_numbers_become_fewer() -> None:
    ticks = tuple((float(i), f"a rather long word {i}") for i in range(6))
    chart = Chart("Words", Scale("x", "words", ticks=ticks), Scale("y"), (line("a", [1.0, 2.0]),))
    assert "rotate(-38" in draw(chart, 348).inner
    assert "rotate" not in draw(chart, 1600).inner
    numbers = Scale("x", "log", ticks=tuple((10.0**i, f"{10**i:,}") for i in range(9)))
    many = Series("a", tuple(Point(10.0**i, 1.0, tip="x") for i in range(9)), Style.numbered(0))
    wide, narrow = (
        words(draw(Chart("N", numbers, Scale(ticks=()), (many,)), width).inner, "tick") for width in (900, 300)
    )
    assert wide == [f"{10**i:,}" for i in range(9)]
    assert 2 <= len(narrow) < len(wide)


def test_a_file_is_the_drawing_of_the_page_with_its_style() -> None:
    chart = lines("one", "two")
    text = figure_file([chart], width=860)
    assert draw(chart, 860).inner in text
    assert draw(chart, 860).inner in figure(chart)
    assert ".series .line" in text
    assert "prefers-color-scheme: dark" in text
    assert "url(" not in text


def test_names_of_a_chart_never_become_markup() -> None:
    hostile = line(ATTACK, [0.1, 0.9])
    chart = Chart(ATTACK, Scale(ATTACK), Scale(ATTACK), (hostile,), (Rule(1.5, (ATTACK,)),), heading=ATTACK)
    assert "<img" not in figure(chart) + figure_file([chart], title=ATTACK)


# ---------------------------------------------------------------------------------------------- tables


def test_a_table_says_what_it_is_and_what_its_cells_sort_by() -> None:
    rows = [
        Row(Cell("a"), (number_cell(5242.0, "5.2 kB"),), head="a"),
        Row(Cell("b"), (number_cell(None, "–"),), kind="best"),
    ]
    table = Table("Bytes of every head", (Column("Head"), Column("Bytes", number=True)), tuple(rows), sorts=True).html()
    assert 'role="region" aria-label="Bytes of every head"' in table
    assert "<caption" in table
    assert '<tr data-head="a"><th scope="row">a</th><td data-value="5242" class="number">5.2 kB</td></tr>' in table
    assert '<tr class="best"><th scope="row">b</th><td data-value="" class="number">–</td></tr>' in table
    assert re.findall(r"<th[^>]*data-numeric[^>]*>", table) != []


def test_titles_over_columns_and_tips_are_escaped() -> None:
    row = Row(Cell(ATTACK), (Cell(ATTACK, tip=ATTACK), Cell("2")))
    table = Table(ATTACK, (Column(""), Column(ATTACK), Column("b")), (row,), groups=(("", 1), (ATTACK, 2))).html()
    assert "<img" not in table
    assert 'colspan="2" scope="colgroup"' in table
