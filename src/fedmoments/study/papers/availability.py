"""Whether a table or figure can be reproduced here: with these data, these encoders and what is installed."""

from collections.abc import Sequence

from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.registry import encoders
from fedmoments.samples.reading import DEFAULTS
from fedmoments.study.papers.experiment import Experiment

__all__ = ["limits", "obstacle", "wanted"]

_WANTED = {
    "nothing": "yes",
    "features": "yes, on digits; others with --data",
    "domains": "with --data that name domains",
    "text": "with --data of sentences",
    "images": "yes, on digits; others with --data",
}
_MODALITIES = {"text": "text", "images": "image"}
_WORDS = {"text": "sentences", "image": "images", "features": "features"}


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
