"""Small clients of unequal size, starts of every kind, and the rule of local training in plain loops."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import DiagonalClassifier, LinearClassifier, LowRankClassifier, QuadraticClassifier
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches, held_out
from fedmoments.tuning.engine import Arrays, Update
from fedmoments.tuning.start import BIAS, WEIGHTS, Start

Floats = NDArray[np.float64]
Parts = dict[str, tuple[NDArray[Any], NDArray[Any]]]

DIM, CLASSES = 4, 5
#: Class 3 has no sample anywhere.
PRESENT = np.array([True, True, True, False, True])
#: Among them empty clients, clients of one sample, of fewer than a batch of 4, of exactly one, of many.
SIZES = {"lone": 1, "empty": 0, "a/b": 3, "even": 4, "odd": 7, "twin": 7, "big": 13}


def clients(seed: int = 0, sizes: Mapping[str, int] = SIZES) -> Parts:
    """Return features and labels by client, classes apart by their means."""
    rng = np.random.default_rng(seed)
    means, labels = rng.normal(size=(CLASSES, DIM)), np.flatnonzero(PRESENT)
    parts = {}
    for name, size in sizes.items():
        y = rng.choice(labels, size)
        parts[name] = (means[y] + 0.7 * rng.normal(size=(size, DIM)), y)
    return parts


def start(kind: str = "linear", temperature: float = 0.7, present: NDArray[np.bool_] = PRESENT) -> Start:
    """Return a start with numbers of no meaning, of any kind of classifier."""
    rng = np.random.default_rng(5)
    offset, means, bias = rng.normal(size=DIM), rng.normal(size=(CLASSES, DIM)), rng.normal(size=CLASSES)
    common: dict[str, Any] = {"offset": offset, "bias": bias, "present": present}
    if kind == "linear":
        return Start(kind, LinearClassifier(weights=0.5 * means.T, **common), temperature)
    common |= {"means": means, "basis": rng.normal(size=(DIM, DIM - 1))}
    common["means"] = means[:, :-1]
    inside = (CLASSES, DIM - 1)
    if kind == "diagonal":
        return Start(kind, DiagonalClassifier(precisions=1 + rng.random(inside), **common), temperature)
    if kind == "quadratic":
        return Start(
            kind, QuadraticClassifier(whiteners=np.tril(rng.normal(size=(*inside, DIM - 1))), **common), temperature
        )
    precisions, projections = 3 + rng.random(inside), 0.3 * rng.normal(size=(CLASSES, 2, DIM - 1))
    return Start(kind, LowRankClassifier(precisions=precisions, projections=projections, **common), temperature)


def mean_of(updates: Sequence[Update]) -> Arrays:
    """Return the average of updates by their samples: FedAvg."""
    total = sum(update.samples for update in updates)
    names = updates[0].arrays
    return {name: np.sum([u.samples / total * u.arrays[name] for u in updates], axis=0) for name in names}


def zeros(arrays: Arrays) -> Arrays:
    return {name: np.zeros_like(array) for name, array in arrays.items()}


# -------------------------------------------------------------------------------------------------- the referee


def sample_gradient(scores: Sequence[float], label: int, temperature: float) -> tuple[float, list[float]]:
    """Return the loss of one sample and its gradient by the scores; scores of None are of classes that are absent."""
    powers = [math.exp(score / temperature) if np.isfinite(score) else 0.0 for score in scores]
    shares = [power / sum(powers) for power in powers]
    slopes = [(share - (c == label)) / temperature for c, share in enumerate(shares)]
    return -math.log(shares[label]), slopes


def batch_gradient(
    head: Start, arrays: Arrays, X: Floats, y: NDArray[Any], decay: float
) -> tuple[float, Floats, Floats]:
    """Return the mean loss of a batch and its gradients by W and b, one sample and class at a time."""
    weights, bias = arrays[WEIGHTS], arrays[BIAS]
    by_weights, by_bias, total = np.zeros(weights.shape), np.zeros(bias.shape), 0.0
    inputs, frozen = head.inputs(X, np.float64), head.base(X, np.float64)
    for i in range(len(X)):
        scores = [
            float(inputs[i] @ weights[:, c] + bias[c] + (0.0 if frozen is None else frozen[i, c]))
            if head.present[c]
            else -np.inf
            for c in range(CLASSES)
        ]
        loss, slopes = sample_gradient(scores, int(y[i]), head.temperature)
        total += loss / len(X)
        for c in range(CLASSES):
            by_bias[c] += slopes[c] / len(X)
            for j in range(len(weights)):
                by_weights[j, c] += slopes[c] * inputs[i, j] / len(X)
    by_weights += decay * weights * head.present
    by_bias += decay * bias * head.present
    return total, by_weights, by_bias


def referee(
    plan: TuningPlan,
    head: Start,
    part: tuple[NDArray[Any], NDArray[Any]],
    name: str,
    round_number: int,
    arrays: Arrays,
    server: Arrays | None = None,
    own: Arrays | None = None,
) -> tuple[Arrays, float, Arrays]:
    """Return a client's parameters, its mean loss and the mean of its raw gradients after its part of a round."""
    rows, _ = held_out(len(part[0]), plan.validation, seed=plan.seed, client=name)
    X, y = part[0][rows], part[1][rows]
    now: Arrays = {key: array.astype(np.float64) for key, array in arrays.items()}
    velocity, raw = zeros(now), zeros(now)
    losses = []
    drawn = batches(len(X), plan.batch_size, seed=plan.seed, round_number=round_number, client=name, epochs=plan.epochs)
    for batch in drawn:
        loss, by_weights, by_bias = batch_gradient(head, now, X[batch], y[batch], plan.weight_decay)
        losses.append(loss)
        for key, gradient in ((WEIGHTS, by_weights), (BIAS, by_bias)):
            raw[key] = raw[key] + gradient / len(drawn)
            step = gradient + plan.proximal * (now[key] - arrays[key])
            if server is not None and own is not None:
                step = step + server[key] - own[key]
            velocity[key] = plan.momentum * velocity[key] + step
            now[key] = now[key] - plan.step * velocity[key]
    return now, float(np.mean(losses)), raw
