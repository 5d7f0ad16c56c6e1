"""Reading one file of a party's lake as the federation sees it: float32 features, agreed labels, in the file's order.

A row without finite features, or of a class that the federation does not have and the party leaves out, is passed over
whenever the file is read. So the n-th row of a file is the same one in every pass.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.columns import Columns
from fedmoments.core.maps import FeatureMap
from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.lakes.reading import table_batches
from fedmoments.samples.reading import choose_encoder, read_data
from fedmoments.samples.sources.columns import label_name
from fedmoments.settings.samples import Encoding, SampleSource

__all__ = ["FileReader", "FileRows"]


@dataclass(frozen=True, eq=False)
class FileRows:
    """Some rows of a file.

    Parameters
    ----------
    X, y
        (m, d) float32 and (m,) agreed labels.
    unreadable
        Names of the rows that were passed over since the rows before, because they cannot be read.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileReader:
    """How a file of the lake is read, wherever that is done.

    Parameters
    ----------
    columns
        Which columns are labels and features, where features are columns of numbers.
    labels
        Own name of a class -> its agreed label, −1 where its samples are left out.
    dim
        Dimension of the features.
    source, encoding
        How files are read whose samples are texts or images, and what makes features of these; None: columns of
        numbers.
    feature_map
        Behind which features are measured.
    """

    columns: Columns
    labels: Mapping[str, int]
    dim: int
    source: SampleSource | None = None
    encoding: Encoding = field(default_factory=Encoding)
    feature_map: FeatureMap | None = None

    def rows(self, path: str) -> Iterator[FileRows]:
        """Yield the rows of a file, before the feature map."""
        try:
            yield from self._numbers(Path(path)) if self.source is None else self._encoded(path, self.source)
        except InputError as error:
            raise type(error)(f"{path}: {error}") from error

    def mapped(self, X: NDArray[np.float32]) -> NDArray[Any]:
        """Return rows behind the feature map."""
        return self.feature_map(X) if self.feature_map else X

    def _numbers(self, path: Path) -> Iterator[FileRows]:
        first = 1
        for values, labels in table_batches(path, self.columns):
            X = np.asarray(values, np.float32)
            if X.ndim != 2 or X.shape[1] != self.dim:
                raise InputError(f"its rows have {X.shape[1:]} numbers, but the federation measures {self.dim}")
            y, finite = self._agreed(labels), np.isfinite(X).all(axis=1)
            bad = tuple(f"{path.name} row {first + place}" for place in np.flatnonzero(~finite & (y >= 0)).tolist())
            good = finite & (y >= 0)
            yield FileRows(X, y, bad) if good.all() else FileRows(X[good], y[good], bad)
            first += len(labels)

    def _encoded(self, path: str, source: SampleSource) -> Iterator[FileRows]:
        kind = source.data.partition(":")[0] if ":" in source.data else Path(path).suffix[1:]
        samples = read_data(replace(source, data=f"{kind}:{path}", test=None, test_share=0.0))
        encoder, cache = _loaded(self.encoding, samples.modality), self.encoding.cache
        part, own = samples.train, np.array([self.labels[name] for name in samples.class_names], np.int64)
        if not len(part):
            return
        done = encode_samples(encoder, part, cache_dir=cache, readers=self.encoding.readers, strict=source.strict)
        y = own[done.labels]
        lost = np.setdiff1d(np.arange(len(part)), done.kept).tolist()
        yield FileRows(done.features[y >= 0], y[y >= 0], tuple(part.source(place) for place in lost))

    def _agreed(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        values, places = np.unique(labels, return_inverse=True)
        return np.array([self.labels[label_name(value)] for value in values.tolist()], np.int64)[places]


@lru_cache(maxsize=1)
def _loaded(encoding: Encoding, modality: str) -> Encoder:
    """Return an encoder; a process loads it once."""
    return choose_encoder(encoding, modality)
