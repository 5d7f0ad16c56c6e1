"""Laws that every map obeys: composition, description, copies, errors."""

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.maps import (
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
    ReluBeside,
    ReluResidual,
    base,
    compose,
    from_description,
    known_kinds,
)
from fedmoments.errors import InputError, UnknownNameError

D = 6
SEEDS = st.integers(0, 2**63 - 1)
POSITIVE = st.floats(1e-300, 1e300)
SIMPLE: dict[str, st.SearchStrategy[FeatureMap]] = {
    "identity": st.just(Identity()),
    "normalize": st.just(Normalize()),
    "clip": st.builds(Clip, POSITIVE),
    "power": st.builds(Power, st.floats(0.01, 1.0)),
    "offset": st.builds(Offset, st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=D, max_size=D)),
    "random_projection": st.builds(RandomProjection, st.just(D), st.just(D), SEEDS),
    "directions": SEEDS.map(
        lambda seed: Directions.of(np.random.default_rng(seed).normal(size=(D, D)) + 3 * D * np.eye(D))
    ),  # never dependent
    "relu_residual": SEEDS.map(
        lambda seed: ReluResidual.of(ReluBeside(D, 4, seed % 100), np.random.default_rng(seed).normal(size=(4, D)))
    ),
    "random_fourier": st.builds(RandomFourier, st.just(D), st.just(D), POSITIVE, SEEDS),
}
ANY_SIMPLE = st.one_of(*SIMPLE.values())
ANY_MAP = st.lists(ANY_SIMPLE, max_size=4).map(lambda maps: compose(*maps))
EXAMPLES = [
    Identity(),
    Normalize(),
    Clip(1.5),
    Offset(np.arange(D)),
    RandomProjection(D, 4, seed=1),
    RandomFourier(D, 9, 2.0, seed=1),
    ReluBeside(D, 5, seed=1),
    ReluResidual.of(ReluBeside(D, 4, seed=1), np.full((4, D), 0.5)),
    Directions.of(np.random.default_rng(1).normal(size=(D, 3))),
    Normalize() | RandomProjection(D, 4, seed=1) | Clip(1),
]


@pytest.fixture
def registry() -> Iterator[None]:
    before = set(base._KINDS)
    yield
    for kind in set(base._KINDS) - before:
        base._KINDS.remove(kind)


@pytest.fixture
def features() -> npt.NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=(20, D))


def test_every_known_map_is_tested_here() -> None:
    built_in = {kind for kind in known_kinds() if base._KINDS[kind].__module__.startswith("fedmoments.")}
    assert built_in == {*SIMPLE, "chain", "relu_beside", "table"}  # one widens, and comes last; one takes raw rows


@given(ANY_MAP, ANY_MAP, ANY_MAP)
def test_composition_is_associative(a: FeatureMap, b: FeatureMap, c: FeatureMap) -> None:
    assert (a | b) | c == a | (b | c) == compose(a, b, c)
    assert ((a | b) | c).fingerprint() == (a | (b | c)).fingerprint()


@given(ANY_MAP)
def test_identity_is_neutral(a: FeatureMap) -> None:
    assert a | Identity() == a == Identity() | a


@given(ANY_MAP)
def test_a_description_rebuilds_an_equal_map(a: FeatureMap) -> None:
    again = from_description(json.loads(json.dumps(a.describe())))
    assert again == a
    assert hash(again) == hash(a)
    assert again.fingerprint() == a.fingerprint()
    assert again.describe() == a.describe()


@given(ANY_MAP, ANY_MAP)
def test_fingerprints_are_equal_exactly_when_maps_are(a: FeatureMap, b: FeatureMap) -> None:
    assert (a == b) == (a.fingerprint() == b.fingerprint())


