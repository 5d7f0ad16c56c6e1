"""The heads in sixty digits, from the samples themselves: what every prediction is compared with.

Formulas are those of the papers, with the defaults of the presets, written down naively: no sums of squares, nothing
centred to save digits, no shared factor. Samples are float64 numbers and taken as exact.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath import mp, mpf

Array = npt.NDArray[Any]
#: Holds mpf: numpy knows neither their type nor how to solve with them.
Exact = Any

DIGITS = 60


def _exact(values: Array) -> Exact:
    return np.vectorize(mpf, otypes=[object])(np.asarray(values, np.float64))


def _solve(matrix: Exact, right: Exact) -> Exact:
    """Solve by elimination with pivots, (d, d) and (d, m)."""
    rows = np.concatenate([matrix, right], axis=1).astype(object)
    dim = len(matrix)
    for column in range(dim):
        pivot = column + int(np.argmax([abs(value) for value in rows[column:, column]]))
        rows[[column, pivot]] = rows[[pivot, column]]
        rows[column] = rows[column] / rows[column, column]
        for other in range(dim):
            if other != column:
                rows[other] = rows[other] - rows[other, column] * rows[column]
    return rows[:, dim:]


def _log_det(matrix: Exact) -> Exact:
    return mp.log(mp.det(mp.matrix(matrix.tolist())))


def _norm(vector: Exact) -> Exact:
    return mp.sqrt(vector @ vector)


class Federation:
    """Samples of several clients, as exact numbers.

    Parameters
    ----------
    X, y, holders
        (n, d) features, (n,) labels and (n,) the client that holds each.
    """

    def __init__(self, X: Array, y: Array, holders: Array) -> None:
        self.X, self.y, self.holders = _exact(X), np.asarray(y), np.asarray(holders)
        self.n, self.dim = X.shape
        self.classes = sorted({int(label) for label in y})
        self.counts = [int((self.y == c).sum()) for c in self.classes]
        self.means = [self.X[self.y == c].sum(axis=0) / mpf(n) for c, n in zip(self.classes, self.counts, strict=True)]
        self.mean = self.X.sum(axis=0) / mpf(self.n)
        self.eye = _exact(np.eye(self.dim))

    def class_scatter(self, place: int) -> Exact:
        away = self.X[self.y == self.classes[place]] - self.means[place]
        return away.T @ away

    def within(self) -> tuple[Exact, Exact, Exact, Exact]:
        """Return the exact scatter, its weight, and trace and degrees of freedom of what shrinks it."""
        scatter = sum(self.class_scatter(place) for place in range(len(self.classes)))
        dof = mpf(self.n - len(self.classes))
        return scatter, dof, np.trace(scatter) / dof, dof

    def free(self) -> tuple[Exact, Exact, Exact, Exact]:
        """Return the same of FedCOF's free scatter."""
        scatter, spread, weight, dof = 0 * self.eye, mpf(0), mpf(0), mpf(0)
        for c, count, mean in zip(self.classes, self.counts, self.means, strict=True):
            groups = [self.X[(self.y == c) & (self.holders == k)] for k in sorted({int(h) for h in self.holders})]
            groups = [group for group in groups if len(group)]
            if len(groups) < 2:
                continue
            for group in groups:
                away = group.sum(axis=0) / mpf(len(group)) - mean
                scatter = scatter + mpf(len(group)) * mpf(count - 1) / mpf(len(groups) - 1) * np.outer(away, away)
                spread += mpf(len(group)) * (away @ away)
            weight, dof = weight + count - 1, dof + len(groups) - 1
        return scatter, weight, spread / dof, dof

    # ------------------------------------------------------------------------------------------------------- rules

    def nearest_angle(self, x: Exact) -> list[Exact]:
        return [mean @ x / _norm(mean) for mean in self.means]

    def nearest_mean(self, x: Exact) -> list[Exact]:
        return [-((x - mean) @ (x - mean)) for mean in self.means]

    def ridge(self, gram: Exact) -> Callable[[Exact], list[Exact]]:
        sums = np.stack([mpf(n) * mean for n, mean in zip(self.counts, self.means, strict=True)], axis=1)
        weights = _solve(gram, sums)
        return lambda x: [column @ x / _norm(column) for column in weights.T]

    def total_ridge(self, relative: float | None) -> Callable[[Exact], list[Exact]]:
        gram = self.X.T @ self.X
        mean_eigenvalue = np.trace(gram) / self.dim
        penalty = self._cross_validated(gram, mean_eigenvalue) if relative is None else mpf(relative) * mean_eigenvalue
        return self.ridge(gram + penalty * self.eye)

    def _cross_validated(self, gram: Exact, unit: Exact) -> Exact:
        values, vectors = mp.eigsy(mp.matrix(gram.tolist()))
        sums = np.stack([mpf(n) * mean for n, mean in zip(self.counts, self.means, strict=True)], axis=1)
        energies = []
        for i in range(self.dim):
            vector = np.array([vectors[j, i] for j in range(self.dim)], dtype=object)
            energies.append(sum(value**2 for value in vector @ sums))
        best: tuple[Exact, Exact] = (mp.inf, mpf(0))
        for power in np.arange(-8.0, 2.05, 0.1):
            ridge = unit * mpf(float(10.0**power))
            fit = sum(e * (v + 2 * ridge) / (v + ridge) ** 2 for v, e in zip(values, energies, strict=True))
            left = 1 - sum(v / (v + ridge) for v in values) / self.n
            if left > 1e-3:
                best = min(best, ((self.n - fit) / left**2, ridge))
        return best[1]

    def within_ridge(self, source: str) -> Callable[[Exact], list[Exact]]:
        scatter, _, trace, dof = self.free() if source == "free" else self.within()
        spread = mpf(self.n - len(self.classes))
        gram = scatter + self.n * np.outer(self.mean, self.mean) + trace / (2 * dof) * spread * self.eye
        return self.ridge(gram)

    def discriminant(self, source: str, priors: str) -> Callable[[Exact], list[Exact]]:
        if source == "total":
            away = self.X - self.mean
            covariance = away.T @ away / mpf(self.n - 1)
        else:
            scatter, weight, trace, dof = self.free() if source == "free" else self.within()
            covariance = scatter / weight + trace / (2 * dof) * self.eye
        weights = _solve(covariance, np.stack(self.means, axis=1))
        shares = [mp.log(mpf(n) / self.n) if priors == "data" else mpf(0) for n in self.counts]
        half = [mean @ weights[:, i] / 2 for i, mean in enumerate(self.means)]
        return lambda x: [x @ weights[:, i] - half[i] + shares[i] for i in range(len(shares))]

    def quadratic(self, blend: float) -> Callable[[Exact], list[Exact]]:
        covariances = []
        for place, count in enumerate(self.counts):
            own = self.class_scatter(place) / mpf(count - 1)
            covariances.append((1 - mpf(blend)) * own + mpf(blend) * np.trace(own) / self.dim * self.eye)
        shares = [mp.log(mpf(n) / self.n) for n in self.counts]
        dets = [_log_det(covariance) for covariance in covariances]
        inverses = [_solve(covariance, self.eye) for covariance in covariances]

        def scores(x: Exact) -> list[Exact]:
            away = [x - mean for mean in self.means]
            return [
                s - d / 2 - a @ inverse @ a / 2 for s, d, a, inverse in zip(shares, dets, away, inverses, strict=True)
            ]

        return scores

    def naive_bayes(self, floor: float = 1e-9, borrowed: float = 1.0) -> Callable[[Exact], list[Exact]]:
        scatters = [np.diagonal(self.class_scatter(place)) for place in range(len(self.classes))]
        pooled = sum(scatters) / mpf(self.n - len(self.classes))
        least = mpf(floor) * max(pooled)
        variances = [
            np.array([max(value, least) for value in (own + mpf(borrowed) * pooled) / (mpf(n - 1) + mpf(borrowed))])
            for own, n in zip(scatters, self.counts, strict=True)
        ]
        shares = [mp.log(mpf(n) / self.n) for n in self.counts]
        dets = [sum(mp.log(value) for value in variance) for variance in variances]

        def scores(x: Exact) -> list[Exact]:
            squares = [sum((x - mean) ** 2 / variance) for mean, variance in zip(self.means, variances, strict=True)]
            return [s - d / 2 - q / 2 for s, d, q in zip(shares, dets, squares, strict=True)]

        return scores


