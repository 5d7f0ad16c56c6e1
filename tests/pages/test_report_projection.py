"""Projections, baselines and notes on the page."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest

from fedmoments.pages import render

Make = Callable[..., dict[str, Any]]


def words_of(page: str) -> str:
    body = re.sub(r"<(script|style|title)[^>]*>.*?</\1>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", body)).replace("\u202f", " ").split())


def answer_of(page: str) -> str:
    (found,) = re.findall(r'<p class="answer">(.*?)</p>', page, re.S)
    return html.unescape(re.sub("<[^>]+>", "", found)).replace("\u202f", " ")


def section(page: str, name: str) -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>', page, re.S)
    return str(found)


@pytest.fixture
def swept(make_row: Make) -> dict[str, Any]:
    """Two heads over four dimensions: accuracy falls, and so do bytes."""
    steps = [(None, 0.9, 9000.0), (256, 0.88, 4000.0), (128, 0.84, 1100.0), (64, 0.75, 300.0)]
    rows = [
        make_row(head, accuracy - loss, size * more, projection=k)
        for k, accuracy, size in steps
        for head, loss, more in (("gh-lda", 0.0, 1.0), ("gh-nb", 0.05, 0.5))
    ]
    return {"data": {"dim": 384}, "seeds": 2, "rows": rows}


def test_a_sweep_over_dimensions_is_drawn_against_their_number(swept: dict[str, Any]) -> None:
    drawn = section(render(swept), "sweep")
    assert "How accuracy changes with the dimension of a random projection." in words_of(drawn)
    assert "dimensions measured (logarithmic)" in words_of(drawn)
    ticks = dict(re.findall(r'x="([-0-9.]+)"[^>]*class="tick">(full|256|128|64)<', drawn)[:4])
    assert [word for _, word in sorted((float(x), word) for x, word in ticks.items())] == ["64", "128", "256", "full"]
    paths = re.findall(r'<path d="([^"]*)" class="line">', drawn)
    assert [re.sub(r"[^ML]", "", path) for path in paths] == ["MLLL"] * 4, "full is joined: it is d dimensions"
    titles = html.unescape(drawn).replace("\u202f", " ")
    assert "gh-lda, projected to 128 dimensions: 84.0 % ± 0.4, 1.1 kB per client" in titles
    assert "gh-nb, all dimensions: 85.0 % ± 0.4, 4.5 kB per client" in titles


def test_dimensions_are_words_when_the_whole_is_unknown(swept: dict[str, Any]) -> None:
    drawn = section(render({**swept, "data": {}}), "sweep")
    assert "(logarithmic)" not in drawn


def test_bytes_are_drawn_over_all_dimensions_in_one_figure(swept: dict[str, Any]) -> None:
    drawn = section(render(swept), "bytes")
    assert "<select" not in drawn
    labels = set(re.findall(r'class="label">([^<]*)<', drawn))
    assert {"gh-lda", "gh-lda 256", "gh-nb 64"} <= labels
    assert "On the frontier: gh-nb 64 70.0\u202f% with 150\u202fB; gh-lda 64" in drawn
    assert "A number after a head is the dimension of a random projection." in words_of(drawn)


def test_other_sweeps_still_choose_a_setting(swept: dict[str, Any], make_row: Make) -> None:
    more = [make_row("gh-lda", 0.5, 100.0, projection=k, clients=99) for k in (None, 64)]
    page = render({**swept, "rows": swept["rows"] + more})
    assert re.findall(r"<option[^>]*>([^<]*)</option>", section(page, "bytes")) == ["8 clients", "99 clients"]
    assert "In the first of 6 settings (8 clients, all dimensions), gh-nb reaches" in answer_of(page)


def test_the_table_sorts_dimensions_as_numbers(swept: dict[str, Any]) -> None:
    table = section(render(swept), "heads")
    assert "Projection" in words_of(table)
    assert re.findall(r'<td data-value="([0-9.]+)" class="number">(full|64)</td>', table)[0] == ("384", "full")


# -------------------------------------------------------------------------------------------------- baselines


def with_baselines(make_row: Make, best: float) -> dict[str, Any]:
    rows = [make_row("fedncm", 0.8, 500.0), make_row("gh-lda", 0.9, 9000.0)]
    baseline = {"baseline": True, "sends": "a linear head", "client_seconds": 3.5}
    rows += [make_row("ensemble", 0.4, 100.0, **baseline), make_row("fedpft", best, 40_000.0, **baseline)]
    return {"data": {}, "seeds": 1, "rows": rows}


def test_a_baseline_is_never_recommended_as_a_head(make_row: Make) -> None:
    page = render(with_baselines(make_row, 0.7))
    assert answer_of(page) == (
        "fedncm reaches 80.0 % with 500 B per client; "
        "the best head, gh-lda, reaches 90.0 % with 9.0 kB (18 times as much)."
    )
    (title,) = set(re.findall(r"On the frontier: ([^<]*)<", section(page, "bytes")))
    assert "ensemble" not in title
    assert "fedpft" not in title


def test_a_baseline_that_beats_every_head_is_not_hidden(make_row: Make) -> None:
    told = answer_of(render(with_baselines(make_row, 0.95)))
    assert told.endswith("(18 times as much). A baseline, fedpft, reaches 95.0 % with 40.0 kB per client.")


def test_baselines_alone_are_no_heads(make_row: Make) -> None:
    results = with_baselines(make_row, 0.7)
    page = render({**results, "rows": results["rows"][2:]})
    assert answer_of(page) == (
        "No head was run, only baselines. A baseline, fedpft, reaches 70.0 % with 40.0 kB per client."
    )
    assert 'class="frontier"' not in page


def test_baselines_are_marked_and_muted(make_row: Make) -> None:
    page = render(with_baselines(make_row, 0.95))
    table, figure = section(page, "heads"), section(page, "bytes")
    assert re.findall(r'<tr data-head="([^"]*)"><th scope="row">[^<]*<span class="minor"> baseline', table) == [
        "fedpft",
        "ensemble",
    ]
    assert "Clients’ work" in table
    assert "3.5 s" in words_of(table)
    assert "what their clients send does not add up" in words_of(table)
    squares = [each for each in re.findall(r'<polygon points="([^"]*)" class="dot"', figure) if len(each.split()) == 4]
    assert len(squares) == 4, "two baselines in two widths"
    assert 'class="label quiet">fedpft' in figure
    assert "Grey squares are baselines, for comparison; they are not part of the line." in words_of(figure)
    without = render({"data": {}, "rows": [make_row("fedncm", 0.8, 500.0)]})
    assert "aseline" not in words_of(without)
    assert "Clients’ work" not in without


# -------------------------------------------------------------------------------------------------- notes


def test_what_was_fitted_in_a_lesser_way_is_told_once_a_head(make_row: Make) -> None:
    told = ["the teacher <teaches> nothing"]
    rows = [make_row("proto-hyper", 0.8, 500.0, notes=told, clients=k) for k in (5, 10)]
    page = render({"data": {}, "seeds": 1, "rows": [*rows, make_row("gh-lda", 0.9, 9000.0)]})
    notes = words_of(section(page, "notes"))
    assert "Fitted with a fallback proto-hyper : the teacher <teaches> nothing" in notes
    assert notes.count("teaches") == 1
    assert '<section id="notes"' not in render({"data": {}, "rows": [make_row("gh-lda", 0.9, 9000.0)]})


def test_what_a_head_chose_is_told_once_for_the_first_setting(make_row: Make) -> None:
    rows = [make_row("gh-auto", 0.8, 500.0, choice=f"chose qda: p < {k}", clients=k) for k in (5, 10)]
    notes = words_of(section(render({"data": {}, "seeds": 1, "rows": rows}), "notes"))
    assert "Chosen from the statistics, on the first seed gh-auto chose qda: p < 5 (5 clients)" in notes
    assert notes.count("chose qda") == 1
