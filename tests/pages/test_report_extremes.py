"""Few, many, strange: the page stays sound and small."""

import html
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.pages.conftest import bias

from fedmoments.errors import FileFormatError
from fedmoments.pages import render

Make = Callable[..., dict[str, Any]]


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def test_one_row(make_row: Make) -> None:
    page = render({"data": {}, "seeds": 1, "rows": [make_row("fedncm", 0.5, 100.0)]})
    assert sections(page) == ["bytes", "heads"]


def test_perfect_and_hopeless_heads(make_row: Make) -> None:
    rows = [make_row("a", 1.0, 10.0, accuracy_std=0.0), make_row("b", 0.0, 1e12, accuracy_std=0.3)]
    page = render({"data": {}, "seeds": 2, "rows": rows})
    heights = [float(y) for y in re.findall(r'cy="([-0-9.]+)"', page)]
    assert all(0 <= y <= 430 for y in heights)


def test_no_fitted_head(make_row: Make) -> None:
    page = render({"data": {}, "seeds": 1, "rows": [make_row("gh-qda", None, 10.0, reason="no memory")]})
    assert sections(page) == ["heads"]
    assert "no memory" in page


def test_numbers_that_are_not_finite_are_unknown(results: dict[str, Any]) -> None:
    results["rows"][0]["seeds"][0]["accuracy"] = math.nan
    results["rows"][1]["seeds"][0]["fit_seconds"] = math.inf
    results["bias"]["free_trace"][0] = math.nan
    results["rounds"][0]["points"][0]["accuracy"] = math.nan
    page = render(results)
    assert not re.search(r'="(nan|inf|-inf)', page)
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)


def test_data_for_the_script_is_strict_json(results: dict[str, Any]) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', render(results), re.S)
    assert blocks
    for block in blocks:
        json.loads(block, parse_constant=refuse)


@pytest.mark.parametrize(
    ("sweep", "charts"),
    [
        ({"clients": [10, 100, 1000]}, 1),
        ({"split": ["iid", "dirichlet:0.1"]}, 1),
        ({"split": ["dirichlet:1", "dirichlet:0.1", "dirichlet:0.01"], "clients": [10, 100]}, 2),
        ({"shrinkage": [None, "0.1", "1", "auto"], "means_per_client": [1, 2, 4], "clients": [10, 100]}, 6),
        ({"clients": [None, 10]}, 1),
    ],
)
def test_sweeps(make_row: Make, sweep: dict[str, list[Any]], charts: int) -> None:
    settings: list[dict[str, Any]] = [{}]
    for key, values in sweep.items():
        settings = [setting | {key: value} for setting in settings for value in values]
    rows = [make_row(head, 0.5 + i / 100, 100.0, **s) for i, s in enumerate(settings) for head in ("fedncm", "fedcof")]
    page = render({"data": {}, "seeds": 1, "rows": rows})
    assert sections(page) == ["bytes", "heads", "differences", "sweep"]
    assert page.count('<div class="facet">') == charts
    assert page.count("<option") == len(settings)
    assert "<script>" in html.unescape(page)


def test_words_on_a_swept_axis_are_not_joined_by_a_line(make_row: Make) -> None:
    rows = [make_row("fedcof", 0.5, 9.0, shrinkage=word) for word in ("0.1", "1", "auto")]
    page = render({"data": {}, "seeds": 1, "rows": rows})
    (path, _) = re.findall(r'<path d="([^"]*)" class="line">', page)
    assert re.sub(r"[^ML]", "", path) == "MLM"


def test_a_thousand_classes_and_clients_stay_small(make_row: Make) -> None:
    rng = np.random.default_rng(0)
    n_clients, n_classes, heads = 9275, 1203, 3
    cells = np.unique(np.stack([rng.integers(0, n_clients, 40_000), rng.integers(0, n_classes, 40_000)], 1), axis=0)
    tables = [np.eye(n_classes, dtype=int) * 7 + rng.poisson(0.002, (n_classes, n_classes)) for _ in range(heads)]
    page = render(
        {
            "data": {"classes": n_classes, "class_names": [f"species {i}" for i in range(n_classes)]},
            "seeds": 1,
            "rows": [make_row(f"head-{i}", 0.5, 1e6, detail=i) for i in range(heads)],
            "details": [{"head": f"head-{i}", "seed": 0, "confusion": t.tolist()} for i, t in enumerate(tables)],
            "holders": {"n_clients": n_clients, "cells": [[int(k), int(c), 2] for k, c in cells]},
            "bias": bias(rng.normal(size=n_classes).tolist(), [30] * n_classes),
        }
    )
    assert sections(page) == ["bytes", "heads", "differences", "holders", "classes", "bias"]
    assert len(page) < 1_000_000


def test_a_usual_run_is_below_two_megabytes(make_row: Make) -> None:
    rng = np.random.default_rng(0)
    heads, n_classes, n_clients = 15, 77, 100
    bins = [{"low": i / 15, "high": (i + 1) / 15, "count": 9, "confidence": i / 15, "accuracy": 0.5} for i in range(15)]
    details = [
        {"head": f"h{i}", "seed": 0, "confusion": rng.poisson(0.5, (n_classes, n_classes)).tolist()}
        | {"calibration": {"bins": bins, "ece": 0.1, "temperature": 1.0}}
        for i in range(heads)
    ]
    cells = [[k, c, int(rng.integers(1, 60))] for k in range(n_clients) for c in range(n_classes)]
    page = render(
        {
            "data": {"classes": n_classes, "class_names": [f"a_rather_long_class_name_{i}" for i in range(n_classes)]},
            "seeds": 5,
            "rows": [make_row(f"h{i}", 0.5 + i / 50, 10.0**i, detail=i) for i in range(heads)],
            "details": details,
            "holders": {"n_clients": n_clients, "cells": cells},
            "bias": bias([0.1] * n_classes, [9] * n_classes),
        }
    )
    assert len(page.encode()) < 1_500_000


def test_confusion_tables_that_are_not_square_are_refused(results: dict[str, Any]) -> None:
    results["details"][0]["confusion"] = [[1, 2], [3]]
    with pytest.raises(FileFormatError, match=r"HeadDetail\.confusion, where numbers of type int64 belongs"):
        render(results)


def test_cells_outside_the_table_are_left_out(results: dict[str, Any]) -> None:
    results["holders"]["cells"] += [[99, 0, 5], [0, 99, 5], [-1, 0, 5]]
    page = render(results)
    (block,) = re.findall(r'<script type="application/json" id="holders-data">(.*?)</script>', page)
    shown = json.loads(block)
    assert sum(map(sum, shown["cells"])) == sum(n for k, c, n in results["holders"]["cells"][:-3])
