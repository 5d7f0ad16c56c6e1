"""All tables and figures that can be reproduced: one TOML file each, below ``papers/``.

Whether a table or figure can be reproduced here: with these data, these encoders and what is installed.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.registry import encoders
from fedmoments.samples.reading import DEFAULTS
from fedmoments.study.papers.experiment import Experiment, read_experiment

__all__ = ["PAPERS", "experiment", "experiments", "find", "limits", "obstacle", "wanted"]


_WANTED = {
    "nothing": "yes",
    "features": "yes, on digits; others with --data",
    "domains": "with --data that name domains",
    "text": "with --data of sentences",
    "images": "yes, on digits; others with --data",
}
_MODALITIES = {"text": "text", "images": "image"}
_WORDS = {"text": "sentences", "image": "images", "audio": "sounds", "features": "features"}


def wanted(experiment: Experiment) -> str:
    """Return what data an experiment needs, before any are named.

    Examples
    --------
    >>> from fedmoments.study.papers import experiment
    >>> wanted(experiment("fedcof/table1")), wanted(experiment("fedcof/table3"))
    ('yes', 'yes, on digits; others with --data')
    """
    return _WANTED[experiment.needs]


def obstacle(experiment: Experiment, data: DataSet, names: Sequence[str | None] = (None,)) -> str | None:
    """Return why an experiment cannot run on some data, or None when it can.

    Parameters
    ----------
    experiment
        What is to be run.
    data
        On these, which are not encoded yet.
    names
        Behind these encoders; None is the one that the data's kind decides.
    """
    if experiment.is_free:
        return None
    kind = _MODALITIES.get(experiment.needs)
    if kind is not None and data.modality != kind:
        return f"it needs {_WORDS[kind]}, but {data.name} holds {_WORDS[data.modality]}"
    if len(data.class_names) < 2:
        return f"it needs two classes or more, but {data.name} has one"
    if experiment.needs == "domains" and data.train.domains is None:
        return f"it needs data that name the domain of a sample, but {data.name} names none"
    for name in names:
        if missing := _missing(name or DEFAULTS[data.modality]):
            return missing
    return None


def limits(experiment: Experiment, data: DataSet) -> str | None:
    """Return which splits of an experiment some data do not allow, or None when they allow all."""
    keys = {"domain": data.train.domains, "id": data.train.clients}
    splits = [str(split) for split in experiment.settings.get("splits", ())]
    lost = [split for split in splits if split in keys and keys[split] is None]
    return f"without the split {', '.join(lost)}" if lost and len(lost) < len(splits) else None


def _missing(encoder: str) -> str | None:
    """Return what an encoder lacks here; one that is in no registry is judged when it is loaded."""
    entry = encoders().get(encoder)
    if entry is None or encoder == "identity" or entry.installed:
        return None
    return f"the encoder {encoder} needs fedmoments[{entry.extra}]" if entry.extra else f"{encoder} is not installed"


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

    Names may be written as papers write them.

    Raises
    ------
    InputError
        When a name is that of a paper, or of tables of several papers.
    UnknownNameError
        When there is nothing of that name.

    Examples
    --------
    >>> [each.name for each in find(["fedcof/table3", "FedCOF Table 3", "GH-OFL Fig. 3"])]
    ['fedcof/table3', 'gh-ofl/figure3']
    >>> all(each.is_free for each in find(["free"]))
    True
    """
    chosen: dict[str, Experiment] = {}
    for pattern in patterns:
        if pattern in ("all", "free"):
            some = [one for one in experiments() if pattern == "all" or one.is_free]
        else:
            some = [one for one in experiments() if fnmatchcase(one.name, pattern)] or [_meant(pattern)]
        chosen |= {one.name: one for one in some}
    return tuple(chosen.values())


def _meant(name: str) -> Experiment:
    """Return the experiment that a name stands for, whatever its capitals, spaces and short forms."""
    typed = _letters(name)
    known = {_letters(one.name): one for one in experiments()}
    if typed in known:
        return known[typed]
    own = [one.name for one in experiments() if _letters(one.name.partition("/")[2]) == typed]
    if own:
        raise InputError(f"'{name}' is not of one paper alone: give {' or '.join(own)}")
    paper = next((folder for folder in PAPERS if _letters(folder) == typed), None)
    if paper is not None:
        raise InputError(
            f"'{name}' is a paper: '{paper}/*' runs all of its tables and figures, {paper}/table1 one; 'list' names all"
        )
    return experiment(name)


def _letters(name: str) -> str:
    """Return a name without capitals, spaces and signs, short forms written out.

    Examples
    --------
    >>> _letters("FedCOF Tab. 3"), _letters("fig. 5 left"), _letters("fedcof/figure5-left")
    ('fedcoftable3', 'figure5left', 'fedcoffigure5left')
    """
    import re

    plain = re.sub("[^a-z0-9]", "", name.lower())
    return re.sub("tab(?=[0-9])", "table", re.sub("fig(?=[0-9])", "figure", plain))


def _order(name: str) -> tuple[int, list[str | int]]:
    """Return what sorts table2 before table10, and propositions and equations before tables before figures."""
    import re

    kinds = ("prop", "eq", "law", "table", "app", "figure")
    parts: list[str | int] = [f"{int(part):06d}" if part.isdigit() else part for part in re.split("([0-9]+)", name)]
    return next((place for place, kind in enumerate(kinds) if name.startswith(kind)), len(kinds)), parts
