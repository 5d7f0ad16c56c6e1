"""The page of further heads is made of the figures that are kept beside it."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedmoments.core.heads import make_head

ROOT = Path(__file__).parents[3]
FIGURES: dict[str, Any] = json.loads((ROOT / "docs/reproduction/further.json").read_text())


@pytest.fixture(scope="module")
def further() -> ModuleType:
    spec = importlib.util.spec_from_file_location("further", ROOT / "benchmarks/further.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_figures(further: ModuleType) -> None:
    assert (ROOT / "docs/reproduction/further.md").read_text() == further.page(FIGURES)


def test_every_head_was_measured_with_three_seeds_on_every_data_set(further: ModuleType) -> None:
    for head in further.HEADS:
        assert make_head(head.name, **head.hyper).needs.moments
        for data in further.DATA:
            found = FIGURES[further.key_of(data, further.SPLITS[0], head)]
            assert len(found["accuracy"]) == len(found["bytes"]) == 3


def test_a_figure_that_changes_changes_the_page(further: ModuleType) -> None:
    changed = json.loads(json.dumps(FIGURES))
    changed[next(iter(changed))]["accuracy"][0] = 0.5
    assert further.page(changed) != further.page(FIGURES)
