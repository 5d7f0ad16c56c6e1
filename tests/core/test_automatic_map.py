"""The map that features call for: standardised columns of tables, the power map, or none."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

import fedmoments as fm
from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.classifier import load_bytes
from fedmoments.core.maps import FeatureShape, TableMap
from fedmoments.core.maps.power import has_own_units
from fedmoments.samples import parse_split

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 600)
EVEN = RNG.normal(size=(600, 5)) + np.eye(3, 5)[Y]
UNITS = np.array([1e4, 1.0, 0.01, 1.0, 30.0])


def test_law_columns_of_tables_have_mean_0_and_deviation_1() -> None:
    table = automatic_map([(EVEN * UNITS + 7.0, Y)])
    assert isinstance(table, TableMap)
    np.testing.assert_allclose(table(EVEN * UNITS + 7.0), (EVEN - EVEN.mean(axis=0)) / EVEN.std(axis=0), atol=1e-6)


def test_law_rows_give_the_same_map_however_clients_hold_them() -> None:
    X = EVEN * UNITS
    assert automatic_map([(X, Y)]) == automatic_map([(X[k::4], Y[k::4]) for k in range(4)])


def test_law_units_of_columns_change_no_prediction() -> None:
    first = fm.fit("auto", {k: (EVEN[k::6] * UNITS, Y[k::6]) for k in range(6)})
    again = fm.fit("auto", {k: (EVEN[k::6] * UNITS * 2.0 ** np.arange(5), Y[k::6]) for k in range(6)})
    np.testing.assert_array_equal(first.predict(EVEN * UNITS), again.predict(EVEN * UNITS * 2.0 ** np.arange(5)))


def test_features_of_encoders_stay_as_they_are() -> None:
    assert automatic_map([(EVEN, Y)]) is None
    assert automatic_map([(np.maximum(EVEN, 0.0), Y)]) is None


@pytest.mark.parametrize("width", [4, 64, 512])
@pytest.mark.parametrize("samples", [3, 4, 6, 12])
def test_clients_of_few_samples_invent_no_units(width: int, samples: int) -> None:
    """Behind a ReLU, three samples show columns that hardly vary beside others that do."""
    relu = np.maximum(np.random.default_rng(width).normal(size=(samples * 40, width)), 0.0) ** 2
    assert not has_own_units(FeatureShape.of(relu[k::40], np.zeros(samples, int)) for k in range(40))


def test_columns_that_do_not_vary_and_cells_that_are_no_numbers_have_no_say() -> None:
    assert automatic_map([]) is None
    assert automatic_map([(np.ones((9, 3)), np.zeros(9, int))]) is None
    assert automatic_map([(np.full((9, 3), np.nan), np.zeros(9, int))]) is None
    assert automatic_map([(np.array([["a"], ["b"]]), np.zeros(2, int))]) is None
    assert automatic_map([(EVEN * UNITS, Y), (EVEN[:, :2] * 1e6, Y)]) is None


@pytest.mark.parametrize("n_clients", [1, 10, 50])
def test_columns_that_spread_thirty_times_as_much_have_units_however_many_clients_hold_them(n_clients: int) -> None:
    rng = np.random.default_rng(3)
    y = np.arange(2000) % 8
    X = rng.normal(size=(2000, 40)) + 0.5 * rng.normal(size=(8, 40))[y]
    units = 1000.0 ** rng.uniform(-0.5, 0.5, 40)
    assert automatic_map([(X[k::n_clients], y[k::n_clients]) for k in range(n_clients)]) is None
    map_ = automatic_map([(units * X[k::n_clients], y[k::n_clients]) for k in range(n_clients)])
    assert isinstance(map_, TableMap)


@pytest.mark.parametrize("n_clients", [1, 10, 50])
@pytest.mark.parametrize(("data", "least"), [(load_wine, 0.93), (load_breast_cancer, 0.93)])
def test_auto_reads_tables_of_measurements(data: object, least: float, n_clients: int) -> None:
    assert callable(data)
    X, y = data(return_X_y=True)
    test = np.arange(len(y)) % 10 < 3
    holders = np.asarray(parse_split("dirichlet:0.5").apply(y[~test], n_clients=n_clients, seed=0).clients)
    parties = {k: (X[~test][holders == k], y[~test][holders == k]) for k in np.unique(holders)}
    classifier = fm.fit("auto", parties, n_classes=int(y.max()) + 1)
    plain = fm.fit("auto", parties, n_classes=int(y.max()) + 1, feature_map="none")
    reached = float((classifier.predict(X[test]) == y[test]).mean())
    assert reached >= max(least, float((plain.predict(X[test]) == y[test]).mean()))
    again = load_bytes(classifier.to_bytes())
    np.testing.assert_array_equal(again.predict(X[test]), classifier.predict(X[test]))


@pytest.mark.parametrize("n_clients", [1, 10, 60])
def test_columns_with_zeros_of_their_own_are_standardised(n_clients: int) -> None:
    """Eight bits for a mean whose columns lie 40 deviations apart made clients differ where they do not."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 1800)
    X = rng.normal(size=(1800, 40)) + 0.5 * rng.normal(size=(3, 40))[y]
    zeros = 40.0 * rng.normal(size=40)
    parties = {k: (X[:1200][k::n_clients], y[:1200][k::n_clients]) for k in range(n_clients)}
    far = {k: (part + zeros, labels) for k, (part, labels) in parties.items()}
    assert isinstance(automatic_map(far.values()), TableMap)
    assert automatic_map(parties.values()) is None
    assert automatic_map([(part + 40.0, labels) for part, labels in parties.values()]) is None
    classifier, plain = fm.fit("auto", far), fm.fit("auto", parties)
    assert classifier.info["chosen"] == plain.info["chosen"] == "lda-sketch"
    assert classifier.score(X[1200:] + zeros, y[1200:]) >= plain.score(X[1200:], y[1200:]) - 0.02
