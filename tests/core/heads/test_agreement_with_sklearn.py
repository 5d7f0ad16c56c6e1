"""Heads against two referees: scikit-learn on pooled data, and the papers' formulas written out literally.

Every head is fitted from a random partition over clients, so each agreement is also one of partition invariance.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import Ridge as RidgeRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid

from fedmoments import FixedPoint, fit
from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.heads import Head, make_head, ridge
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.low_rank_qda import LowRankQda
from fedmoments.core.heads.naive_bayes import NaiveBayes
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.heads.qda import Qda
from fedmoments.core.heads.ridge import Ridge
from fedmoments.core.linalg import solve_rows_plus_ridge

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Clients = dict[Any, tuple[Floats, Ints]]

SEEDS = [0, 1, 2]
C = 4


def sample(seed: int, *, n: int = 300, dim: int = 6) -> tuple[Floats, Ints, Floats]:
    """Return correlated features (n, dim) of four unequal classes away from the origin, labels, and unseen features."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(C), 2 * dim), rng.choice(C, n - 2 * dim * C, p=[0.4, 0.3, 0.2, 0.1])])
    means, mixing = 2.0 * rng.normal(size=(C, dim)) + 3.0, rng.normal(size=(C, dim, dim)) + 2.0 * np.eye(dim)
    X = means[y] + np.einsum("nd,nde->ne", rng.normal(size=(n, dim)), mixing[y])
    return X, y, 4.0 * rng.normal(size=(50, dim)) + 3.0


def split(X: Floats, y: Ints, seed: int, *, n_clients: int = 11) -> Clients:
    """Deal samples to clients at random, a few clients getting most; many clients lack a class."""
    rng = np.random.default_rng(seed + 100)
    holder = rng.choice(n_clients, len(y), p=rng.dirichlet(np.full(n_clients, 0.5)))
    return {k: (X[holder == k], y[holder == k]) for k in rng.permutation(n_clients).tolist()}


def apart_from_a_constant(scores: Any) -> Floats:
    """Return scores without what is common to all classes of a sample, which decides nothing."""
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-8) -> None:
    """Compare to a share of the largest number involved, not to one of each: scores may be near 0."""
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(theirs).max())))


def linear(classifier: Classifier) -> LinearClassifier:
    assert isinstance(classifier, LinearClassifier)
    return classifier


# -------------------------------------------------------------------------------- scikit-learn on pooled data


class UnbiasedShare(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Makes scikit-learn's Σ_c π_c Σ_c, with π_c = N_c/N, the pooled covariance S/(N−C)."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def fit(self, X: Floats) -> "UnbiasedShare":
        self.covariance_ = np.cov(X.T, bias=True) * self.n / (self.n - C)
        return self


def svd_lda_scores(X: Floats, y: Ints, unseen: Floats) -> Floats:
    """Return the scores of scikit-learn's LDA with the covariance S/(N−C).

    Its SVD solver divides by N−C in older releases and by N in newer ones. Which one it was shows in its discriminant
    space, where the scatter of every component is that divisor; what is not log-prior scales with it.
    """
    lda = LinearDiscriminantAnalysis(solver="svd").fit(X, y)
    inside = lda.transform(X)
    scatter = sum(np.square(inside[y == label] - inside[y == label].mean(axis=0)).sum(axis=0) for label in range(C))
    divisor = np.unique(np.round(scatter, 6))
    assert divisor.tolist() in ([len(y)], [len(y) - C])
    log_priors = np.log(lda.priors_)
    return np.asarray((lda.decision_function(unseen) - log_priors) * (len(y) - C) / divisor[0] + log_priors)


def svd_qda_scores(X: Floats, y: Ints, unseen: Floats) -> Floats:
    """Return the scores of scikit-learn's QDA with the covariances S_c/(N_c−1); newer releases divide by N_c."""
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    scores = qda.decision_function(unseen)
    for label in range(C):
        mine, variances = X[y == label], qda.scalings_[label]
        ratio = (len(mine) - 1) * variances.sum() / np.square(mine - mine.mean(axis=0)).sum()
        half_log_det = 0.5 * np.log(variances).sum()
        distances = scores[:, label] + half_log_det - np.log(qda.priors_[label])
        half_log_det -= 0.5 * len(variances) * np.log(ratio)
        scores[:, label] = ratio * distances - half_log_det + np.log(qda.priors_[label])
    return np.asarray(scores)


@pytest.mark.parametrize("seed", SEEDS)
def test_lda_is_linear_discriminant_analysis(seed: int) -> None:
    X, y, unseen = sample(seed)
    ours = fit(Lda(shrinkage="none"), split(X, y, seed))
    assert_same(apart_from_a_constant(ours.scores(unseen)), apart_from_a_constant(svd_lda_scores(X, y, unseen)))
    theirs = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=UnbiasedShare(len(y))).fit(X, y)
    assert_same(apart_from_a_constant(ours.scores(unseen)), apart_from_a_constant(theirs.decision_function(unseen)))
    assert_same(ours.predict_proba(unseen, temperature=1.0), theirs.predict_proba(unseen))
    np.testing.assert_array_equal(ours.predict(unseen), theirs.predict(unseen))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("blend", [0.0, 0.05, 0.5])
