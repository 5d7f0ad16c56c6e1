"""Rows of several budgets: in the answer, the figure of bytes, the table and the sweep."""

import html
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from fedmoments.pages import render

Make = Callable[..., dict[str, Any]]
#: Budget, accuracy and bytes of a head on sketches.
STEPS = [("means/4", 0.85, 1250.0), ("means/2", 0.88, 2500.0), ("means", 0.9, 4990.0), ("means*4", 0.91, 19_900.0)]


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
    """One head on sketches under four budgets, and two others that have none."""
    rows = [make_row("fedcof", 0.87, 5000.0, budget=None), make_row("fed3r", 0.905, 80_000.0, budget=None)]
    rows += [make_row("sketch", accuracy, size, budget=budget) for budget, accuracy, size in STEPS]
    return {"data": {"dim": 64}, "seeds": 2, "rows": rows}


def test_all_budgets_are_in_one_figure_with_the_heads_that_have_none(swept: dict[str, Any]) -> None:
    drawn = section(render(swept), "bytes")
    assert "<select" not in drawn
    labels = set(re.findall(r'class="label">([^<]*)<', drawn))
    assert labels == {"sketch means/4", "sketch means/2", "sketch means", "sketch means*4", "fedcof", "fed3r"}
    assert "On the frontier: sketch means/4 85.0\u202f% with 1.2\u202fkB; sketch means/2" in drawn
    assert "A word after a head is the client’s budget of bytes." in words_of(drawn)


def test_the_answer_compares_over_all_budgets(swept: dict[str, Any]) -> None:
    assert answer_of(render(swept)) == (
        "sketch means/4 reaches 85.0 % with 1.2 kB per client; the best head, sketch means*4, reaches 91.0 % with "
        "19.9 kB (16 times as much)."
    )


def test_a_sweep_over_budgets_is_drawn_against_bytes(swept: dict[str, Any]) -> None:
    drawn = section(render(swept), "sweep")
    words = words_of(drawn)
    assert "How accuracy changes with the bytes that a client may send." in words
    assert "bytes sent per client (logarithmic)" in words
    chart = re.findall(r"<svg .*?</svg>", drawn, re.S)[0]
    paths = dict(re.findall(r'data-head="([^"]*)"><path d="([^"]*)"', chart))
    assert [re.sub("[^ML]", "", paths[head]) for head in ("fedcof", "fed3r", "sketch")] == ["M", "M", "MLLL"]
    across = [float(x) for x in re.findall(r"[ML]([\d.]+),", paths["sketch"])]
    rates = [(across[i] - across[0]) / math.log(STEPS[i][2] / STEPS[0][2]) for i in (1, 2, 3)]
    assert rates == pytest.approx([rates[0]] * 3, rel=5e-3)
    titles = html.unescape(drawn).replace("\u202f", " ")
    assert "sketch, budget means/2: 88.0 % ± 0.4, 2.5 kB per client" in titles
    assert "fedcof, no budget: 87.0 % ± 0.4, 5.0 kB per client" in titles


def test_budgets_are_words_when_bytes_are_unknown(swept: dict[str, Any]) -> None:
    for row in swept["rows"]:
        for outcome in row["seeds"]:
            outcome["coded_bytes"] = 0
    drawn = section(render(swept), "sweep")
    assert "(logarithmic)" not in drawn
    assert {"none", "means/4", "means/2", "means", "means*4"} <= set(re.findall(r'class="tick">([^<]*)<', drawn))


def test_the_table_sorts_budgets_by_bytes(swept: dict[str, Any]) -> None:
    table = section(render(swept), "heads")
    assert "Budget" in words_of(table)
    cells = re.findall(r'<td data-value="([0-9.]+)" class="number">(none|means[^<]*)</td>', table)
    assert [word for _, word in sorted((float(size), word) for size, word in cells)] == [
        *("means/4", "means/2", "means", "none", "means*4", "none")
    ]


def test_a_head_that_sends_the_same_under_every_budget_is_drawn_once_under_its_name(
    swept: dict[str, Any], make_row: Make
) -> None:
    same = [make_row("idle", 0.8, 3000.0, budget=budget) for budget, _, _ in STEPS]
    drawn = section(render({**swept, "rows": swept["rows"] + same}), "bytes")
    labels = re.findall(r'class="label">([^<]*)<', drawn)
    assert labels.count("idle") == 2, "once in each width"
    assert not [label for label in labels if label.startswith("idle ")]


def test_other_sweeps_choose_among_settings_whatever_the_budget(swept: dict[str, Any], make_row: Make) -> None:
    more = [make_row("sketch", 0.5, size, budget=budget, clients=99) for budget, _, size in STEPS]
    page = render({**swept, "rows": swept["rows"] + more})
    assert re.findall(r"<option[^>]*>([^<]*)</option>", section(page, "bytes")) == ["8 clients", "99 clients"]
    assert answer_of(page).startswith("In the first of 2 settings (8 clients), sketch means/4 reaches 85.0 %")
    assert "99 clients" in words_of(section(page, "sweep")), "a chart each"


def test_a_single_budget_is_not_named_and_old_results_have_none(make_row: Make) -> None:
    one = render({"data": {}, "rows": [make_row("sketch", 0.9, 500.0, budget="means")]})
    assert answer_of(one) == "sketch reaches 90.0 % with 500 B per client."
    assert '<section id="sweep"' not in one
    assert "udget" not in words_of(section(one, "heads"))
    old = render({"data": {}, "rows": [make_row("fedncm", 0.9, 500.0)]})
    assert "udget" not in words_of(old)
