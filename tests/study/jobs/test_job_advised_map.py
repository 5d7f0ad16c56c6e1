"""A head that leaves its map to a rule is the same alone and beside heads that have none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job


@pytest.fixture
def skewed(tmp_path: Path) -> StudySettings:
    """Features as behind a ReLU: never negative, and skewed."""
    rng = np.random.default_rng(0)
    means = rng.exponential(size=(3, 8))
    y = np.arange(240) % 3
    X = means[y] * rng.exponential(size=(240, 8)) ** 2
    np.savez(tmp_path / "skewed.npz", x_train=X[:180], y_train=y[:180], x_test=X[180:], y_test=y[180:])
    return StudySettings(data=f"npz:{tmp_path / 'skewed.npz'}", heads=("auto",), clients=(4,), seeds=1)


def test_auto_has_its_map_in_any_company(skewed: StudySettings) -> None:
    alone = run_job(skewed).classifiers["auto"]
    beside = run_job(replace(skewed, heads=("fedcof", "auto", "lda-sketch"))).classifiers
    assert alone.feature_map is not None
    assert alone.digest() == beside["auto"].digest()
    assert beside["fedcof"].feature_map is None
    assert beside["lda-sketch"].feature_map is None


@pytest.mark.parametrize("word", ["none", "power"])
def test_a_map_that_is_named_stands_before_all_heads(skewed: StudySettings, word: str) -> None:
    found = run_job(replace(skewed, heads=("fedcof", "auto"), feature_map=word)).classifiers
    assert [each.feature_map is not None for each in found.values()] == [word == "power"] * 2


def test_a_study_that_names_no_head_compares_auto_with_three() -> None:
    assert StudySettings().heads == ("fedncm", "fedcof", "auto", "gh-lda")
