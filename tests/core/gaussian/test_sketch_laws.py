"""Laws of the scatter from sketches: oracle at full rank, exact trace, order, scale; and what it refuses."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, SketchScatter, covariance_source
from fedmoments.core.gaussian.sketch_scatter import automatic_share
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.coding import CODES
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.errors import InputError, MissingMomentError, NotEnoughDataError, UnknownNameError

Array = npt.NDArray[Any]
DIM, CLASSES = 6, 3


def draw(seed: int, n: int = 300, clients: int = 8) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.normal(size=(n, DIM)) @ rng.normal(size=(DIM, DIM)) + 3.0 * rng.normal(size=(CLASSES, DIM))[y] + 5.0
    return X, y, rng.integers(0, clients, n)


def sketched(X: Array, y: Array, holders: Array, rank: int, code: str = "float64", share: float = 1.0) -> Statistics:
    plan = SketchPlan(None, rank=rank, code=code, share=share)
    spec = StatisticsSpec.of("client_means", "scatter_sketch", sketch=plan)
    return Ledger.of(X, y, holders, spec, n_classes=CLASSES).statistics()


def exact(X: Array, y: Array) -> Statistics:
    return Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=CLASSES)


def scatter_of(stats: Statistics, source: str = "sketch") -> Array:
    matrix = new_gram(stats.dim)
    ClassGaussians(stats, source).scatter.add_to(matrix, 1.0)
    return symmetrize_upper(matrix)


def within_scatter(X: Array, y: Array) -> Array:
    means = np.stack([X[y == c].mean(axis=0) for c in range(CLASSES)])
    return np.asarray((X - means[y]).T @ (X - means[y]))


def formula(X: Array, y: Array, holders: Array, rank: int, share: float) -> Array:
    """Return B₂ + Σ V_kᵀV_k + R with a (d, d) matrix a client."""
    dim = X.shape[1]
    means = np.stack([X[y == c].mean(axis=0) for c in range(CLASSES)])
    between, flat, kept, left, clients = np.zeros((dim, dim)), np.eye(dim) / dim, [], [], []
    for k in np.unique(holders):
        centred = X[holders == k].copy()
        for c in np.unique(y[holders == k]):
            mine = y[holders == k] == c
            mean = centred[mine].mean(axis=0)
            centred[mine] -= mean
            between += mine.sum() * np.outer(mean - means[c], mean - means[c])
        _, values, right = np.linalg.svd(centred, full_matrices=False)
        rows = (values[:, None] * right)[: min(rank, max(len(centred) - len(np.unique(y[holders == k])), 0))]
        kept.append(rows.T @ rows)
        left.append((centred**2).sum() - (rows**2).sum())
        clients.append(rows)
    first = (1 - share) * between / np.trace(between) + share * flat
    known = between + sum(kept) + sum(left) * first
    shape = (1 - share) * known / np.trace(known) + share * flat
    total = between + sum(kept)
    for rows, rho in zip(clients, left, strict=True):
        rest = shape - shape @ rows.T @ np.linalg.pinv(rows @ shape @ rows.T, hermitian=True) @ rows @ shape
        total = total + rho * rest / np.trace(rest)
    return np.asarray(total)


@pytest.mark.parametrize(("rank", "share"), [(0, 0.3), (1, 0.0), (2, 0.3), (4, 1.0)])
def test_it_equals_the_formula_with_a_matrix_a_client(rank: int, share: float) -> None:
    X, y, holders = draw(0)
    ours = scatter_of(sketched(X, y, holders, rank), f"sketch:{share}")
    np.testing.assert_allclose(ours, formula(X, y, holders, rank, share), rtol=1e-8, atol=1e-8 * np.abs(ours).max())


@pytest.mark.parametrize("form", [None, FixedPoint(norm_bound=256.0, max_samples=1000)])
def test_law_full_rank_is_the_oracle(form: FixedPoint | None) -> None:
    X, y, holders = draw(1)
    spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=DIM, code="float64", share=1.0))
    stats = Ledger.of(X, y, holders, spec, n_classes=CLASSES, fixed_point=form).statistics()
    wanted = within_scatter(X, y)
    tolerance = 1e-8 if form is None else 1e-5
    np.testing.assert_allclose(scatter_of(stats), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("ours", "oracle"), [("sketch", "fedcof-oracle"), ("lda-sketch", "gh-lda"), ("fishermix-sketch", "fishermix")]
)
def test_law_heads_on_a_full_rank_sketch_have_the_weights_of_the_oracle(ours: str, oracle: str) -> None:
    X, y, holders = draw(2)
    few = {"spread": "pooled", "samples": 200} if oracle == "fishermix" else {}
    mine = fm.make_head(ours, **few).fit(sketched(X, y, holders, DIM))
    theirs = fm.make_head(oracle, **few).fit(exact(X, y))
    np.testing.assert_allclose(mine.scores(X), theirs.scores(X), rtol=1e-6, atol=1e-6 * np.abs(theirs.scores(X)).max())
    if not few:
        assert isinstance(mine, LinearClassifier)
        assert isinstance(theirs, LinearClassifier)
        np.testing.assert_allclose(mine.weights, theirs.weights, rtol=1e-8, atol=1e-8 * np.abs(theirs.weights).max())


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("rank", [0, 1, 3, DIM])
@pytest.mark.parametrize("source", ["sketch", "sketch:0", "sketch:1"])
def test_law_the_trace_is_exact_and_the_scatter_positive_at_any_rank_in_any_code(
    code: str, rank: int, source: str
) -> None:
    X, y, holders = draw(3)
    ours, wanted = scatter_of(sketched(X, y, holders, rank, code), source), within_scatter(X, y)
    assert abs(np.trace(ours) - np.trace(wanted)) < 1e-9 * np.trace(wanted)
    assert np.linalg.eigvalsh(ours)[0] > -1e-12 * np.trace(wanted)


def test_law_rank_0_needs_means_and_traces_alone() -> None:
    X, y, holders = draw(4)
    stats = sketched(X, y, holders, 0)
    assert stats.sketches.rows.shape == (0, DIM)
    spread = np.trace(scatter_of(stats, "free"))
    assert spread > 0
    between = scatter_of(replace(stats, sketch_residuals=np.zeros_like(stats.sketch_residuals)))
    shape = between / np.trace(between)
    np.testing.assert_allclose(
        scatter_of(stats, "sketch:0"), between + stats.sketch_residuals.sum() * shape, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_law_the_order_of_the_clients_does_not_matter(rank: int) -> None:
    X, y, holders = draw(5)
    plan = SketchPlan(None, rank=rank, code="int8")
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    parts = [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=CLASSES) for k in range(8)]
    one = scatter_of(Statistics.merge(parts))
    other = scatter_of(Statistics.merge([Statistics.merge(parts[5:][::-1]), *parts[:5]]))
    np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10 * np.abs(one).max())


@pytest.mark.parametrize("head", ["sketch", "lda-sketch", "fishermix-sketch"])
@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_law_features_times_a_constant_change_no_prediction(head: str, scale: float) -> None:
    X, y, holders = draw(6)
    hyper = {"samples": 200} if head == "fishermix-sketch" else {}
    one = fm.make_head(head, **hyper).fit(sketched(X, y, holders, 2))
    other = fm.make_head(head, **hyper).fit(sketched(scale * X, y, holders, 2))
    np.testing.assert_array_equal(one.predict(X), other.predict(scale * X))
    assert len(np.unique(one.predict(X))) == CLASSES


def test_more_rows_come_closer_to_the_oracle() -> None:
    X, y, holders = draw(7, n=1200)
    wanted = within_scatter(X, y)
    errors = [np.linalg.norm(scatter_of(sketched(X, y, holders, rank)) - wanted) for rank in (0, 2, 4, DIM)]
    assert all(finer < coarser for coarser, finer in pairwise(errors))


def test_the_automatic_share_falls_from_1_with_the_degrees_of_freedom_of_the_means() -> None:
    X, y, holders = draw(8)
    stats = sketched(X, y, holders, 1)
    held = sum(len(np.unique(holders[y == c])) - 1 for c in range(CLASSES))
    scatter = ClassGaussians(stats, "sketch").scatter
    assert isinstance(scatter, SketchScatter)
    assert scatter.share == DIM / (DIM + 2 * held) == automatic_share(DIM, held)
    np.testing.assert_array_equal(scatter_of(stats), scatter_of(stats, f"sketch:{scatter.share!r}"))
    assert scatter.weight == scatter.dof == len(y) - CLASSES
    assert scatter.n_rows is None
    assert np.isclose(scatter.residual, stats.sketch_residuals.sum())


def test_every_class_at_one_client_alone_spreads_the_rest_evenly() -> None:
    X, y, _ = draw(9)
    stats = sketched(X, y, y, 0)
    scatter = ClassGaussians(stats, "sketch").scatter
    assert isinstance(scatter, SketchScatter)
    assert scatter.share == 1.0
    spread = float(np.trace(within_scatter(X, y)))
    np.testing.assert_allclose(scatter_of(stats), spread / DIM * np.eye(DIM), rtol=1e-9, atol=1e-9 * spread)


def test_a_single_sample_a_client_is_exact_by_the_means_alone() -> None:
    X, y, _ = draw(10, n=40)
    stats = sketched(X, y, np.arange(40), 3)
    assert not stats.sketch_residuals.any()
    np.testing.assert_allclose(scatter_of(stats), within_scatter(X, y), rtol=1e-9, atol=1e-9)


def test_one_dimension() -> None:
    X, y, holders = draw(11)
    stats = sketched(X[:, :1], y, holders, 1)
    np.testing.assert_allclose(scatter_of(stats), within_scatter(X[:, :1], y), rtol=1e-10)


@pytest.mark.parametrize("text", ["sketch:2", "sketch:-0.1", "sketch:", "sketch:much", "sketch:nan"])
def test_a_bad_share_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError, match=r"number from 0 to 1; '.*' arrived"):
        covariance_source(text)
    with pytest.raises(InputError, match="number from 0 to 1"):
        fm.make_head("lda-sketch", covariance=text)


def test_an_unknown_source_is_told_of_the_sketch() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'sketch'.*spherical"):
        covariance_source("skech")


def test_class_covariances_are_refused_where_rows_are_those_of_all_classes() -> None:
    X, y, holders = draw(12)
    stats = sketched(X, y, holders, 2)
    gaussians = ClassGaussians(stats, "sketch")
    with pytest.raises(MissingMomentError, match=r"no class covariances.*spread=pooled"):
        next(iter(gaussians.class_covariances()))
    with pytest.raises(MissingMomentError, match="no class covariances or variances"):
        gaussians.class_variances()
    with pytest.raises(MissingMomentError, match="no class covariances"):
        fm.make_head("gh-qda", covariance="sketch").fit(stats)


def test_statistics_without_sketches_are_refused_before_anything_is_computed() -> None:
    X, y, holders = draw(13)
    plain = Ledger.of(X, y, holders, StatisticsSpec.of("client_means"), n_classes=CLASSES).statistics()
    with pytest.raises(MissingMomentError, match="scatter_sketch"):
        fm.make_head("sketch").fit(plain)
    with pytest.raises(MissingMomentError, match="scatter_sketch"):
        fm.make_head("lda-sketch").fit(exact(X, y))


def test_no_sample_is_refused() -> None:
    spec = StatisticsSpec.of("scatter_sketch")
    with pytest.raises(NotEnoughDataError, match="no sample"):
        fm.make_head("sketch").fit(Statistics.zero(spec, n_classes=2, dim=3))
