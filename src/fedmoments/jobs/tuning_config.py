"""What a job of tuning is told: data and federation as any job, and what is tuned from where."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.heads import head_names
from fedmoments.jobs.config import JobConfig
from fedmoments.simulation.methods import all_names, choose_heads
from fedmoments.tuning import OPTIMISERS, TuningPlan

__all__ = ["RANDOM", "TuningConfig", "is_file", "start_word"]

#: The start that is no head.
RANDOM = "random"
_OWN = ("seed", "optimiser")  # fields of a plan that the job sets itself


def start_word(start: str) -> str:
    """Return what a start is called in names of files.

    Examples
    --------
    >>> start_word("heads/my head.safetensors"), start_word("fedcof")
    ('my-head', 'fedcof')
    """
    return re.sub("[^A-Za-z0-9_-]+", "-", Path(start).stem if is_file(start) else start)


def is_file(start: str) -> bool:
    """Say whether a start is the file of a classifier: neither ``random`` nor a head, and there, or named as one.

    Examples
    --------
    >>> is_file("heads/mine.safetensors"), is_file("fedcof"), is_file("fedcov")
    (True, False, False)
    """
    if start == RANDOM or start in head_names():
        return False
    return start.endswith(".safetensors") or Path(start).is_file()


@dataclass(frozen=True)
class TuningConfig(JobConfig):
    """All settings of a job of tuning.

    Every combination of start, optimiser and seed is one run. Data, encoder, clients, split, seeds and the
    hyper-parameters of heads are those of :class:`~fedmoments.jobs.config.JobConfig`; there is one number of clients
    and one split.

    Parameters
    ----------
    heads
        One-shot heads that curves are compared with, besides those that are starts.
    starts
        ``random``, names of heads, files of classifiers.
    optimisers
        Names.
    plan
        Fields of :class:`~fedmoments.tuning.TuningPlan`, for all runs.
    runs
        Fields of a plan for some runs, by ``START``, ``OPTIMISER`` or ``START/OPTIMISER``; the narrowest wins.
    refit
        Heads that are fitted anew in closed form after ``ft`` and ``feat``, from the tuned encoder's features.
    encoder_flops
        FLOPs of the encoder for one sample, where they cannot be counted (features that are given).

    Examples
    --------
    >>> config = TuningConfig(data="digits", plan={"rounds": 5}, runs={"random": {"lr": 1.0}})
    >>> config.plan_of("random", "fedavg", seed=3).lr, config.plan_of("fedcof", "fedavg", seed=3).lr
    (1.0, 0.01)
    """

    heads: tuple[str, ...] = ()
    starts: tuple[str, ...] = (RANDOM, "fedncm", "fed3r", "fedcof")
    optimisers: tuple[str, ...] = ("fedavg",)
    plan: Mapping[str, Any] = field(default_factory=dict)
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    refit: tuple[str, ...] = ("fed3r",)
    encoder_flops: float | None = None
    seeds: int = 3

    @property
    def start_heads(self) -> tuple[str, ...]:
        """Names of heads that are starts."""
        return tuple(name for name in self.starts if name != RANDOM and not is_file(name))

    @property
    def stage(self) -> str:
        """What is trained: one stage a job."""
        return str(self.plan.get("stage", TuningPlan.stage))

    def hyper_of(self, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the hyper-parameters of some heads."""
        return {name: self.hyper[name] for name in names if name in self.hyper}

    def plan_of(self, start: str, optimiser: str, seed: int) -> TuningPlan:
        """Return the plan of one run."""
        numbers = dict(self.plan)
        for key in (optimiser, start, f"{start}/{optimiser}"):
            numbers |= self.runs.get(key, {})
        return TuningPlan(**{**numbers, "optimiser": optimiser, "seed": seed})

    def check(self) -> None:
        """Refuse what cannot be run, before any work is done."""
        super().check()
        if len(self.clients) > 1 or len(self.splits) != 1:
            raise InputError(
                f"tuning runs one number of clients and one split at a time, but {list(self.clients)} and "
                f"{list(self.splits)} arrived"
            )
        for name in ("shrinkages", "projections", "budgets", "budget_curve", "participation", "privacy"):
            if getattr(self, name):
                raise InputError(f"{name} is for 'simulate': tuning has none")
        if not self.starts or not self.optimisers:
            raise InputError("there is nothing to tune: give at least one start and one optimiser")
        for start in self.starts:
            if is_file(start) and not Path(start).is_file():
                raise InputError(f"the start {start} is no file")
        self._check_names()
        for optimiser in self.optimisers:
            if optimiser not in OPTIMISERS:
                raise UnknownNameError("optimiser", optimiser, OPTIMISERS)
        self._check_plans()

    def _check_names(self) -> None:
        """Refuse runs that could not be told apart, and words that stand for several heads."""
        words: dict[str, str] = {}
        for start in self.starts:
            if all_names([start]) != (start,):
                raise InputError(f"'{start}' is no start: name the heads to start from one by one")
            word = start_word(start)
            if word in words:
                raise InputError(
                    f"the starts '{words[word]}' and '{start}' would write the same files: give one of them, or rename"
                )
            words[word] = start
        if len(set(self.optimisers)) < len(self.optimisers):
            raise InputError(f"every optimiser is run once, but {', '.join(self.optimisers)} arrived")

    def _check_heads(self) -> None:
        for start in self.start_heads:
            if start not in head_names() and all_names([start]) == (start,):
                raise UnknownNameError("start (random, a head, or the file of a classifier)", start, head_names())
        named = (*self.start_heads, *self.heads, *self.refit)
        if named or self.hyper:
            choose_heads(all_names(named), self.hyper)

    def _check_plans(self) -> None:
        known = {each.name for each in fields(TuningPlan)} - set(_OWN)
        places = {*self.starts, *self.optimisers, *(f"{s}/{o}" for s in self.starts for o in self.optimisers)}
        for place, numbers in {"": self.plan, **self.runs}.items():
            if place and place not in places:
                raise UnknownNameError("start or optimiser of this job", place, sorted(places))
            for name in numbers:
                if name not in known or (place and name == "stage"):
                    raise UnknownNameError("number of a plan", name, sorted(known - ({"stage"} if place else set())))
        for start in self.starts:
            for optimiser in self.optimisers:
                self.plan_of(start, optimiser, self.seed)

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of all one-shot heads of the job; ``all`` stands for those that share one upload."""
        return all_names((*self.start_heads, *self.heads))