def test_blended_lda_is_scikit_learns_shrunk_lda_but_for_the_divisor(seed: int, blend: float) -> None:
    # Its covariance is Σ_c π_c ((1−α)S_c/N_c + α tr(S_c)/(N_c d) I) = ((1−α)S + α tr(S)/d I)/N with S = Σ_c S_c the
    # within scatter: ours times (N−C)/N. So all but the log-priors is larger there by N/(N−C).
    X, y, unseen = sample(seed)
    ours = fit(Lda(shrinkage=f"blend:{blend}"), split(X, y, seed))
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=blend).fit(X, y)
    log_priors = np.log(np.bincount(y) / len(y))
    expected = (theirs.decision_function(unseen) - log_priors) * (len(y) - C) / len(y) + log_priors
    assert_same(apart_from_a_constant(ours.scores(unseen)), apart_from_a_constant(expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_qda_is_quadratic_discriminant_analysis(seed: int) -> None:
    X, y, unseen = sample(seed)
    ours = fit(Qda(pooling="none", shrinkage="none"), split(X, y, seed))
    expected = svd_qda_scores(X, y, unseen)
    assert_same(ours.scores(unseen), expected)
    np.testing.assert_array_equal(ours.predict(unseen), expected.argmax(axis=1))


@pytest.mark.parametrize("seed", SEEDS)
def test_low_rank_qda_of_full_rank_is_quadratic_discriminant_analysis(seed: int) -> None:
    # The diagonal that is left over is 0 and must be floored, which costs digits: a little shrinkage stands in for it.
    X, y, unseen = sample(seed)
    ours = fit(LowRankQda(rank=6, pooling="none", shrinkage=1e-3), split(X, y, seed))
    np.testing.assert_allclose(
        ours.scores(unseen), fit(Qda(pooling="none", shrinkage=1e-3), {0: (X, y)}).scores(unseen), rtol=1e-6
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_naive_bayes_is_gaussian_naive_bayes(seed: int) -> None:
    X, y, unseen = sample(seed)
    ours = fit(NaiveBayes(pooling=0.0, unbiased=False, floor=0.0), split(X, y, seed))
    theirs = GaussianNB(var_smoothing=0.0).fit(X, y)
    dropped = 0.5 * X.shape[1] * np.log(2.0 * np.pi)  # the same for every class
    assert_same(ours.scores(unseen) - dropped, theirs.predict_joint_log_proba(unseen))
    assert_same(ours.predict_proba(unseen, temperature=1.0), theirs.predict_proba(unseen))
    np.testing.assert_array_equal(ours.predict(unseen), theirs.predict(unseen))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_is_ridge_regression_onto_one_hot_labels(seed: int, penalty: float, intercept: bool) -> None:
    X, y, unseen = sample(seed)
    ours = linear(fit(Ridge(ridge=penalty, intercept=intercept, normalize=False), split(X, y, seed)))
    theirs = RidgeRegression(alpha=penalty, fit_intercept=intercept, solver="svd").fit(X, np.eye(C)[y])
    assert_same(ours.weights, theirs.coef_.T)
    assert_same(ours.bias, np.broadcast_to(theirs.intercept_, C))
    assert_same(ours.scores(unseen), theirs.predict(unseen))


@pytest.mark.parametrize("seed", SEEDS)
def test_nearest_mean_is_nearest_centroid(seed: int) -> None:
    X, y, unseen = sample(seed)
    ours = fit(NearestMean("euclidean"), split(X, y, seed))
    theirs = NearestCentroid().fit(X, y)
    np.testing.assert_array_equal(ours.predict(unseen), theirs.predict(unseen))
    # Its decision_function divides by standard deviations, which its predict does not: take the distances instead.
    distances = np.square(unseen[:, None, :] - theirs.centroids_).sum(axis=2)
    assert_same(apart_from_a_constant(ours.scores(unseen)), apart_from_a_constant(-0.5 * distances))


@pytest.mark.parametrize("seed", SEEDS)
def test_lda_of_diagonal_covariance_is_the_discriminant_score_of_nearest_centroid(seed: int) -> None:
    X, y, unseen = sample(seed)
    ours = fit(Lda(covariance="diagonal", shrinkage="none"), split(X, y, seed))
    theirs = NearestCentroid(priors="empirical").fit(X, y)
    # Hastie et al.'s score (18.2) is twice the log-density.
    expected = 0.5 * theirs.decision_function(unseen)
    assert_same(apart_from_a_constant(ours.scores(unseen)), apart_from_a_constant(expected))


@pytest.mark.parametrize(
    "head",
    [
        Lda(shrinkage="none"),
        Qda(pooling="none", shrinkage="none"),
        NaiveBayes(pooling=0.0, unbiased=False, floor=0.0),
        Ridge(ridge=1.0, normalize=False),
        NearestMean("euclidean"),
    ],
    ids=lambda head: type(head).__name__,
)
def test_fixed_point_agrees_with_scikit_learn_to_its_resolution(head: Head) -> None:
    X, y, unseen = sample(5)
    clients = split(X, y, 5)
    referees: dict[str, Callable[[], Floats]] = {
        "Lda": lambda: svd_lda_scores(X, y, unseen),
        "Qda": lambda: svd_qda_scores(X, y, unseen),
        "NaiveBayes": lambda: GaussianNB(var_smoothing=0.0).fit(X, y).predict_joint_log_proba(unseen),
        "Ridge": lambda: RidgeRegression(alpha=1.0, fit_intercept=False).fit(X, np.eye(C)[y]).predict(unseen),
        "NearestMean": lambda: -0.5 * np.square(unseen[:, None] - NearestCentroid().fit(X, y).centroids_).sum(axis=2),
    }
    expected = apart_from_a_constant(referees[type(head).__name__]())
    errors = []
    for norm_bound in (2.0**6, 2.0**14):
        form = FixedPoint(norm_bound=norm_bound, max_samples=1024)
        scores = fit(head, clients, fixed_point=form).scores(unseen)
        error = np.abs(apart_from_a_constant(scores) - expected).max() / np.abs(expected).max()
        # Every client rounds once, so sums are off by half a resolution a client at most; relative to the largest
        # score, solving magnifies that by less than 100 here.
        assert error < max(100.0 * 0.5 * len(clients) * form.resolution(2), 1e-11)
        errors.append(error)
    assert errors[0] < 1e-8
    assert errors[1] > errors[0]  # the coarser form is felt, so the test can fail


# -------------------------------------------------------------------------------- the papers, literally


def free_covariances(clients: Clients) -> dict[int, tuple[Floats, Floats, int, int]]:
    """Return FedCOF's Eq. 8 without γ by class: covariance (K_c − 1 below), mean, N_c and K_c."""
    found = {}
    for label in np.unique(np.concatenate([y for _, y in clients.values()])).tolist():
        means = [X[y == label].mean(axis=0) for X, y in clients.values() if (y == label).any()]
        counts = [int((y == label).sum()) for _, y in clients.values() if (y == label).any()]
        mean = sum(n * m for n, m in zip(counts, means, strict=True)) / sum(counts)
        covariance = np.zeros((len(mean), len(mean)))
        for n, m in zip(counts, means, strict=True):
            covariance += n * np.outer(m - mean, m - mean) / max(len(means) - 1, 1)
        found[label] = covariance, mean, sum(counts), len(means)
    return found


def exact_covariances(clients: Clients) -> dict[int, tuple[Floats, Floats, int, int]]:
    """Return the sample covariance of every class, in the same form."""
    X, y = np.concatenate([X for X, _ in clients.values()]), np.concatenate([y for _, y in clients.values()])
    return {c: (np.cov(X[y == c].T), X[y == c].mean(axis=0), int((y == c).sum()), 0) for c in np.unique(y).tolist()}


def literal_fedcof(
    classes: dict[int, tuple[Floats, Floats, int, int]], shrinkage: float, penalty: float
) -> tuple[Floats, Floats]:
    """Return FedCOF's Eq. 9 and 11: weights (d, classes present), and the same with columns of unit norm."""
    total = sum(n for _, _, n, _ in classes.values())
    global_mean = np.sum([n * mean for _, mean, n, _ in classes.values()], axis=0) / total
    dim = len(global_mean)
    G = total * np.outer(global_mean, global_mean)
    for covariance, _, n, _ in classes.values():
        G = G + (n - 1) * (covariance + shrinkage * np.eye(dim))
    B = np.stack([n * mean for _, mean, n, _ in classes.values()], axis=1)
    W = np.linalg.inv(G + penalty * np.eye(dim)) @ B
    return W, W / np.linalg.norm(W, axis=0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("dim", "n_clients", "dual"), [(6, 11, False), (60, 5, True)], ids=["many rows: primal", "few rows: dual"]
)
@pytest.mark.parametrize(("shrinkage", "penalty"), [(0.1, 0.01), (1.0, 5.0)])
def test_fedcof_is_its_equations(
    seed: int,
    normalize: bool,
    dim: int,
    n_clients: int,
    dual: bool,
    shrinkage: float,
    penalty: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, unseen = sample(seed, n=600, dim=dim)
    clients = split(X, y, seed, n_clients=n_clients)
    used = []

    def watched(rows: Floats, amount: float, right: Floats) -> Floats:
        used.append("dual")
        return solve_rows_plus_ridge(rows, amount, right)

    monkeypatch.setattr(ridge, "solve_rows_plus_ridge", watched)
    ours = linear(fit("fedcof", clients, shrinkage=shrinkage, ridge=penalty, normalize=normalize))
    expected = literal_fedcof(free_covariances(clients), shrinkage, penalty)[normalize]
    assert_same(ours.weights, expected)
    assert_same(ours.scores(unseen), unseen @ expected)
    assert bool(used) is dual


def test_fedcof_divides_by_the_clients_that_hold_a_class_not_by_all() -> None:
    X, y, _ = sample(3)
    clients = split(X, y, 3)
    classes = free_covariances(clients)
    assert min(held_by for *_, held_by in classes.values()) < len(clients)
    ours = linear(fit("fedcof", clients, shrinkage=0.1, ridge=0.01))
    as_printed = {
        label: (covariance * (held_by - 1) / (len(clients) - 1), mean, n, held_by)
        for label, (covariance, mean, n, held_by) in classes.items()
    }
    assert not np.allclose(ours.weights, literal_fedcof(as_printed, 0.1, 0.01)[1], rtol=1e-3)


def test_fedcof_with_a_class_of_one_client_and_a_class_of_nobody() -> None:
    X, y, unseen = sample(4)
    clients = {k: (F[labels != 2], labels[labels != 2]) for k, (F, labels) in split(X, y, 4).items()}
    clients["alone"] = (X[y == 2], np.full((y == 2).sum(), 4))  # class 4 has one row, class 2 has no sample
    ours = linear(fit("fedcof", clients, n_classes=5, shrinkage=0.1, ridge=0.01))
    classes = free_covariances(clients)
    assert classes[4][3] == 1
    _, expected = literal_fedcof(classes, 0.1, 0.01)
    assert_same(ours.scores(unseen)[:, [0, 1, 3, 4]], unseen @ expected)
    assert (ours.scores(unseen)[:, 2] == -np.inf).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_automatic_shrinkage_of_fedcof_is_half_the_trace_by_degrees_of_freedom(seed: int) -> None:
    X, y, _ = sample(seed)
    clients = split(X, y, seed)
    classes = free_covariances(clients)
    dof = sum(held_by - 1 for *_, held_by in classes.values())
    trace = sum((held_by - 1) * np.trace(covariance) for covariance, _, _, held_by in classes.values()) / dof
    assert_same(linear(fit("fedcof", clients)).weights, literal_fedcof(classes, 0.5 * trace / dof, 0.0)[1])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["oracle", "diagonal", "spherical"])
def test_fedcof_with_covariances_that_were_sent_is_its_equations(seed: int, kind: str) -> None:
    X, y, _ = sample(seed)
    clients = split(X, y, seed)
    forms: dict[str, Callable[[Floats], Floats]] = {
        "oracle": lambda covariance: covariance,
        "diagonal": lambda covariance: np.diag(np.diag(covariance)),
        "spherical": lambda covariance: np.trace(covariance) / len(covariance) * np.eye(len(covariance)),
    }
    classes = {c: (forms[kind](s), mean, n, k) for c, (s, mean, n, k) in exact_covariances(clients).items()}
    for normalize in (False, True):
        ours = linear(fit(f"fedcof-{kind}", clients, shrinkage=0.3, ridge=0.01, normalize=normalize))
        assert_same(ours.weights, literal_fedcof(classes, 0.3, 0.01)[normalize])


def literal_lda(covariance: Floats, means: Floats, counts: Ints, X: Floats) -> Floats:
    """Return log-densities plus log-priors of Gaussians with one covariance, without the part common to all classes."""
    precision = np.linalg.inv(covariance)
    centred = X[:, None, :] - means
    distances = np.einsum("ncd,de,nce->nc", centred, precision, centred)
    return apart_from_a_constant(np.log(counts / counts.sum()) - 0.5 * distances)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shrinkage", [0.05, 1.0, "automatic"])
def test_lda_on_the_free_covariance_is_lda_with_fedcofs_covariances(seed: int, shrinkage: float | str) -> None:
    X, y, unseen = sample(seed)
    clients = split(X, y, seed)
    classes = free_covariances(clients)
    counts = np.array([n for _, _, n, _ in classes.values()])
    amount = shrinkage
    if isinstance(amount, str):
        dof = sum(held_by - 1 for *_, held_by in classes.values())
        amount = 0.5 * sum((held_by - 1) * np.trace(s) for s, _, _, held_by in classes.values()) / dof**2
    pooled = sum((n - 1) * covariance for covariance, _, n, _ in classes.values()) / (counts - 1).sum()
    pooled = pooled + amount * np.eye(X.shape[1])
    expected = literal_lda(pooled, np.stack([mean for _, mean, _, _ in classes.values()]), counts, unseen)
    ours = fit("lda-free", clients, shrinkage=shrinkage, priors="data").scores(unseen)
    assert_same(apart_from_a_constant(ours), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_fedcgs_is_lda_with_the_covariance_of_all_samples(seed: int) -> None:
    X, y, unseen = sample(seed)
    means = np.stack([X[y == label].mean(axis=0) for label in range(C)])
    expected = literal_lda(np.cov(X.T), means, np.bincount(y), unseen)
    assert_same(apart_from_a_constant(fit("fedcgs", split(X, y, seed)).scores(unseen)), expected)
    # As FedCGS prints it: w_c = Σ⁻¹μ_c, b_c = log π_c − ½ μ_cᵀΣ⁻¹μ_c.
    W = np.linalg.inv(np.cov(X.T)) @ means.T
    b = np.log(np.bincount(y) / len(y)) - 0.5 * np.diag(means @ W)
    assert_same(apart_from_a_constant(unseen @ W + b), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rank", [0, 1, 3, 6, 99])
@pytest.mark.parametrize("shrinkage", ["automatic", "absolute:0.2", "relative:0.1", "blend:0.1"])
@pytest.mark.parametrize("source", ["exact", "free"])
def test_low_rank_qda_is_qda_with_the_matrix_formed_and_inverted(
    seed: int, rank: int, shrinkage: str, source: str
) -> None:
    X, y, unseen = sample(seed)
    clients = split(X, y, seed)
    classes = exact_covariances(clients) if source == "exact" else free_covariances(clients)
    dim = X.shape[1]
    dofs = {label: (n if source == "exact" else held_by) - 1 for label, (_, _, n, held_by) in classes.items()}
    # Automatic and relative shrinkage add the same to every class: by the pooled trace, and the mean of dofs.
    pooled_trace = sum(dofs[label] * np.trace(s) for label, (s, *_) in classes.items()) / sum(dofs.values())
    kind, _, text = shrinkage.partition(":")
    amount = float(text or 0.0)
    expected = np.empty((len(unseen), C))
    for label, (covariance, mean, n, _) in classes.items():
        add = {
            "automatic": 0.5 * pooled_trace / np.mean(list(dofs.values())),
            "absolute": amount,
            "relative": amount * pooled_trace / dim,
            "blend": amount * np.trace(covariance) / dim,
        }[kind]
        kept = covariance * (1.0 - amount if kind == "blend" else 1.0)
        values, vectors = np.linalg.eigh(kept)
        U = vectors[:, dim - min(rank, dim) :] * np.sqrt(np.maximum(values[dim - min(rank, dim) :], 0.0))
        matrix = np.diag(np.diag(kept - U @ U.T) + add) + U @ U.T
        centred = unseen - mean
        distances = np.einsum("nd,de,ne->n", centred, np.linalg.inv(matrix), centred)
        expected[:, label] = np.log(n / len(y)) - 0.5 * np.linalg.slogdet(matrix)[1] - 0.5 * distances
    ours = fit(make_head("gh-dlr-qda", rank=rank, pooling="none", shrinkage=shrinkage, covariance=source), clients)
    assert_same(ours.scores(unseen), expected)
