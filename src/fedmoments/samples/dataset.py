"""A data set: labelled samples to train on and to test on, with a digest that says which data they were."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmoments.core.maps import TableMap
from fedmoments.errors import InputError
from fedmoments.samples.digests import sample_digests
from fedmoments.samples.samples import Modality, Problem, Samples

__all__ = ["DataSet"]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples in two parts, under the same class names.

    Parameters
    ----------
    train, test
        The parts; the test part may be empty.
    name
        What a person typed to get it.
    description
        One sentence for people.
    table
        What codes the cells of a raw table, and stands first among the maps of its features; None of other data.

    Examples
    --------
    >>> part = Samples(["a", "b"], np.array([0, 1]), ("first", "second"), "text")
    >>> data = DataSet(part, part.take(np.array([0])), "toy", "Two letters.")
    >>> len(data.train), len(data.test), data.class_names
    (2, 1, ('first', 'second'))
    """

    train: Samples
    test: Samples
    name: str
    description: str
    table: TableMap | None = None

    def __post_init__(self) -> None:
        if self.train.class_names != self.test.class_names or self.train.modality != self.test.modality:
            raise InputError(f"the two parts of the data set {self.name} differ in their classes or in what items are")

    @property
    def class_names(self) -> tuple[str, ...]:
        """C names, in the order of the labels."""
        return self.train.class_names

    @property
    def modality(self) -> Modality:
        """What the items are."""
        return self.train.modality

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was left out of either part."""
        return self.train.problems + self.test.problems

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data, 64 hexadecimal digits: class names, then for each part its size, digests and labels.

        Reads every file that this process has not read yet: after encoding it costs nothing.
        """
        sha = hashlib.sha256(b"fedmoments data set 1\n")
        sha.update("\n".join(name.replace("\\", "\\\\").replace("\n", "\\n") for name in self.class_names).encode())
        for part in (self.train, self.test):
            sha.update(f"\n{len(part)}\n".encode())
            sha.update(sample_digests(part).tobytes())
            sha.update(np.asarray(part.labels, dtype="<i8").tobytes())
        return sha.hexdigest()
