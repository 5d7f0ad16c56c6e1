"""What a study of tuning asks for, read and checked before any work is done."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmoments.core.heads import head_names
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import RANDOM, TuningPlan
from fedmoments.settings.study import TuningStudy
from fedmoments.study.checks import check_federations
from fedmoments.study.simulation.methods import all_names

__all__ = ["check_tuning", "heads_of", "hyper_of", "is_file", "start_heads", "start_word"]

_OWN = ("seed", "optimiser")  # fields of a plan that the study sets itself


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


def start_heads(study: TuningStudy) -> tuple[str, ...]:
    """Return the names of heads that are starts."""
    return tuple(name for name in study.starts if name != RANDOM and not is_file(name))


def heads_of(study: TuningStudy) -> tuple[str, ...]:
    """Return the names of all one-shot heads of a study; ``all`` stands for those that share one upload.

    Examples
    --------
    >>> heads_of(TuningStudy(starts=("random", "fedcof"), heads=("gh-lda",)))
    ('fedcof', 'gh-lda')
    """
    return all_names((*start_heads(study), *study.heads))


def hyper_of(study: TuningStudy, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the hyper-parameters of some heads."""
    return {name: study.hyper[name] for name in names if name in study.hyper}


def check_tuning(study: TuningStudy) -> None:
    """Refuse what cannot be run, before any work is done.

    Examples
    --------
    >>> check_tuning(TuningStudy(starts=("fedcov",)))
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown start (random, a head, or the file of a classifier) 'fedcov': ...
    """
    _check_heads(study)
    check_federations(study)
    if len(study.clients) > 1 or len(study.splits) != 1:
        raise InputError(
            f"tuning runs one number of clients and one split at a time, but {list(study.clients)} and "
            f"{list(study.splits)} arrived"
        )
    for name in ("shrinkages", "projections", "budgets", "budget_curve", "participation", "privacy"):
        if getattr(study, name):
            raise InputError(f"{name} is for 'simulate': tuning has none")
    if not study.starts or not study.optimisers:
        raise InputError("there is nothing to tune: give at least one start and one optimiser")
    for start in study.starts:
        if is_file(start) and not Path(start).is_file():
            raise InputError(f"the start {start} is no file")
    _check_names(study)
    for optimiser in study.optimisers:
        OPTIMISERS.find(optimiser)
    _check_plans(study)


def _check_heads(study: TuningStudy) -> None:
    starts = start_heads(study)
    for start in starts:
        if start not in head_names() and all_names([start]) == (start,):
            raise UnknownNameError("start (random, a head, or the file of a classifier)", start, head_names())
    named = (*starts, *study.heads, *study.refit)
    if named or study.hyper:
        choose_heads(all_names(named), study.hyper)


def _check_names(study: TuningStudy) -> None:
    """Refuse runs that could not be told apart, and words that stand for several heads."""
    starts: dict[str, str] = {}
    for start in study.starts:
        if all_names([start]) != (start,):
            raise InputError(f"'{start}' is no start: name the heads to start from one by one")
        word = start_word(start)
        if word in starts:
            raise InputError(
                f"the starts '{starts[word]}' and '{start}' would write the same files: give one of them, or rename"
            )
        starts[word] = start
    if len(set(study.optimisers)) < len(study.optimisers):
        raise InputError(f"every optimiser is run once, but {', '.join(study.optimisers)} arrived")


def _check_plans(study: TuningStudy) -> None:
    known = {declared.name for declared in fields(TuningPlan)} - set(_OWN)
    runs = {*study.starts, *study.optimisers, *(f"{s}/{o}" for s in study.starts for o in study.optimisers)}
    for run, numbers in {"": study.plan, **study.runs}.items():
        if run and run not in runs:
            raise UnknownNameError("start or optimiser of this job", run, sorted(runs))
        for name in numbers:
            if name not in known or (run and name == "stage"):
                raise UnknownNameError("number of a plan", name, sorted(known - ({"stage"} if run else set())))
    for start in study.starts:
        for optimiser in study.optimisers:
            study.plan_of(start, optimiser, study.seed)
