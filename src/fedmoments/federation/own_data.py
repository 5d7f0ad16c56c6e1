"""A party's own data under the classes of a federation: what it calls a class stays on its machine.

A party may have other names for the same classes (``[classes]`` in its settings) and classes that the federation does
not have, which it leaves out if its settings say so. Whatever is wrong with its data is told to the party in full; the
text of the error, which may reach a server, holds no name, path or value of them.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import table_of
from fedmoments.errors import (
    FixedPointOverflowError,
    InputError,
    MissingExtraError,
    OwnDataError,
    PolicyError,
    PrivacyError,
    in_full,
)
from fedmoments.federation.own_memory import remembered_data
from fedmoments.federation.terms import Terms
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.lakes.lake import LakeFiles
from fedmoments.samples.natural_order import sorted_names as natural_names
from fedmoments.samples.reading import read_data
from fedmoments.settings.client import ClientSettings
from fedmoments.tuning.engine import DivergedError

__all__ = [
    "OwnClasses",
    "accepted_terms",
    "alone_test",
    "label_table",
    "measuring",
    "own_classes",
    "read_own",
    "reading_own",
]

Ints = NDArray[np.int64]

#: The label of a class that the federation does not have.
UNKNOWN = -1
#: What a server is told of some errors in measuring.
_TOLD = {
    FixedPointOverflowError: "features are larger than the norm_bound of these terms allows: agree on a larger one, or "
    "clip features to it; this client's own record says by how much",
    DivergedError: "the parameters grew beyond all numbers in training: ask for a lower learning rate",
}
#: Names that a message lists.
SHOWN = 5


def read_own(settings: ClientSettings, terms: Terms, *, keep: bool = False) -> tuple[DataSet, Ints, dict[str, int]]:
    """Return a party's samples of the agreed classes, the agreed label of each own class, and what was left out.

    Parameters
    ----------
    settings
        The party's own.
    terms
        Of the federation: its classes, in the order of their labels, and its table if samples are rows of raw ones.
    keep
        Whether what is kept for tests for the first time is written down.

    Returns
    -------
    DataSet, NDArray[np.int64], dict
        The samples, labelled by own class; (own classes,) agreed labels; left-out class -> samples of it.

    Raises
    ------
    OwnDataError
        When the data cannot be read, or hold classes that the federation does not have and that are not to be ignored.
    """
    with reading_own():
        data = remembered_data(settings, keep=keep, table=table_of(terms.map_or_none))
    labels = label_table(data.class_names, terms.classes, settings.classes, ignore_unknown=settings.ignore_unknown)
    if (labels >= 0).all():
        return data, labels, {}
    train, test = (part.take(np.flatnonzero(labels[part.labels] >= 0)) for part in (data.train, data.test))
    counts = np.bincount(np.concatenate([data.train.labels, data.test.labels]), minlength=len(labels))
    unknown = {data.class_names[own]: int(counts[own]) for own in np.flatnonzero(labels < 0)}
    return DataSet(train, test, data.name, data.description), labels, unknown


@dataclass(frozen=True, eq=False)
class OwnClasses:
    """A party's classes, and what they are to a federation.

    Parameters
    ----------
    names, labels
        Own names, and the agreed label of each; −1 where samples are left out.
    unknown
        Left-out class -> samples of it.
    held_out
        Samples that are kept for tests; of files that are measured one by one, those in memory are.
    """

    names: tuple[str, ...]
    labels: Ints
    unknown: dict[str, int]
    held_out: int


def own_classes(settings: ClientSettings, terms: Terms) -> OwnClasses:
    """Return what :func:`read_own` finds of classes; of files that are measured one by one only labels are read."""
    if not settings.by_file:
        data, labels, unknown = read_own(settings, terms)
        return OwnClasses(data.class_names, labels, unknown, len(data.test))
    with reading_own():
        lake = LakeFiles(settings)
        names, counts = tuple(natural_names(list(lake.classes))), lake.classes
        test = 0 if settings.test is None else len(read_data(alone_test(settings)).train)
    labels = label_table(names, terms.classes, settings.classes, ignore_unknown=settings.ignore_unknown)
    unknown = {name: counts[name] for name, label in zip(names, labels, strict=True) if label < 0}
    return OwnClasses(names, labels, unknown, test)


def alone_test(settings: ClientSettings) -> ClientSettings:
    """Return the settings of a party whose data are the file that it tests on, in memory."""
    kind, colon, _ = settings.data.partition(":")
    text = str(settings.test)
    place = f"{kind}:{text}" if colon and ":" not in text else text
    return replace(
        settings, data=place, test=None, folder="", memory="", test_share=0.0, workers=None, cluster=None
    )  # fmt: skip


def accepted_terms(settings: ClientSettings, terms: Terms) -> Terms:
    """Return the terms that a party accepted of those that a server sent: classes may have been added since.

    What is made under former terms stays valid, so a party that did not accept a class takes part without it. One
    that is bound to no federation takes what it is sent.

    Raises
    ------
    PolicyError
        When the party accepted an amendment that is not among them.
    """
    if not settings.federation or not settings.accepted:
        return terms.stages[0] if settings.federation else terms
    for stage in terms.stages:
        if stage.digest == settings.accepted:
            return stage
    raise PolicyError(
        f"this client accepted the amended terms {settings.accepted[:16]}… of '{terms.name}', but the server sent "
        f"{terms.digest[:16]}…, which do not follow from them: was an older ledger restored? Let it be amended again"
    )


@contextmanager
def reading_own() -> Iterator[None]:
    """Turn what is wrong with data, which may name files and values, into an error that tells it to their owner only.

    Examples
    --------
    >>> try:
    ...     with reading_own():
    ...         raise InputError("/home/ann/patients.csv has no column 'label'")
    ... except OwnDataError as error:
    ...     print(error)
    this client cannot read its data; its own record says why
    """
    try:
        yield
    except OwnDataError:
        raise
    except (InputError, OSError, ValueError) as error:
        raise OwnDataError("this client cannot read its data; its own record says why", str(error)) from error


def label_table(
    mine: Sequence[str],
    agreed: Sequence[str],
    aliases: Mapping[str, str] | None = None,
    *,
    ignore_unknown: bool = False,
) -> Ints:
    """Return the agreed label of every own class; −1 of those that the federation does not have and are ignored.

    Parameters
    ----------
    mine, agreed
        Own names, and the federation's in the order of their labels.
    aliases
        Own name -> the federation's.
    ignore_unknown
        Whether classes that the federation does not have are left out.

    Examples
    --------
    >>> label_table(["dog", "kitten"], ["cat", "cow", "dog"], {"kitten": "cat"})
    array([2, 0])
    >>> label_table(["dog", "yak"], ["cat", "cow", "dog"], ignore_unknown=True)
    array([ 2, -1])
    """
    aliases = aliases or {}
    places = {name: label for label, name in enumerate(agreed)}
    strange = sorted(set(aliases.values()) - places.keys())
    if strange:
        raise OwnDataError(
            "this client's settings rename classes to some that the federation does not have",
            f"[classes] leads to {_listed(strange)}, but the federation's classes are {_listed(agreed, 10)}",
        )
    labels = [places.get(aliases.get(name, name), UNKNOWN) for name in mine]
    unknown = [name for name, label in zip(mine, labels, strict=True) if label == UNKNOWN]
    if unknown and not ignore_unknown:
        raise OwnDataError(
            "this client's data hold classes that the federation does not have; its own record names them",
            f"{_listed(unknown)}. The federation's classes are {_listed(agreed, 10)}. "
            f"{_suggested(unknown, agreed)}Leave them out with --ignore-unknown, or ask the server to amend its terms",
        )
    return np.array(labels, np.int64)


def _suggested(unknown: Sequence[str], agreed: Sequence[str]) -> str:
    """Return how to name the first unknown class that looks like an agreed one."""
    for name in unknown:
        close = difflib.get_close_matches(name, agreed, n=1) or [known for known in agreed if name and name in known]
        if close:
            return f"If '{name}' is '{close[0]}': --alias '{name}={close[0]}'. "
    return "Name them as the federation does with --alias OWN=AGREED. "


def _listed(names: Sequence[str], most: int = SHOWN) -> str:
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


@contextmanager
def measuring() -> Iterator[None]:
    """Keep what an error says of measured numbers on this machine: terms can be drawn up so that measuring fails.

    Examples
    --------
    >>> try:
    ...     with measuring():
    ...         raise InputError("the sum of class 3 is 17.25, more than 1e-9 allows")
    ... except OwnDataError as error:
    ...     print(error)
    what this client measured does not fit these terms; its own record says why
    """
    try:
        yield
    except (PolicyError, PrivacyError, OwnDataError, MissingExtraError):
        raise
    except Exception as error:  # whatever it is that a request makes of somebody's sample
        told = (sentence for kind, sentence in _TOLD.items() if isinstance(error, kind))
        sentence = next(told, "what this client measured does not fit these terms; its own record says why")
        raise OwnDataError(sentence, in_full(error)) from error
