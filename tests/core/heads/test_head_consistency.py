"""What holds for every head: one classifier however it is fitted, and invariances to scale, offset and precision."""

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.classifier import DiagonalClassifier, LinearClassifier, LowRankClassifier, QuadraticClassifier
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.low_rank_qda import LowRankQda
from fedmoments.core.heads.naive_bayes import NaiveBayes
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.heads.qda import Qda
from fedmoments.core.heads.ridge import Ridge
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError, InputError, MissingMomentError, NotEnoughDataError, UnknownNameError

Array = npt.NDArray[Any]
HEADS = fm.head_names()
C, D, K = 4, 5, 7


def hyper(name: str) -> dict[str, Any]:
    small: dict[str, dict[str, Any]] = {
        "fed3r-rf": {"n_features": 64},
        "fisher-rf": {"n_features": 64},
        "deep-ridge": {"layers": 2, "width": 16},
    }
    return small.get(name, {})


def draw(seed: int = 0, n: int = 210) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y, holders = rng.permutation(np.arange(n) % C), rng.permutation(np.arange(n) % K)
    spread = rng.normal(size=(C, D, D))
    X = np.einsum("nij,nj->ni", spread[y], rng.normal(size=(n, D))) + 4 * rng.normal(size=(C, D))[y]
    return X, y, holders


def parties(X: Array, y: Array, holders: Array) -> dict[int, tuple[Array, Array]]:
    return {k: (X[holders == k], y[holders == k]) for k in range(K)}


X, labels, holders = draw()
FRESH = draw(1)[0] * 2


def scores_of(head: Any, data: dict[int, tuple[Array, Array]], points: Array, **options: Any) -> Array:
    return np.asarray(fm.fit(head, data, n_classes=C, **options).scores(points))


# -------------------------------------------------------------------------------------------------- one classifier


