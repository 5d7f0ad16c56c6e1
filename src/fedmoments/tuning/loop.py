"""The rounds: draw clients, let them train, merge, test, keep; stop early, go on after an interruption.

**Law** a run that was interrupted after any round and started again ends with the same parameters and points, bit for
bit: every draw follows from the seed and the round, and everything else is in the checkpoint.

The file from which an interrupted run goes on: parameters, what optimiser and engine keep, and the points so far.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.observations.tuning import RoundPoint
from fedmoments.errors import FitWarning, InputError, reading
from fedmoments.files import pack_tensors, read_tensors, write_whole
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import drawn_clients
from fedmoments.tuning.engine import Arrays, DivergedError, Engine, Score, Update
from fedmoments.tuning.optimisers import ServerOptimiser, make_optimiser
from fedmoments.tuning.prices import Bill, Prices

__all__ = ["Checkpoint", "RoundPoint", "Tuned", "run_rounds"]


_KIND = "tuning checkpoint"
_GROUPS = ("arrays", "best", "optimiser", "engine")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stands after a round.

    Parameters
    ----------
    arrays, best
        Parameters now, and those of the best validation so far (none where there is no validation).
    optimiser, engine
        Their states.
    notes
        Round, points, best round and the like, JSON-able.
    basis
        Whatever else the run depends on (plan, start, data): a file of another basis is refused.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint({"w": np.ones(2)}, notes={"round": 3}, basis="x").save(Path(folder, "c.safetensors"))
    ...     saved = Checkpoint.load(Path(folder, "c.safetensors"), basis="x")
    >>> saved.notes["round"], saved.arrays
    (3, {'w': array([1., 1.])})
    """

    arrays: Arrays
    best: Arrays = field(default_factory=dict)
    optimiser: Arrays = field(default_factory=dict)
    engine: Arrays = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    basis: str = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; it appears whole or not at all, in place of an older one."""
        tensors = {f"{group}/{name}": array for group in _GROUPS for name, array in getattr(self, group).items()}
        write_whole(path, pack_tensors(_KIND, tensors, {"basis": self.basis, "notes": dict(self.notes)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, basis: str) -> "Checkpoint | None":
        """Read the file; None where there is none yet."""
        if not Path(path).exists():
            return None
        tensors, header = read_tensors(path, _KIND)
        if header.get("basis") != basis:
            raise InputError(
                f"{path} is the checkpoint of another run (another plan, start, split or data): give another folder, "
                "or delete it to start over"
            )
        groups: dict[str, Arrays] = {group: {} for group in _GROUPS}
        with reading(f"{path} is not a checkpoint"):
            for name, array in tensors.items():
                group, _, rest = name.partition("/")
                groups[group][rest] = array
            return cls(**groups, notes=header["notes"], basis=basis)


#: Called with (rounds done, rounds in all, a line about the last round).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of a run.

    Parameters
    ----------
    arrays
        Parameters of the best check where there was validation, of the last round otherwise.
    points
        Round by round.
    best_round
        Of the best check; None without validation.
    stopped
        Why it stopped before the last round; None if it did not.
    resumed
        Round from which it went on; None if it began anew.
    """

    arrays: Arrays
    points: tuple[RoundPoint, ...]
    best_round: int | None = None
    stopped: str | None = None
    resumed: int | None = None

    @property
    def result(self) -> RoundPoint:
        """The point whose parameters these are."""
        if self.best_round is None:
            return self.points[-1]
        return next(point for point in self.points if point.round == self.best_round)


