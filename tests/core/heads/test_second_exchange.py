"""The second exchange: class grams in the Fisher directions of a first one."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.maps import Directions
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
CLASSES, DIM, CLIENTS = 4, 10, 6


def draw(seed: int, n: int = 600) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    turns, centres = rng.normal(size=(CLASSES, DIM, DIM)), 3.0 * rng.normal(size=(CLASSES, DIM))
    return np.einsum("nd,nde->ne", rng.normal(size=(n, DIM)), turns[y]) + centres[y], y


def clients(X: Array, y: Array) -> dict[int, tuple[Array, Array]]:
    return {k: (X[k::CLIENTS], y[k::CLIENTS]) for k in range(CLIENTS)}


def test_law_with_exact_covariances_in_both_exchanges_it_is_qda_in_the_fisher_subspace() -> None:
    X, y = draw(0)
    ours = fm.fit("qda-exchange", clients(X, y), first="exact", shrinkage="none")
    exact = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=CLASSES)
    theirs = fm.make_head("gh-qda-fisher", shrinkage="none").fit(exact)
    scores = theirs.scores(X)
    np.testing.assert_allclose(ours.scores(X), scores, rtol=1e-3, atol=1e-3 * np.abs(scores).max())
    lda = fm.make_head("gh-lda", shrinkage="none").fit(exact).scores(X)
    gaps = (ours.scores(X) - lda)[:, 1:] - (ours.scores(X) - lda)[:, :1]
    assert np.abs(gaps).max() > 1.0  # the covariances of classes count


def test_law_what_clients_return_adds_up_to_the_class_grams_in_those_directions() -> None:
    X, y = draw(1)
    spec = StatisticsSpec.of("scatter_sketch")
    first = Ledger.of(X, y, np.arange(len(y)) % CLIENTS, spec, n_classes=CLASSES).statistics()
    directions = fisher_directions(first)
    assert directions.n_components == CLASSES - 1
    grams = StatisticsSpec.of("class_grams")
    parts = [Statistics.of(directions(a), b, grams, n_classes=CLASSES) for a, b in clients(X, y).values()]
    total = Statistics.merge(parts)
    for label, gram in total.class_grams:
        mine = X[y == label] @ directions.matrix
        np.testing.assert_allclose(gram, mine.T @ mine, rtol=1e-9)
    assert total.arrays["class_grams"].shape == (CLASSES, (CLASSES - 1) * CLASSES // 2)


@pytest.mark.parametrize("first", ["sketch", "free", "exact"])
def test_any_first_exchange_serves(first: str) -> None:
    X, y = draw(2)
    classifier = fm.fit("qda-exchange", clients(X, y), first=first)
    assert isinstance(classifier.feature_map, Directions)
    assert (classifier.predict(X) == y).mean() > 0.8


def test_it_needs_a_first_exchange() -> None:
    with pytest.raises(InputError, match="none arrived"):
        fm.make_head("qda-exchange").feature_map(DIM, None)
