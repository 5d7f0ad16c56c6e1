"""Heads that are fitted from one statistics object share what they have in common, and nothing else changes."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.heads import make_head
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FitWarning

RNG = np.random.default_rng(0)
Y = np.arange(120) % 3
X = RNG.normal(size=(120, 8)) * np.where(Y == 1, 4.0, 1.0)[:, None] + Y[:, None]


def merged(spec: StatisticsSpec, features: np.ndarray = X) -> Statistics:
    parts = np.arange(len(Y)) // 3 % 6
    return Statistics.merge([Statistics.of(features[parts == k], Y[parts == k], spec, n_classes=3) for k in range(6)])


@pytest.mark.parametrize(
    ("first", "second"), [("sketch", "lda-sketch"), ("fedcof-oracle", "gh-lda"), ("gh-qda", "gh-auto")]
)
def test_a_fit_after_another_one_from_the_same_object_has_the_digest_of_a_fit_by_itself(
    first: str, second: str
) -> None:
    one, other = make_head(first), make_head(second)
    stats = merged(one.needs | other.needs)
    alone = other.fit(replace(stats)).digest()
    kept = one.fit(stats)
    assert other.fit(stats).digest() == alone
    assert one.fit(stats).digest() == kept.digest()


def test_the_scatter_is_made_once_for_a_source_and_anew_for_another_one() -> None:
    stats = merged(StatisticsSpec.of("scatter_sketch", "client_means"))
    first = ClassGaussians(stats, "sketch").scatter
    assert ClassGaussians(stats, "sketch").scatter is first
    assert ClassGaussians(stats, "sketch:0.3").scatter is not first
    assert ClassGaussians(replace(stats), "sketch").scatter is not first


def test_whiteners_are_one_array_while_a_classifier_holds_them() -> None:
    stats = merged(StatisticsSpec.of("class_grams"))
    first, second = make_head("gh-qda").fit(stats), make_head("gh-auto").fit(stats)
    assert second.info["chosen"] == "qda"
    assert np.shares_memory(first.whiteners, second.whiteners)  # type: ignore[attr-defined]


def test_every_head_warns_of_rounding_whoever_was_fitted_before() -> None:
    stats = merged(StatisticsSpec.of("class_grams"), X * 1e-4 + 1e3)
    for name in ("gh-qda", "gh-auto", "gh-lda"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kept = make_head(name).fit(stats)
        assert any(issubclass(one.category, FitWarning) for one in caught), name
        assert kept.n_classes == 3
