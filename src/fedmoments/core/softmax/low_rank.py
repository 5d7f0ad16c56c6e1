"""The same loss over weights of a given rank, W = A·B with A (k, r) and B (r, C): a quasi-Newton method on the factors.

In the factors the loss is no longer convex, so the start matters: the best approximation of rank r to the minimiser of
full rank, which is convex to find. With the gradient G of the loss with respect to W, ∂A = G·Bᵀ and ∂B = Aᵀ·G.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedmoments.core.softmax.objective import SoftmaxLoss
from fedmoments.core.softmax.solver import SoftmaxFit
from fedmoments.errors import InputError

__all__ = ["fit_low_rank"]

Floats = NDArray[np.float64]


def fit_low_rank(loss: SoftmaxLoss, full: SoftmaxFit, rank: int, *, most_passes: int = 60) -> SoftmaxFit:
    """Minimise a softmax loss over weights of rank r, the bias being kept.

    Parameters
    ----------
    loss
        What is minimised.
    full
        Minimiser over weights of any rank.
    rank
        r ≥ 1.
    most_passes
        Bound on visits of all samples.

    Examples
    --------
    >>> from fedmoments.core.softmax import Block, fit_softmax
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> loss = SoftmaxLoss([Block(np.eye(3)[y] + rng.normal(size=(90, 3)), y)], 3, decay=0.01, free_bias=False)
    >>> full = fit_softmax(loss, np.zeros((3, 3)), np.zeros(3))
    >>> low = fit_low_rank(loss, full, 1)
    >>> int(np.linalg.matrix_rank(low.weights)), bool(full.loss < low.loss < np.log(3))
    (1, True)
    """
    if rank < 1:
        raise InputError(f"the rank of a residual is a number from 1; {rank} arrived")
    shape, bias = full.weights.shape, full.bias
    left, right = _start(loss, full, rank)
    cut, passes = left.size, 2

    def flat(factors: Floats) -> tuple[float, Floats]:
        nonlocal passes
        passes += 1
        A, B = factors[:cut].reshape(shape[0], rank), factors[cut:].reshape(rank, shape[1])
        value, (gradient, _) = loss(A @ B, bias)
        return value, np.concatenate([(gradient @ B.T).ravel(), (A.T @ gradient).ravel()])

    options = {"maxfun": most_passes, "maxiter": most_passes, "gtol": 1e-5, "ftol": 1e-9, "maxcor": 20}
    start = np.concatenate([left.ravel(), right.ravel()])
    result = minimize(flat, start, jac=True, method="L-BFGS-B", options=options)
    weights = result.x[:cut].reshape(shape[0], rank) @ result.x[cut:].reshape(rank, shape[1])
    return replace(full, weights=weights, loss=float(result.fun), passes=full.passes + passes)


def _start(loss: SoftmaxLoss, full: SoftmaxFit, rank: int) -> tuple[Floats, Floats]:
    """Return factors of the best approximation to the full minimiser; of nothing, if that has the lower loss."""
    U, s, Vt = np.linalg.svd(full.weights, full_matrices=False)
    root = np.sqrt(s[:rank])
    left, right = U[:, :rank] * root, root[:, None] * Vt[:rank]
    nothing, (gradient, _) = loss(np.zeros_like(full.weights), full.bias)
    if loss(left @ right, full.bias)[0] <= nothing:
        return left, right
    U, _, Vt = np.linalg.svd(gradient, full_matrices=False)
    return U[:, :rank], np.zeros_like(Vt[:rank])
