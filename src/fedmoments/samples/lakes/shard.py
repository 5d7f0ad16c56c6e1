"""Measuring one file: what a worker does. It gets a path and a plan, and gives the bytes of an accumulator."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedmoments.core.arrays import is_text, label_numbers
from fedmoments.core.columns import Columns
from fedmoments.core.floats import current_precision, precision
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import Accumulator, FixedPoint, StatisticsSpec
from fedmoments.core.statistics.checks import check_shape
from fedmoments.core.targets import joint
from fedmoments.errors import InputError
from fedmoments.samples.lakes.reading import table_batches

__all__ = ["FilesPlan", "joined", "measure_shard"]


@dataclass(frozen=True)
class FilesPlan:
    """What is measured of every file.

    Parameters
    ----------
    spec, n_classes, seed, fixed_point, client
        As of :class:`fedmoments.Accumulator`.
    class_names
        In the order that all parties agree on; empty where labels are numbers.
    columns
        Which columns are what.
    encoder
        One of ours by name, or a function that can be pickled: makes features of the samples. None: columns are
        features.
    feature_map
        Applied to features.
    precision
        In which numbers large products are computed: here's, by default.
    """

    spec: StatisticsSpec
    n_classes: int
    columns: Columns = field(default_factory=Columns)
    class_names: tuple[str, ...] = ()
    encoder: Any = None
    feature_map: FeatureMap | None = None
    seed: int = 0
    fixed_point: FixedPoint | None = None
    client: str | None = None
    precision: str = field(default_factory=current_precision)

    def described(self) -> dict[str, Any]:
        """Return all that decides about the sums, as JSON-able words."""
        return {
            "spec": repr(self.spec), "n_classes": self.n_classes, "classes": list(self.class_names),
            "columns": repr(self.columns), "encoder": str(self.encoder), "map": str(self.feature_map),
            "seed": self.seed, "form": repr(self.fixed_point), "client": self.client,
            "precision": self.precision,
        }  # fmt: skip


def measure_shard(path: str, plan: FilesPlan) -> bytes:
    """Return the accumulator of a file as bytes, none where it has no row; called on whatever machine can read it."""
    with precision(plan.precision):
        made = _measured(Path(path), plan)
    return made.to_bytes() if made is not None else b""


def joined(one: bytes, other: bytes) -> bytes:
    """Return two shards as one; those of files without a row add nothing."""
    if not one or not other:
        return one or other
    return Accumulator.from_bytes(one).merge(Accumulator.from_bytes(other)).to_bytes()


def _measured(path: Path, plan: FilesPlan) -> Accumulator | None:
    made: Accumulator | None = None
    try:
        for X, y in _features(path, plan):
            if not len(X):
                continue
            if made is None:
                made = Accumulator(
                    plan.spec, n_classes=plan.n_classes, dim=X.shape[1], seed=plan.seed, fixed_point=plan.fixed_point,
                    client=plan.client,
                )  # fmt: skip
            made.update(X, _numbers(y, plan))
    except InputError as error:
        raise type(error)(f"{path}: {error}") from error
    return made


def _features(path: Path, plan: FilesPlan) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    encode = _encoding(plan.encoder) if isinstance(plan.encoder, str) else plan.encoder
    for X, y in table_batches(path, plan.columns, samples=encode is not None):
        features = check_shape(encode(X)) if encode else check_shape(X)
        mapped = plan.feature_map(features) if plan.feature_map else features
        yield joint(mapped, y) if plan.columns.targets else (mapped, y)


@lru_cache(maxsize=1)
def _encoding(name: str) -> Any:
    """Return the function of an encoder; a process of a cluster loads it once."""
    from fedmoments.samples.encoders.registry import load_encoder

    encoder = load_encoder(name)
    return lambda samples: encoder.encode([encoder.prepare(sample) for sample in samples])


def _numbers(labels: NDArray[Any], plan: FilesPlan) -> NDArray[Any]:
    """Return labels as numbers: their places in the names, where there are names."""
    return label_numbers(labels, plan.class_names) if is_text(labels) and plan.class_names else labels
