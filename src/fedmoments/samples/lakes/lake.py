"""A lake as a person names it: which files it is, and which of their columns are what."""

from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fedmoments.core.columns import Columns
from fedmoments.errors import InputError
from fedmoments.samples.lakes.reading import (
    ENDINGS,
    files_of,
    labels_of,
    lake_columns,
    lake_names,
    table_batches,
    tables_in,
)
from fedmoments.samples.sources.columns import guess_column, label_name
from fedmoments.settings.samples import SampleSource

__all__ = ["LakeFiles", "lake_of"]

PREFIXES = ("parquet:", "arrow:", "csv:")


def lake_of(text: str) -> str | None:
    """Return the path of tables that a text names, or None where it names a features file or samples.

    Examples
    --------
    >>> lake_of("parquet:lake/"), lake_of("part.parquet"), lake_of("features.npz")
    ('lake/', 'part.parquet', None)
    """
    for prefix in PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    path = Path(text).expanduser()
    if path.is_dir():  # one without tables holds samples
        return text if tables_in(path) else None
    return text if path.suffix.lower() in set(ENDINGS) - {".npz"} else None


class LakeFiles:
    r"""The files of a lake, and which of their columns are what; only names of columns are read until more is asked.

    Parameters
    ----------
    source
        As typed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("x,site,class\n1,5,cat\n2,5,dog\n3,5,cat\n")
    ...     lake = LakeFiles(SampleSource(folder, client="site"))
    ...     lake.columns.features, lake.label, lake.classes, lake.dim
    (('x',), 'class', Counter({'cat': 2, 'dog': 1}), 1)
    """

    def __init__(self, source: SampleSource) -> None:
        place = lake_of(source.data)
        if place is None:
            raise InputError(
                f"files are measured one by one (--workers, --cluster) where they are tables, {', '.join(PREFIXES)} or "
                f"a folder of them, but the data are '{source.data}'"
            )
        self.files = files_of(place)
        self._source = source

    @cached_property
    def label(self) -> str:
        """The column of labels: as given, or as its name says."""
        return self._source.label or guess_column("label", lake_names(self.files)) or "label"

    @cached_property
    def columns(self) -> Columns:
        """The columns of labels and of features that are numbers; none that says whose a row is."""
        given = self._source.features
        wanted = None if given is None else tuple(name.strip() for name in given.split(","))
        columns = lake_columns(self.files, Columns(self.label, features=wanted))
        if wanted is not None or columns.features is None:
            return columns
        others = (self._source.client, self._source.domain, self._source.group)
        return replace(columns, features=tuple(name for name in columns.features if name not in others))

    @cached_property
    def classes(self) -> Counter[str]:
        """Name of each class -> rows of it; columns of labels are read."""
        counts = Counter[str]()
        for path in self.files:
            for value, n in labels_of(path, self.label).items():
                counts[label_name(value)] += n
        if "" in counts:
            raise InputError(f"{counts['']:,} rows have no label in the column '{self.label}': repair or remove them")
        return counts

    @cached_property
    def dim(self) -> int:
        """Numbers of a row, from the first one."""
        for path in self.files:
            for X, _ in table_batches(path, self.columns):
                if len(X):
                    return int(np.asarray(X).shape[1])
        raise InputError(f"no file of {self._source.data} has a row")
