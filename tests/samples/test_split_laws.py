"""Laws of the schemes, by name, over random labels, client counts and concentrations."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples import (
    Split,
    by_domain,
    by_id,
    classes_per_client,
    dirichlet_per_class,
    dirichlet_per_client,
    iid,
    quantity_skew,
)

Labels = NDArray[np.int64]
Scheme = Callable[[Labels, int, int], Split]

labels = hnp.arrays(np.int64, st.integers(1, 400), elements=st.sampled_from([-5, 0, 1, 2, 7, 1000, 2**40]))
"""Non-contiguous, with absent and rare labels."""
client_counts = st.integers(1, 300)
alphas = st.sampled_from([0.0, 1e-3, 0.01, 0.1, 1.0, 100.0, 1e6])
positive_alphas = st.sampled_from([1e-3, 0.01, 0.1, 1.0, 100.0, 1e6])
seeds = st.integers(0, 1000)

SCHEMES: dict[str, Scheme] = {
    "dirichlet-client": lambda y, k, seed: dirichlet_per_client(y, k, 0.1, seed),
    "dirichlet-client, zero": lambda y, k, seed: dirichlet_per_client(y, k, 0, seed),
    "dirichlet-class": lambda y, k, seed: dirichlet_per_class(y, k, 0.1, seed),
    "dirichlet-class, zero": lambda y, k, seed: dirichlet_per_class(y, k, 0, seed),
    "classes": lambda y, k, seed: classes_per_client(y, k, min(2, len(np.unique(y))), seed),
    "iid": lambda y, k, seed: iid(len(y), k, seed),
    "quantity": lambda y, k, seed: quantity_skew(len(y), k, 0.5, seed),
    "domain": by_domain,
    "id": lambda y, k, seed: by_id(y),
}
# Frozen: a split must stay comparable between versions of fedmoments and of numpy.
DIGESTS: dict[str, str] = {
    "dirichlet-client": "4230bf558ef0e704fc758f4a3aaf4bb4147fcaf04e279cf0ac2c3faf389bb857",
    "dirichlet-client, zero": "d3078205a789a8295ca828402b30c0eefa4a3a2ba3529371a1cee082f1a16f2f",
    "dirichlet-class": "5ac90766256baed54ffddce4b85dfee2a113709bbc9483bb62349f5ed6bdcc47",
    "dirichlet-class, zero": "d3078205a789a8295ca828402b30c0eefa4a3a2ba3529371a1cee082f1a16f2f",
    "classes": "93359cb2f9e8460b15c4780f078644909f27c7ff8b9d83ec0c195a57d4cbc11e",
    "iid": "b1da0ab353200073fded376e3e706fedd5baf9d8db999b3662c92afae6c51d67",
    "quantity": "daca99fd45a964abe43e1c067c5b0fdc6c963329f8b251e0fcd44d3b8801bb24",
    "domain": "a668c2e91d856bc7da5862642a8dfce538ae66ebe5ac6627115fe7d4231713e1",
    "id": "b3a3b09862689e4b49bff79e0b1760f0c9fb4cfdbc51c5d323c5cdad5585c5db",
}


def table(split: Split, y: Labels) -> NDArray[np.int64]:
    """Count by loops: client × (sorted, present) class, the referee of everything below."""
    keys = np.unique(y)
    out = np.zeros((split.n_clients, len(keys)), dtype=np.int64)
    for client, label in zip(split.clients, y, strict=True):
        if client >= 0:
            out[client, np.searchsorted(keys, label)] += 1
    return out


def mean_entropy(split: Split, y: Labels) -> float:
    counts = table(split, y)
    counts = counts[counts.sum(axis=1) > 0]
    p = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(axis=1).mean())


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())
@given(y=labels, n_clients=client_counts, seed=seeds)
@settings(max_examples=40, deadline=None)
def test_clients_are_disjoint_and_complete_up_to_what_is_reported_dropped(
    scheme: Scheme, y: Labels, n_clients: int, seed: int
) -> None:
    split = scheme(y, n_clients, seed)
    everyone = np.concatenate([*split, split.dropped])
    assert sorted(everyone.tolist()) == list(range(len(y)))
    assert bool(split.why) == bool(len(split.dropped))
    assert split.report().dropped == len(split.dropped)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())
@given(y=labels, n_clients=client_counts, seed=seeds)
@settings(max_examples=20, deadline=None)
def test_a_split_is_a_function_of_its_seed(scheme: Scheme, y: Labels, n_clients: int, seed: int) -> None:
    before = y.copy()
    assert scheme(y, n_clients, seed) == scheme(y, n_clients, seed)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "id"])
def test_different_seeds_give_different_splits(name: str) -> None:
    y = np.arange(500) % 10
    assert len({SCHEMES[name](y, 20, seed).digest() for seed in range(20)}) == 20


@pytest.mark.parametrize("name", SCHEMES)
def test_the_split_of_a_frozen_seed_never_changes(name: str) -> None:
    y = (np.arange(2003) % 7) ** 2
    assert SCHEMES[name](y, 13, 2024).digest() == DIGESTS[name]


@pytest.mark.parametrize("scheme", [SCHEMES["dirichlet-client"], SCHEMES["dirichlet-class"], SCHEMES["classes"]])
def test_a_split_depends_on_the_grouping_by_label_not_on_the_labels(scheme: Scheme) -> None:
    y = np.arange(300) % 6
    words = np.array(["a", "b", "c", "d", "e", "f"])[y]
    assert scheme(y, 9, 0) == scheme(y * 1000 - 50, 9, 0) == scheme(words, 9, 0)
    assert scheme(words.astype(object), 9, 0) == scheme(y, 9, 0)


@given(y=labels, n_clients=client_counts, alpha=positive_alphas, seed=seeds)
@settings(max_examples=100, deadline=None)
def test_per_client_dirichlet_gives_equal_sizes_and_drops_only_the_rest(
    y: Labels, n_clients: int, alpha: float, seed: int
) -> None:
    split = dirichlet_per_client(y, n_clients, alpha, seed)
    assert (split.sizes == len(y) // n_clients).all()
    assert len(split.dropped) == len(y) % n_clients


@given(y=labels, n_clients=client_counts, alpha=alphas, seed=seeds)
@settings(max_examples=100, deadline=None)
def test_per_class_dirichlet_preserves_class_totals(y: Labels, n_clients: int, alpha: float, seed: int) -> None:
    split = dirichlet_per_class(y, n_clients, alpha, seed)
    assert len(split.dropped) == 0
    np.testing.assert_array_equal(table(split, y).sum(axis=0), np.unique(y, return_counts=True)[1])


@given(y=labels, n_clients=client_counts, m=st.integers(1, 7), seed=seeds)
@settings(max_examples=200, deadline=None)
def test_clients_hold_exactly_m_classes_unless_samples_are_too_few(
    y: Labels, n_clients: int, m: int, seed: int
) -> None:
    sizes = np.unique(y, return_counts=True)[1]
    m = min(m, len(sizes))
    split = classes_per_client(y, n_clients, m, seed)
    held = np.count_nonzero(table(split, y), axis=1)
    assert held.max() <= m
    possible = np.minimum(sizes, n_clients).sum() >= n_clients * m
    assert (held == m).all() == possible == (split.notes == ())
    holders = np.count_nonzero(table(split, y), axis=0)
    assert np.count_nonzero(holders) == min(len(sizes), n_clients * m)
    assert len(split.dropped) == sizes[holders == 0].sum()


def test_classes_without_a_holder_are_dropped_whole_and_said() -> None:
    split = classes_per_client(np.arange(100) % 10, 3, 2, 0)
    assert len(split.dropped) == 40
    assert split.why == "3 clients with classes:2 hold 6 of 10 classes; 4 have no holder."


def test_clients_that_share_a_class_hold_different_pairs() -> None:
    y = np.arange(1000) % 10
    pairs = {tuple(np.flatnonzero(row)) for row in table(classes_per_client(y, 45, 2, 0), y)}
    assert len(pairs) > 20


def test_too_few_samples_for_m_classes_are_said() -> None:
    split = classes_per_client([0, 1, 2], 2, 2, 0)
    assert sorted(split.sizes.tolist()) == [1, 2]
    assert split.notes == ("1 of 2 clients hold fewer than 2 classes, because classes have too few samples to share.",)


@pytest.mark.parametrize("scheme", [dirichlet_per_client, dirichlet_per_class])
def test_concentration_zero_is_one_class_a_client(scheme: Callable[..., Split]) -> None:
    y = np.arange(1000) % 10
    for n_clients in (10, 25, 100):
        split = scheme(y, n_clients, 0, 0)
        assert (np.count_nonzero(table(split, y), axis=1) == 1).all()
        assert len(split.dropped) == 0
    few = scheme(y, 4, 0, 0)
    assert (np.count_nonzero(table(few, y), axis=1) == 3).all()
    assert len(few.dropped) == 0


@pytest.mark.parametrize("scheme", [dirichlet_per_client, dirichlet_per_class])
def test_smaller_concentration_gives_lower_entropy_of_client_labels(scheme: Callable[..., Split]) -> None:
    y = np.arange(10_000) % 10
    entropies = [mean_entropy(scheme(y, 50, alpha, 0), y) for alpha in (0, 0.01, 0.1, 1.0, 100.0)]
    assert entropies == sorted(entropies)
    assert entropies[0] == 0
    assert entropies[-1] > np.log(10) - 0.1
    assert entropies[2] < 0.6 * np.log(10)


def test_near_iid_per_class_dirichlet_leaves_few_clients_empty_when_classes_are_small() -> None:
    # 100 classes of 10 samples for 300 clients: rounding must not favour the same 10 clients for every class.
    split = dirichlet_per_class(np.arange(1000) % 100, 300, 1e6, 0)
    assert len(split.empty) < 30
    assert split.sizes.max() < 15


def one_by_one(rng: np.random.Generator, p: NDArray[np.float64], left: Labels, size: int) -> Labels:
    """Sample one after another and renormalise when a class runs out: the naive per-client draw."""
    left, taken = left.copy(), np.zeros(len(p), dtype=np.int64)
    for _ in range(size):
        open_p = np.where(left > 0, p, 0)
        c = int(rng.choice(len(p), p=open_p / open_p.sum()))
        left[c] -= 1
        taken[c] += 1
    return taken


def test_the_capped_draw_has_the_distribution_of_sampling_one_by_one() -> None:
    from fedmoments.samples.splits.dirichlet import _take

    p, left, size = np.array([0.6, 0.25, 0.1, 0.05]), np.array([2, 3, 1, 9]), 7
    rng, trials = np.random.default_rng(0), 4000
    fast = np.array([_take(rng, left, size, np.log(p)) for _ in range(trials)])
    slow = np.array([one_by_one(rng, p, left, size) for _ in range(trials)])
    assert (fast.sum(axis=1) == size).all()
    assert (fast <= left).all()
    spread = np.sqrt(2 * slow.var(axis=0) / trials)
    assert (np.abs(fast.mean(axis=0) - slow.mean(axis=0)) <= 4 * spread + 1e-12).all()


def test_a_client_with_all_its_mass_on_exhausted_classes_takes_what_is_left() -> None:
    y = np.array([0] * 5 + [1] * 5)
    for seed in range(20):
        split = dirichlet_per_client(y, 10, 1e-3, seed)
        assert (split.sizes == 1).all()


@given(n=st.integers(1, 500), n_clients=client_counts, seed=seeds)
def test_iid_sizes_differ_by_at_most_one(n: int, n_clients: int, seed: int) -> None:
    sizes = iid(n, n_clients, seed).sizes
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1


@given(data=st.data(), n_clients=client_counts, alpha=positive_alphas, min_size=st.integers(0, 5), seed=seeds)
def test_quantity_skew_keeps_the_least_size(
    data: st.DataObject, n_clients: int, alpha: float, min_size: int, seed: int
) -> None:
    n = data.draw(st.integers(max(1, n_clients * min_size), 2000))
    sizes = quantity_skew(n, n_clients, alpha, seed, min_size=min_size).sizes
    assert sizes.sum() == n
    assert sizes.min() >= min_size


def test_quantity_skew_grows_as_the_concentration_falls() -> None:
    spread = [quantity_skew(10_000, 50, alpha, 0).sizes.std() for alpha in (0.05, 0.5, 5.0, 500.0)]
    assert spread == sorted(spread, reverse=True)


@given(domains=labels, per_domain=st.integers(1, 20), seed=seeds)
def test_by_domain_a_client_holds_one_domain(domains: Labels, per_domain: int, seed: int) -> None:
    split = by_domain(domains, per_domain, seed)
    keys = np.unique(domains)
    assert split.n_clients == len(keys) * per_domain
    for client, samples in enumerate(split):
        assert set(domains[samples].tolist()) <= {int(keys[client // per_domain])}
    for sizes in split.sizes.reshape(-1, per_domain):
        assert sizes.max() - sizes.min() <= 1


@given(ids=labels)
def test_by_id_equals_grouping(ids: Labels) -> None:
    split = by_id(ids)
    for name, samples in zip(split.names, split, strict=True):
        np.testing.assert_array_equal(samples, np.flatnonzero(ids == int(name)))


def test_more_clients_than_samples_are_allowed_and_reported() -> None:
    y = np.array([3, 3, 8])
    assert len(iid(3, 5, 0).empty) == 2
    assert dirichlet_per_class(y, 300, 0.1, 0).report().empty_clients >= 297
    split = dirichlet_per_client(y, 5, 0.1, 0)
    assert len(split.dropped) == 3
    assert split.why == "Clients have equal sizes, and 3 samples for 5 clients leave a rest of 3."


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1e6])
def test_thousands_of_clients_and_classes_are_split_at_once(alpha: float) -> None:
    y = np.arange(12_000) ** 2 % 1203
    assert (dirichlet_per_client(y, 2000, alpha, 0).sizes == 6).all()
    assert dirichlet_per_class(y, 2000, alpha, 0).sizes.sum() == 12_000


@pytest.mark.parametrize("alpha", [-1, float("nan"), float("inf"), "0.1", None, True])
def test_a_wrong_concentration_is_refused(alpha: float) -> None:
    for scheme in (dirichlet_per_client, dirichlet_per_class):
        with pytest.raises(InputError, match="alpha must be a finite number of at least 0"):
            scheme([0, 1], 2, alpha, 0)
    with pytest.raises(InputError, match="alpha must be a finite number above 0"):
        quantity_skew(5, 2, alpha, 0)


def test_wrong_counts_are_refused() -> None:
    for n_clients in (0, -1, 2.0, True):
        with pytest.raises(InputError, match="n_clients must be a whole number of at least 1"):
            iid(5, n_clients, 0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at most the number of classes in the labels, 2, but is 3"):
        classes_per_client([0, 1], 2, 3, 0)
    with pytest.raises(InputError, match="min_size must be at most n / n_clients = 2, but is 3"):
        quantity_skew(5, 2, 1.0, 0, min_size=3)
    with pytest.raises(InputError, match="n_clients_per_domain"):
        by_domain([0, 1], 0)


@pytest.mark.parametrize("y", [[], [[0, 1]], [0.0, 1.0], [None, "a"], 3])
def test_labels_that_are_no_keys_are_refused(y: object) -> None:
    with pytest.raises(InputError, match="labels must"):
        dirichlet_per_class(y, 2, 0.1, 0)  # type: ignore[arg-type]
