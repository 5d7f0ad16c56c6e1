"""Softmax regression by Newton's method: exact gradients, curvature from some of the samples, a convex loss.

Each step solves H·s = −g by preconditioned conjugate gradients, H being the curvature over at most ``ROWS`` samples (or
a few hundred a class), and is halved until the loss falls; where that was needed, the next curvature is over twice as
many. The product gᵀH⁻¹g is twice what a step can still gain. The minimiser over N samples of p parameters is off the
one over all by p/N in the same measure, so that there is a point beyond which only the sample is learnt: ``noise``
stops there.

Newton's steps are safe on the flat side of the optimum, where scores are too small; a start with scores that are too
large is right by a wide margin or wrong by one and has almost no curvature. Where a step had to be halved often,
weights are first divided by 4 until larger ones would be better (the loss is convex along the ray, so it falls on the
way); where Newton's steps still fail, a quasi-Newton method takes over for a while, which needs no curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedmoments.core.softmax.curvature import Curvature
from fedmoments.core.softmax.objective import SoftmaxLoss

__all__ = ["SoftmaxFit", "fit_softmax"]

Floats = NDArray[np.float64]

#: Samples behind the curvature: at least so many, and so many a class.
ROWS, ROWS_PER_CLASS = 8_000, 200
#: Most bytes that they take.
MOST_BYTES = 1 << 28
#: Residual of the linear system at which a direction is good enough, and most products for it.
RESIDUAL, MOST_PRODUCTS = 0.1, 50
#: Share of its preconditioned size below which a direction has no curvature to speak of.
NO_BEND = 1e-10
#: Most halvings of a step, and how many are a sign that the curvature here tells nothing.
MOST_HALVINGS, MANY_HALVINGS = 12, 4
#: Promised gain, as a share of the loss, below which a step that fails is one that rounding hides.
ROUNDING = 1e-6
#: Most divisions of weights by 4.
MOST_DIVISIONS = 12


@dataclass(frozen=True, eq=False)
class SoftmaxFit:
    """A fitted head.

    Parameters
    ----------
    weights, bias
        (k, C) and (C,).
    loss
        Where the solver stopped, over all samples; never above that of the start.
    passes
        How often all samples were visited, products with the curvature counted by the samples that they visit.
    """

    weights: Floats
    bias: Floats
    loss: float
    passes: int


def fit_softmax(
    loss: SoftmaxLoss,
    weights: Floats,
    bias: Floats,
    *,
    tolerance: float = 1e-5,
    noise: float = 0.0,
    thin: int = 1,
    most_passes: int = 200,
) -> SoftmaxFit:
    """Minimise a softmax loss from a start.

    Parameters
    ----------
    loss
        What is minimised.
    weights, bias
        Start, (k, C) and (C,).
    tolerance
        The solver stops when no entry of the gradient is larger.
    noise
        It also stops when gᵀH⁻¹g, or twice the last gain, is below noise²·p/N, a small part of what drawing other
        samples would change.
    thin
        Start with a solution on every so-many-th sample.
    most_passes
        Bound on visits of all samples.

    Examples
    --------
    >>> from fedmoments.core.softmax.objective import Block
    >>> Z, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
    >>> fit = fit_softmax(SoftmaxLoss([Block(Z, y)], 2), np.zeros((1, 2)), np.zeros(2))
    >>> bool(fit.loss < 0.65), fit.passes < 50
    (True, True)
    """
    classes = loss.classes
    point, passes = np.vstack([weights[:, classes], bias[classes]]), 0.0
    stop = _Stop(tolerance, noise, float(most_passes))
    start = point
    if thin > 1:
        point, _, passes = _minimise(replace(loss, every=loss.every * thin), start, stop)
        passes /= thin
    point, value, more = _minimise(loss, point, replace(stop, passes=stop.passes - passes))
    passes += more
    if thin > 1:
        passes += 1.0
        if not value <= loss(weights, bias)[0]:  # the thinner set led astray, and no passes were left to come back
            point, value, more = _minimise(loss, start, replace(stop, passes=stop.passes - passes))
            passes += more
    weights, bias = weights.copy(), bias.copy()
    weights[:, classes], bias[classes] = point[:-1], point[-1]
    return SoftmaxFit(weights, bias, value, int(np.ceil(passes)))


@dataclass(frozen=True)
class _Stop:
    """When to stop: largest entry of the gradient, share of the sampling noise, and passes."""

    tolerance: float
    noise: float
    passes: float


@dataclass(frozen=True, eq=False)
class _Place:
    """Weights and bias stacked to (k+1, C), with loss, gradient and curvature there."""

    point: Floats
    value: float
    gradient: Floats
    curvature: Curvature


_Rescue = Callable[[SoftmaxLoss, _Place, int, _Stop], tuple[_Place, float]]


def _visit(loss: SoftmaxLoss, point: Floats, keep: int) -> _Place:
    classes = loss.classes
    weights, bias = np.zeros((len(point) - 1, loss.n_classes)), np.zeros(loss.n_classes)
    weights[:, classes], bias[classes] = point[:-1], point[-1]
    value, (grad_w, grad_b), curvature = loss.visit(weights, bias, keep)
    return _Place(point, value, np.vstack([grad_w[:, classes], grad_b[classes]]), curvature)


def _minimise(loss: SoftmaxLoss, point: Floats, stop: _Stop) -> tuple[Floats, float, float]:
    """Return the minimiser (k+1, C) over classes that take part, its loss, and how many passes it took."""
    n, keep = loss.n_samples, _stride(loss.n_samples, point)
    enough = stop.noise**2 * point.size / n
    here, passes = _visit(loss, point, keep), 1.0
    rescues: list[_Rescue] = [_divided, _quasi_newton]
    while passes < stop.passes and np.abs(here.gradient).max(initial=0.0) > stop.tolerance:
        step, products = _direction(here.curvature, here.gradient)
        passes += products * here.curvature.n_samples / n
        decrement = -float(np.einsum("kc,kc->", here.gradient, step))
        if decrement <= enough:
            break
        hidden = decrement < ROUNDING * abs(here.value)
        new, halvings, keep, passes = _halved(
            loss, here, _Step(step, decrement), keep, passes=passes, most_passes=stop.passes
        )
        gain = here.value - new.value
        here = new if gain > 0 else here
        if halvings >= MANY_HALVINGS and rescues and not hidden:
            here, more = rescues.pop(0)(loss, here, keep, replace(stop, passes=stop.passes - passes))
            passes += more
        elif not gain > 0 or 2.0 * gain < enough:  # the curvature of few samples promises more than there is
            break
    return here.point, here.value, passes


@dataclass(frozen=True, eq=False)
class _Step:
    """A change of weights and bias, (k+1, C), and by how much the loss should decrease along it to first order."""

    change: Floats
    decrement: float

    def half(self) -> "_Step":
        return _Step(0.5 * self.change, 0.5 * self.decrement)


def _halved(
    loss: SoftmaxLoss, here: _Place, step: _Step, keep: int, *, passes: float, most_passes: float
) -> tuple[_Place, int, int, float]:
    """Halve a step until it decreases the loss; return where it ends, how many halvings, the new stride, all passes."""
    new, halvings = here, 0
    for halvings in range(MOST_HALVINGS):
        if halvings == 1:  # too few samples bend too little along what was sought for bending little
            keep = max(keep // 2, 1)
        new = _visit(loss, here.point + step.change, keep)
        passes += 1.0
        if new.value <= here.value - 1e-4 * step.decrement or passes >= most_passes:
            break
        step = step.half()
    return new, halvings, keep, passes


def _divided(loss: SoftmaxLoss, here: _Place, keep: int, stop: _Stop) -> tuple[_Place, float]:
    """Return the first place on the way to weights of 0 from which larger ones would be better, and the passes."""
    passes = 0.0
    ray = here.point.copy()
    ray[-1] *= loss.free_bias
    fixed = here.point - ray
    for division in range(1, MOST_DIVISIONS + 1):
        if passes >= stop.passes or float(np.einsum("kc,kc->", here.gradient, ray)) <= 0:
            break
        new = _visit(loss, fixed + ray / 4.0**division, keep)
        passes += 1.0
        if not new.value < here.value:
            break
        here = new
    return here, passes


def _quasi_newton(loss: SoftmaxLoss, here: _Place, keep: int, stop: _Stop) -> tuple[_Place, float]:
    """Return where L-BFGS ends, and the passes."""

    def flat(x: Floats) -> tuple[float, Floats]:
        place = _visit(loss, x.reshape(here.point.shape), 0)
        return place.value, place.gradient.ravel()

    most = max(int(stop.passes) - 1, 0)
    if not most:
        return here, 0.0
    options = {"maxfun": most, "maxiter": most, "gtol": stop.tolerance, "ftol": 1e-12, "maxcor": 20}
    result = minimize(flat, here.point.ravel(), jac=True, method="L-BFGS-B", options=options)
    new = _visit(loss, result.x.reshape(here.point.shape), keep)
    return new if new.value < here.value else here, result.nfev + 1.0


def _stride(n_samples: int, point: Floats) -> int:
    """Return every how-many-th sample is kept for the curvature."""
    size, n_classes = point.shape
    rows = min(max(ROWS, ROWS_PER_CLASS * n_classes), MOST_BYTES // (8 * (size + n_classes)))
    return int(max(n_samples // max(rows, 1), 1))


def _direction(curvature: Curvature, gradient: Floats) -> tuple[Floats, int]:
    """Return the solution of curvature · step = −gradient, and how many products it took."""
    solve = curvature.preconditioner()
    step, residual, products = np.zeros_like(gradient), -gradient, 0
    towards = guess = solve(residual)
    size = first = float(np.einsum("kc,kc->", residual, guess))
    while size > RESIDUAL**2 * first * (products > 0) and products < MOST_PRODUCTS:
        bent = curvature.product(towards)
        products += 1
        bend = float(np.einsum("kc,kc->", towards, bent))
        if not bend > NO_BEND * size:  # all probabilities are 0 or 1 along it: what was found, or the gradient
            return (step if step.any() else guess), products
        length = size / bend
        step += length * towards
        residual -= length * bent
        guess = solve(residual)
        size, before = float(np.einsum("kc,kc->", residual, guess)), size
        towards = guess + (size / before) * towards
    return step, products
