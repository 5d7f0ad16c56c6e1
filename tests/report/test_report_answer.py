"""The two sentences at the top say what the rows say."""

import html
import re
from collections.abc import Callable
from typing import Any

from fedmoments.report import render

Make = Callable[..., dict[str, Any]]


def sentences(*rows: dict[str, Any]) -> tuple[str, str]:
    page = render({"data": {"classes": 3}, "seeds": 1, "rows": list(rows)})
    found = re.search(r"<h1>(.*?)</h1><p class=\"answer\">(.*?)</p>", page, re.S)
    assert found
    plain = [html.unescape(re.sub("<[^>]+>", "", part)).replace("\u202f", " ") for part in found.groups()]
    return plain[0], plain[1]


def test_best_of_the_cheapest_and_best_of_all(make_row: Make) -> None:
    asked, answered = sentences(
        make_row("fedncm", 0.807, 5242.1), make_row("fedcof", 0.92, 5242.1), make_row("gh-qda", 0.951, 524_210.0)
    )
    assert asked == "With 8 clients (Dirichlet 0.1), what can be learned from one upload?"
    assert answered == (
        "fedcof reaches 92.0 % with 5.2 kB a client, 11.3 points above fedncm at the same bytes; "
        "the best head, gh-qda, reaches 95.1 % with 524 kB (100 times as much)."
    )


def test_cheapest_is_best_of_all(make_row: Make) -> None:
    _, answered = sentences(make_row("fedcof", 0.92, 100.0), make_row("gh-qda", 0.9, 900.0))
    assert answered == "fedcof reaches 92.0 % with 100 B a client; no head does better, whatever it sends."


def test_baseline_is_best_of_the_cheapest(make_row: Make) -> None:
    _, answered = sentences(make_row("fedncm", 0.92, 100.0), make_row("fedcof", 0.9, 100.0))
    assert "fedncm reaches 92.0 % with 100 B a client, the most of all heads that send as little" in answered


def test_equal_heads_are_called_equal(make_row: Make) -> None:
    _, answered = sentences(make_row("lda-free", 0.92, 100.0), make_row("fedncm", 0.92, 100.0))
    assert "as fedncm does at the same bytes" in answered


def test_one_head(make_row: Make) -> None:
    assert sentences(make_row("fed3r", 0.5, 100.0))[1] == "fed3r reaches 50.0 % with 100 B a client."


def test_no_fitted_head(make_row: Make) -> None:
    _, answered = sentences(make_row("gh-qda", None, 100.0, reasons=["memory is short"]))
    assert answered == "No head could be fitted: memory is short."


def test_no_rows() -> None:
    assert sentences()[1] == "No head could be fitted."


def test_unknown_bytes(make_row: Make) -> None:
    _, answered = sentences(make_row("fedcof", 0.5, 0.0), make_row("fed3r", 0.6, 0.0))
    assert answered == "fed3r is the best head and reaches 60.0 %."


def test_sweep_names_the_range_and_the_setting(make_row: Make) -> None:
    rows = [make_row("fedcof", 0.9, 100.0, clients=k, split=s) for s in ("iid", "dirichlet:0.1") for k in (10, 100)]
    asked, answered = sentences(*rows)
    assert asked == "With 10 to 100 clients (IID and Dirichlet 0.1), what can be learned from one upload?"
    assert answered.startswith("In the first of 4 settings (10 clients, IID), fedcof reaches 90.0 %")


def test_clients_of_the_data_are_counted_by_their_uploads(make_row: Make) -> None:
    asked, _ = sentences(make_row("fedcof", 0.9, 100.0, clients=None, split="domain"))
    assert asked.startswith("With 8 clients (one domain each)")
