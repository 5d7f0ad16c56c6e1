"""A client's own linear head: softmax regression on its samples with all C outputs.

With centred and scaled features z = (x − x̄)/s, s² = mean ‖x − x̄‖², the head is the one minimum of

    mean of CE(softmax(z·W + b), y)  +  ½·decay·(‖W‖² + ‖b‖²)

Dividing by s makes predictions independent of the features' scale. Classes that the client does not hold are outputs
like any other, pushed down by every sample. They are exchangeable, so at the minimum they share one column w₀: with m
absent classes the problem has |C_k| + 1 columns, of which the last enters the softmax as m·exp(z·w₀ + b₀) and the
penalty as m·‖w₀‖². Written in √m·w₀, a quasi-Newton method takes the very steps that it would take with all C columns.
Nothing is approximated, and a client with few of many classes is fast.

The columns sum to zero (the loss does not change along that direction, the penalty does), so w₀ = −Σ_present w_c / m:
a head travels as its present columns alone, |C_k|·(d + 1) numbers. A client with one class has W = 0: a constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

__all__ = ["DECAY", "LocalHead", "fit_local_head"]

Floats = NDArray[np.float64]

#: Default penalty: the heads of 10 and 100 clients at Dirichlet 0.5 were best between 1e-5 and 1e-4.
DECAY = 3e-5
#: The solver stops when no entry of the gradient is larger, or after that many evaluations.
TOLERANCE, EVALUATIONS = 1e-5, 300


@dataclass(frozen=True, eq=False)
class LocalHead:
    """Scores x·W + b of the classes that a client holds, and one score for each of those that it does not.

    Parameters
    ----------
    labels
        (c,) classes that the client holds, ascending.
    weights, bias
        (d, c) and (c,) of these classes.
    n_classes
        C.
    """

    labels: NDArray[np.int64]
    weights: Floats
    bias: Floats
    n_classes: int

    @property
    def n_absent(self) -> int:
        """How many classes the client does not hold."""
        return self.n_classes - len(self.labels)

    def columns(self) -> tuple[Floats, Floats]:
        """Return weights (d, c + 1) and bias (c + 1,), the column of every absent class last, if there is one."""
        if not self.n_absent:
            return self.weights, self.bias
        rest, rest_bias = -self.weights.sum(axis=1) / self.n_absent, -self.bias.sum() / self.n_absent
        return np.column_stack([self.weights, rest]), np.append(self.bias, rest_bias)

    def expand(self) -> tuple[Floats, Floats]:
        """Return weights (d, C) and bias (C,) of all classes."""
        weights, bias = self.columns()
        where = np.full(self.n_classes, len(self.labels))
        where[self.labels] = np.arange(len(self.labels))
        return weights[:, where], bias[where]

    def arrays(self) -> Mapping[str, Floats]:
        """Return what travels."""
        return {"weights": self.weights, "bias": self.bias}


def fit_local_head(X: Floats, y: NDArray[np.int64], *, n_classes: int, decay: float = DECAY) -> LocalHead:
    """Fit a client's head.

    Parameters
    ----------
    X, y
        (n, d) features and (n,) labels, n ≥ 1.
    n_classes
        C, all outputs that the head has.
    decay
        Penalty, positive.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 2, 2])
    >>> weights, bias = fit_local_head(X, y, n_classes=4).expand()
    >>> (X @ weights + bias).argmax(axis=1)
    array([0, 0, 2, 2])
    >>> bool(np.array_equal(weights[:, 1], weights[:, 3]))
    True
    """
    labels, target = np.unique(y, return_inverse=True)
    centre = X.mean(axis=0)
    Z = np.ones((len(X), X.shape[1] + 1))
    np.subtract(X, centre, out=Z[:, :-1])
    scale = float(np.sqrt(np.einsum("nd,nd->", Z[:, :-1], Z[:, :-1]) / len(X)))
    # A client without spread (one sample, or copies of one) has nothing to scale; its centred features are zero.
    scale = scale if scale > 0 else 1.0
    Z[:, :-1] /= scale
    solution = _solve(Z, target, n_classes - len(labels), decay)[:, : len(labels)]
    weights = solution[:-1] / scale
    return LocalHead(labels, weights, solution[-1] - centre @ weights, n_classes)


def _solve(Z: Floats, target: NDArray[np.int64], n_absent: int, decay: float) -> Floats:
    """Return the columns (d + 1, c or c + 1) of the minimum; the last is √m·w₀ if classes are absent."""
    n_present = int(target.max()) + 1
    n_columns = n_present + (n_absent > 0)
    stretch, base = np.ones(n_columns), np.zeros(n_columns)
    if n_absent:
        stretch[-1], base[-1] = 1 / np.sqrt(n_absent), np.log(n_absent)
    rows = np.arange(len(Z))

    def loss(flat: Floats) -> tuple[float, Floats]:
        columns = flat.reshape(-1, n_columns)
        scores = Z @ (columns * stretch) + base
        scores -= scores.max(axis=1, keepdims=True)
        chosen = scores[rows, target]
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1)
        scores /= sums[:, None]
        scores[rows, target] -= 1.0
        gradient = (Z.T @ scores) * (stretch / len(Z)) + decay * columns
        return float((np.log(sums) - chosen).mean() + 0.5 * decay * (flat @ flat)), gradient.ravel()

    options = {"maxfun": EVALUATIONS, "maxiter": EVALUATIONS, "gtol": TOLERANCE, "ftol": 0.0, "maxcor": 10}
    start = np.zeros(Z.shape[1] * n_columns)
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x.reshape(-1, n_columns))
