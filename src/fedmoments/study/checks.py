"""What a study asks for, read and checked before any work is done."""

from collections.abc import Sequence

from fedmoments.core.gaussian import Shrinkage
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError
from fedmoments.privacy.sweep import read_protections
from fedmoments.samples import parse_split
from fedmoments.settings.study import StudySettings
from fedmoments.study.baselines import Baseline
from fedmoments.study.simulation.methods import all_names, choose_methods
from fedmoments.study.simulation.points import Sweeps
from fedmoments.study.simulation.projection import parse_projection
from fedmoments.study.simulation.rounds import Participation

__all__ = ["check_federations", "check_study", "dimensions_of", "sweeps_of"]


def dimensions_of(settings: StudySettings) -> tuple[int | None, ...]:
    """Return the dimensions behind each projection; None for the features as they are.

    Examples
    --------
    >>> dimensions_of(StudySettings(projections=("full", "128"))), dimensions_of(StudySettings())
    ((None, 128), (None,))
    """
    return tuple(parse_projection(text) for text in settings.projections) or (None,)


def sweeps_of(settings: StudySettings) -> Sweeps:
    """Return the values that a study sweeps.

    Examples
    --------
    >>> sweeps_of(StudySettings(clients=(10,), splits=("iid",)))["projections"]
    (None,)
    """
    return {
        "clients": settings.clients,
        "splits": settings.splits,
        "means_per_client": settings.means_per_client,
        "shrinkages": settings.shrinkages or (None,),
        "projections": dimensions_of(settings),
        "protections": read_protections(settings.privacy),
        "budgets": settings.budgets,
    }


def check_study(settings: StudySettings) -> None:
    """Refuse what cannot be run, before any work is done.

    Examples
    --------
    >>> check_study(StudySettings(heads=("fedcov",)))
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown head 'fedcov': did you mean 'fedcof'? ...
    """
    methods = choose_methods(all_names(settings.heads), settings.hyper)
    _check_rounds(settings, [name for name, method in methods.items() if isinstance(method, Baseline)])
    check_federations(settings)


def check_federations(settings: StudySettings) -> None:
    """Refuse federations that cannot be: everything but heads."""
    dimensions_of(settings)
    read_protections(settings.privacy)
    for scheme in settings.splits:
        parse_split(scheme)
    for shrinkage in settings.shrinkages:
        Shrinkage.parse(shrinkage)
    for budget in settings.budgets:
        SketchPlan(budget)
    for participation in settings.participation:
        Participation.parse(participation)
    for name in ("clients", "means_per_client"):
        for number in getattr(settings, name):
            if number < 1:
                raise InputError(f"{name} must be 1 or more, not {number}")
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
