"""Feature maps: samples are solved for from sums behind a map that expands, and rules and audits know where."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fedmoments import StatisticsSpec
from fedmoments.core.maps import FeatureMap, Normalize, RandomFourier, RandomProjection
from fedmoments.errors import PolicyError
from fedmoments.federation.audit import Audit
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.map_leaks import MapOutline, fewest_samples
from fedmoments.samples.fingerprint import Fingerprint

D_IN, N = 4, 5
FOURIER = RandomFourier(D_IN, 40, bandwidth=2.0, seed=3)
SUMS = StatisticsSpec()


@dataclass(frozen=True)
class Root(FeatureMap, kind="test_root"):
    """A map of each coordinate by itself that is not linear."""

    def _apply(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sqrt(np.abs(X))


def terms_behind(feature_map: FeatureMap | None, dim: int, spec: StatisticsSpec = SUMS, classes: int = 2) -> Terms:
    names = tuple(f"class {label}" for label in range(classes))
    fingerprint = Fingerprint("none", "none", feature_map, names)
    return Terms("pets", {"name": "identity", "options": {}}, fingerprint, dim, spec)


def solved(sums: NDArray[Any], feature_map: FeatureMap, n: int) -> NDArray[np.float64]:
    """Return n samples whose sum behind a map is this one: the best of a few starts of a least-squares solver."""
    rng = np.random.default_rng(0)

    def residual(flat: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(feature_map(flat.reshape(n, -1)).sum(axis=0) - sums)

    fits = [least_squares(residual, rng.normal(size=n * D_IN), xtol=1e-15, ftol=1e-15, gtol=1e-15) for _ in range(12)]
    return np.asarray(min(fits, key=lambda fit: fit.cost).x.reshape(n, -1))


def test_five_samples_come_back_from_fourier_sums_that_no_default_policy_lets_out() -> None:
    X = np.random.default_rng(1).normal(size=(N, D_IN))
    found = solved(FOURIER(X).sum(axis=0), FOURIER, N)
    errors = [np.abs(found - x).max(axis=1).min() for x in X]
    assert max(errors) < 1e-6  # the attack: every sample, exactly, though min_count is 5
    terms = terms_behind(FOURIER, 40)
    refusal = "maps: the server asks for random_fourier: 4 → 40 columns, not linear, allowed are"
    with pytest.raises(PolicyError, match=refusal):
        ClientPolicy().require(terms)
    with pytest.raises(PolicyError, match="maps"):
        ClientPolicy(maps="linear").require(terms)
    ClientPolicy(maps="any").require(terms)
    ClientPolicy(maps="scaled").require(terms)
    mask, withheld = ClientPolicy(maps="scaled").select([0] * N + [1] * 11, behind=terms.map_outline)
    assert mask.tolist() == [False] * N + [True] * 11  # 4 n > 40 from 11 on
    assert (withheld.classes, withheld.samples) == (1, N)


def test_a_chain_with_a_narrow_waist_tells_all_that_passes_it() -> None:
    """As many columns come out as go in, and yet five samples come back as they are at the waist."""
    narrows = RandomProjection(40, D_IN, seed=2)
    chain = narrows | FOURIER
    X = np.random.default_rng(1).normal(size=(N, 40))
    X /= narrows(X).std()
    found = solved(chain(X).sum(axis=0), FOURIER, N)
    errors = [np.abs(found - x).max(axis=1).min() for x in narrows(X)]
    assert max(errors) < 1e-6
    terms = terms_behind(chain, 40)
    with pytest.raises(PolicyError, match="random_projection, random_fourier: 4 → 40 columns, not linear, allowed are"):
        ClientPolicy().require(terms)
    mask, _ = ClientPolicy(maps="scaled").select([0] * N + [1] * 11, behind=terms.map_outline)
    assert mask.tolist() == [False] * N + [True] * 11
    ClientPolicy().require(terms_behind(narrows | RandomProjection(D_IN, 40, seed=0), 40))  # linear: tells no more


def test_an_audit_shows_the_map_and_what_it_tells() -> None:
    behind = MapOutline.of(Normalize() | FOURIER, 40)
    labels = [0] * N + [1] * 11
    report = Audit.of(labels, SUMS, 40, ClientPolicy(maps="any"), behind=behind)
    (finding,) = [each for each in report.after.findings if each.kind == "inversion"]
    assert (finding.severity, finding.labels, finding.samples) == ("exposed", (0,), N)
    assert "normalize, random_fourier: 4 → 40 columns, not linear" in finding.sentence
    assert report.after.to_dict()["map"] == {"name": behind.name, "before": 4, "after": 40, "is_linear": False}
    assert not Audit.of(labels, SUMS, 40, ClientPolicy(maps="scaled"), behind=behind).after.exposes
    assert not Audit.of(labels, SUMS, 40, ClientPolicy(maps="any")).after.exposes  # without a word on the map


@pytest.mark.parametrize(
    ("feature_map", "before", "after", "linear", "narrow"),
    [
        (None, 6, 6, True, True),
        (RandomProjection(9, 6, seed=0), 9, 6, True, True),
        (RandomProjection(3, 6, seed=0), 3, 6, True, False),
        (Normalize(), 6, 6, False, True),
        (Root(), 6, 6, False, True),
        (Root() | Normalize() | RandomProjection(9, 6, seed=0), 9, 6, False, True),
        (RandomFourier(3, 50, bandwidth=1.0, seed=0) | RandomProjection(50, 6, seed=0), 3, 6, False, False),
        (RandomProjection(9, 2, seed=0) | RandomFourier(2, 6, bandwidth=1.0, seed=0), 2, 6, False, False),
        (RandomProjection(9, 6, seed=0) | Normalize(), 6, 6, False, True),
    ],
)
def test_any_map_is_judged_by_its_columns_and_linearity(
    feature_map: FeatureMap | None, before: int, after: int, linear: bool, narrow: bool
) -> None:
    terms = terms_behind(feature_map, after)
    outline = terms.map_outline
    assert (outline.before, outline.after, outline.is_linear, outline.expands) == (before, after, linear, not narrow)
    for rule, allowed in (("linear", linear and narrow), ("narrow", narrow), ("scaled", True), ("any", True)):
        policy = ClientPolicy(maps=rule)
        if allowed:
            policy.require(terms)
        else:
            with pytest.raises(PolicyError, match="maps"):
                policy.require(terms)


@given(st.integers(1, 30), st.integers(1, 80), st.sets(st.sampled_from(["class_squares", "class_grams"])))
def test_from_the_fewest_samples_on_no_count_is_determined(before: int, after: int, moments: set[str]) -> None:
    outline = MapOutline("some", before, after, is_linear=False)
    fewest = fewest_samples(outline, moments)
    determined = [n for n in range(1, 40 + after**2) if outline.determines(n, moments, "class_grams")]
    assert determined == list(range(1, fewest))


def test_a_gram_of_too_few_samples_behind_a_map_is_withheld_whole() -> None:
    spec, behind = StatisticsSpec.of("gram"), MapOutline("some", 4, 40, is_linear=False)
    policy = ClientPolicy(maps="scaled")
    few, many = [0] * 100 + [1] * 100, [0] * 200 + [1] * 200  # 40 + 820 numbers about 200 or 400 samples of 4
    assert not policy.select(few, behind=behind, moments=spec.moments)[0].any()
    assert policy.select(many, behind=behind, moments=spec.moments)[0].all()