@pytest.mark.parametrize("name", HEADS)
def test_data_statistics_ledger_and_merged_statistics_give_the_same_classifier(name: str) -> None:
    data = parties(X, labels, holders)
    direct = fm.fit(name, data, **hyper(name))
    whole_map = direct.feature_map
    spec = fm.spec_for(name)
    apart = {k: Statistics.of(whole_map(x) if whole_map else x, y, spec, n_classes=C) for k, (x, y) in data.items()}
    options: dict[str, Any] = {**hyper(name), "feature_map": whole_map}
    others = {
        "statistics by client": fm.fit(name, apart, **options),
        "merged statistics": fm.fit(name, Statistics.merge(apart.values()), **options),
        "ledger": fm.fit(name, fm.measure(apart, spec), **options),
        "folded ledger": fm.fit(name, fm.measure(apart, spec, fold=True), **options),
        "partition": fm.fit(
            name, Ledger.of(whole_map(X) if whole_map else X, labels, holders, spec, n_classes=C), **options
        ),
        "a finer upload": fm.fit(
            name,
            fm.measure(data, StatisticsSpec.of("class_grams", "client_means") | spec, feature_map=whole_map),
            **options,
        ),
        "the head itself": fm.fit(fm.make_head(name, **hyper(name)), apart, feature_map=whole_map),
    }
    expected = direct.scores(FRESH)
    scale = np.abs(expected).max()
    close = (1e-8 if name == "fed3r-rf" else 1e-10) * scale  # λ is small there against 64 features that correlate
    for how, classifier in others.items():
        np.testing.assert_allclose(classifier.scores(FRESH), expected, rtol=0, atol=close, err_msg=how)
        assert classifier.n_classes == C
    assert others["ledger"].digest() == fm.fit(name, fm.measure(apart, spec), **options).digest()
    fewer = fm.fit(name, {k: data[k] for k in range(4)}, **hyper(name))
    assert not np.allclose(fewer.scores(FRESH), expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("name", HEADS)
def test_in_fixed_point_order_leaves_no_trace_and_scores_agree_to_resolution(name: str) -> None:
    data = parties(X, labels, holders)
    form = FixedPoint(norm_bound=128.0, max_samples=1000)
    settings = hyper(name)
    if name == "fed3r-rf":
        settings["bandwidth"] = 5.0  # an automatic one comes from a first exchange in float64
    exact = fm.fit(name, data, **settings)
    rounded = fm.fit(name, data, fixed_point=form, **settings)
    scale = np.abs(exact.scores(FRESH)).max()
    np.testing.assert_allclose(rounded.scores(FRESH), exact.scores(FRESH), rtol=0, atol=1e-6 * scale)
    backwards = fm.fit(name, dict(reversed(data.items())), fixed_point=form, **settings)
    if fm.spec_for(name).keeps_clients_apart:  # rows come in another order: the same but for rounding of the solve
        np.testing.assert_allclose(backwards.scores(FRESH), rounded.scores(FRESH), rtol=0, atol=1e-10 * scale)
    else:
        assert backwards.digest() == rounded.digest()


@pytest.mark.parametrize("name", HEADS)
def test_one_upload_for_all_heads_fits_each(name: str) -> None:
    if fm.make_head(name).has_own_map:
        pytest.skip("measured behind a map of its own")
    spec = fm.spec_for(*HEADS)
    assert all(fm.spec_for(head) <= spec for head in HEADS)
    ledger = fm.measure(parties(X, labels, holders), spec)
    np.testing.assert_allclose(
        fm.fit(name, ledger).scores(FRESH),
        fm.fit(name, parties(X, labels, holders)).scores(FRESH),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", ["fedcof", "lda-free", "nb-free"])
def test_several_means_per_client_change_free_heads_and_follow_the_seed(name: str) -> None:
    data = parties(X, labels, holders)
    one, two = fm.fit(name, data), fm.fit(name, data, means_per_client=2)
    assert one.digest() != two.digest()
    assert two.digest() == fm.fit(name, data, means_per_client=2, seed=0).digest()
    assert two.digest() != fm.fit(name, data, means_per_client=2, seed=1).digest()
    assert (two.predict(X) == labels).mean() > 0.7


def test_more_means_bring_the_free_covariance_nearer_to_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    y, holders = np.arange(1200) % 2, np.arange(1200) // 2 % 4
    X = rng.normal(size=(1200, 6)) @ rng.normal(size=(6, 6))
    exact = fm.ClassGaussians(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2)).pooled_covariance("none")
    errors = []
    for shares in (1, 4, 32):
        spec = StatisticsSpec.of("client_means", means_per_client=shares)
        stats = Ledger.of(X, y, holders, spec, n_classes=2).statistics()
        errors.append(np.linalg.norm(fm.ClassGaussians(stats, "free").pooled_covariance("none") - exact))
    assert errors[2] < errors[1] < errors[0]


# -------------------------------------------------------------------------------------------------- pooling refused


@pytest.mark.parametrize("name", [n for n in HEADS if fm.make_head(n).needs.keeps_clients_apart])
def test_pooling_before_a_head_that_keeps_clients_apart_is_refused_before_anything_is_computed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = fm.measure(parties(X, labels, holders), fm.spec_for(name))
    pooled = ledger.pool()
    head = fm.make_head(name)
    monkeypatch.setattr(type(head), "solve", lambda *_: pytest.fail("it was computed"))
    with pytest.raises(ClientsPooledError, match=r"kept apart.*pooled.*zero.*fit from the ledger"):
        head.fit(pooled)
    with pytest.raises(ClientsPooledError):
        fm.fit(name, pooled)
    with pytest.raises(ClientsPooledError, match="must be kept apart"):
        ledger.pool(head.needs)


def test_heads_that_keep_clients_apart_are_fedcof_the_free_ones_and_those_on_sketches() -> None:
    free = {name for name in HEADS if name.endswith("-free")}
    sketched = {name for name in HEADS if fm.make_head(name).needs.has_sketch}
    assert free >= {"lda-free", "nb-free", "qda-free"}
    assert sketched >= {"sketch", "lda-sketch", "fishermix-sketch"}
    apart = {n for n in HEADS if fm.make_head(n).needs.keeps_clients_apart}
    assert {n for n in apart if not n.startswith("auto")} == {"fedcof", "lda-energy", "qda-energy"} | {
        n for n in free | sketched if not n.startswith("auto")
    }


@pytest.mark.parametrize("name", [n for n in HEADS if n != "fedncm"])
def test_a_missing_moment_is_named(name: str) -> None:
    least = Statistics.of(X, labels, StatisticsSpec(), n_classes=C)
    with pytest.raises(MissingMomentError, match=r"needs counts.*but these statistics hold|needs client means"):
        fm.fit(name, least)
    with pytest.raises(NotEnoughDataError, match="no sample at all"):
        fm.make_head(name).fit(Statistics.zero(fm.spec_for(name), n_classes=C, dim=D))


# -------------------------------------------------------------------------------------------------- scale


def scale_free_options(name: str) -> list[dict[str, Any]]:
    """Return the settings of a head under which the unit of the features must not matter."""
    known = {each.name for each in fields(fm.presets()[name].head)}
    options: list[dict[str, Any]] = [{}]
    if "shrinkage" in known and name != "fedcgs":
        options += [{"shrinkage": kind} for kind in ("automatic", "relative:0.5", "blend:0.1")]
    if "ridge" in known:
        options += [{"ridge": "relative:0.1"}]
    return options


SCALED = [(name, options) for name in HEADS for options in scale_free_options(name)]


@pytest.mark.parametrize("factor", [0.1, 10.0, 2.0**-20, 2.0**20])
@pytest.mark.parametrize(("name", "options"), SCALED)
def test_features_times_a_constant_change_no_prediction(name: str, options: dict[str, Any], factor: float) -> None:
    settings = {**hyper(name), **options}
    before = fm.fit(name, parties(X, labels, holders), **settings)
    after = fm.fit(name, parties(X * factor, labels, holders), **settings)
    points = np.concatenate([X, FRESH])
    assert np.array_equal(before.predict(points), after.predict(points * factor))


@pytest.mark.parametrize("name", ["fedcof", "fedcof-oracle", "gh-lda", "gh-qda"])
def test_absolute_shrinkage_does_depend_on_the_unit_of_the_features(name: str) -> None:
    small = fm.fit(name, parties(X * 0.01, labels, holders), shrinkage=1.0).predict(FRESH * 0.01)
    large = fm.fit(name, parties(X * 100, labels, holders), shrinkage=1.0).predict(FRESH * 100)
    assert not np.array_equal(small, large)


# -------------------------------------------------------------------------------------------------- offset

OFFSET = 1000.0
INVARIANT: list[tuple[str, dict[str, Any]]] = [
    ("gh-lda", {}),
    ("gh-lda", {"shrinkage": "blend:0.05"}),
    ("lda-free", {}),
    ("fedcgs", {}),
    ("gh-qda", {}),
    ("gh-qda", {"shrinkage": "blend:0.1"}),
    ("gh-dlr-qda", {"rank": 2}),
    ("gh-nb", {}),
    ("nb-free", {}),
    ("fedncm", {"metric": "euclidean"}),
    ("fed3r", {"intercept": True}),
    ("fed3r", {"intercept": True, "ridge": 0.01}),
]


@pytest.mark.parametrize(("name", "options"), INVARIANT)
def test_an_offset_of_1000_changes_nothing_where_the_head_is_invariant(name: str, options: dict[str, Any]) -> None:
    plain = fm.fit(name, parties(X, labels, holders), **options)
    moved = fm.fit(name, parties(X + OFFSET, labels, holders), **options)
    expected = plain.scores(FRESH)
    np.testing.assert_allclose(
        moved.scores(FRESH + OFFSET), expected, rtol=1e-6, atol=1e-6 * float(np.abs(expected).max())
    )
    assert np.array_equal(moved.predict(FRESH + OFFSET), plain.predict(FRESH))


def stacked_solve(rows: Array, diagonal: Array | float, right: Array) -> Array:
    """Solve (RᵀR + diag) W = B by a QR of [R; √diag]: half the digits of the normal equations are not lost."""
    d = rows.shape[1]
    factor = np.linalg.qr(np.vstack([rows, np.diag(np.sqrt(np.broadcast_to(diagonal, d)))]))[1]
    return np.asarray(np.linalg.solve(factor, np.linalg.solve(factor.T, right)))


def unit(weights: Array) -> Array:
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


@pytest.mark.parametrize("name", ["fedncm", "fed3r", "fedcof", "fedcof-oracle", "fedcof-diagonal", "fedcof-spherical"])
def test_with_an_offset_of_1000_the_other_heads_equal_their_referee(name: str) -> None:
    far = X + OFFSET
    counts = np.bincount(labels)
    centred = X - np.stack([X[labels == c].mean(axis=0) for c in range(C)])[labels]  # before the offset: all digits
    means = np.stack([far[labels == c].mean(axis=0) for c in range(C)])
    right, n = (counts[:, None] * means).T, len(far)
    centre = np.sqrt(n) * far.mean(axis=0)[None]
    options: dict[str, Any] = {} if name == "fedncm" else {"ridge": 1.0}
    if name.startswith("fedcof"):
        options["shrinkage"] = 0.5
    add = 0.5 * (n - C) + 1.0
    if name == "fedncm":
        expected = means.T
    elif name == "fed3r":
        expected = stacked_solve(far, 1.0, right)
    elif name == "fedcof":
        rows = []
        for c in range(C):
            held = [k for k in range(K) if ((holders == k) & (labels == c)).any()]
            for k in held:
                mine = (holders == k) & (labels == c)
                shift = X[mine].mean(axis=0) - X[labels == c].mean(axis=0)
                rows.append(np.sqrt(mine.sum() * (counts[c] - 1) / (len(held) - 1)) * shift)
        expected = stacked_solve(np.vstack([*rows, centre]), add, right)
    elif name == "fedcof-oracle":
        expected = stacked_solve(np.vstack([centred, centre]), add, right)
    else:
        scatter = (centred**2).sum(axis=0)
        scatter = np.full(D, scatter.mean()) if name == "fedcof-spherical" else scatter
        expected = stacked_solve(centre, scatter + add, right)
    fitted = fm.fit(name, parties(far, labels, holders), **options)
    assert isinstance(fitted, LinearClassifier)
    np.testing.assert_allclose(fitted.weights, unit(expected), rtol=1e-5, atol=1e-7)


def test_with_an_offset_of_1000_fed3r_rf_is_ridge_on_its_features() -> None:
    far = X + OFFSET
    fitted = fm.fit("fed3r-rf", parties(far, labels, holders), n_features=64, ridge=1.0)
    plain = fm.fit("fed3r-rf", parties(X, labels, holders), n_features=64, ridge=1.0)
    assert isinstance(fitted, LinearClassifier)
    assert fitted.feature_map is not None
    assert plain.feature_map is not None
    Z = fitted.feature_map(far)
    expected = unit(stacked_solve(Z, 1.0, Z.T @ np.eye(C)[labels]))
    np.testing.assert_allclose(fitted.weights, expected, rtol=1e-7, atol=1e-8)
    assert (fitted.predict(far) == labels).mean() > 0.8


# -------------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("name", HEADS)
def test_float32_scores_agree_with_float64_scores(name: str, offset: float) -> None:
    classifier = fm.fit(name, parties(X + offset, labels, holders), **hyper(name))
    points = (np.concatenate([X, FRESH]) + offset).astype(np.float32)
    narrow, wide = classifier.scores(points), classifier.scores(points.astype(np.float64))
    assert narrow.dtype == np.float32
    assert wide.dtype == np.float64
    spread = np.abs(wide - wide.mean(axis=1, keepdims=True)).max()
    np.testing.assert_allclose(narrow, wide, rtol=1e-3, atol=2e-3 * max(spread, 1.0))
    assert (classifier.predict(points) == wide.argmax(axis=1)).mean() > 0.99


# -------------------------------------------------------------------------------------------------- Gaussian heads


CLASS_GRAMS = Statistics.of(X, labels, StatisticsSpec.of("class_grams"), n_classes=C)


@pytest.mark.parametrize("shrinkage", ["automatic", "none", 0.3, "relative:0.2", "blend:0.1"])
def test_low_rank_qda_of_rank_zero_is_naive_bayes(shrinkage: Any) -> None:
    ours = LowRankQda(rank=0, pooling="none", shrinkage=shrinkage).fit(CLASS_GRAMS)
    theirs = NaiveBayes(pooling=0.0, shrinkage=shrinkage).fit(CLASS_GRAMS)
    np.testing.assert_allclose(ours.scores(FRESH), theirs.scores(FRESH), rtol=1e-9, atol=1e-8)
    assert not np.allclose(
        LowRankQda(rank=1, pooling="none", shrinkage=shrinkage).fit(CLASS_GRAMS).scores(FRESH), theirs.scores(FRESH)
    )


@pytest.mark.parametrize("rank", [D, D + 3])
@pytest.mark.parametrize("shrinkage", ["automatic", "none", 0.3, "relative:0.2", "blend:0.1"])
def test_low_rank_qda_of_full_rank_is_qda(shrinkage: Any, rank: int) -> None:
    ours = LowRankQda(rank=rank, pooling="none", shrinkage=shrinkage).fit(CLASS_GRAMS).scores(FRESH)
    theirs = Qda(pooling="none", shrinkage=shrinkage).fit(CLASS_GRAMS).scores(FRESH)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * float(np.abs(theirs).max()))


