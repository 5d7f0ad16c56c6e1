"""Every head on data at the edge: no NaN, no exception, sensible answers.

NotEnoughDataError is the answer only where nothing can be: the spread inside classes cannot be measured (no class has
two samples, or two rows of client means for the free heads) and the shrinkage is to scale with it; all samples are
equal, so that a class has no covariance (QDA) or distances no scale (the automatic bandwidth of Fourier features).
"""

from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import Classifier
from fedmoments.errors import FitWarning, NotEnoughDataError

Array = npt.NDArray[Any]
Parties = dict[Any, tuple[Any, Any]]
HEADS = fm.head_names()
#: Heads whose covariance comes from client means alone.
FREE = {n for n in HEADS if (needs := fm.make_head(n).needs).keeps_clients_apart and not needs.has_sketch}
#: Heads that shrink automatically by the spread inside classes, and so need one.
SHRINKING = {
    name
    for name in HEADS
    if name.startswith(
        (
            "fedcof",
            "sketch",
            "gh-qda",
            "qda-",
            "gh-auto",
            "gh-lda",
            "gh-nb-fisher",
            "gh-dlr",
            "lda-",
            "mixture",
            "fisher",
            "proto",
        )
    )
}
#: Heads behind random features, with fewer of them.
SMALL: dict[str, dict[str, Any]] = {
    "fed3r-rf": {"n_features": 64},
    "fisher-rf": {"n_features": 64},
    "deep-ridge": {"layers": 2, "width": 16},
}
#: Heads that are trained in the Fisher subspace.
TRAINED = ("fishermix", "proto-hyper")
C, D, K = 3, 4, 6


def fit(name: str, parties: Parties, **options: Any) -> Classifier:
    return fm.fit(name, parties, **{**SMALL.get(name, {}), **options})