#: Head, hyper-parameters -> how the referee scores; the hyper-parameters are given to the head, too.
RULES: dict[str, tuple[str, dict[str, Any], Callable[[Federation], Callable[[Exact], list[Exact]]]]] = {
    "fedncm": ("fedncm", {}, lambda f: f.nearest_angle),
    "nearest mean": ("fedncm", {"metric": "euclidean"}, lambda f: f.nearest_mean),
    "fed3r": ("fed3r", {}, lambda f: f.total_ridge(None)),
    "fed3r, relative": ("fed3r", {"ridge": "relative:0.001"}, lambda f: f.total_ridge(0.001)),
    "fedcof": ("fedcof", {}, lambda f: f.within_ridge("free")),
    "fedcof-oracle": ("fedcof-oracle", {}, lambda f: f.within_ridge("exact")),
    "gh-lda": ("gh-lda", {}, lambda f: f.discriminant("exact", "data")),
    "lda-free": ("lda-free", {}, lambda f: f.discriminant("free", "balanced")),
    "fedcgs": ("fedcgs", {}, lambda f: f.discriminant("total", "data")),
    "gh-qda": ("gh-qda", {"pooling": "none", "shrinkage": "blend:0.1"}, lambda f: f.quadratic(0.1)),
    "gh-nb": ("gh-nb", {}, lambda f: f.naive_bayes()),
}


def predictions(rule: str, X: Array, y: Array, holders: Array, points: Array) -> Array:
    """Return the labels (n,) that a rule gives points (n, d), exactly."""
    return np.asarray(np.unique(y)[shortfalls(rule, X, y, holders, points).argmin(axis=1)])


def shortfalls(rule: str, X: Array, y: Array, holders: Array, points: Array) -> Array:
    """Return how far below the best one every score (n, C) is: subtracted exactly, and only then float64."""
    with mp.workdps(DIGITS):
        scores = RULES[rule][2](Federation(X, y, holders))
        values = np.array([scores(point) for point in _exact(points)], dtype=object)
        return np.asarray(values.max(axis=1, keepdims=True) - values, dtype=np.float64)
