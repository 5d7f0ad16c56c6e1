"""Law: what is fitted from additive statistics does not depend on who holds what.

At Dirichlet 0.5 and 0.01 a closed-form head has the same scores to 1e-8. Heads on client means (``free`` covariances)
are fitted from how classes spread over clients, and so are no part of the law: a split changes what they see.
Clients are measured one by one and merged here, so that their sums are rounded in another order for every split.
"""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.simulation import simulate

CLASSES, DIM, CLIENTS = 6, 10, 20
EVEN, SKEWED = "dirichlet:0.5", "dirichlet:0.01"

#: The directions of qda-exchange come from a first exchange, which keeps clients apart.
ADDITIVE = [
    name for name in fm.head_names() if not fm.make_head(name).needs.keeps_clients_apart and name != "qda-exchange"
]
#: Heads that a solver trains on samples drawn from the statistics; all others are solved for in closed form.
TRAINED = [name for name in ADDITIVE if "samples" in fm.make_head(name).settings()]
CLOSED = [name for name in ADDITIVE if name not in TRAINED]
HYPER: dict[str, dict[str, Any]] = {"fed3r-rf": {"n_features": 50}}


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(12)
    means = rng.normal(size=(CLASSES, DIM))
    mixing = rng.normal(size=(DIM, DIM)) / 2

    def draw(n: int) -> Samples:
        y = rng.integers(CLASSES, size=n)
        return Samples(means[y] + rng.normal(size=(n, DIM)) @ mixing, y)

    return Features("toy", CLASSES, draw(900), draw(400))


def scores(features: Features, head: str, scheme: str) -> Any:
    """Return the scores of a head fitted from clients that were measured each on its own."""
    train = features.train
    split = parse_split(scheme).apply(train.y, n_clients=CLIENTS, seed=1)
    parties = {client: (train.X[mine], train.y[mine]) for client, mine in enumerate(split)}
    return fm.fit(head, parties, n_classes=CLASSES, **HYPER.get(head, {})).scores(features.test.X)


def distance(features: Features, head: str) -> float:
    """Return the largest difference of a score at the two splits, relative to the largest score."""
    even, skewed = (scores(features, head, scheme) for scheme in (EVEN, SKEWED))
    return float(np.abs(even - skewed).max() / np.abs(even).max())


def test_the_splits_differ(features: Features) -> None:
    """At 0.01 clients hold one or two classes, at 0.5 most of them several."""
    held = [
        parse_split(scheme).apply(features.train.y, n_clients=CLIENTS, seed=1).cells(features.train.y, CLASSES).nnz
        for scheme in (EVEN, SKEWED)
    ]
    assert held[0] > 2 * held[1]


@pytest.mark.parametrize("head", CLOSED)
def test_law_closed_form_heads_do_not_move_with_the_split(features: Features, head: str) -> None:
    assert distance(features, head) < 1e-8


@pytest.mark.parametrize("head", TRAINED)
def test_law_trained_heads_move_by_no_more_than_their_solver_stops_short(features: Features, head: str) -> None:
    """They see the merged moments alone: another split is another rounding, which the solver's last steps widen."""
    assert distance(features, head) < 1e-6


@pytest.mark.parametrize("head", ["fedcof", "lda-free"])
def test_heads_on_client_means_are_no_part_of_the_law(features: Features, head: str) -> None:
    assert distance(features, head) > 1e-4


def test_in_the_table_heads_have_one_accuracy_and_local_heads_collapse(features: Features) -> None:
    heads = ["gh-nb", "gh-lda", "gh-qda", "fed3r"]
    baselines = ["ensemble", "head-average"]
    rows = simulate(features, [*heads, *baselines], clients=[CLIENTS], splits=[EVEN, SKEWED], seeds=2).rows
    for head in heads:
        assert len({accuracy for row in rows if row.head == head for accuracy in row.accuracies}) == 1
    for baseline in baselines:
        even, skewed = (row.accuracy or 0.0 for row in rows if row.head == baseline)
        assert even - skewed > 0.1
