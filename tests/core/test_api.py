"""The short way: fit, measure, spec_for."""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.maps import Normalize, RandomFourier, RandomProjection
from fedmoments.errors import InputError, LedgerError, MergeError, UnknownNameError

rng = np.random.default_rng(0)
LABELS = np.arange(80) % 2
X = rng.normal(size=(80, 5)) + np.where(LABELS == 0, -2.0, 2.0)[:, None]
PARTIES = {f"site {k}": (X[k::4], LABELS[k::4]) for k in range(4)}


def test_spec_for_is_the_join_of_what_heads_need() -> None:
    assert fm.spec_for() == fm.StatisticsSpec()
    for names in (("fedncm",), ("fed3r", "fedcof"), fm.head_names()):
        joined = fm.spec_for(*names)
        for name in names:
            assert fm.make_head(name).needs <= joined
    assert fm.spec_for("fedcof", means_per_client=3).means_per_client == 3
    assert fm.spec_for("fed3r", means_per_client=3).means_per_client == 1  # no client means, no shares
    assert fm.spec_for(fm.make_head("gh-lda")) == fm.spec_for("gh-lda")
    with pytest.raises(UnknownNameError, match="unknown head"):
        fm.spec_for("nothing")


def test_measuring_keeps_clients_by_their_ids_and_counts_classes() -> None:
    ledger = fm.measure(PARTIES, fm.spec_for("fedcof"))
    assert ledger.clients == tuple(PARTIES)
    assert ledger.n_classes == 2
    assert ledger.pool().n_samples == 80
    assert fm.measure(PARTIES, fm.StatisticsSpec(), n_classes=7).n_classes == 7
    mapped = fm.measure(PARTIES, fm.StatisticsSpec(), feature_map=RandomProjection(5, 2, seed=1))
    assert mapped.dim == 2


def test_data_and_statistics_may_be_mixed() -> None:
    spec = fm.spec_for("fedcof")
    mixed: dict[str, Any] = dict(PARTIES)
    mixed["site 2"] = fm.Statistics.of(*PARTIES["site 2"], spec, n_classes=2)
    assert fm.fit("fedcof", mixed).digest() == fm.fit("fedcof", PARTIES).digest()
    with pytest.raises(InputError, match="some clients gave features and some statistics"):
        fm.fit("fed3r-rf", mixed, n_features=8)


def test_a_map_is_applied_before_measuring_and_travels_with_the_classifier() -> None:
    chain = Normalize() | RandomProjection(5, 3, seed=1)
    fitted = fm.fit("gh-lda", PARTIES, feature_map=chain)
    assert fitted.feature_map == chain
    by_hand = fm.fit("gh-lda", {k: (chain(x), y) for k, (x, y) in PARTIES.items()})
    np.testing.assert_allclose(fitted.scores(X), by_hand.scores(chain(X)), rtol=1e-12)
    random = fm.fit("fed3r-rf", PARTIES, feature_map=chain, n_features=16, bandwidth=1.0)
    assert random.feature_map == chain | RandomFourier(3, 16, 1.0, 0)


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ({}, "there is no client"),
        ({"a": None}, r"client 'a' must be \(features, labels\), a table .* but a NoneType arrived"),
        ({"a": ([[1.0]],)}, r"client 'a' must be \(features, labels\)"),
        ({"a": ([[1.0]], [0], "more")}, r"client 'a' must be \(features, labels\)"),
        ({"a": 5}, r"client 'a' must be"),
        ({"a": ([[1.0]], [0]), "b": ([[np.nan]], [0])}, "client 'b': .*sample 0 holds NaN"),
        ({"a": ([[1.0]], [0]), "b": ([[1.0]], [-1])}, "client 'b': .*sample 0 has -1"),
        ({"a": ([[1.0]], [np.nan])}, "client 'a': labels must be whole numbers, but sample 0 has nan"),
        ({"a": ([[1.0]], [np.inf])}, "client 'a': labels must be from 0"),
        ({"a": ([[1.0]], [0.5])}, "client 'a': labels must be whole numbers"),
        ({"a": ([[1.0]], ["cat"]), "b": ([[1.0]], [0])}, "client 'a' names its classes, but client 'b' numbers them"),
        ({"a": ([1.0], [0])}, "client 'a': features must be a matrix"),
        ({"a": ([[1.0]], [0, 1])}, "client 'a': labels must be one a sample"),
    ],
)
@pytest.mark.parametrize("head", ["fedncm", "fed3r-rf"])
def test_bad_clients_are_named(head: str, clients: Any, words: str) -> None:
    hyper: dict[str, Any] = {"n_features": 4, "bandwidth": 1.0} if head == "fed3r-rf" else {}
    with pytest.raises(InputError, match=words):
        fm.fit(head, clients, **hyper)


def test_clients_of_different_width_are_not_merged() -> None:
    with pytest.raises(MergeError, match=r"client 'b' contributed statistics with dim=2, but this ledger has dim=1"):
        fm.fit("fedncm", {"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [0])})


def test_a_label_beyond_the_given_classes_is_refused() -> None:
    with pytest.raises(InputError, match="client 'a': labels must be from 0 to 1, but sample 0 has 5"):
        fm.fit("fedncm", {"a": ([[1.0]], [5])}, n_classes=2)


def test_class_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(InputError, match="2 classes needs as many names, not 3"):
        fm.fit("fedncm", PARTIES, class_names=["a", "b", "c"])


def test_measuring_does_not_change_the_data() -> None:
    before = {k: (x.copy(), y.copy()) for k, (x, y) in PARTIES.items()}
    fm.fit("gh-qda", PARTIES)
    for k, (x, y) in PARTIES.items():
        assert np.array_equal(x, before[k][0])
        assert np.array_equal(y, before[k][1])


def test_a_client_cannot_join_twice() -> None:
    ledger = fm.measure(PARTIES, fm.StatisticsSpec())
    with pytest.raises(LedgerError, match="'site 0' is already in the ledger: use replace"):
        ledger.join("site 0", ledger.client("site 1"))


@pytest.mark.parametrize("parties", [PARTIES["site 0"][0], 3, "clinic", b"clinic", iter([]), None])
def test_what_is_no_clients_is_refused_with_a_sentence(parties: Any) -> None:
    with pytest.raises(
        InputError, match=r"clients are a table \{id: \(features, labels\)\}, a list of such pairs, a data"
    ):
        fm.fit("fedncm", parties)
    with pytest.raises(
        InputError, match=r"but a (ndarray|int|str|bytes|list_iterator|NoneType) arrived; a party alone"
    ):
        fm.measure(parties, fm.StatisticsSpec())
