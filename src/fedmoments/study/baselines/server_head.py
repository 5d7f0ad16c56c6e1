"""The server's softmax regression on features that it made itself: from labels, or from a teacher's scores.

Features are centred and divided by s, s² = mean ‖x − x̄‖², so that ``decay`` means the same at every scale; the head is
returned in the features' own coordinates. The solver is L-BFGS, which is at ease with any start: an averaged head, or a
student that was fitted before harder samples came, has scores that are too large for Newton's method.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.softmax import Block, SoftmaxLoss

__all__ = ["SERVER_DECAY", "fit_server_head"]

Floats = NDArray[np.float64]

#: Default penalty on ½‖W‖² for centred and scaled features.
SERVER_DECAY = 1e-5
#: The solver stops when no entry of the gradient is larger.
TOLERANCE = 1e-5


def fit_server_head(
    X: NDArray[np.floating],
    *,
    origin: Floats | None = None,
    present: NDArray[np.bool_],
    labels: NDArray[np.int64] | None = None,
    teacher: NDArray[np.floating] | None = None,
    start: LinearClassifier | None = None,
    decay: float = SERVER_DECAY,
    temperature: float = 1.0,
    passes: int = 100,
) -> LinearClassifier:
    """Fit a linear head.

    Parameters
    ----------
    X
        (n, d) features less the origin, computed with in their own type.
    origin
        (d,), 0 by default: features far from zero keep their digits in float32 when it is taken off them.
    present
        (C,) classes that take part.
    labels
        (n,) labels, or None when a teacher speaks.
    teacher
        (n, C) scores whose softmax, at ``temperature``, the head's is to match in Kullback-Leibler divergence.
    start
        Where the solver starts; at zero by default.
    decay
        Penalty.
    passes
        Most visits of all samples.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 2, 2])
    >>> fit_server_head(X, labels=y, present=np.array([True, False, True])).predict([[1.5], [3.5]])
    array([0, 2])
    """
    centre = X.mean(axis=0, dtype=np.float64)
    offset = centre if origin is None else origin + centre
    Z = X - centre.astype(X.dtype)
    scale = float(np.sqrt(np.einsum("nd,nd->", Z, Z, dtype=np.float64) / len(Z)))
    scale = scale if scale > 0 else 1.0
    Z /= scale
    weights, bias = np.zeros((X.shape[1], len(present))), np.zeros(len(present))
    if start is not None:
        shift = offset if start.offset is None else offset - start.offset
        weights, bias = scale * start.weights, start.bias + shift @ start.weights
    block = Block(Z, labels, None if teacher is None else teacher.astype(Z.dtype, copy=False))
    loss = SoftmaxLoss(
        [block], len(present), present, decay, distill=0.0 if teacher is None else 1.0, temperature=temperature
    )
    weights, bias = _minimise(loss, weights, bias, passes)
    return LinearClassifier(weights=weights / scale, bias=bias, offset=offset, present=present)


def _minimise(loss: SoftmaxLoss, weights: Floats, bias: Floats, passes: int) -> tuple[Floats, Floats]:
    """Return the weights (d, C) and bias (C,) of the least loss that was found from a start."""
    shape = weights.shape

    def flat(parameters: Floats) -> tuple[float, Floats]:
        value, (slope, bias_slope) = loss(parameters[: -shape[1]].reshape(shape), parameters[-shape[1] :])
        return value, np.concatenate([slope.ravel(), bias_slope])

    options = {"maxfun": passes, "maxiter": passes, "gtol": TOLERANCE, "ftol": 0.0, "maxcor": 20}
    solution = minimize(flat, np.append(weights.ravel(), bias), jac=True, method="L-BFGS-B", options=options).x
    return solution[: -shape[1]].reshape(shape), solution[-shape[1] :]