def run_rounds(
    plan: TuningPlan,
    engine: Engine,
    arrays: Arrays,
    *,
    prices: Prices,
    units: Mapping[str, float] | None = None,
    checkpoint: Path | None = None,
    basis: str = "",
    progress: Progress | None = None,
) -> Tuned:
    """Run the rounds of a plan.

    Parameters
    ----------
    plan
        What to run.
    engine
        Trains on clients' data.
    arrays
        Parameters to begin from.
    prices
        What rounds are charged by.
    units
        Of the arrays, where the plan has a ``feature_scale``: those of the start.
    checkpoint
        File that is written after every round, and gone on from if it is there. More rounds may be asked for then.
    basis
        What the run depends on besides the plan: names data, split and start.
    progress
        Called after every round.

    Raises
    ------
    InputError
        When there is no client to train, or the checkpoint is of another run.
    """
    if not engine.clients:
        raise InputError("no client has a sample to train on")
    run = _Run(plan, engine, prices, make_optimiser(plan, engine.samples, units), dict(arrays))
    if plan.has_grid:
        raise InputError(f"of the rates lr = {plan.lr} and server_lr = {plan.server_lr} one each must be chosen first")
    key = _basis(plan, basis)
    resumed = _resume(run, checkpoint, key) if checkpoint else None
    if resumed is None:
        run.begin()
    while run.round < plan.rounds and run.stopped is None:
        run.next_round()
        if checkpoint is not None:
            run.checkpoint(key).save(checkpoint)
        if progress is not None:
            progress(run.round, plan.rounds, run.summary())
    kept = run.best if run.best_round is not None else run.arrays
    return Tuned(kept, tuple(run.points), run.best_round, run.stopped, resumed)


def _resume(run: "_Run", checkpoint: Path, key: str) -> int | None:
    """Continue a run from its checkpoint, if there is one; return the round that the checkpoint is of."""
    saved = Checkpoint.load(checkpoint, basis=key)
    if saved is None:
        return None
    run.restore(saved)
    if run.round > run.plan.rounds:
        raise InputError(
            f"{checkpoint} is of round {run.round}, but {run.plan.rounds} rounds were requested: ask for more, or give "
            "another folder"
        )
    return run.round


