"""Laws of obfuscated counts: the mean of a class stays, the noise is what was requested, a server accepts it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import FixedPoint
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.obfuscation import KINDS, Obfuscation, obfuscate, parse_obfuscation
from fedmoments.wire import Agreement, IdentityKey, decode, encode

C, D = 5, 4
FORM = FixedPoint(norm_bound=1.0, max_samples=10_000)
OBFUSCATIONS = st.builds(Obfuscation, st.sampled_from(KINDS), st.floats(0.1, 0.9))
SPECS = st.sampled_from(
    [
        StatisticsSpec(),
        StatisticsSpec.of("client_means"),
        StatisticsSpec.of("client_means", means_per_client=3),
    ]
)


def measured(spec: StatisticsSpec, counts: list[int]) -> Statistics:
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(5).normal(size=(len(y), D)) + 1.0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Statistics.of(X, y, spec, n_classes=C)


COUNTS = st.lists(st.integers(0, 40), min_size=C, max_size=C).filter(any)


@given(OBFUSCATIONS, SPECS, COUNTS, st.integers(0, 99))
def test_means_of_all_moments_stay_as_they_are(how: Obfuscation, spec: Any, counts: list[int], seed: int) -> None:
    stats = measured(spec, counts)
    blurred = how.apply(stats, seed=seed)
    assert set(blurred.classes) <= set(stats.classes)
    where = np.searchsorted(stats.classes, blurred.classes)
    for name in set(spec.sent) - {"client_means"}:
        ours = stats.arrays[name][where] / stats.class_counts[where, None]
        np.testing.assert_allclose(blurred.arrays[name] / blurred.class_counts[:, None], ours, atol=1e-12)
    if spec.keeps_clients_apart:
        means = {tuple(row) for row in np.round(stats.rows.block_means(), 9)}
        assert {tuple(row) for row in np.round(blurred.rows.block_means(), 9)} <= means
        together = [int(blurred.row_counts[blurred.row_labels == label].sum()) for label in blurred.classes]
        assert together == blurred.class_counts.tolist()
        assert (blurred.row_counts > 0).all()
    assert (blurred.class_counts > 0).all()


@given(OBFUSCATIONS, SPECS, COUNTS, st.integers(0, 99))
def test_a_server_accepts_what_was_obfuscated(how: Obfuscation, spec: Any, counts: list[int], seed: int) -> None:
    digest = "ab" * 32
    agreement = Agreement(digest, digest, digest, C, D, spec, FORM)
    key = IdentityKey.from_bytes(bytes(32))
    blurred = how.apply(measured(spec, counts), seed=seed)
    data = encode(blurred, agreement, client="clinic", version=1, key=key)
    taken = decode(data, agreement, lambda _: key.public).statistics
    np.testing.assert_array_equal(taken.counts, blurred.counts)


@pytest.mark.parametrize("moments", [(), ("client_means",)])
def test_fixed_point_gives_the_same_counts_and_the_same_means(moments: tuple[str, ...]) -> None:
    how, stats = Obfuscation("laplace", 0.2), measured(StatisticsSpec.of(*moments), [9, 0, 3, 20, 1])
    wide, fixed = how.apply(stats, seed=4), how.apply(stats.quantized(FORM), seed=4)
    np.testing.assert_array_equal(wide.counts, fixed.counts)
    np.testing.assert_allclose(wide.sums, fixed.sums, atol=1e-9)
    assert fixed.fixed_point == FORM


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.9])
def test_the_noise_has_the_distribution_that_was_asked_for(epsilon: float) -> None:
    n = 1000
    counts = np.full(20_000, n)
    for kind, expected in (
        ("uniform", distributions.uniform(-(1 - epsilon) * n, 2 * (1 - epsilon) * n)),
        ("gaussian", distributions.norm(0, 1 / epsilon)),
        ("laplace", distributions.laplace(0, 1 / epsilon)),
    ):
        noise = Obfuscation(kind, epsilon).counts(counts, seed=f"{kind}{epsilon}") - n
        values, found = np.unique(noise, return_counts=True)
        distance = np.abs(np.cumsum(found) / len(noise) - expected.cdf(values + 0.5)).max()
        assert distance < 1.63 / np.sqrt(len(noise))  # Kolmogorov and Smirnov, 1 %; the seed is fixed


def test_a_class_whose_count_becomes_zero_is_not_sent() -> None:
    stats = measured(StatisticsSpec.of("client_means"), [1] * C)
    found = [Obfuscation("laplace", 0.1).apply(stats, seed=seed) for seed in range(20)]
    assert any(len(each.classes) < C for each in found)
    assert all(len(each.row_labels) == len(each.classes) for each in found)


def test_a_seed_gives_the_same_noise_and_no_seed_gives_other_noise_every_time() -> None:
    stats, how = measured(StatisticsSpec(), [40] * C), Obfuscation("uniform", 0.1)
    assert how.apply(stats, seed=7).digest() == how.apply(stats, seed=7).digest()
    assert how.apply(stats, seed=7).digest() != how.apply(stats, seed=8).digest()
    assert len({how.apply(stats).digest() for _ in range(10)}) == 10


def test_noise_without_a_seed_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(n: int) -> bytes:
        asked.append(n)
        return bytes(n)

    monkeypatch.setattr("fedmoments.privacy.obfuscation.os.urandom", urandom)
    assert obfuscate(measured(StatisticsSpec(), [40]), "uniform:0.5").counts[0] == 20
    assert asked == [8]


def test_what_no_data_could_have_is_refused() -> None:
    how = Obfuscation("gaussian", 0.5)
    for name in ("gram", "class_grams", "class_squares", "class_norms", "class_thirds", "class_fourths"):
        with pytest.raises(InputError, match=f"beside the moment '{name}'"):
            how.apply(measured(StatisticsSpec.of(name), [9]))
    with pytest.raises(InputError, match="beside scatter sketches"):
        how.apply(measured(StatisticsSpec.of("scatter_sketch"), [9]))


def test_words_that_are_no_obfuscation_are_refused() -> None:
    assert str(parse_obfuscation("uniform:0.30")) == "uniform:0.3"
    for wrong in ("laplace", "laplace:", "laplace:x", "laplace:1e", "", 5):
        with pytest.raises(InputError, match="typed as KIND:EPSILON"):
            parse_obfuscation(wrong)  # type: ignore[arg-type]
    for wrong in ("laplace:0", "laplace:1", "laplace:-1", "laplace:1e9"):
        with pytest.raises(InputError, match="between 0 and 1"):
            parse_obfuscation(wrong)
    with pytest.raises(UnknownNameError, match="laplce"):
        parse_obfuscation("laplce:0.5")
