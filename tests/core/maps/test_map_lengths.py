"""Whether the length of features varies by itself, and the map that follows."""

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.maps import FeatureShape, Lengths, Normalize, recommended_map
from fedmoments.core.maps.lengths import lengths_vary
from fedmoments.samples.feature_maps import chosen_map

RNG = np.random.default_rng(0)
CLASSES, DIM = 4, 60
Y = RNG.integers(0, CLASSES, 1200)
GAUSSIAN = RNG.normal(size=(1200, DIM)) + 1.2 * RNG.normal(size=(CLASSES, DIM))[Y]
#: A factor of each sample, whatever its class.
SCALES = np.exp(0.6 * RNG.normal(size=(1200, 1)))


def parts(X: np.ndarray, clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X[k::clients], Y[k::clients]) for k in range(clients)]


@pytest.mark.parametrize("clients", [1, 10, 60])
def test_a_factor_a_sample_calls_for_unit_length_however_many_clients_hold_it(clients: int) -> None:
    assert automatic_map(parts(GAUSSIAN * SCALES, clients)) == Normalize()
    assert automatic_map(parts(GAUSSIAN, clients)) is None
    assert automatic_map(parts(Normalize()(GAUSSIAN), clients)) is None


@pytest.mark.parametrize("clients", [1, 10, 60])
@pytest.mark.parametrize("directions", [1, 2, 5, 20, DIM])
@pytest.mark.parametrize("apart", [0.0, 1.0, 4.0])
def test_gaussian_classes_keep_their_lengths_in_any_number_of_directions(
    clients: int, directions: int, apart: float
) -> None:
    rng = np.random.default_rng(directions)
    inside = rng.normal(size=(1200, directions)) + apart * rng.normal(size=(CLASSES, directions))[Y]
    assert automatic_map(parts(inside @ rng.normal(size=(directions, DIM)), clients)) is None


@pytest.mark.parametrize("clients", [1, 10, 60])
def test_a_few_long_samples_call_for_unit_length_however_many_clients_hold_them(clients: int) -> None:
    rng = np.random.default_rng(5)
    long = np.where(rng.random((1200, 1)) < 0.02, 15.0, 1.0)
    assert automatic_map(parts(GAUSSIAN * long, clients)) == Normalize()


def test_a_client_whose_looked_at_samples_are_of_one_class_has_no_say() -> None:
    y = np.append(np.zeros(1023, int), [1, 1])  # of 1,025 samples, every third by length is looked at
    told = Lengths.of(np.random.default_rng(2).normal(size=(1025, 5)), y)
    assert (told.chance, told.chance_dof) == (0.0, 0)
    assert not lengths_vary([told])


def test_lengths_that_tell_the_class_are_kept() -> None:
    """Classes around one mean that differ in their spread alone: with unit length, nothing tells them apart."""
    factors = np.exp(0.3 * RNG.normal(size=(1200, 1)))
    X = RNG.normal(size=(1200, DIM)) * factors
    assert automatic_map([(X, Y)]) == Normalize()
    assert automatic_map([(X * (1.0 + Y % 2)[:, None], Y)]) is None


def test_law_units_rotations_and_the_order_of_samples_change_nothing() -> None:
    X = GAUSSIAN * SCALES
    rotation, _ = np.linalg.qr(RNG.normal(size=(DIM, DIM)))
    mixed = RNG.permutation(len(X))
    told = Lengths.of(X, Y)
    for other, labels in ((X * 1e-7, Y), (X * 1e200, Y), (X @ rotation, Y), (X[mixed], Y[mixed]), (X, 7 - Y)):
        again = Lengths.of(other, labels)
        assert (again.n_samples, again.dof, again.chance_dof) == (told.n_samples, told.dof, told.chance_dof)
        np.testing.assert_allclose(
            (again.squares, again.within, again.chance), (told.squares, told.within, told.chance), rtol=1e-7
        )


@pytest.mark.parametrize("size", [4, 8, 40, 1200])
def test_law_the_chance_of_gaussians_is_the_same_in_small_classes(size: int) -> None:
    """Mean over clients of ``size`` samples a class, against the formula of the true covariance and means."""
    rng = np.random.default_rng(size)
    deviations, means = np.geomspace(1.0, 0.3, 80), 0.4 * np.random.default_rng(9).normal(size=(2, 80))
    found, weights = [], []
    for _ in range(max(4800 // size, 4)):
        y = np.arange(2 * size) % 2
        told = Lengths.of(rng.normal(size=(2 * size, 80)) * deviations + means[y], y)
        found.append(told.chance)
        weights.append(told.chance_dof)
    squares, lengths = np.square(deviations), np.square(means).sum(axis=1)
    along = (np.square(means) @ squares / lengths)[::-1]
    expected = (np.square(squares).sum() + 2.0 * along * lengths) / (2.0 * (squares.sum() + lengths) ** 2)
    assert np.average(found, weights=weights) == pytest.approx(expected.mean(), rel=0.1)


def test_clients_without_a_say_change_nothing() -> None:
    told = FeatureShape.of(GAUSSIAN * SCALES, Y)
    silent = [
        FeatureShape.of(np.zeros((5, DIM)), np.zeros(5, int)),
        FeatureShape.of(np.zeros((0, DIM)), np.zeros(0, int)),
        FeatureShape.of(-GAUSSIAN[:2], np.arange(2)),
    ]
    assert recommended_map([told, *silent]) == Normalize()
    assert recommended_map(silent) is None
    assert not lengths_vary([Lengths.of(GAUSSIAN[:3] * SCALES[:3], np.zeros(3, int))])
    assert silent[0].lengths == Lengths()


def test_auto_scales_to_length_1_and_gains() -> None:
    train, test = slice(0, 400), slice(400, 1200)
    X = (RNG.normal(size=(1200, DIM)) + 0.5 * RNG.normal(size=(CLASSES, DIM))[Y]) * SCALES
    sites = {k: (X[train][k::5], Y[train][k::5]) for k in range(5)}
    scaled, plain = fm.fit("auto", sites), fm.fit("auto", sites, feature_map="none")
    assert scaled.feature_map == fm.fit("auto", sites, feature_map="length").feature_map == Normalize()
    assert scaled.score(X[test], Y[test]) > plain.score(X[test], Y[test]) + 0.02


def test_an_encoder_says_that_lengths_vary() -> None:
    assert chosen_map("auto", ["auto"], "wordllama") == chosen_map("length", ["fedcof"], "minilm") == Normalize()
    assert chosen_map("auto", ["auto"], "minilm") is None