@dataclass
class _Run:
    """The state of a run between two rounds."""

    plan: TuningPlan
    engine: Engine
    prices: Prices
    optimiser: ServerOptimiser
    arrays: Arrays
    round: int = 0
    points: list[RoundPoint] = field(default_factory=list)
    bill: Bill = field(default_factory=Bill)
    best: Arrays = field(default_factory=dict)
    best_round: int | None = None
    bad_checks: int = 0
    stopped: str | None = None
    met: set[str] = field(default_factory=set)
    first: Score | None = None

    def begin(self) -> None:
        """Test the start."""
        self.bill = self.prices.start
        if self.plan.validation > 0:  # everybody tests the start, and so has to have it
            self.bill += self.prices.opening
        self._note({}, ())

    def next_round(self) -> None:
        """Run one more round."""
        number = self.round + 1
        names = self.engine.clients
        drawn = drawn_clients(
            len(names),
            self.plan.per_round(len(names)),
            number,
            replacement=self.plan.replacement,
            seed=self.plan.seed,
        )
        chosen = [names[index] for index in drawn]
        if number == 1 and self.plan.validation == 0:
            self.bill += self.prices.opening
        self.round = number
        try:
            control = self._control(number, chosen)
            updates = self.engine.train(number, self.arrays, control, chosen)
        except DivergedError as error:
            self.stopped = f"diverged: {error}"
            return
        merged = self.optimiser.step(number, self.arrays, updates)
        asked = {name: self.engine.samples[name] for name in chosen}
        self.bill += self.prices.of_round(self.plan, asked, self.arrays, control, updates) + self._meet(chosen)
        if not all(np.isfinite(array).all() for array in merged.values()):
            self.stopped = f"diverged in round {number}: the server's step of {self.plan.server_step:g} is too large"
            return
        self.arrays = merged
        weights = [update.samples for update in updates]
        train_loss = float(np.average([update.loss for update in updates], weights=weights))
        self._note({"train_loss": train_loss}, updates)

    def _control(self, number: int, chosen: Sequence[str]) -> Arrays | None:
        """Return what is sent beside the parameters: with Mime after the clients have told their gradients."""
        if not self.plan.asks_first:
            return self.optimiser.control(self.arrays)
        updates = self.engine.train(number, self.arrays, None, chosen)
        self.bill += self.prices.of_asking(len(chosen), self.arrays, updates)
        return self.optimiser.informed(self.arrays, updates)

    def _meet(self, clients: Sequence[str]) -> Bill:
        """Return the cost of what clients are sent that were not asked before."""
        new = set(clients) - self.met
        self.met |= new
        return self.prices.of_meeting(len(new))

    def _note(self, facts: dict[str, Any], updates: Sequence[Update]) -> None:
        """Test what is due and append the point of this round."""
        plan, last = self.plan, self.round == self.plan.rounds
        check = plan.validation > 0 and (last or self.round % plan.check_every == 0)
        if check:
            score = self.engine.validate(self.arrays)
            self.bill += self.prices.of_check(len(self.engine.clients), self.arrays) + self._meet(self.engine.clients)
            facts |= {"validation": score.accuracy, "validation_loss": score.mean_loss}
            self._judge(score.accuracy, score.mean_loss)
        if check or last or self.stopped or self.round % plan.test_every == 0:
            tested = self.engine.test(self.arrays)
            if tested is not None:
                self._compare(tested)
                facts |= {"accuracy": tested.accuracy, "loss": tested.mean_loss}
        self.points.append(RoundPoint(self.round, **facts, participants=len(updates), **asdict(self.bill)))

    def _compare(self, tested: Score) -> None:
        """Warn where the first round made more answers wrong than right, beyond what chance does to so many."""
        if self.round == 0:
            self.first = tested
        if self.round != 1 or self.first is None:
            return
        lost = self.first.correct - tested.correct
        if lost > 2.0 * math.sqrt(max(tested.samples, 1)):
            warnings.warn(
                f"the first round lost more than it gained: {self.first.accuracy:.1%} of the test samples were right "
                f"before it, {tested.accuracy:.1%} are after it. A learning rate of {self.plan.step:g} (the server's: "
                f"{self.plan.server_step:g}) is too large for this start: take a smaller one, several to choose from "
                "(--lr 0.001,0.01,0.1), or auto in stage lp",
                FitWarning,
                stacklevel=2,
            )

    def _judge(self, accuracy: float, loss: float) -> None:
        """Keep the parameters if their validation is the best so far: more right, or as many at less loss."""
        if not accuracy >= 0:
            raise InputError(
                "no client has a sample in its validation share: take a larger share, or none and all rounds"
            )
        before = [(p.validation, -(p.validation_loss or 0.0)) for p in self.points if p.validation is not None]
        if not before or (accuracy, -loss) > max(before):
            self.best, self.best_round, self.bad_checks = dict(self.arrays), self.round, 0
            return
        self.bad_checks += 1
        if self.bad_checks >= self.plan.patience:
            self.stopped = f"no better validation in {self.bad_checks} checks in a row; round {self.best_round} is kept"

    def summary(self) -> str:
        """Return one line about the last round."""
        if not self.points or self.points[-1].round != self.round:
            return f"round {self.round}: {self.stopped}"
        point = self.points[-1]
        parts = [f"round {point.round}"]
        for name, value in (("accuracy", point.accuracy), ("validation", point.validation)):
            if value is not None:
                parts.append(f"{name} {100 * value:.2f} %")
        return ", ".join(parts)

    def checkpoint(self, basis: str) -> Checkpoint:
        """Return where the run stands."""
        notes = {
            "round": self.round,
            "points": [asdict(point) for point in self.points],
            "bill": asdict(self.bill),
            "best_round": self.best_round,
            "bad_checks": self.bad_checks,
            "stopped": self.stopped,
            "met": sorted(self.met),
        }
        best = self.best if self.best_round != self.round else {}  # not twice in the file
        return Checkpoint(self.arrays, best, self.optimiser.state(), self.engine.state(), notes, basis)

    def restore(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint."""
        notes = saved.notes
        self.arrays = {name: saved.arrays[name] for name in self.arrays}
        self.round, self.points = notes["round"], [RoundPoint(**point) for point in notes["points"]]
        self.bill = Bill(**notes["bill"])
        self.best_round, self.bad_checks, self.stopped = notes["best_round"], notes["bad_checks"], notes["stopped"]
        self.met = set(notes["met"])
        self.best = saved.best if saved.best else dict(self.arrays)
        self.optimiser.restore(saved.optimiser)
        self.engine.restore(saved.engine)


def _basis(plan: TuningPlan, basis: str) -> str:
    """Return the digest of all that a run depends on but the number of its rounds."""
    numbers = {name: value for name, value in plan.to_dict().items() if name != "rounds"}
    return hashlib.sha256(json.dumps([numbers, basis], sort_keys=True).encode()).hexdigest()
