"""Linear probing of many clients at once against one client and one batch after another.

The federation has the size of BANKING77 behind MiniLM (77 classes, 384 dimensions, 10,003 samples), split by Dirichlet
0.1, with batches of 32 and one epoch a round. The naive side is the rule as it is written: a client's batch, its
scores, its softmax, its gradients, W and b apart. Both draw the same batches and must arrive at the same parameters.
More than half of the time of either side goes into the same matrix products, which bounds the ratio.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.samples import parse_split
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, random_start

Compare = Callable[..., float]
Note = Callable[[str, str, str], None]
Parts = dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]

N_SAMPLES, N_CLASSES, DIM, ROUNDS = 10_003, 77, 384, 200
PLANS = {
    "fedavg": TuningPlan(lr=0.1),
    "fedprox": TuningPlan(optimiser="fedprox", lr=0.1, momentum=0.9, weight_decay=1e-4),
    "scaffold": TuningPlan(optimiser="scaffold", lr=0.1),
}


def federation(n_clients: int) -> Parts:
    """Return features of unit length by client."""
    rng = np.random.default_rng(0)
    y = np.arange(N_SAMPLES) % N_CLASSES
    X = rng.normal(size=(N_CLASSES, DIM))[y] + 2.0 * rng.normal(size=(N_SAMPLES, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    split = parse_split("dirichlet:0.1").apply(y, n_clients, 0)
    held = [split.clients == client for client in range(n_clients)]
    return {f"client {k}": (X[mine].astype(np.float32), y[mine]) for k, mine in enumerate(held)}


def one_by_one(plan: TuningPlan, head: Start, parts: Parts, round_number: int, sent: Arrays) -> list[Arrays]:
    """Return every client's parameters after a round from control variates 0."""
    done = []
    for client, (X, y) in parts.items():
        now = {name: array.copy() for name, array in sent.items()}
        velocity, raw, extra = ({name: np.zeros_like(array) for name, array in sent.items()} for _ in range(3))
        rows_of = batches(len(y), plan.batch_size, seed=plan.seed, round_number=round_number, client=client)
        for rows in rows_of:
            z, labels = X[rows], y[rows]
            scores = (z @ now[WEIGHTS] + now[BIAS]) / head.temperature
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares = shares / shares.sum(axis=1, keepdims=True)
            slopes = (shares - np.eye(N_CLASSES, dtype=np.float32)[labels]) / (len(rows) * head.temperature)
            gradients: dict[str, Any] = {WEIGHTS: z.T @ slopes, BIAS: slopes.sum(axis=0)}
            for name, gradient in gradients.items():
                step = gradient
                if plan.weight_decay:
                    step = step + plan.weight_decay * now[name]
                if plan.proximal:
                    step = step + plan.proximal * (now[name] - sent[name])
                if plan.controlled:
                    raw[name] = raw[name] + gradient / len(rows_of)
                    step = step + extra[name]
                velocity[name] = plan.momentum * velocity[name] + step
                now[name] = now[name] - plan.step * velocity[name]
        done.append(now)
    return done


@pytest.mark.parametrize(
    ("name", "n_clients", "at_least"),
    [("fedavg", 100, 1.2), ("fedprox", 100, 1.0), ("scaffold", 100, 1.0), ("fedavg", 1000, 1.2)],
)
def test_a_round_of_all_clients_at_once(
    name: str, n_clients: int, at_least: float, compare: Compare, note: Note
) -> None:
    plan, parts = PLANS[name], federation(n_clients)
    head = random_start(DIM, np.ones(N_CLASSES, bool), seed=0, temperature=0.1)
    engine, arrays = FeatureEngine(plan, head, parts, None), head.arrays()
    parts = {client: parts[client] for client in engine.clients}

    def all_at_once() -> list[Arrays]:
        # without the control variates of the calls before, which the naive side does not keep
        engine.restore({})
        control = {key: np.zeros_like(array) for key, array in arrays.items()} if plan.controlled else None
        return [update.arrays for update in engine.train(1, arrays, control, engine.clients)]

    for ours, theirs in zip(all_at_once(), one_by_one(plan, head, parts, 1, arrays), strict=True):
        np.testing.assert_allclose(ours[WEIGHTS], theirs[WEIGHTS], rtol=1e-3, atol=1e-5)
    compare(
        f"a round of {n_clients} clients ({name}) vs one batch after another, 77 x 384",
        all_at_once,
        lambda: one_by_one(plan, head, parts, 1, arrays),
        at_least=at_least,
    )
    begun = time.process_time()
    for _ in range(10):
        all_at_once()
    seconds = (time.process_time() - begun) / 10 * ROUNDS
    note(f"  … {ROUNDS} rounds, training alone", f"{seconds:.1f} s", "-")
