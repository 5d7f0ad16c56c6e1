"""Every inequality that honest statistics obey is refused when it is violated, and only then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmoments.core.linalg import pack_symmetric
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.robust import cap_reason, inconsistencies, suspects
from fedmoments.privacy.robust.consistency import ROOM, moment_reason

ALL = StatisticsSpec.of("class_grams", "client_means", "class_thirds", "class_fourths")
FORM = FixedPoint(norm_bound=1.0, max_samples=10_000)


def unit_rows(seed: int, n: int = 40, dim: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim)) + 0.5
    return X / np.linalg.norm(X, axis=1, keepdims=True), rng.integers(0, 3, n)


def client(seed: int, spec: StatisticsSpec, form: FixedPoint | None = None, n: int = 40) -> Statistics:
    X, y = unit_rows(seed, n)
    return Statistics.of(X, y, spec, n_classes=3, fixed_point=form)


def changed(stats: Statistics, name: str, change: Callable[[Any], Any]) -> Statistics:
    return replace(stats, arrays={**stats.arrays, name: change(np.array(stats.arrays[name]))})


@pytest.mark.parametrize("form", [None, FORM], ids=["float", "fixed"])
@pytest.mark.parametrize(
    "spec",
    [
        StatisticsSpec(),
        StatisticsSpec.of("gram"),
        StatisticsSpec.of("gram", "class_squares", "class_norms"),
        StatisticsSpec.of("client_means", means_per_client=3),
        ALL,
    ],
    ids=str,
)
def test_law_honest_statistics_are_consistent(spec: StatisticsSpec, form: FixedPoint | None) -> None:
    parties = {seed: client(seed, spec, form, n=1 + 7 * seed) for seed in range(8)}
    assert inconsistencies(parties, norm_bound=None if form else 1.0) == {}
    assert inconsistencies(parties) == {}


VIOLATIONS: list[tuple[str, str, Callable[[Any], Any], str]] = [
    ("a sum longer than its count", "sums", lambda a: a * 50.0, "out-of-range"),
    ("a trace beyond its count", "gram", lambda g: g * 3.0, "out-of-range"),
    ("a negative eigenvalue", "gram", lambda g: g - pack_symmetric(np.diag([9.0, 0, 0, 0, 0, 0])), "indefinite"),
    ("less than the sums explain", "gram", lambda g: g * 0.2, "indefinite"),
    ("negative squares", "class_squares", lambda d: -d, "inconsistent"),
    ("squares that the sums exceed", "class_squares", lambda d: d * 1e-3, "inconsistent"),
    ("norms that the sums exceed", "class_norms", lambda d: d * 1e-3, "inconsistent"),
    ("infinity", "sums", lambda a: a * np.inf, "not-finite"),
]


@pytest.mark.parametrize(("name", "change", "code"), [v[1:] for v in VIOLATIONS], ids=[v[0] for v in VIOLATIONS])
def test_each_violated_inequality_is_refused(name: str, change: Callable[[Any], Any], code: str) -> None:
    stats = client(0, StatisticsSpec.of(name))
    assert moment_reason(stats, FORM) is None
    with np.errstate(invalid="ignore"):
        wrong = changed(stats, name, change)
    reason = moment_reason(wrong, FORM)
    assert reason is not None
    assert reason.startswith(code)


def test_counts_below_one_are_refused() -> None:
    stats = client(0, StatisticsSpec())
    wrong = replace(stats, class_counts=stats.class_counts * np.array([1, -1, 1]))
    assert str(moment_reason(wrong, FORM)).startswith("bad-count")


def test_fixed_point_statistics_are_checked_in_their_own_form() -> None:
    stats = client(0, StatisticsSpec.of("gram"), FORM)
    less = changed(stats, "gram", lambda g: g // 5)
    assert inconsistencies({"a": stats, "b": less}).keys() == {"b"}
    with pytest.raises(InputError, match="another one"):
        inconsistencies({"a": stats}, norm_bound=2.0)


def test_caps_are_on_clients_and_on_classes() -> None:
    stats = client(0, StatisticsSpec())
    most, most_of_class = stats.n_samples, int(stats.class_counts.max())
    assert cap_reason(stats, max_samples=most, max_class_samples=most_of_class) is None
    assert "a client may have 39 at most" in str(cap_reason(stats, max_samples=most - 1))
    assert "of a class at most" in str(cap_reason(stats, max_class_samples=most_of_class - 1))
    for name in ("max_samples", "max_class_samples"):
        with pytest.raises(InputError, match=name):
            cap_reason(stats, **{name: 0})


@pytest.mark.parametrize("checked", [True, False])
def test_law_caps_hold_whether_or_not_moments_were_checked_before(checked: bool) -> None:
    parties = {seed: client(seed, StatisticsSpec(), n=10 * (seed + 1)) for seed in range(4)}
    found = suspects(parties, max_samples=30, filter=None, checked=checked)
    assert list(found.dropped) == [3]
    assert list(suspects(parties, max_class_samples=1, filter=None, checked=checked).dropped) == [0, 1, 2, 3]


def test_moments_that_were_checked_before_are_not_checked_again() -> None:
    parties = {seed: client(seed, StatisticsSpec.of("gram")) for seed in range(4)}
    parties[0] = changed(parties[0], "gram", lambda g: g * 0.2)
    assert suspects(parties, filter=None, checked=True).dropped == {}
    assert list(suspects(parties, filter=None).dropped) == [0]


def test_without_a_norm_bound_the_others_give_one() -> None:
    parties = {seed: client(seed, StatisticsSpec()) for seed in range(5)}
    parties[0] = changed(parties[0], "sums", lambda a: a * (2 * ROOM))
    found = inconsistencies(parties)
    assert list(found) == [0]
    assert found[0].startswith("out-of-range")


def test_nobody_is_refused() -> None:
    with pytest.raises(InputError, match="no client"):
        inconsistencies({})


@pytest.mark.parametrize("sent", ["NaN", "infinity", "negative counts"])
def test_one_client_that_sends_no_numbers_does_not_get_the_others_left_out(sent: str) -> None:
    """The usual norm is made of the others' alone, so that they stay possible."""
    spec = StatisticsSpec.of("gram")
    rng = np.random.default_rng(0)
    parties = {k: Statistics.of(rng.normal(size=(5, 3)) + 9, [0, 0, 1, 1, 2], spec, n_classes=3) for k in "abcde"}
    bad = parties["c"]
    if sent == "negative counts":
        parties["c"] = replace(bad, class_counts=-bad.class_counts)
    else:
        factor = np.nan if sent == "NaN" else np.inf
        parties["c"] = replace(bad, arrays={name: array * factor for name, array in bad.arrays.items()})
    assert list(inconsistencies(parties)) == ["c"]


def test_a_huge_count_does_not_blur_how_others_are_examined() -> None:
    spec = StatisticsSpec.of("gram")
    rng = np.random.default_rng(0)
    parties = {k: Statistics.of(rng.normal(size=(5, 3)), [0, 0, 1, 1, 2], spec, n_classes=3) for k in "abc"}
    junk = {**parties["a"].arrays, "gram": parties["a"].arrays["gram"] * 0.5}
    parties["a"] = replace(parties["a"], arrays=junk)
    assert list(inconsistencies(parties)) == ["a"]
    huge = parties["b"].class_counts * 2**57
    parties["b"] = replace(parties["b"], class_counts=huge)
    assert "a" in inconsistencies(parties)
