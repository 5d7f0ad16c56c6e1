"""What holds for every baseline, and what one-shot learning costs without sufficient statistics."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import Classifier
from fedmoments.errors import InputError, NotEnoughDataError, UnknownNameError
from fedmoments.samples import parse_split
from fedmoments.study.baselines import Baseline, Upload, baseline_names, baselines, make_baseline

Array = npt.NDArray[Any]
NAMES = baseline_names()
#: Smaller than the defaults, so that tests are fast.
SMALL: dict[str, dict[str, Any]] = {
    "ccvr": {"virtual": 2_000},
    "dense": {"samples": 600, "rounds": 3},
    "co-boosting": {"samples": 600, "rounds": 3},
}
#: What mixes or averages local heads; the others send moments of classes.
HEADS_ONLY = ("ensemble", "head-average", "dense", "co-boosting")
C, D = 5, 6


def make(name: str, **hyper: Any) -> Baseline:
    return make_baseline(name, **{**SMALL.get(name, {}), **hyper})


@cache
def draw(seed: int = 0, n: int = 400) -> tuple[Array, Array]:
    """Return classes that overlap a little; the centres are the same for every seed."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % C)
    return 5 + 1.2 * np.random.default_rng(99).normal(size=(C, D))[y] + 0.7 * rng.normal(size=(n, D)), y


def fit(
    name: str, X: Array, y: Array, holders: Array, *, n_classes: int = C, seed: int = 0, **hyper: Any
) -> Classifier:
    method = make(name, **hyper)
    uploads = [
        method.local(X[holders == k], y[holders == k], n_classes=n_classes, seed=int(k)) for k in np.unique(holders)
    ]
    return method.combine(uploads, dim=X.shape[1], seed=seed)


def accuracy(classifier: Classifier) -> float:
    X, y = draw(seed=1)
    return float((classifier.predict(X) == y).mean())


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_names_are_those_of_the_literature() -> None:
    assert NAMES == ("ccvr", "co-boosting", "dense", "ensemble", "fedpft", "head-average")
    for preset in baselines().values():
        assert preset.summary
        assert preset.paper
        assert preset.make().sends