def draw(seed: int = 0, n: int = 90) -> tuple[Array, Array, Array]:
    """Return three well separated classes, dealt to six clients."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    return 0.5 * rng.normal(size=(n, D)) + 4 * np.eye(C, D)[y], y, np.arange(n) // C % K


def split(X: Array, y: Array, holders: Array) -> Parties:
    return {k: (X[holders == k], y[holders == k]) for k in range(int(holders.max()) + 1)}


def assert_sound(classifier: Classifier, X: Array) -> Array:
    """Check scores, labels and probabilities; return the labels."""
    scores, labels, shares = classifier.scores(X), classifier.predict(X), classifier.predict_proba(X)
    present = classifier.present
    assert np.isfinite(scores[:, present]).all()
    assert np.isneginf(scores[:, ~present]).all()
    assert present[labels].all()
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    assert (shares[:, ~present] == 0).all()
    for _, array in classifier.arrays():
        assert np.isfinite(array).all()
    return labels


def assert_right(classifier: Classifier, X: Array, y: Array, least: float = 0.95) -> None:
    assert (assert_sound(classifier, X) == y).mean() >= least


@pytest.fixture(params=HEADS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_well_separated_classes_are_told_apart(name: str) -> None:
    X, y, holders = draw()
    assert_right(fit(name, split(X, y, holders)), *draw(1)[:2])


def test_a_class_held_by_one_client(name: str) -> None:
    X, y, holders = draw()
    holders = np.where(y == 2, 0, holders)
    classifier = fit(name, split(X, y, holders))
    assert_right(classifier, *draw(1)[:2])
    assert classifier.present.all()


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_a_class_with_no_sample_is_never_predicted(name: str, empty: int) -> None:
    X, y, holders = draw()
    y = y + (y >= empty)
    classifier = fit(name, split(X, y, holders), n_classes=5)
    assert classifier.present.tolist() == [c != empty and c < 4 for c in range(5)]
    X_test, y_test, _ = draw(1)
    assert_right(classifier, X_test, y_test + (y_test >= empty))
    far = np.random.default_rng(2).normal(size=(500, D)) * 100
    assert not np.isin(assert_sound(classifier, far), [empty, 4]).any()
    assert not np.isin(assert_sound(classifier, np.zeros((1, D))), [empty, 4]).any()


def test_an_empty_class_does_not_change_the_others(name: str) -> None:
    X, y, holders = draw()
    with_empty, without = fit(name, split(X, y, holders), n_classes=5), fit(name, split(X, y, holders))
    far = draw(1)[0] * 3
    np.testing.assert_allclose(with_empty.scores(far)[:, :3], without.scores(far), rtol=1e-12, atol=1e-12)


def test_a_client_with_one_sample(name: str) -> None:
    X, y, holders = draw()
    parties = split(X, y, holders) | {"one": (X[:1] + 0.1, y[:1])}
    assert_right(fit(name, parties), *draw(1)[:2])


def test_every_client_with_one_sample(name: str) -> None:
    X, y, _ = draw()
    assert_right(fit(name, split(X, y, np.arange(len(X)))), *draw(1)[:2])


@pytest.mark.parametrize("place", ["first", "last"])
def test_an_empty_client_changes_nothing(name: str, place: str) -> None:
    X, y, holders = draw()
    parties, empty = split(X, y, holders), {"empty": (np.zeros((0, D)), np.zeros(0, int))}
    joined = empty | parties if place == "first" else parties | empty
    assert fit(name, joined).digest() == fit(name, parties).digest()


def test_more_dimensions_than_samples(name: str) -> None:
    rng = np.random.default_rng(0)
    X, y, holders = draw()
    wide = np.hstack([X, 0.3 * rng.normal(size=(len(X), 150))])
    classifier = fit(name, split(wide, y, holders))
    X_test, y_test, _ = draw(1)
    unseen = np.hstack([X_test, 0.3 * rng.normal(size=(len(X), 150))])
    # 64 Fourier features see little of 154 dimensions
    assert_right(classifier, unseen, y_test, 0.5 if name == "fed3r-rf" else 0.9)
    assert_right(classifier, wide, y, 0.9)


def test_more_dimensions_than_rows_of_client_means(name: str) -> None:
    rng = np.random.default_rng(0)
    X, y, _ = draw()
    wide = np.hstack([X, 0.3 * rng.normal(size=(len(X), 20))])
    holders = np.arange(len(X)) // 45  # two clients, six rows, 24 dimensions
    assert_right(fit(name, split(wide, y, holders)), wide, y, 0.75 if name == "fed3r-rf" else 0.9)


def test_duplicated_rows(name: str) -> None:
    X, y, holders = draw()
    tripled = split(np.repeat(X, 3, axis=0), np.repeat(y, 3), np.repeat(holders, 3))
    assert_right(fit(name, tripled), *draw(1)[:2])


def test_few_distinct_rows(name: str) -> None:
    X, y, _ = draw(n=12)
    X, y = np.tile(X, (8, 1)), np.tile(y, 8)
    assert_right(fit(name, split(X, y, np.arange(len(X)) // 5 % 7)), X, y)


def test_a_class_of_identical_samples_among_others(name: str) -> None:
    X, y, holders = draw()
    X[y == 1] = [0.0, 4.0, 0.0, 0.0]
    classifier = fit(name, split(X, y, holders))
    assert_right(classifier, X, y)
    assert_sound(classifier, draw(1)[0])


@pytest.mark.parametrize("value", [0.1, 1.0, 1000.0, -3.0])
def test_a_constant_feature(name: str, value: float) -> None:
    X, y, holders = draw()
    X_test, y_test, _ = draw(1)

    def widened(matrix: Array) -> Array:
        return np.hstack([matrix, np.full((len(matrix), 1), value)])

    head = fm.make_head(name)
    # auto standardises columns that lie far from 0 before they are encoded.
    coarse = value == 1000.0 and (head.pilot_needs or head.needs).has_sketch and name != "auto"
    with pytest.warns(FitWarning, match="means were rounded") if coarse else nullcontext():
        classifier = fit(name, split(widened(X), y, holders))
    # Large against the rest, a constant takes most of what a cosine, a random feature or a global mean can see.
    assert_right(classifier, widened(X_test), y_test, 0.9)
    if name in ("gh-lda", "lda-free", "gh-qda", "gh-qda-fisher", "gh-auto", "gh-nb", "nb-free", "fedcgs"):
        # those do not see it at all
        without = fit(name, split(X, y, holders))
        assert np.array_equal(classifier.predict(widened(X_test)), without.predict(X_test))


def test_an_all_zero_feature(name: str) -> None:
    X, y, holders = draw()
    X_test, y_test, _ = draw(1)
    widened = np.insert(X, 2, 0.0, axis=1)
    classifier = fit(name, split(widened, y, holders))
    points = np.insert(X_test, 2, 0.0, axis=1)
    assert_right(classifier, points, y_test)
    if name not in ("fed3r-rf", "fed3r", "fedcof-spherical"):  # scales there are per dimension, or the map is another
        without = fit(name, split(X, y, holders))
        assert np.array_equal(classifier.predict(points), without.predict(X_test))


def test_all_features_zero(name: str) -> None:
    X, y, holders = draw()
    parties = split(0 * X, y, holders)
    if name == "fed3r-rf":
        with pytest.raises(NotEnoughDataError, match="no bandwidth"):
            fit(name, parties)
    elif name in (
        "gh-qda",
        "gh-qda-fisher",
        "gh-nb-fisher",
        "qda-free",
        "qda-energy",
        "qda-sketch",
        "qda-exchange",
        "fisher-rf",
        "gh-auto",
        "gh-dlr-qda",
    ) or name.startswith(TRAINED):
        with pytest.raises(
            NotEnoughDataError, match=r"(pooled covariance|covariance of class 0) .* is (singular|zero)"
        ):
            fit(name, parties)
    else:
        assert_sound(fit(name, parties), X)


def test_a_class_of_one_sample(name: str) -> None:
    X, y, holders = draw()
    X, y = np.vstack([X, [[0.0, 0.0, 0.0, 5.0]]]), np.append(y, 3)
    classifier = fit(name, split(X, y, np.append(holders, 0)))
    assert classifier.present.all()
    assert_right(classifier, X[:-1], y[:-1], 0.9)
    beyond = assert_sound(classifier, np.array([[0.0, 0.0, 0.0, 8.0]]))
    if name != "fed3r-rf":
        assert beyond.tolist() == [3]


def test_every_class_of_one_sample(name: str) -> None:
    X, y, _ = draw(n=3)
    parties = split(X, y, np.arange(3))
    if name in SHRINKING:
        with pytest.raises(NotEnoughDataError, match="no class has two samples"):
            fit(name, parties)
        # Nothing to scale with: an absolute one does. γ enters FedCOF as γ·(N − C), which is 0 here: λ must do.
        absolute = {"shrinkage": 1.0} | ({"ridge": 0.01} if name.startswith(("fedcof", "sketch", "fisher-rf")) else {})
        warned = pytest.warns(FitWarning, match="teaches nothing") if name.startswith("proto") else nullcontext()
        with warned:
            fitted = fit(name, parties, **absolute)
        assert_right(fitted, X, y)
    else:
        assert_right(fit(name, parties), X, y)


def test_one_class_only(name: str) -> None:
    X, y, holders = draw()
    only = y == 0
    classifier = fit(name, split(X[only], y[only], holders[only]))
    assert (assert_sound(classifier, X) == 0).all()
    np.testing.assert_allclose(classifier.predict_proba(X), 1.0)


def test_one_class_of_many(name: str) -> None:
    X, y, holders = draw()
    only = y == 2
    classifier = fit(name, split(X[only], y[only], holders[only]), n_classes=4)
    assert (assert_sound(classifier, X) == 2).all()


def test_one_client_only(name: str) -> None:
    X, y, _ = draw()
    if name in FREE & SHRINKING:  # one client mean a class has no spread
        with pytest.raises(NotEnoughDataError, match="two rows of client means"):
            fit(name, {"only": (X, y)})
        assert_right(fit(name, {"only": (X, y)}, means_per_client=4), *draw(1)[:2])
    else:
        assert_right(fit(name, {"only": (X, y)}), *draw(1)[:2], least=0.9)


def test_an_offset_of_1000(name: str) -> None:
    X, y, holders = draw()
    X_test, y_test, _ = draw(1)
    assert_right(fit(name, split(X + 1000, y, holders)), X_test + 1000, y_test, 0.9)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i2", "u1", ">f8"])
def test_features_of_other_types(name: str, dtype: str) -> None:
    X, y, holders = draw()
    X_test, y_test, _ = draw(1)
    if np.dtype(dtype).kind in "iu":
        X, X_test = np.rint(8 * X + 40), np.rint(8 * X_test + 40)
    X, X_test = X.astype(dtype), X_test.astype(dtype)
    typed = fit(name, split(X, y, holders))
    assert_right(typed, X_test, y_test, 0.9)
    wide = fit(name, split(X.astype(np.float64), y, holders))
    points = X_test.astype(np.float64)
    np.testing.assert_allclose(typed.scores(points), wide.scores(points), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "u8"])
def test_labels_of_other_types(name: str, dtype: str) -> None:
    X, y, holders = draw()
    assert fit(name, split(X, y.astype(dtype), holders)).digest() == fit(name, split(X, y, holders)).digest()


def test_one_dimension(name: str) -> None:
    X, y, holders = draw()
    X = X[:, :1] + 8.0 * (y == 1)[:, None]
    classifier = fit(name, split(X, y, holders))
    assert_sound(classifier, X)
    one_only = ("fedncm", "fed3r", "deep-ridge", "sketch", "fedcof")  # they compare directions
    if name not in one_only and not name.startswith("fedcof"):
        assert_right(classifier, X, y)


def test_no_point_to_score(name: str) -> None:
    X, y, holders = draw()
    classifier = fit(name, split(X, y, holders))
    assert classifier.scores(np.zeros((0, D))).shape == (0, C)
    assert classifier.predict(np.zeros((0, D))).shape == (0,)
    assert classifier.predict_proba(np.zeros((0, D))).shape == (0, C)


def test_many_points_to_score_are_scored_as_one_by_one(name: str) -> None:
    X, y, holders = draw()
    classifier = fit(name, split(X, y, holders))
    points = np.random.default_rng(3).normal(size=(4500, D)) * 3
    together = classifier.scores(points)
    apart = np.concatenate([classifier.scores(points[i : i + 1]) for i in range(0, 4500, 500)])
    np.testing.assert_allclose(together[::500], apart, rtol=1e-10, atol=1e-10)


def test_nothing_is_refused(name: str) -> None:
    with pytest.raises(NotEnoughDataError, match="at least 2 samples" if name == "fed3r-rf" else "no sample at all"):
        fit(name, {"empty": (np.zeros((0, D)), [])}, n_classes=2)