def test_a_chain_applies_its_maps_in_order(features: npt.NDArray[np.float64]) -> None:
    a, b = Clip(1.0), RandomProjection(D, 3, seed=0)
    np.testing.assert_array_equal((a | b)(features), b(a(features)))
    assert (a | b)(features).shape != (20, D)
    assert not np.allclose(b.then(a)(features), a.then(b)(features))


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
def test_rows_are_mapped_one_by_one(a: FeatureMap, features: npt.NDArray[np.float64]) -> None:
    whole = a(features)
    assert whole.shape == (20, a.output_dim(D))
    np.testing.assert_allclose(np.vstack([a(features[:7]), a(features[7:])]), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
def test_input_is_not_changed(a: FeatureMap, features: npt.NDArray[np.float64]) -> None:
    before = features.copy()
    a(features)
    np.testing.assert_array_equal(features, before)


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_output_is_float64_as_if_the_input_had_been(a: FeatureMap, dtype: npt.DTypeLike) -> None:
    X = (10 * np.random.default_rng(0).normal(size=(5, D))).astype(dtype)
    assert a(X).dtype == np.float64
    np.testing.assert_array_equal(a(X), a(X.astype(np.float64)))


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so_and_alone(
    a: FeatureMap, bad: float, features: npt.NDArray[np.float64]
) -> None:
    features[3, 2] = bad
    finite = np.isfinite(a(features)).all(axis=1)
    assert finite.tolist() == [row != 3 for row in range(20)]


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
def test_no_rows_give_no_rows(a: FeatureMap) -> None:
    assert a(np.empty((0, D))).shape == (0, a.output_dim(D))


@pytest.mark.parametrize("a", EXAMPLES, ids=repr)
def test_copies_and_pickles_are_equal_and_carry_no_cache(a: FeatureMap) -> None:
    a.content_hash()
    assert copy.deepcopy(a) == a
    assert pickle.loads(pickle.dumps(a)) == a
    big = RandomProjection(1000, 100, seed=0)
    big.content_hash()
    assert len(pickle.dumps(big)) < 1000


def test_matrices_are_drawn_once_and_read_only() -> None:
    projection = RandomProjection(D, 3, seed=0)
    assert projection.matrix is projection.matrix
    with pytest.raises(ValueError, match="read-only"):
        projection.matrix[0, 0] = 1
    with pytest.raises(FrozenInstanceError):
        projection.seed = 1  # type: ignore[misc]


def test_numpy_numbers_describe_like_python_numbers() -> None:
    plain = RandomFourier(3, 4, 2, 5)
    typed = RandomFourier(np.int64(3), np.int32(4), np.float32(2), np.uint64(5))  # type: ignore[arg-type]
    assert plain == typed
    assert plain.fingerprint() == typed.fingerprint()


def test_negative_zero_and_zero_have_one_fingerprint() -> None:
    assert Offset([0.0]).fingerprint() == Offset([-0.0]).fingerprint()


def test_a_new_map_is_one_class(registry: None) -> None:
    @dataclass(frozen=True)
    class Doubled(FeatureMap, kind="doubled"):
        factor: float = 2.0

        def _apply(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return self.factor * X

    chain = Doubled(3.0) | Normalize()
    assert from_description(chain.describe()) == chain
    assert from_description({"kind": "doubled"}) == Doubled(2.0)
    with pytest.raises(InputError, match=r"two feature maps call themselves 'doubled': .*Doubled .* and .*Other "):

        class Other(FeatureMap, kind="doubled"):
            pass


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([1.0, 2.0], r"shape \(samples, features\).*got shape \(2,\).*newaxis"),
        (np.zeros((2, 3, 4)), r"got shape \(2, 3, 4\)"),
        (np.zeros((2, 5)), "must have 6 feature columns, but got 5"),
        (np.zeros((2, 0)), "at least 1, but got 0"),
        (np.zeros((2, 6), dtype=complex), "real numbers.*complex128"),
        ([["a"] * 6], "real numbers.*U1"),
        ([[1.0], [1.0, 2.0]], r"shape \(samples, features\)"),
    ],
)
def test_wrong_input_is_refused_with_reasons(X: npt.ArrayLike, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RandomProjection(D, 2, seed=0)(X)


def test_a_chain_that_cannot_fit_is_refused_when_it_is_made() -> None:
    with pytest.raises(InputError, match=r"map 3 of a Chain.*must have 5 feature columns, but got 4"):
        RandomProjection(D, 4, seed=0) | Normalize() | Offset(np.zeros(5))
    with pytest.raises(InputError, match=r"map 2 of a Chain.*must have 6 feature columns, but got 5"):
        (Normalize() | RandomProjection(D, 4, seed=0))(np.zeros((1, 5)))


@pytest.mark.parametrize("maps", [(), (Normalize(),), (Identity(), Normalize())])
def test_a_chain_of_fewer_than_two_is_refused(maps: tuple[FeatureMap, ...]) -> None:
    with pytest.raises(InputError, match="at least two maps"):
        Chain(maps)


def test_only_maps_compose() -> None:
    with pytest.raises(InputError, match="only feature maps can be composed, but got 3"):
        Normalize().then(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Normalize() | 3


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (None, "JSON object with a string 'kind'"),
        ({"norm": 1}, "JSON object with a string 'kind'"),
        ({"kind": 3}, "JSON object with a string 'kind'"),
        ({"kind": "clip"}, r"\['norm'\].*but got \[\]"),
        ({"kind": "clip", "norm": 1, "extra": 2}, r"but got \['extra', 'norm'\]"),
        ({"kind": "clip", "norm": "1"}, "norm of Clip must be a finite number above 0, but got '1'"),
        ({"kind": "clip", "norm": True}, "norm of Clip"),
        ({"kind": "clip", "norm": 0}, "norm of Clip"),
        ({"kind": "clip", "norm": 10**400}, "norm of Clip"),
        ({"kind": "clip", "norm": float("nan")}, "norm of Clip"),
        ({"kind": "offset", "vector": []}, "vector of Offset"),
        ({"kind": "offset", "vector": "ab"}, "vector of Offset"),
        ({"kind": "offset", "vector": [[1], [1, 2]]}, "vector of Offset"),
        ({"kind": "offset", "vector": [0.0, float("inf")]}, "must be finite, but got inf at position 1"),
        ({"kind": "random_projection", "input_dim": 2.0, "n_components": 2, "seed": 0}, "input_dim of RandomProj"),
        ({"kind": "random_projection", "input_dim": 2, "n_components": 0, "seed": 0}, "n_components of RandomProj"),
        ({"kind": "random_projection", "input_dim": 2, "n_components": 1, "seed": -1}, "seed of RandomProj"),
        ({"kind": "random_projection", "input_dim": 2, "n_components": 1, "seed": 2**63}, "seed of RandomProj"),
        (
            {"kind": "random_projection", "input_dim": 2, "n_components": 1, "seed": 1, "generator": "mt19937"},
            "generator of RandomProjection must be .* got 'mt19937'",
        ),
        ({"kind": "chain"}, "must have the parameter 'maps'"),
        ({"kind": "chain", "maps": "ab"}, "must have the parameter 'maps'"),
        ({"kind": "chain", "maps": []}, "at least two maps"),
        ({"kind": "chain", "maps": [1, 2]}, "JSON object with a string 'kind'"),
        ({"kind": "chain", "maps": [{"kind": "chain", "maps": []}]}, "holds another chain"),
    ],
)
def test_wrong_descriptions_are_refused_with_reasons(description: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_description(description)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'random_fourier'"):
        from_description({"kind": "randomfourier"})