def test_clients_alike_are_learnt_from(name: str) -> None:
    X, y = draw()
    assert accuracy(fit(name, X, y, np.arange(len(y)) // C % 4)) > 0.85


@pytest.mark.parametrize("head", ["gh-lda", "fed3r"])
def test_law_closed_form_heads_do_not_move_with_the_split_and_ensembles_do(head: str) -> None:
    X, y = draw()
    found: dict[str, tuple[Array, float]] = {}
    for alpha in ("0.5", "0.01"):
        holders = parse_split(f"dirichlet:{alpha}").apply(y, n_clients=10, seed=0).clients
        parties = {int(k): (X[holders == k], y[holders == k]) for k in np.unique(holders)}
        found[alpha] = fm.fit(head, parties, n_classes=C).scores(X), accuracy(fit("ensemble", X, y, holders))
    np.testing.assert_allclose(found["0.5"][0], found["0.01"][0], rtol=1e-8, atol=1e-8)
    assert found["0.5"][1] > found["0.01"][1] + 0.3


@pytest.mark.parametrize("name", HEADS_ONLY)
def test_law_one_class_a_client_leaves_local_heads_nothing(name: str) -> None:
    """Every local head is a constant, and so is what they mix or average to."""
    X, y = draw()
    parties = {k: (X[y == k], y[y == k]) for k in range(C)}
    assert accuracy(fit(name, X, y, y)) <= 1 / C + 0.02
    assert accuracy(fm.fit("gh-lda", parties)) > 0.9


@pytest.mark.parametrize("name", [each for each in NAMES if each not in HEADS_ONLY])
def test_one_class_a_client_does_not_hurt_those_that_send_moments_of_classes(name: str) -> None:
    X, y = draw()
    assert accuracy(fit(name, X, y, y)) > 0.88


def test_a_seed_gives_a_classifier(name: str) -> None:
    X, y = draw()
    holders = np.arange(len(y)) % 3
    assert fit(name, X, y, holders).digest() == fit(name, X, y, holders).digest()
    if name not in ("ensemble", "head-average"):
        assert fit(name, X, y, holders).digest() != fit(name, X, y, holders, seed=1).digest()


def test_law_classes_that_no_client_holds_are_never_predicted(name: str) -> None:
    X, y = draw()
    labels = np.array([1, 2, 4, 6, 7])[y]
    classifier = fit(name, X, labels, np.arange(len(y)) // C % 3, n_classes=9)
    assert np.flatnonzero(classifier.present).tolist() == [1, 2, 4, 6, 7]
    far = np.random.default_rng(0).normal(size=(500, D)) * 100
    scores = classifier.scores(far)
    assert np.isneginf(scores[:, ~classifier.present]).all()
    assert np.isfinite(scores[:, classifier.present]).all()
    test, truth = draw(seed=1)
    assert (classifier.predict(test) == np.array([1, 2, 4, 6, 7])[truth]).mean() > 0.85


@pytest.mark.parametrize("factor", [2.0**-20, 1e3])
def test_law_predictions_do_not_change_with_the_scale_of_features(name: str, factor: float) -> None:
    X, y = draw()
    holders = np.arange(len(y)) // C % 3
    here, there = fit(name, X, y, holders), fit(name, factor * X, y, holders)
    test, _ = draw(seed=1)
    assert (here.predict(test) == there.predict(factor * test)).mean() >= 0.995
    np.testing.assert_allclose(there.predict_proba(factor * test), here.predict_proba(test), atol=0.02)


def test_features_far_from_zero_lose_nothing(name: str) -> None:
    X, y = draw()
    holders = np.arange(len(y)) // C % 3
    here, there = fit(name, X, y, holders), fit(name, X + 1e5, y, holders)
    test, _ = draw(seed=1)
    assert (here.predict(test) == there.predict(test + 1e5)).mean() >= 0.98


@pytest.mark.parametrize("how", ["one client", "one sample a client", "copies", "a constant dimension", "one class"])
def test_data_at_the_edge(name: str, how: str) -> None:
    X, y = draw(n=40)
    holders = np.arange(40) // 8
    if how == "one client":
        holders = np.zeros(40, int)
    elif how == "one sample a client":
        holders = np.arange(40)
    elif how == "copies":
        X = np.repeat(X[:5], 8, axis=0)
        y = np.repeat(np.arange(5), 8)
        holders = np.arange(40) % 4
    elif how == "a constant dimension":
        X = np.column_stack([X, np.full(40, 3.0)])
    else:
        y = np.zeros(40, int)
    classifier = fit(name, X, y, holders)
    scores = classifier.scores(X)
    assert np.isfinite(scores[:, classifier.present]).all()
    assert np.array_equal(np.flatnonzero(classifier.present), np.unique(y))
    for _, array in classifier.arrays():
        assert np.isfinite(array).all()
    if how == "one class":
        assert (classifier.predict(X) == 0).all()
    if how in ("one client", "copies", "a constant dimension"):
        assert (classifier.predict(X) == y).mean() > 0.8


def test_more_dimensions_than_samples(name: str) -> None:
    X, y = draw()
    rng = np.random.default_rng(5)
    wide = np.column_stack([X[:60], 0.2 * rng.normal(size=(60, 100))])
    classifier = fit(name, wide, y[:60], np.arange(60) // C % 3)
    assert (classifier.predict(wide) == y[:60]).mean() > 0.85


def test_float32_features_are_taken(name: str) -> None:
    X, y = draw()
    holders = np.arange(len(y)) % 3
    narrow, wide = fit(name, X.astype(np.float32), y, holders), fit(name, X, y, holders)
    assert (narrow.predict(X) == wide.predict(X)).mean() > 0.98


def test_a_classifier_of_a_baseline_survives_its_file(name: str, tmp_path: Any) -> None:
    X, y = draw()
    classifier = fit(name, X, y, np.arange(len(y)) % 3).noting(head=name, settings=make(name).settings())
    classifier.save(tmp_path / "file")
    assert fm.load(tmp_path / "file").digest() == classifier.digest()


def test_settings_are_plain(name: str) -> None:
    method = make(name)
    assert all(isinstance(value, int | float | str) for value in method.settings().values())
    assert hash(method) == hash(make(name))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((0, 2)), np.zeros(0, int), r"matrix \(samples, dimensions\), not of shape \(0, 2\)"),
        (np.zeros(3), np.zeros(3, int), r"not of shape \(3,\)"),
        (np.zeros((3, 2)), np.zeros(2, int), "3 samples need as many labels"),
        (np.zeros((2, 2)), np.array([0, 5]), r"from 0 to 4 \(5 classes\), but 5 arrived"),
        (np.zeros((2, 2)), np.array([0, -1]), "but -1 arrived"),
        (np.zeros((2, 2)), np.array([0.5, 1.0]), "whole numbers"),
        (np.array([[0.0, 0.0], [np.nan, 0.0]]), np.array([0, 1]), "sample 1 holds NaN or infinity"),
    ],
)
def test_wrong_samples_are_refused(name: str, X: Array, y: Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(name).local(X, y, n_classes=C, seed=0)


def test_nothing_cannot_be_combined(name: str) -> None:
    with pytest.raises(NotEnoughDataError, match="no client sent anything"):
        make(name).combine([], dim=D, seed=0)


def test_unknown_names_and_hyper_parameters_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"baseline '{name}' has no hyper-parameter 'colour': it takes .*decay"):
        make_baseline(name, colour="red")
    with pytest.raises(UnknownNameError, match="unknown baseline 'fedpff': did you mean 'fedpft'"):
        make_baseline("fedpff")


def test_what_is_sent_is_counted(name: str) -> None:
    X, y = draw()
    sent = make(name).local(X, y, n_classes=C, seed=0)
    assert isinstance(sent, Upload)
    assert all(array.dtype == np.float64 for array in sent.arrays.values())
    assert np.array_equal(sent.counts, np.bincount(y, minlength=C))
    few = make(name).local(X[y < 2], y[y < 2], n_classes=C, seed=0)
    assert few.n_counts == 2
    assert few.n_floats < 0.6 * sent.n_floats


def through_the_wire(sent: Upload) -> Upload:
    """Return what a server can know: n_floats float64 and n_counts counts, their places, and nothing else."""
    told = np.flatnonzero(sent.counts)
    floats = b"".join(array.astype("<f8").tobytes() for array in sent.arrays.values())
    counts = sent.counts[told].astype("<i8").tobytes()
    assert len(floats) == 8 * sent.n_floats
    assert len(counts) == 8 * sent.n_counts
    read, arrays = np.frombuffer(floats, "<f8"), {}
    for name, shape in [(name, array.shape) for name, array in sent.arrays.items()]:
        size = int(np.prod(shape))
        arrays[name], read = read[:size].reshape(shape), read[size:]
    assert not len(read)
    every = np.zeros(len(sent.counts), np.int64)
    every[told] = np.frombuffer(counts, "<i8")
    return Upload(arrays, every)


def test_law_the_server_reads_nothing_but_what_is_counted_as_sent(name: str) -> None:
    X, y = draw()
    holders = np.arange(len(y)) // C % 3
    kept = (holders != 2) | (y < 2)  # a client with two classes
    method = make(name)
    sent = [
        method.local(X[kept & (holders == k)], y[kept & (holders == k)], n_classes=C, seed=int(k)) for k in range(3)
    ]
    read = [through_the_wire(each) for each in sent]
    here, there = method.combine(sent, dim=D, seed=0), make(name).combine(read, dim=D, seed=0)
    assert here.digest() == there.digest()
    # and everything that is counted is read: another number gives another classifier
    for field in sent[0].arrays:
        changed = {**read[0].arrays, field: read[0].arrays[field] * 1.01 + 0.01}
        other = method.combine([Upload(changed, read[0].counts), *read[1:]], dim=D, seed=0)
        assert other.digest() != here.digest(), field