@pytest.mark.parametrize("rank", range(D + 1))
def test_low_rank_qda_without_shrinkage_keeps_its_digits(rank: int) -> None:
    fitted = LowRankQda(rank=rank, pooling="none", shrinkage="none").fit(CLASS_GRAMS)
    exact = []
    assert isinstance(fitted, LowRankClassifier)
    for label, covariance, _ in fm.ClassGaussians(CLASS_GRAMS).class_covariances():
        values, vectors = np.linalg.eigh(covariance)
        kept = vectors[:, D - rank :] * np.sqrt(values[D - rank :])
        model = kept @ kept.T + np.diag(np.diag(covariance - kept @ kept.T))
        mean = X[labels == label].mean(axis=0)
        exact.append(np.log(np.mean(labels == label)) + log_density(FRESH, mean, model))
    expected = np.stack(exact, axis=1)
    np.testing.assert_allclose(fitted.scores(FRESH), expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))


def test_low_rank_qda_keeps_the_diagonal_whatever_the_rank() -> None:
    for rank in range(D + 1):
        fitted = LowRankQda(rank=rank, pooling="none", shrinkage=0.1).fit(CLASS_GRAMS)
        assert isinstance(fitted, LowRankClassifier)
        for label, covariance, _ in fm.ClassGaussians(CLASS_GRAMS).class_covariances():
            P = fitted.projections[label]
            inverse = np.diag(fitted.precisions[label]) - P.T @ P
            np.testing.assert_allclose(np.diag(np.linalg.inv(inverse)), np.diag(covariance) + 0.1, rtol=1e-7)


