"""Laws of class scatters from labelled sketch rows: exact at full rank, exact trace, order and scale."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import QuadraticClassifier
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.coding import CODES
from fedmoments.core.statistics.sketch_plan import SketchPlan

Array = npt.NDArray[Any]
DIM, CLASSES, CLIENTS = 6, 3, 5


def draw(seed: int, n: int = 300) -> tuple[Array, Array, Array]:
    """Return features whose classes have spreads of their own, labels and holders."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    turns = rng.normal(size=(CLASSES, DIM, DIM))
    X = np.einsum("nd,nde->ne", rng.normal(size=(n, DIM)), turns[y]) + 3.0 * rng.normal(size=(CLASSES, DIM))[y] + 5.0
    return X, y, rng.integers(0, CLIENTS, n)


def plan_of(rank: int, code: str = "float64", share: float = 1.0) -> SketchPlan:
    return SketchPlan(None, rank=rank, code=code, share=share, rows="class")


def sketched(X: Array, y: Array, holders: Array, plan: SketchPlan, form: FixedPoint | None = None) -> Statistics:
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    return Ledger.of(X, y, holders, spec, n_classes=CLASSES, fixed_point=form).statistics()


def class_scatter(X: Array, y: Array, label: int) -> Array:
    away = X[y == label] - X[y == label].mean(axis=0)
    return np.asarray(away.T @ away)


def scatters(stats: Statistics, source: str = "sketch") -> Array:
    gaussians = ClassGaussians(stats, source)
    return np.stack([own * dof for _, own, dof in gaussians.class_covariances()])


def formula(X: Array, y: Array, holders: Array, rank: int, share: float) -> Array:
    """Return every W_c by loops, with a (d, d) matrix a client and class."""
    means = np.stack([X[y == c].mean(axis=0) for c in range(CLASSES)])
    own, flat = np.zeros((CLASSES, DIM, DIM)), np.eye(DIM) / DIM
    between, cells = np.zeros((DIM, DIM)), []
    for k in range(CLIENTS):
        found = []
        for c in range(CLASSES):
            mine = X[(holders == k) & (y == c)]
            gap = mine.mean(axis=0) - means[c]
            between += len(mine) * np.outer(gap, gap)
            own[c] += len(mine) * np.outer(gap, gap)
            _, values, right = np.linalg.svd(mine - mine.mean(axis=0), full_matrices=False)
            found += [(c, value, value * row) for value, row in zip(values, right, strict=True)]
        chosen = sorted(found, key=lambda entry: -entry[1])[:rank]
        for c in range(CLASSES):
            rows = np.array([row for label, _, row in chosen if label == c]).reshape(-1, DIM)
            total = sum(value**2 for label, value, _ in found if label == c)
            cells.append((c, rows, total - (rows**2).sum()))
    kept, left = sum(rows.T @ rows for _, rows, _ in cells), sum(rho for *_, rho in cells)
    known = between + kept + left * ((1 - share) * between / np.trace(between) + share * flat)
    shape = (1 - share) * known / np.trace(known) + share * flat
    for c, rows, rho in cells:
        rest = shape - shape @ rows.T @ np.linalg.pinv(rows @ shape @ rows.T, hermitian=True) @ rows @ shape
        own[c] += rows.T @ rows + rho * rest / np.trace(rest)
    return own


@pytest.mark.parametrize(("rank", "share"), [(0, 0.3), (2, 0.0), (4, 0.3), (9, 1.0)])
def test_class_scatters_equal_the_formula_with_a_matrix_a_client_and_class(rank: int, share: float) -> None:
    X, y, holders = draw(0)
    ours, theirs = (
        scatters(sketched(X, y, holders, plan_of(rank)), f"sketch:{share}"),
        formula(X, y, holders, rank, share),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("form", [None, FixedPoint(norm_bound=256.0, max_samples=1000)])
def test_law_full_rank_gives_the_exact_scatter_of_every_class(form: FixedPoint | None) -> None:
    X, y, holders = draw(1)
    ours = scatters(sketched(X, y, holders, plan_of(CLASSES * DIM), form))
    theirs = np.stack([class_scatter(X, y, c) for c in range(CLASSES)])
    tolerance = 1e-8 if form is None else 1e-5
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())
    assert not np.allclose(ours[0], theirs[1])


