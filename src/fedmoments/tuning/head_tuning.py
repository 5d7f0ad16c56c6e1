"""Linear probing in one call: parties' features, a start and a plan in, a classifier and its curve out."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.api import fit
from fedmoments.core.classifier import Classifier
from fedmoments.core.notebook import html_table
from fedmoments.errors import FitWarning, InputError
from fedmoments.provenance import code_of
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import AUTO, TuningPlan
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.loop import Progress, RoundPoint, Tuned, run_rounds
from fedmoments.tuning.prices import Bill, Prices
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.rates import choose_rates, scaled, spread_of
from fedmoments.tuning.start import NORMALISED, Start, random_start, start_from
from fedmoments.tuning.temperature import TEMPERATURES, ChosenTemperature, choose_temperature

__all__ = ["TunedHead", "start_at", "tune"]

Part = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False, repr=False)
class TunedHead:
    """The result of linear probing.

    Parameters
    ----------
    classifier
        The tuned head, of the best check where there was validation, of the last round otherwise.
    points
        Round by round, the start first.
    temperature
        T of the loss.
    best_round, stopped
        Of the best check, and why it stopped early; None where neither applies.
    rates
        Where learning rates were chosen: rates in words -> accuracy on the validation share.
    """

    classifier: Classifier
    points: tuple[RoundPoint, ...]
    temperature: float
    best_round: int | None = None
    stopped: str | None = None
    rates: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"TunedHead({self.classifier!r}, {len(self.points) - 1} rounds, T={self.temperature:g})"

    def _repr_html_(self) -> str:
        rows = [
            (point.round, "–" if point.accuracy is None else f"{point.accuracy:.2%}", f"{point.total_bytes:,.0f}")
            for point in self.points
        ]
        return html_table(f"{self.classifier!r}", ["round", "accuracy", "bytes so far, all clients"], rows)


def start_at(
    classifier: Classifier, name: str, plan: TuningPlan, parts: Iterable[Part]
) -> tuple[Start, ChosenTemperature | None]:
    """Return the start that a classifier is, at the plan's temperature, and the table that chose it, if one did.

    Parameters
    ----------
    classifier, name
        Where to begin, and what to call it.
    plan
        Says the temperature, or how it is chosen.
    parts
        Features and labels that clients train on; looked at only if the temperature is chosen.

    Examples
    --------
    >>> head = fit("fedncm", {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])})
    >>> start_at(head, "fedncm", TuningPlan(lr=0.1), [])[0].temperature
    0.1
    >>> start, chosen = start_at(head, "fedncm", TuningPlan(temperature="auto"), [([[0.1, 0.9], [0.8, 0.9]], [0, 1])])
    >>> start.temperature == chosen.temperature
    True
    """
    follows = plan.lr == AUTO and plan.stage == "lp"
    if isinstance(plan.temperature, int | float) or not (follows or plan.temperature):
        return start_from(classifier, name, None if plan.temperature is None else float(plan.temperature)), None
    begun, held = start_from(classifier, name), list(parts)
    size = spread_of(begun, held).length if follows and begun.temperature == NORMALISED else 1.0
    chosen = choose_temperature(begun, held, [size * temperature for temperature in TEMPERATURES])
    if chosen.temperature in (min(chosen.table), max(chosen.table)):
        warnings.warn(
            f"the best temperature of the start '{name}' is {chosen.temperature:g}, the end of the grid: its scores "
            "are on an unusual scale; centre or scale the features, or give a temperature",
            FitWarning,
            stacklevel=2,
        )
    return start_from(classifier, name, chosen.temperature), chosen


def tune(
    parties: Mapping[str, Part],
    start: str | Classifier,
    plan: TuningPlan | None = None,
    *,
    test: Part | None = None,
    n_classes: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> TunedHead:
    """Train a head in rounds on parties' features, all in this process.

    Parameters
    ----------
    parties
        Features (n_k, d) and labels (n_k,) by party.
    start
        ``random``, the name of a head, which is fitted from the parties first, or a classifier.
    plan
        Of stage ``lp``; 200 rounds of FedAvg by default.
    test
        Features and labels to test on after every round.
    n_classes
        C; the highest label plus one by default.
    checkpoint
        File that is written after every round, and gone on from if it is there; one of other samples, another start
        or another plan is refused.
    progress
        Called after every round.

    Returns
    -------
    TunedHead
        The classifier, and accuracy and bytes round by round: those of rounds and checks, without what the start has
        cost before, and no FLOPs, since the encoder's are not known here.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, size=300)
    >>> X = rng.normal(size=(300, 5)) + np.eye(3, 5)[y]
    >>> parties = {f"clinic {k}": (X[k:200:4], y[k:200:4]) for k in range(4)}
    >>> tuned = tune(parties, "fedncm", TuningPlan(rounds=20, lr=0.01), test=(X[200:], y[200:]))
    >>> len(tuned.points), tuned.points[20].train_loss < tuned.points[1].train_loss, tuned.classifier.info["start"]
    (21, True, 'fedncm')
    """
    plan = plan or TuningPlan()
    held = {name: (np.asarray(X), np.asarray(y)) for name, (X, y) in parties.items() if len(np.asarray(y))}
    if not held:
        raise InputError("no party has a sample to train on")
    C = n_classes or 1 + max(int(y.max()) for _, y in held.values())
    tried: Mapping[str, float] = {}
    prices = Prices(0, C, start=Bill(flops=None))
    if plan.has_grid:
        chosen = choose_rates(plan, lambda rates: _once(held, start, rates, C, prices=prices)[2])
        plan, tried, prices = chosen.plan, chosen.tried, replace(prices, opening=chosen.bill)
    plan, begun, tuned = _once(held, start, plan, C, prices=prices, test=test, checkpoint=checkpoint, progress=progress)
    classifier = begun.tuned(tuned.arrays, stage=plan.stage, plan=plan.to_dict())
    return TunedHead(classifier, tuned.points, begun.temperature, tuned.best_round, tuned.stopped, tried)


def _once(
    held: Mapping[str, tuple[np.ndarray, np.ndarray]],
    start: str | Classifier,
    plan: TuningPlan,
    C: int,
    *,
    prices: Prices,
    test: Part | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[TuningPlan, Start, Tuned]:
    """Run a plan with one rate of each; return it as it was run, with its start and what came of it."""
    rows = {name: held_out(len(y), plan.validation, seed=plan.seed, client=name)[0] for name, (_, y) in held.items()}
    training = {name: (X[rows[name]], y[rows[name]]) for name, (X, y) in held.items()}
    begun = _begin(training, start, plan, C)
    plan, begun = scaled(plan, begun, lambda: spread_of(begun, training.values()))
    code = code_of(OPTIMISERS[plan.optimiser].make)
    tuned = run_rounds(
        plan,
        FeatureEngine(plan, begun, held, test),
        begun.arrays(),
        prices=replace(prices, dim=begun.width),
        units=begun.units(plan.feature_scale),
        checkpoint=Path(checkpoint) if checkpoint else None,
        basis=f"{begun.classifier.digest()} {begun.temperature!r} {_digest(held, test)} {code}",
        progress=progress,
    )
    return plan, begun, tuned


def _digest(parties: Mapping[str, Part], test: Part | None) -> str:
    """Return the SHA-256 of all samples, whose they are, and of their types and shapes."""
    sha = hashlib.sha256()
    for name, part in [*((f"party {name}", part) for name, part in parties.items()), ("test", test or ((), ()))]:
        for values in part:
            array = np.ascontiguousarray(values)
            sha.update(f"{name}\n{array.dtype.str}\n{array.shape}\n".encode())
            sha.update(array.data)
    return sha.hexdigest()


def _begin(
    training: Mapping[str, tuple[np.ndarray, np.ndarray]], start: str | Classifier, plan: TuningPlan, C: int
) -> Start:
    if start == "random":
        present = sum(np.bincount(y, minlength=C) for _, y in training.values()) > 0
        fixed = plan.temperature if isinstance(plan.temperature, int | float) else None
        dim = next(iter(training.values()))[0].shape[1]
        return random_start(dim, np.asarray(present), seed=plan.seed, temperature=fixed)
    if isinstance(start, str):
        return start_at(fit(start, training, n_classes=C), start, plan, training.values())[0]
    return start_at(start, str(start.info.get("head", "a classifier")), plan, training.values())[0]
