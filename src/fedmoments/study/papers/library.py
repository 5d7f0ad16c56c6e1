"""All tables and figures that can be reproduced: one TOML file each, below ``papers/``."""

from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from fedmoments.errors import UnknownNameError
from fedmoments.study.papers.experiment import Experiment, read_experiment

__all__ = ["PAPERS", "experiment", "experiments", "find"]

#: Papers by their short name, in the order of a listing.
PAPERS = {
    "fedncm": "Legate et al., Guiding the last layer in federated learning with pre-trained models, 2023",
    "fed3r": "Fanì et al., Accelerating heterogeneous federated learning with closed-form classifiers, 2024",
    "fedcof": "Goswami et al., Covariances for free: exploiting mean distributions for federated learning, 2025",
    "gh-ofl": "Turazza et al., The Gaussian-Head OFL family: one-shot federated learning from client statistics, 2026",
}


@cache
def experiments() -> tuple[Experiment, ...]:
    """Return all experiments, paper by paper.

    Examples
    --------
    >>> "fedcof/table3" in [each.name for each in experiments()]
    True
    """
    root = files(__package__).joinpath("papers")
    read = []
    for paper in PAPERS:
        texts = {path.name: path.read_text("utf-8") for path in root.joinpath(paper).iterdir()}
        names = sorted((name for name in texts if name.endswith(".toml")), key=_order)
        read += [read_experiment(f"{paper}/{name.removesuffix('.toml')}", texts[name]) for name in names]
    return tuple(read)


def experiment(name: str) -> Experiment:
    """Return an experiment by name.

    Examples
    --------
    >>> experiment("fedcof/table3").source
    'Table 3'
    """
    known = {one.name: one for one in experiments()}
    if name not in known:
        raise UnknownNameError("table or figure", name, list(known))
    return known[name]


def find(patterns: list[str]) -> tuple[Experiment, ...]:
    """Return experiments by names, patterns (``fedcof/*``), or ``free`` for all that need no data and ``all``.

    Examples
    --------
    >>> [each.name for each in find(["fedcof/table3"])]
    ['fedcof/table3']
    >>> all(each.is_free for each in find(["free"]))
    True
    """
    chosen: dict[str, Experiment] = {}
    for pattern in patterns:
        if pattern in ("all", "free"):
            some = [one for one in experiments() if pattern == "all" or one.is_free]
        else:
            some = [one for one in experiments() if fnmatchcase(one.name, pattern)] or [experiment(pattern)]
        chosen |= {one.name: one for one in some}
    return tuple(chosen.values())


def _order(name: str) -> tuple[int, list[str | int]]:
    """Return what sorts table2 before table10, and propositions and equations before tables before figures."""
    import re

    kinds = ("prop", "eq", "law", "table", "app", "figure")
    parts: list[str | int] = [f"{int(part):06d}" if part.isdigit() else part for part in re.split("([0-9]+)", name)]
    return next((place for place, kind in enumerate(kinds) if name.startswith(kind)), len(kinds)), parts