@pytest.mark.parametrize("subspace", ["fisher", "full"])
@pytest.mark.parametrize("pooling", ["automatic", "blend:0.5", "none"])
def test_law_full_rank_is_exact_qda_with_that_pooling(subspace: str, pooling: str) -> None:
    X, y, holders = draw(2)
    ours = fm.make_head("qda-sketch", subspace=subspace, pooling=pooling).fit(
        sketched(X, y, holders, plan_of(CLASSES * DIM))
    )
    exact = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=CLASSES)
    theirs = fm.make_head("gh-qda", subspace=subspace, pooling=pooling).fit(exact)
    scores = theirs.scores(X)
    np.testing.assert_allclose(ours.scores(X), scores, rtol=1e-6, atol=1e-6 * np.abs(scores).max())
    assert not np.allclose(scores, fm.make_head("gh-lda").fit(exact).scores(X), rtol=1e-3)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("rank", [0, 3, CLASSES * DIM])
def test_law_class_scatters_add_up_to_the_pooled_one_with_the_exact_total_trace(code: str, rank: int) -> None:
    X, y, holders = draw(3)
    stats = sketched(X, y, holders, plan_of(rank, code))
    ours, pooled = scatters(stats), ClassGaussians(stats, "sketch").scatter.scaled(1.0)
    upper = np.triu_indices(DIM)
    np.testing.assert_allclose(ours.sum(axis=0)[upper], pooled[upper], rtol=1e-9, atol=1e-9 * np.trace(pooled))
    for label in range(CLASSES):
        wanted = np.trace(class_scatter(X, y, label))
        assert abs(np.trace(ours[label]) - wanted) < 1e-9 * wanted
        assert np.linalg.eigvalsh(ours[label])[0] > -1e-11 * wanted


def test_law_the_order_of_the_clients_changes_no_bit_in_fixed_point() -> None:
    X, y, holders = draw(4)
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan_of(5, "int8"))
    form = FixedPoint(norm_bound=256.0, max_samples=1000)
    parts = [
        Statistics.of(X[holders == k], y[holders == k], spec, n_classes=CLASSES, fixed_point=form)
        for k in range(CLIENTS)
    ]
    one, other = Statistics.merge(parts), Statistics.merge([Statistics.merge(parts[3:][::-1]), *parts[:3]])
    assert one == other
    np.testing.assert_array_equal(scatters(one), scatters(other))
    ours, theirs = (fm.make_head("qda-sketch").fit(stats) for stats in (one, other))
    assert isinstance(ours, QuadraticClassifier)
    assert isinstance(theirs, QuadraticClassifier)
    np.testing.assert_array_equal(ours.whiteners, theirs.whiteners)
    np.testing.assert_array_equal(ours.bias, theirs.bias)


@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_law_features_times_a_constant_change_no_prediction(scale: float) -> None:
    X, y, holders = draw(5)
    plan = plan_of(5, "int8", share=0.25)
    one = fm.make_head("qda-sketch").fit(sketched(X, y, holders, plan))
    other = fm.make_head("qda-sketch").fit(sketched(scale * X, y, holders, plan))
    np.testing.assert_array_equal(one.predict(X), other.predict(scale * X))
    assert len(np.unique(one.predict(X))) == CLASSES


def test_law_pooled_rows_make_it_lda() -> None:
    X, y, holders = draw(6)
    stats = sketched(X, y, holders, SketchPlan(None, rank=4, rows="pooled"))
    ours, theirs = fm.make_head("qda-sketch").fit(stats), fm.make_head("lda-sketch").fit(stats)
    assert not ClassGaussians(stats, "sketch").class_dof.any()
    gaps = ours.scores(X) - theirs.scores(X)
    np.testing.assert_allclose(gaps, np.repeat(gaps[:, :1], CLASSES, axis=1), atol=1e-7)


def test_variances_are_the_diagonals_of_class_scatters() -> None:
    X, y, holders = draw(7)
    stats = sketched(X, y, holders, plan_of(4))
    variances, dof = ClassGaussians(stats, "sketch").class_variances()
    np.testing.assert_allclose(variances, np.diagonal(scatters(stats), axis1=1, axis2=2), rtol=1e-9)
    assert dof.tolist() == (np.bincount(y) - 1).tolist()
