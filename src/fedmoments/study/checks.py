"""What a study asks for, read and checked before any work is done.

What a study of tuning asks for, read and checked before any work is done.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from fedmoments.core.floats import check_precision
from fedmoments.core.gaussian import Shrinkage
from fedmoments.core.heads import head_names
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.sweep import read_protections
from fedmoments.samples import parse_split
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import RANDOM, TuningPlan
from fedmoments.settings.setting import SWEPT
from fedmoments.settings.study import StudySettings, TuningStudy
from fedmoments.study.baselines import Baseline
from fedmoments.study.simulation.methods import all_names, choose_methods, parse_projection
from fedmoments.study.simulation.rounds import Participation

__all__ = [
    "check_federations",
    "check_study",
    "check_tuning",
    "dimensions_of",
    "heads_of",
    "hyper_of",
    "is_file",
    "start_heads",
    "start_word",
    "sweeps_of",
]


def dimensions_of(settings: StudySettings) -> tuple[int | None, ...]:
    """Return the dimensions behind each projection; None for the features as they are.

    Examples
    --------
    >>> dimensions_of(StudySettings(projections=("full", "128"))), dimensions_of(StudySettings())
    ((None, 128), (None,))
    """
    return tuple(parse_projection(text) for text in settings.projections) or (None,)


def sweeps_of(settings: StudySettings) -> dict[str, Sequence[Any]]:
    """Return the values that a study sweeps.

    Examples
    --------
    >>> sweeps_of(StudySettings(clients=(10,), splits=("iid",)))["projections"]
    (None,)
    """
    lists = {part.several: getattr(settings, part.several) for part in SWEPT.values() if part.several}
    swept = {name: values for name, values in lists.items() if values}
    return {**swept, "projections": dimensions_of(settings), "protections": read_protections(settings.privacy)}


def check_study(settings: StudySettings) -> None:
    """Refuse what cannot be run, before any work is done.

    Examples
    --------
    >>> check_study(StudySettings(heads=("fedcov",)))
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown head 'fedcov': did you mean 'fedcof'? ...
    """
    if settings.names and settings.privacy:
        raise InputError("--names adds what no client measured, which no protection is simulated with: leave one out")
    check_precision(settings.precision)
    methods = choose_methods(all_names(settings.heads), settings.hyper)
    _check_rounds(settings, [name for name, method in methods.items() if isinstance(method, Baseline)])
    check_federations(settings)


#: Lists of a study -> what reads each of their values, or refuses it.
_READ_BY: Mapping[str, Callable[[str], object]] = {
    "projections": parse_projection,
    "splits": parse_split,
    "shrinkages": Shrinkage.parse,
    "budgets": SketchPlan,
    "participation": Participation.parse,
}


def check_federations(settings: StudySettings) -> None:
    """Refuse federations that cannot be: everything but heads."""
    read_protections(settings.privacy)
    for name, read in _READ_BY.items():
        for value in getattr(settings, name):
            read(value)
    for name in ("clients", "means_per_client"):
        few = min(getattr(settings, name), default=1)
        if few < 1:
            raise InputError(f"{name} must be 1 or more, not {few}")
    if settings.seeds < 1 or settings.seed < 0:
        raise InputError(f"seeds must be 1 or more and seed 0 or more, not {settings.seeds} and {settings.seed}")
    if not settings.splits or not settings.means_per_client:
        raise InputError("there is nothing to simulate: give at least one split and number of means")


def _check_rounds(settings: StudySettings, baselines: Sequence[str]) -> None:
    """Refuse rounds of participation of what is not fitted anew from whoever was seen."""
    if settings.participation and baselines:
        raise InputError(
            f"rounds of participation are for heads, which are fitted anew from whoever was seen; "
            f"{', '.join(baselines)} cannot take part: leave out the participation, or the baselines"
        )
    protections = read_protections(settings.privacy)
    if settings.participation and any(protection.acts_after_measuring for protection in protections):
        raise InputError(
            "rounds of participation are simulated in the clear: leave out the participation, or all of [privacy] "
            "but min_count"
        )


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
    _check_starts(study)
    _check_names(study)
    for optimiser in study.optimisers:
        OPTIMISERS.find(optimiser)
    _check_plans(study)


def _check_starts(study: TuningStudy) -> None:
    if not study.starts or not study.optimisers:
        raise InputError("there is nothing to tune: give at least one start and one optimiser")
    for start in study.starts:
        if is_file(start) and not Path(start).is_file():
            raise InputError(f"the start {start} is not a file")


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
            raise InputError(f"'{start}' is not a start: name the heads to start from one by one")
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
    pairs = list(product(study.starts, study.optimisers))
    runs = sorted({*study.starts, *study.optimisers, *("/".join(pair) for pair in pairs)})
    _require_known("number of a plan", study.plan, sorted(known))
    _require_known("start or optimiser of this job", study.runs, runs)
    for numbers in study.runs.values():
        _require_known("number of a plan", numbers, sorted(known - {"stage"}))
    for start, optimiser in pairs:
        study.plan_of(start, optimiser, study.seed)


def _require_known(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(what, name, known)
