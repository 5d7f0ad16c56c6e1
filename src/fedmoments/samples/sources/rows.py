"""From rows as they were found to a data set: class names, labels, a test part, and what had to be left out.

Every source collects `Rows` and hands them to `assemble`, so that all treat labels, problems and the test part alike.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.holdout import check_test_share, hold_out
from fedmoments.samples.natural_order import sorted_names
from fedmoments.samples.samples import Modality, Problem, Samples
from fedmoments.samples.splits.draws import Seed

__all__ = ["Problems", "Rows", "assemble"]

_ITEMS = {"image": "images", "text": "texts", "features": "feature vectors"}


class Problems:
    """Problems as they are found; in strict mode the first one stops everything.

    Examples
    --------
    >>> Problems(strict=True).add("row 3", "it has no label")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: row 3: it has no label. This run is strict: repair it, or leave strict out
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.entries: list[Problem] = []

    def add(self, where: str, why: str) -> None:
        """Note a problem, or raise it."""
        if self._strict:
            raise InputError(f"{where}: {why}. This run is strict: repair it, or leave strict out")
        self.entries.append(Problem(where, why))


@dataclass
class Rows:
    """Samples of one part with their labels as names, in the order in which they were found.

    Parameters
    ----------
    items, labels, sources
        n each; all different labels are the classes, unless they are given to `assemble`.
    domains, clients, groups
        n each, or empty.
    """

    items: Sequence[Any] | NDArray[Any] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)


def assemble(
    name: str,
    train: Rows,
    test: Rows | None,
    modality: Modality,
    problems: Problems,
    *,
    test_share: float,
    seed: Seed,
    class_names: Sequence[str] = (),
) -> DataSet:
    """Make a data set of rows.

    Parameters
    ----------
    name
        What was typed.
    train, test
        The parts; without a test part (None), one is held out of the training rows, stratified.
    modality
        What the items are.
    problems
        What was left out so far; gets classes without a training sample and test samples of unknown classes.
    test_share, seed
        For holding out.
    class_names
        The classes in their order; by default those of the training rows, in natural order.

    Examples
    --------
    >>> rows = Rows(["x"] * 4, ["b", "a", "b", "a"], ["1", "2", "3", "4"])
    >>> data = assemble("toy", rows, None, "text", Problems(strict=False), test_share=0.5, seed=0)
    >>> data.class_names, data.train.labels.tolist(), data.description
    (('a', 'b'), [1, 0], '4 texts in 2 classes: 2 to train on, 2 to test on (held out, stratified, seed 0).')
    """
    check_test_share(test_share)
    names = tuple(class_names) or tuple(sorted_names(train.labels))
    counts = Counter(train.labels)
    for empty in (label for label in names if not counts[label]):
        problems.add(f"class {empty}", "it has no sample to train on")
    first = _samples(train, names, modality, problems)
    if test is None:
        here, there = hold_out(first.labels, test_share, seed, groups=first.groups)
        parts = first.take(here), first.take(there)
        how = f" (held out, stratified{f', seed {seed}' if isinstance(seed, int) else ''})" if test_share else ""
    else:
        second = _of_other_groups(_samples(test, names, modality, problems), first, problems)
        parts, how = (first, second), " (as given)"
    said = (
        f"{len(parts[0]) + len(parts[1]):,} {_ITEMS[modality]} in {len(names):,} classes{_groups(train)}: "
        f"{len(parts[0]):,} to train on, {len(parts[1]):,} to test on{how}."
    )
    whole, rest = parts
    return DataSet(_with_problems(whole, problems.entries), _with_problems(rest, []), name, said)


def _samples(rows: Rows, names: tuple[str, ...], modality: Modality, problems: Problems) -> Samples:
    """Return rows with labels as numbers; a label that is not a class is a problem."""
    number = {name: i for i, name in enumerate(names)}
    unknown = set(rows.labels) - set(number)
    samples = Samples(
        rows.items,
        np.array([number.get(label, -1) for label in rows.labels], dtype=np.int64),
        names,
        modality,
        rows.sources,
        np.array(rows.domains) if rows.domains else None,
        np.array(rows.clients) if rows.clients else None,
        groups=np.array(rows.groups) if rows.groups else None,
    )
    if not unknown:
        return samples
    for i, label in enumerate(rows.labels):
        if label in unknown:
            problems.add(rows.sources[i], f"its class '{label}' is not one of the {len(names)} to train on")
    return samples.take(np.flatnonzero(samples.labels >= 0))


def _of_other_groups(test: Samples, train: Samples, problems: Problems) -> Samples:
    """Return the test samples without those of groups that are trained on: these would be tested on what is known."""
    if test.groups is None or train.groups is None:
        return test
    known = np.isin(test.groups, train.groups)
    for place in np.flatnonzero(known).tolist():
        problems.add(test.source(place), f"its group '{test.groups[place]}' has samples to train on")
    return test.take(np.flatnonzero(~known)) if known.any() else test


def _with_problems(part: Samples, problems: Sequence[Problem]) -> Samples:
    return Samples(
        part.items,
        part.labels,
        part.class_names,
        part.modality,
        part.sources,
        part.domains,
        part.clients,
        tuple(problems),
        part.groups,
    )


def _groups(rows: Rows) -> str:
    counts = [
        (len(set(rows.domains)), "domains"),
        (len(set(rows.clients)), "clients"),
        (len(set(rows.groups)), "groups"),
    ]
    return "".join(f", {count:,} {what}" for count, what in counts if count)