def log_density(points: Array, mean: Array, covariance: Array) -> Array:
    out = []
    for x in points:
        _, log_det = np.linalg.slogdet(covariance)
        out.append(-0.5 * log_det - 0.5 * (x - mean) @ np.linalg.solve(covariance, x - mean))
    return np.array(out)


def differences(scores: Array) -> Array:
    return np.asarray(scores - scores[:, :1])


def test_gaussian_heads_equal_their_densities() -> None:
    means = np.stack([X[labels == c].mean(axis=0) for c in range(C)])
    own = [np.cov(X[labels == c], rowvar=False) for c in range(C)]
    priors = np.log(np.bincount(labels) / len(labels))
    pooled = sum((np.sum(labels == c) - 1) * own[c] for c in range(C)) / (len(labels) - C)
    total = np.cov(X, rowvar=False)
    points = FRESH[:40]

    def expected(covariances: Any) -> Array:
        parts = [priors[c] + log_density(points, means[c], covariances[c]) for c in range(C)]
        return differences(np.stack(parts, axis=1))

    gamma = 0.4 * np.eye(D)
    cases: list[tuple[Any, list[Array]]] = [
        (Lda(shrinkage=0.4), [pooled + gamma] * C),
        (Lda(shrinkage="none"), [pooled] * C),
        (Lda(covariance="total", shrinkage="none"), [total] * C),
        (Qda(pooling="none", shrinkage=0.4), [S + gamma for S in own]),
        (Qda(pooling="none", shrinkage="blend:0.1"), [0.9 * S + 0.1 * np.trace(S) / D * np.eye(D) for S in own]),
        (NaiveBayes(pooling=0.0), [np.diag(np.diag(S)) for S in own]),
        (Lda(covariance="diagonal", shrinkage=0.4), [np.diag(np.diag(pooled)) + gamma] * C),
        (Qda(pooling="none", covariance="diagonal", shrinkage=0.4), [np.diag(np.diag(S)) + gamma for S in own]),
    ]
    for head, covariances in cases:
        ours = differences(head.fit(CLASS_GRAMS).scores(points))
        np.testing.assert_allclose(ours, expected(covariances), rtol=1e-8, atol=1e-7, err_msg=str(head))


