"""What people see of a reproduction: the page, its figures, the summary in Markdown, the files and the index."""

import csv
import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fedmoments.core.observations import Observation
from fedmoments.settings.study import StudySettings
from fedmoments.study.papers import World, experiment, run_experiment
from fedmoments.study.papers.comparison import VERDICTS
from fedmoments.study.papers.outputs import plain_document, read_documents, write_index, write_outputs
from fedmoments.study.papers.pages import figure_files, index_summary, render_index, render_page, summary
from fedmoments.study.papers.pages.answer import (
    answer,
    claim_figures,
    disagrees,
    pair_rows,
    verdict_counts,
)
from fedmoments.study.papers.pages.figures import drawings
from fedmoments.study.papers.pages.grid import read_grid
from fedmoments.study.papers.pages.sides import read_sides
from fedmoments.study.papers.pages.words import MARKS

HOSTILE = "<img src=x onerror=alert(1)>|`*\n\x00"
SVG = "{http://www.w3.org/2000/svg}"


def cell(mean: float | None, paper: float | None, verdict: str, **more: Any) -> dict[str, Any]:
    difference = None if mean is None or paper is None else mean - paper
    plain: dict[str, Any] = {
        "mean": mean,
        "spread": None,
        "values": [] if mean is None else [mean],
        "reason": None,
        "paper": paper,
    }
    return plain | {"paper_spread": None, "difference": difference, "misprint": None, "verdict": verdict} | more


def document(mode: str = "computed", **more: Any) -> dict[str, Any]:
    """Return a small document with two rows, two columns and two blocks."""
    told: dict[str, Any] = {
        "name": "fedcof/table9",
        "title": "A table",
        "source": "Table 9",
        "about": "About it.",
        "needs": "nothing",
    }
    told |= {"engine": "communication", "long": False, "figures": [], "paper": "A. Author, A paper, 2025", "seeds": 1}
    told |= {"tolerance": 0.05, "notes": ["a note"], "misprints": []}
    blocks: list[dict[str, Any]] = [
        {"name": "one", "cells": [[cell(10.0, 10.0, "agrees"), cell(0.25, 0.5, "near")]] * 2},
        {"name": "two", "cells": [[cell(12.5, 12.5, "agrees"), cell(3.0, None, "")]] * 2},
    ]
    ours = [[cell(50.0, None, "", gain=None, gains=None)] * 2]
    ours += [[cell(53.0, None, verdict, gain=3.0, gains=[1.0, 7.5]) for verdict in ("in range", "opposite")]]
    table: dict[str, Any] = {
        "rows": ["FedNCM", "FedCOF"],
        "columns": ["a", "b"],
        "reference": "FedNCM",
        "units": "percent",
    }
    table |= {"ours": None if mode == "computed" else ours, "blocks": blocks}
    data: dict[str, Any] = {"name": "npz:/somewhere/toy.npz", "train": 60, "test": 20, "dim": 4, "classes": 3}
    plain: dict[str, Any] = {
        "format": 1,
        "version": "0.1.0",
        "command": "fedmoments reproduce fedcof/table9",
        "experiment": told,
    }
    plain |= {"mode": mode, "same_as": None, "settings": {"clients": [10]}, "seeds": [0, 1], "table": table}
    plain |= {"claims": [], "measurements": [], "deviations": ["2 seeds instead of 5"], "cached": 0, "seconds": 1.5}
    return plain | {"data": None if mode == "computed" else data | {"encoder": {"name": "identity"}}} | more


def with_figure(measurements: list[Observation], **figure: Any) -> dict[str, Any]:
    """Return a document with a figure alone."""
    drawn: dict[str, Any] = {
        "title": "A figure",
        "x": "clients",
        "series": ["head"],
        "panel": None,
        "quantity": "accuracy",
    }
    drawn |= {"where": {}, "form": "lines", "scale": "linear", "x_title": None, "y_title": None} | figure
    made = document(table=None, measurements=[each.to_dict() for each in measurements])
    made["experiment"]["figures"] = [drawn]
    return made


def curves(clients: tuple[int, ...] = (10, 100, 1000)) -> list[Observation]:
    """Return the accuracies of two heads, of two seeds each, and something else beside them."""
    found = [
        Observation({"head": head, "clients": k}, (base + 0.01 * math.log10(k), base + 0.05), seeds=(0, 1))
        for head, base in (("fedncm", 0.4), ("fedcof", 0.6))
        for k in clients
    ]
    return [*found, Observation({"head": "fedncm", "clients": 10}, (3.0,), "megabytes")]


