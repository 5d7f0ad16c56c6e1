"""From rows as they were found to a data set: class names, labels, a test part, and what had to be left out.

Every source collects `Rows` and hands them to `assemble`, so that all treat labels, problems and the test part alike.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.natural_order import sorted_names
from fedmoments.samples.samples import Modality, Problem, Samples
from fedmoments.samples.splits.draws import Seed, generator, shuffle

__all__ = ["Problems", "Rows", "assemble", "check_test_share", "hold_out"]


def check_test_share(value: object) -> float:
    """Return a share of at least 0 and below 1.

    Examples
    --------
    >>> check_test_share(1.5)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: test_share must be a number of at least 0 and below 1, but is 1.5
    """
    if not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) < 1:
        return float(value)
    raise InputError(f"test_share must be a number of at least 0 and below 1, but is {value!r}")


def hold_out(
    labels: NDArray[np.int64], test_share: float = 0.2, seed: Seed = 0, *, groups: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the test samples, class by class.

    Shares are rounded by largest remainders, so that the test part has round(test_share · n) samples, unless a class is
    so small that its share is: a class of two samples or more has at least one in each part, a class of one trains.

    Parameters
    ----------
    labels
        (n,) classes from 0.
    test_share
        At least 0, below 1; 0 holds out nothing.
    seed
        A whole number, or a generator (which is advanced).
    groups
        (n,) what must stay together, such as patients. In random order, a group joins the test part if that brings its
        counts of classes nearer to the shares asked for, and leaves every class a sample to train on.

    Returns
    -------
    train, test
        Indices, ascending.

    Examples
    --------
    >>> train, test = hold_out(np.array([0, 0, 0, 0, 0, 1, 1, 2]), 0.2, seed=0)
    >>> np.array([0, 0, 0, 0, 0, 1, 1, 2])[test].tolist()
    [0, 1]
    """
    share = check_test_share(test_share)
    if groups is not None:
        return _whole_groups(labels, groups, share, seed)
    n = len(labels)
    sizes = np.bincount(labels) if n else np.zeros(0, np.int64)
    quotas = share * sizes
    counts = np.floor(quotas).astype(np.int64)
    extra = math.floor(share * n + 0.5) - int(counts.sum())
    counts[np.argsort(counts - quotas, kind="stable")[: max(extra, 0)]] += 1
    if share:
        counts = np.clip(counts, np.minimum(1, np.maximum(sizes - 1, 0)), np.maximum(sizes - 1, 0))

    order = shuffle(generator(seed), n)
    by_class = order[np.argsort(labels[order], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(n) - np.repeat(starts, sizes)
    chosen = rank < np.repeat(counts, sizes)
    return np.sort(by_class[~chosen]), np.sort(by_class[chosen])


def _whole_groups(
    labels: NDArray[np.int64], groups: NDArray[Any], share: float, seed: Seed
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return training and test samples with every group in one of the parts."""
    _, codes = np.unique(groups, return_inverse=True)
    n_groups = int(codes.max(initial=-1)) + 1
    cells = np.zeros((n_groups, int(labels.max(initial=-1)) + 1))
    np.add.at(cells, (codes, labels), 1)
    sizes = cells.sum(axis=0)
    wanted, held = share * sizes, np.zeros_like(sizes)
    test = np.zeros(n_groups, bool)
    order = shuffle(generator(seed), n_groups)
    for group in order if share else order[:0]:
        more = held + cells[group]
        if (more < sizes)[cells[group] > 0].all() and _away(more, wanted) < _away(held, wanted):
            held, test[group] = more, True
    if share and not test.any():  # groups are larger than the share: the one that is nearest to it
        fit = [group for group in order if (cells[group] < sizes)[cells[group] > 0].all()]
        test[min(fit, key=lambda group: _away(cells[group], wanted), default=order[:0])] = True
    return np.flatnonzero(~test[codes]), np.flatnonzero(test[codes])


def _away(counts: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    return float(((counts - wanted) ** 2).sum())


_ITEMS = {"image": "images", "text": "texts", "audio": "sounds", "features": "feature vectors"}


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