def test_naive_bayes_borrows_from_the_pooled_variance() -> None:
    counts = np.bincount(labels)
    scatter = np.stack([((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum(axis=0) for c in range(C)])
    pooled = scatter.sum(axis=0) / (len(labels) - C)
    for kappa, unbiased in [(1.0, True), (7.5, True), (0.0, False), (2.0, False)]:
        fitted = NaiveBayes(pooling=kappa, unbiased=unbiased).fit(CLASS_GRAMS)
        assert isinstance(fitted, DiagonalClassifier)
        divisor = counts - (1 if unbiased else 0) + kappa
        np.testing.assert_allclose(1 / fitted.precisions, (scatter + kappa * pooled) / divisor[:, None], rtol=1e-9)
    floored = NaiveBayes(floor=10.0).fit(CLASS_GRAMS)
    assert isinstance(floored, DiagonalClassifier)
    np.testing.assert_allclose(1 / floored.precisions, 10 * pooled.max(), rtol=1e-9)


def test_nearest_means_are_nearest() -> None:
    means = np.stack([X[labels == c].mean(axis=0) for c in range(C)])
    stats = Statistics.of(X, labels, StatisticsSpec(), n_classes=C)
    cosine = (FRESH @ means.T) / np.linalg.norm(means, axis=1)
    np.testing.assert_allclose(NearestMean().fit(stats).scores(FRESH), cosine, rtol=1e-10, atol=1e-10)
    distances = np.linalg.norm(FRESH[:, None] - means[None], axis=2)
    assert np.array_equal(NearestMean("euclidean").fit(stats).predict(FRESH), distances.argmin(axis=1))


def test_free_lda_with_one_sample_per_client_is_lda() -> None:
    spec = StatisticsSpec.of("client_means", "class_grams")
    stats = Ledger.of(X, labels, np.arange(len(X)), spec, n_classes=C).statistics()
    for head in (Lda, Qda, LowRankQda):
        ours, theirs = head(covariance="free").fit(stats), head(covariance="exact").fit(stats)
        np.testing.assert_allclose(ours.scores(FRESH), theirs.scores(FRESH), rtol=1e-8, atol=1e-7)
    free, exact = NaiveBayes(covariance="free").fit(stats), NaiveBayes().fit(stats)
    np.testing.assert_allclose(free.scores(FRESH), exact.scores(FRESH), rtol=1e-8, atol=1e-7)


# -------------------------------------------------------------------------------------------------- registry


def test_all_presets_of_the_issue_are_there() -> None:
    wanted = {"fedncm", "fed3r", "fed3r-rf", "fedcof", "fedcof-oracle", "fedcof-diagonal", "fedcof-spherical"}
    wanted |= {"gh-nb", "gh-lda", "gh-qda", "gh-dlr-qda", "fedcgs", "lda-free", "nb-free"}
    assert wanted <= set(HEADS)
    for name in HEADS:
        preset = fm.presets()[name]
        assert preset.name == name
        assert preset.summary
        assert preset.paper
        assert preset.make() == fm.make_head(name)


def test_unknown_heads_and_hyper_parameters_are_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fedcof'"):
        fm.make_head("fedcov")
    with pytest.raises(InputError, match="has no hyper-parameter 'gamma': it takes scatter"):
        fm.make_head("fedcof", gamma=1.0)
    with pytest.raises(InputError, match="belong to a head given by name"):
        fm.fit(Ridge(), parties(X, labels, holders), ridge=1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NearestMean("manhattan"),
        lambda: LowRankQda(rank=-1),
        lambda: NaiveBayes(pooling=-1.0),
        lambda: NaiveBayes(floor=-1.0),
        lambda: Lda(covariance="guess"),
        lambda: Qda(shrinkage="much"),
    ],
)
def test_wrong_hyper_parameters_of_the_other_heads_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("name", HEADS)
def test_settings_are_plain_and_enter_the_notes_of_the_classifier(name: str) -> None:
    head = fm.make_head(name, **hyper(name))
    plain = head.settings()
    assert all(isinstance(value, bool | int | float | str | None) for value in plain.values())
    classifier = fm.fit(name, parties(X, labels, holders), class_names=["a", "b", "c", "d"], **hyper(name))
    assert classifier.info["head"] == name
    assert classifier.info["settings"] == plain
    assert classifier.class_names == ("a", "b", "c", "d")
    assert isinstance(classifier, LinearClassifier | DiagonalClassifier | QuadraticClassifier | LowRankClassifier)