def tags(page: str, name: str) -> list[str]:
    return re.findall(rf"<{name}[ >].*?</{name}>", page, flags=re.S)


def words_of(markup: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", markup).split())


# ---------------------------------------------------------------------------------------------- the page


def test_page_shows_every_cell_with_its_mark_and_the_paper_below() -> None:
    page = render_page(document())
    cells = [words_of(each) for each in tags(page, "td") if 'class="verdict' in each]
    assert (
        cells
        == [
            "10.0 ✓ agrees paper 10.0",
            "0.2 ≈ near paper 0.5",
            "12.5 ✓ agrees paper 12.5",
        ]
        * 2
    )
    legend = words_of(page.split('class="legend-words"')[1].split("</ul>")[0])
    assert "agrees: 4" in legend
    assert "near: 2" in legend
    assert VERDICTS["near"] in legend
    assert "differs" not in legend, "what does not occur is not explained"


def test_every_verdict_has_a_mark_besides_its_colour() -> None:
    assert set(MARKS) == set(VERDICTS)
    assert all(mark for verdict, mark in MARKS.items() if verdict)


def test_rows_and_columns_of_other_blocks_are_left_out_and_ours_alone_are_kept() -> None:
    blocks: list[dict[str, Any]] = [
        {"name": "one", "cells": [[cell(1.0, 1.0, "agrees"), cell(5.0, None, "")], [cell(2.0, None, "")] * 2]},
        {"name": "two", "cells": [[cell(3.0, None, "")] * 2, [cell(4.0, 4.0, "agrees"), cell(6.0, None, "")]]},
    ]
    table: dict[str, Any] = {
        "rows": ["x", "y"],
        "columns": ["printed", "ours alone"],
        "units": "MB",
        "ours": None,
        "blocks": blocks,
    }
    grid = read_grid(document(table=table))
    assert grid is not None
    assert [group.rows for group in grid.groups] == [(0,), (1,)]
    assert [group.columns for group in grid.groups] == [("printed", "ours alone")] * 2
    tables = [words_of(each) for each in tags(render_page(document(table=table)), "table")]
    tables = [table.removeprefix("Our numbers and the paper’s ") for table in tables]
    assert tables == ["one printed ours alone x 1 ✓ agrees paper 1 5", "two printed ours alone y 4 ✓ agrees paper 4 6"]


def test_many_blocks_fill_several_tables_in_order() -> None:
    blocks: list[dict[str, Any]] = [
        {"name": f"part {i}", "cells": [[cell(100.0 + i, 100.0 + i, "agrees")] * 2] * 2} for i in range(20)
    ]
    made = document()
    made["table"]["blocks"] = blocks
    tables = tags(render_page(made), "table")
    assert 2 <= len(tables) <= 5
    names = [re.findall(r'scope="colgroup"[^>]*><span[^>]*>(.*?)</span>', each) for each in tables]
    assert [name for each in names for name in each] == [f"part {i}" for i in range(20)]
    assert sum(each.count('class="verdict') for each in tables) == 80


def test_stand_in_data_are_judged_by_gains_and_said_to_be_so() -> None:
    made = document("stand-in")
    page = render_page(made)
    assert verdict_counts(made) == {"in range": 1, "opposite": 1}, "numbers of the blocks are no verdicts here"
    assert answer(made).startswith("The setting is reproduced, not the number: toy stands in for the paper’s data.")
    assert "1 of 2 gains over FedNCM lies within the paper’s range, 1 has the opposite sign." in answer(made)
    table = words_of(tags(page, "table")[0])
    assert "ours, on toy one two" in table
    assert "53.0 ✓ in range +3.0 (paper +1.0 to +7.5)" in table
    assert not disagrees(made)


def test_answers_count_numbers_misprints_and_claims() -> None:
    made = document()
    assert answer(made) == "4 of 6 numbers agree with the paper’s, 2 are near."
    assert disagrees(made)
    wrong = {"right": 0.25, "why": "the formula gives 0.25"}
    made["table"]["blocks"][0]["cells"] = [[cell(10.0, 10.0, "agrees"), cell(0.25, 0.5, "misprint", misprint=wrong)]]
    made["table"]["blocks"].pop()
    made["claims"] = [{"verdict": "holds"}, {"verdict": "fails"}, {"verdict": "in part"}]
    assert answer(made) == (
        "1 of 2 numbers agrees with the paper’s, 1 is a misprint of the paper. "
        "1 of 3 claims holds, 1 holds in part and 1 fails."
    )
    assert not disagrees(made)
    made["claims"] = [{"verdict": "holds"}] * 2
    assert answer(made).endswith("Both claims hold.")


def test_misprints_are_explained() -> None:
    made = document()
    why = "The sum of the row says so."
    made["experiment"]["misprints"] = [
        {"block": "one", "row": "FedCOF", "column": "b", "printed": 0.5, "right": 0.25, "why": why}
    ]
    words = words_of(render_page(made))
    assert f"one, FedCOF, b : the paper prints 0.5, right is 0.25. {why}" in words
    assert f"the paper prints 0.5, right is 0.25. {why}" in summary(made)


def claim(**more: Any) -> dict[str, Any]:
    pairs = [
        {"where": {"clients": k, "split": "iid"}, "left": 0.6, "right": 0.5, "difference": d, "error": 0.002}
        | {"holds": d > 0, "clear": True}
        for k, d in ((10, 0.1), (100, -0.02))
    ]
    plain: dict[str, Any] = {
        "id": "c",
        "text": "It is better",
        "relation": "above",
        "margin": 0.0,
        "left": {"head": "fedcof"},
    }
    return plain | {"right": {"head": "fedncm"}, "verdict": "in part", "pairs": pairs} | more


def test_claims_are_shown_with_their_settings_folded() -> None:
    page = render_page(document(claims=[claim()]))
    found = page.split('class="claims"')[1].split("</section>")[0]
    assert "≈" in found
    assert "−2.0 to +10.0 points in 2 settings, kept in 1" in words_of(found)
    assert "<details><summary>2 settings, one by one" in found
    rows = [words_of(row) for row in tags(found, "tr")]
    assert rows[1:] == ["10 clients 60.0 50.0 +10.0 ± 0.2 holds", "100 clients 60.0 50.0 −2.0 ± 0.2 fails"]


def test_claims_of_other_quantities_keep_their_units() -> None:
    pair: dict[str, Any] = {
        "where": {"d": 512},
        "left": 5.0,
        "right": 31.5,
        "difference": -26.5,
        "error": 0.0,
        "holds": True,
    }
    made = claim(left={"head": "fedcof", "quantity": "megabytes"}, relation="below", pairs=[pair | {"clear": True}])
    assert claim_figures(made) == "−26.5"
    assert pair_rows(made) == [("d 512", "5", "31.5", "−26.5", "holds")]


def hostile() -> dict[str, Any]:
    """Return a document in which every name would be markup if it could."""
    where: dict[str, Any] = {"head": HOSTILE, HOSTILE: HOSTILE, "clients": 10}
    made = with_figure([Observation(where, (0.5, 0.6), seeds=(0, 1))], title=HOSTILE, panel=HOSTILE, x_title=HOSTILE)
    other = document("stand-in")
    other["experiment"] |= {"title": HOSTILE, "about": HOSTILE, "paper": HOSTILE, "source": HOSTILE, "notes": [HOSTILE]}
    other["experiment"] |= {"figures": made["experiment"]["figures"], "name": HOSTILE}
    misprint = {"block": HOSTILE, "row": HOSTILE, "column": HOSTILE, "printed": 1.0, "right": 2.0, "why": HOSTILE}
    other["experiment"]["misprints"] = [misprint]
    other["table"] |= {"rows": [HOSTILE, "b"], "columns": [HOSTILE, "b"], "reference": HOSTILE}
    other["table"]["blocks"][0]["name"] = HOSTILE
    other["data"] |= {"name": HOSTILE, "encoder": {"name": HOSTILE}, "fingerprints": {HOSTILE: HOSTILE}}
    other |= {"measurements": made["measurements"], "deviations": [HOSTILE], "command": HOSTILE, "version": HOSTILE}
    return other | {"claims": [claim(text=HOSTILE, id=HOSTILE)], "settings": {HOSTILE: [HOSTILE]}}


@pytest.mark.parametrize("render", [render_page, lambda made: render_index([made, made]), summary])
def test_names_never_become_markup(render: Any) -> None:
    page = render(hostile())
    assert "<img" not in page
    assert "\x00" not in page


def test_figures_of_hostile_names_are_sound_files() -> None:
    (drawn,) = figure_files(hostile())
    assert "<img" not in drawn
    ET.fromstring(drawn)


@pytest.mark.parametrize("made", [document(), document("stand-in"), with_figure(curves())])
def test_pages_fetch_nothing(made: dict[str, Any]) -> None:
    for page in (render_page(made), render_index([made, made])):
        without = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|<script src|@import|url\(", without)
        assert "default-src &#x27;none&#x27;" in page


def test_a_page_needs_no_more_than_a_name() -> None:
    page = render_page({"experiment": {"name": "fedcof/table1"}})
    assert "nothing of the paper’s to compare with" in page


# ---------------------------------------------------------------------------------------------- figures


def drawing_of(measurements: list[Observation], **figure: Any) -> Any:
    (found,) = drawings(with_figure(measurements, **figure))
    return found


def test_a_figure_has_a_line_for_each_series_and_the_places_as_ticks() -> None:
    made = with_figure(curves(), scale="log")
    (text,) = figure_files(made)
    drawn = ET.fromstring(text)
    lines = [each for each in drawn.iter(f"{SVG}g") if "series" in (each.get("class") or "")]
    assert [each.get("data-head") for each in lines] == ["FedNCM", "FedCOF"]
    assert [len(each.findall(f"{SVG}path")) for each in lines] == [1, 1]
    assert [len(each.findall(f"{SVG}g")) for each in lines] == [3, 3], "a point for every number of clients"
    ticks = [each.text for each in drawn.iter(f"{SVG}text") if each.get("class") == "tick"]
    assert [tick for tick in ticks if tick in ("10", "100", "1,000")] == ["10", "100", "1,000"]
    titles = [each.text for each in drawn.iter(f"{SVG}text") if each.get("class") == "axis-title"]
    assert titles == ["accuracy, %", "clients (logarithmic)"]


def test_points_are_means_with_spreads_and_tell_their_numbers() -> None:
    drawing = drawing_of(curves((10,)))
    (first, second) = drawing.panels[0].series
    assert first.points[0].y == pytest.approx((0.41 + 0.45) / 2)
    assert first.points[0].high - first.points[0].y == pytest.approx(0.04 / math.sqrt(2))
    assert second.points[0].tip == "FedCOF, clients 10: 63.0 ± 2.8 %"


def close(step: float) -> list[Observation]:
    """Return accuracies of one head and one seed that grow by a step from one number of clients to the next."""
    return [
        Observation({"head": "fedcof", "clients": k}, (0.9 + i * step,), seeds=(0,)) for i, k in enumerate((1, 2, 3))
    ]


def test_accuracies_within_noise_are_drawn_before_a_band_as_high_as_the_noise() -> None:
    made = with_figure(close(0.001))
    made["data"] = {"test": 1000}
    drawn = ET.fromstring(figure_files(made)[0])
    plot, swatch = [each for each in drawn.iter(f"{SVG}rect") if each.get("class") == "noise"]
    assert float(plot.get("width") or 0) > float(swatch.get("width") or 0)
    (words,) = [each.text or "" for each in drawn.iter(f"{SVG}text") if each.get("class") == "rule-words"]
    half = 2 * math.sqrt(0.9 * 0.1 / 1000)
    assert words == f"noise of 1,000 test samples, 1 seed: ±{100 * half:.2g} points"
    ticks = {each.text: float(each.get("y") or 0) for each in drawn.iter(f"{SVG}text") if each.get("class") == "tick"}
    levels = sorted((float(text), y) for text, y in ticks.items() if text and float(text) > 50)
    (low, below), (high, above) = levels[0], levels[-1]
    pixels = (below - above) / (high - low)  # to a point of accuracy
    assert float(plot.get("height") or 0) == pytest.approx(2 * 100 * half * pixels, abs=1.0)
    assert low <= 100 * (0.901 - half)
    assert high >= 100 * (0.901 + half)


@pytest.mark.parametrize(("step", "test"), [(0.04, 1000), (0.001, None)])
def test_no_band_where_accuracies_are_far_apart_or_the_test_samples_unknown(step: float, test: int | None) -> None:
    made = with_figure(close(step))
    made["data"] = {"test": test}
    assert "noise" not in {each.get("class") for each in ET.fromstring(figure_files(made)[0]).iter(f"{SVG}rect")}


def test_each_group_of_close_accuracies_has_its_band_and_bands_never_touch() -> None:
    far = [Observation({"head": "fedncm", "clients": k}, (0.7,), seeds=(0,)) for k in (1, 2, 3)]
    made = with_figure([*close(0.001), *far])
    made["data"] = {"test": 1000}
    drawn = ET.fromstring(figure_files(made)[0])
    found = [each for each in drawn.iter(f"{SVG}rect") if each.get("class") == "noise"]
    spans = sorted(
        (float(each.get("y") or 0), float(each.get("y") or 0) + float(each.get("height") or 0))
        for each in found
        if each.get("x") != "0"
    )
    assert len(spans) == 2
    assert len(found) == 3, "the field beside the words stands once"
    assert spans[0][1] < spans[1][0]


def test_points_lie_where_their_numbers_say() -> None:
    (text,) = figure_files(with_figure(curves(), scale="log"))
    drawn = ET.fromstring(text)
    (path,) = list(drawn.iter(f"{SVG}path"))[:1]
    places = [tuple(map(float, each.split(","))) for each in re.split("[ML]", path.get("d") or "")[1:]]
    across = [x for x, _ in places]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2), "a decade is as wide as the next"
    assert places[0][1] > places[2][1], "more is higher"


def test_words_at_the_end_of_a_colon_are_numbers_and_zero_has_a_place_on_a_logarithmic_scale() -> None:
    found = [Observation({"head": "fedcof", "shrinkage": f"absolute:{g}"}, (0.5,)) for g in (0, 0.1, 1)]
    drawing = drawing_of(found, x="shrinkage", scale="log")
    assert [words for _, words in drawing.places] == ["0", "0.1", "1"]
    assert 0 < drawing.places[0][0] < 0.1
    words = [*found, Observation({"head": "fedcof", "shrinkage": "automatic"}, (0.6,))]
    drawing = drawing_of(words, x="shrinkage", scale="log")
    assert drawing.across.kind == "words"
    assert [word for _, word in drawing.places] == ["absolute:0", "absolute:0.1", "absolute:1", "automatic"]


def test_bars_stand_on_zero_in_groups() -> None:
    (text,) = figure_files(with_figure(curves(), form="bars", scale="words"))
    drawn = ET.fromstring(text)
    lines = [each for each in drawn.iter(f"{SVG}g") if each.get("data-head")]
    bars = [[each for each in line.iter(f"{SVG}rect") if each.get("class") == "marker"] for line in lines]
    assert [len(each) for each in bars] == [3, 3]
    feet = {round(float(bar.get("y") or 0) + float(bar.get("height") or 0), 0) for each in bars for bar in each}
    assert len(feet) == 1
    ticks = [each.text for each in drawn.iter(f"{SVG}text") if each.get("class") == "tick"]
    assert {"0", "10 clients", "100 clients"} <= set(ticks)
    high = [float(each[0].get("height") or 0) for each in bars]
    assert high[1] / high[0] == pytest.approx(0.63 / 0.43, rel=0.01)


def test_panels_share_scales_and_styles() -> None:
    found = [
        Observation({"head": head, "clients": k, "split": split}, (0.5 + 0.1 * i,))
        for i, (head, split) in enumerate([("fedncm", "iid"), ("fedcof", "dirichlet:0.1"), ("fedncm", "dirichlet:0.1")])
        for k in (10, 20)
    ]
    drawing = drawing_of(found, panel="split")
    assert [panel.title for panel in drawing.panels] == ["IID", "Dirichlet 0.1"]
    assert [[(each.name, each.style.colour) for each in panel.series] for panel in drawing.panels] == [
        [("FedNCM", 0)],
        [("FedNCM", 0), ("FedCOF", 1)],
    ]
    page = render_page(with_figure(found, panel="split"))
    assert page.count('class="facet"') == 2


def test_other_quantities_have_their_own_scale() -> None:
    found = [Observation({"head": "fedcof", "clients": k}, (2.5 * k,), "megabytes") for k in (10, 20)]
    drawing = drawing_of(found, quantity="megabytes", y_title="MB up")
    assert (drawing.share, drawing.y_title) == (False, "MB up")
    (text,) = figure_files(with_figure(found, quantity="megabytes"))
    assert ">50<" in text
    wide = [Observation({"head": "fedcof", "clients": k}, (10.0**k,), "megabytes") for k in (0, 3, 6)]
    (text,) = figure_files(with_figure(wide, quantity="megabytes"))
    assert "megabytes (logarithmic)" in text
    assert ">1,000,000<" in text


def test_accuracies_by_round_are_shares_too() -> None:
    found = [Observation({"head": "fedcof", "clients": k}, (0.5,), "accuracy by round") for k in range(31)]
    made = with_figure(found, quantity="accuracy by round", y_title="accuracy")
    (drawing,) = drawings(made)
    assert (drawing.share, drawing.y_title) == (True, "accuracy, %")
    (text,) = figure_files(made)
    ticks = [each.text for each in ET.fromstring(text).iter(f"{SVG}text") if each.get("class") == "tick"]
    assert [tick for tick in ticks if tick in ("0", "5", "10", "15", "20", "25", "30")][-3:] == ["20", "25", "30"]
    assert "29" not in ticks, "so many places are no ticks of their own"


def test_a_point_alone_is_named_beside_itself() -> None:
    alone = Observation({"head": "gh-lda", "clients": 10}, (0.5,))
    (text,) = figure_files(with_figure([*curves(), alone], scale="log"))
    labels = {
        each.text: float(each.get("x") or 0) for each in ET.fromstring(text).iter(f"{SVG}text") if each.get("class")
    }
    assert labels["GH-LDA"] < 200 < labels["FedNCM"] == labels["FedCOF"]


def test_many_points_have_a_band_instead_of_markers() -> None:
    (text,) = figure_files(with_figure(curves(tuple(range(1, 200)))))
    assert text.count('class="band"') == 2
    assert 'class="marker"' not in text


def test_a_figure_of_which_nothing_was_measured_is_left_out() -> None:
    assert figure_files(with_figure(curves(), where={"head": "another"})) == []
    assert figure_files(with_figure([Observation({"clients": 1}, (None,), reason="too few")], series=[])) == []


# ---------------------------------------------------------------------------------------------- Markdown and files


def parsed(text: str) -> list[list[list[str]]]:
    """Return the tables of a Markdown text, cell by cell."""
    tables: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append([each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


def test_summary_has_tables_that_parse() -> None:
    made = document("stand-in", claims=[claim(text="a | b")])
    made["table"]["rows"][1] = "Fed|COF"
    table, claims = parsed(summary(made))
    assert {len(row) for row in table} == {6}, "two of ours, two of the first block, one of the second"
    assert table[0] == ["", "ours, on toy: a", "ours, on toy: b", "one: a", "one: b", "two"]
    assert table[3][:2] == ["Fed\\|COF", "53.0 ✓ +3.0 (paper +1.0 to +7.5)"]
    assert claims[2] == ["≈ in part", "a \\| b", "−2.0 to +10.0 points in 2 settings, kept in 1"]
    assert "- 2 seeds instead of 5" in summary(made)


def test_summary_of_computed_numbers_names_the_paper_where_it_differs() -> None:
    (table,) = parsed(summary(document()))
    assert table[2][1:3] == ["10.0 ✓", "0.2 ≈ (paper 0.5)"]


def test_files_are_whole_and_old_figures_go(tmp_path: Path) -> None:
    made = with_figure(curves())
    made["measurements"][0]["values"][0] = math.nan
    files = {path.name: path for path in write_outputs(made, tmp_path)}
    names = ["results.json", "measurements.csv", "report.html", "summary.md", "figure-1.svg"]
    assert list(files) == names
    assert files["report.html"].parent == tmp_path / "no-data" / "fedcof-table9"
    assert json.loads(files["results.json"].read_text("utf-8"))["measurements"][0]["values"][0] is None
    rows = list(csv.DictReader(files["measurements.csv"].read_text("utf-8").splitlines()))
    assert len(rows) == 13, "a line for every seed"
    assert rows[1] == {
        "head": "fedncm",
        "clients": "10",
        "quantity": "accuracy",
        "seed": "1",
        "value": "0.45",
        "reason": "",
    }
    assert "![A figure](figure-1.svg)" in files["summary.md"].read_text("utf-8")
    write_outputs(document(), tmp_path)
    assert not files["figure-1.svg"].exists()


def test_index_tells_every_claim_over_all_experiments(tmp_path: Path) -> None:
    write_outputs(document(claims=[claim()]), tmp_path)
    assert write_index(tmp_path) == []
    other = document("stand-in", claims=[claim(verdict="holds"), claim(id="other", verdict="holds")])
    other["experiment"] |= {"name": "fedncm/algorithm1"}
    other["data"] = {"name": "npz:/a/sites.npz", "encoder": {"name": "identity"}}
    write_outputs(other, tmp_path)
    (tmp_path / "junk" / "junk").mkdir(parents=True)
    (tmp_path / "junk" / "junk" / "results.json").write_text("[", "utf-8")
    assert [each["experiment"]["name"] for each in read_documents(tmp_path)] == ["fedncm/algorithm1", "fedcof/table9"]
    page, text = (path.read_text("utf-8") for path in write_index(tmp_path))
    assert 'href="sites/fedncm-algorithm1/report.html"' in page
    assert "1 of 2 claims holds everywhere tested." in words_of(page)
    experiments, claims, *_ = parsed(text)
    assert experiments[2][:2] == ["[fedncm/algorithm1](sites/fedncm-algorithm1/summary.md)", "sites"]
    assert claims[0] == ["what the paper says", "where", "sites", "no data"]
    assert [row[1] for row in claims[2:]] == ["fedncm/algorithm1", "fedcof/table9", "fedncm/algorithm1"]
    assert [row[2][:1] for row in claims[2:]] == ["✓", "", "✓"]
    assert claims[3][3].startswith("≈")
    assert index_summary(read_documents(tmp_path)) == text


def test_results_on_other_data_stand_side_by_side(tmp_path: Path) -> None:
    """The same experiment on two data sets: neither replaces the other, and each claim has a column for each."""
    for name in ("here.npz", "there.npz"):
        made = document("stand-in", claims=[claim(verdict="holds")])
        write_outputs({**made, "data": {"name": f"npz:/a/{name}", "encoder": {"name": "identity"}}}, tmp_path)
    _, text = (path.read_text("utf-8") for path in write_index(tmp_path))
    assert text.startswith("# 1 table or figure of the papers, reproduced")
    assert parsed(text)[1][0] == ["what the paper says", "where", "here", "there"]


def test_a_real_experiment_becomes_a_page(tmp_path: Path) -> None:
    found = run_experiment(experiment("fedcof/table1"), World(StudySettings(), cache_dir=False))
    files = write_outputs(found, tmp_path)
    page = next(path for path in files if path.name == "report.html").read_text("utf-8")
    assert "numbers are what the paper’s formulas give" in page
    assert page.count('class="verdict v-as-derived') == sum(verdict_counts(found).values())
    assert plain_document(found)["experiment"]["name"] == "fedcof/table1"


def test_tables_of_several_data_sets_stand_side_by_side() -> None:
    """A data set with nothing measured has no column; the paper's range covers all of its blocks."""

    def of(name: str, means: list[float | None]) -> dict[str, Any]:
        ours = [[{"mean": mean, "spread": 0.2 if mean else None, "verdict": ""}] for mean in means]
        printed = [[[{"paper": low}], [{"paper": None}]] for low in (41.5, 23.8)]
        table = {"rows": ["FedNCM", "automatic"], "columns": ["accuracy"], "ours": ours}
        told = {"name": "fedcof/table3", "source": "Table 3", "title": "A <title>"}
        return {
            "mode": "stand-in",
            "data": {"name": f"npz:{name}.npz"},
            "experiment": told,
            "table": {**table, "blocks": [{"cells": cells} for cells in printed]},
        }

    documents = [of("one", [90.0, 91.0]), of("two", [None, 12345.0]), of("three", [None, None])]
    side = read_sides(documents)[0]
    assert side.labels == ("one", "two")
    assert side.rows == (
        ("FedNCM", "90.0 ± 0.2", "–", "23.8 to 41.5"),
        ("automatic", "91.0 ± 0.2", "12,345 ± 0.2", "–"),
    )
    text = index_summary(documents)
    assert "|  | one | two | the paper, on its data |" in text
    page = render_index(documents)
    assert "A &lt;title&gt;" in page
    assert "<title>" not in page.split("</title>", 1)[1]
    assert read_sides([{**documents[0], "mode": "computed"}]) == []
