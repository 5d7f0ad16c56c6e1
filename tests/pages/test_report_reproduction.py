"""Pages of reproduced tables and figures, in headless Chromium."""

from pathlib import Path
from typing import Any

import pytest

from fedmoments.study.papers.outputs import write_index, write_outputs

LONG = "unbreakable" * 12


def cells(n_rows: int, n_columns: int, verdict: str) -> list[list[dict[str, Any]]]:
    """Return cells of a table, all with one verdict."""
    cell: dict[str, Any] = {"mean": 123456.75, "spread": 1.5, "values": [1.0, 2.0], "reason": None, "paper": 123456.5}
    cell |= {"paper_spread": 0.5, "difference": 0.25, "misprint": None, "verdict": verdict}
    return [[dict(cell) for _ in range(n_columns)] for _ in range(n_rows)]


def reproduced(mode: str, blocks: int) -> dict[str, Any]:
    """Return a document with wide tables, long names and figures of all forms."""
    figure: dict[str, Any] = {
        "title": "A figure",
        "x": "round",
        "series": ["head"],
        "panel": None,
        "quantity": "accuracy",
        "where": {},
    }
    figure |= {"form": "lines", "scale": "linear", "x_title": None, "y_title": None}
    figures = [figure, figure | {"panel": "split"}, figure | {"form": "bars", "scale": "words", "x": "data"}]
    places = [
        {"head": head, "round": t, "split": split, "data": f"{LONG}{t}"}
        for head in ("fedcof", LONG)
        for split in ("iid", "dirichlet:0.1")
        for t in range(12)
    ]
    measured = [
        {"where": place, "quantity": "accuracy", "values": [0.5, 0.6], "seeds": [0, 1], "reason": None}
        for place in places
    ]
    told: dict[str, Any] = {
        "name": f"fedcof/{mode.replace(' ', '-')}{blocks}",
        "title": f"A table {LONG}",
        "source": "Table 9",
    }
    told |= {"about": LONG, "paper": LONG, "notes": [LONG], "misprints": [], "figures": figures, "tolerance": 1.0}
    columns = [f"column {i}" for i in range(5)]
    table: dict[str, Any] = {"rows": ["FedNCM", LONG], "columns": columns, "reference": "FedNCM", "units": "percent"}
    table |= {"ours": None if mode == "computed" else cells(2, 5, "in range")}
    table |= {"blocks": [{"name": f"part {i} {LONG}", "cells": cells(2, 5, "agrees")} for i in range(blocks)]}
    pair: dict[str, Any] = {
        "where": {"split": LONG},
        "left": 0.6,
        "right": 0.5,
        "difference": 0.1,
        "error": 0.01,
        "holds": True,
    }
    claim: dict[str, Any] = {
        "id": LONG,
        "text": LONG,
        "relation": "above",
        "margin": 0.01,
        "left": {},
        "right": {"head": "fedncm"},
    }
    claim |= {"verdict": "holds", "pairs": [pair | {"clear": True}]}
    plain: dict[str, Any] = {
        "version": "0.1.0",
        "command": LONG,
        "experiment": told,
        "mode": mode,
        "settings": {"name": LONG},
    }
    plain |= {"data": {"name": LONG, "digest": LONG}, "seeds": [0, 1], "table": table, "claims": [claim]}
    return plain | {"measurements": measured, "deviations": [LONG], "cached": 0, "seconds": 1.0}


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    documents = [reproduced("computed", 1), reproduced("computed", 4), reproduced("stand-in", 1)]
    written = [path for each in documents for path in write_outputs(each, tmp_path)]
    return [path for path in [*written, *write_index(tmp_path)] if path.suffix == ".html"]


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False)])
def test_pages_of_reproductions_never_scroll_sideways(browser: Any, pages: list[Path], width: int, dark: bool) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    assert len(pages) == 4
    for path in pages:
        browser.get_log("browser")
        browser.get(path.as_uri())
        browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, path.parent.name
        assert browser.get_log("browser") == []


def test_cells_tell_their_numbers_and_have_a_mark(browser: Any, pages: list[Path]) -> None:
    browser.get(pages[0].as_uri())
    marks = browser.execute_script(
        "return Array.from(document.querySelectorAll('td.verdict .sign')).map(each => each.textContent)"
    )
    assert marks == ["✓"] * 10
    told = browser.execute_script("return document.querySelector('td.verdict').dataset.tip")
    assert "ours 123,457" in told
    assert "agrees" in told
