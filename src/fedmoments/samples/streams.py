"""One party's samples as a stream of batches: from a loader and an encoder to statistics.

A batch is a pair (X, y), a dict of columns, or a table (pandas reads files so, with ``chunksize``). A stream is any
iterable of batches: a torch ``DataLoader``, a generator, a Hugging Face ``IterableDataset``, a ``tf.data.Dataset``.
Tensors may be on any device, need gradients and be of bfloat16: each batch is detached, encoded, and moved by itself.
Where features are on a GPU, sums are made there (:mod:`fedmoments.samples.device_sums`), and only they are moved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from fedmoments.core.arrays import as_array, is_text, label_array, label_numbers
from fedmoments.core.columns import Columns, is_table, own_table, same_columns
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import Accumulator, FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.samples.device_sums import DeviceSums, device_of
from fedmoments.samples.encoders.encoder import Encoder

__all__ = ["measure_stream"]

#: Keys of dicts, if it is not said which: the first that is there.
LABEL_KEYS = ("label", "labels", "y", "target", "targets", "fine_label")
FEATURE_KEYS = ("features", "embedding", "x", "inputs", "pixel_values", "image", "img", "text", "sentence")


def measure_stream(
    batches: Iterable[Any],
    spec: StatisticsSpec,
    *,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    encoder: Any = None,
    feature_map: FeatureMap | None = None,
    device: Any = None,
    features: str | None = None,
    label: str | None = None,
    batch_size: int = 256,
    seed: int = 0,
    fixed_point: FixedPoint | None = None,
    client: str | None = None,
) -> Statistics:
    """Measure one party's stream of batches, in memory for one batch and the sums.

    Parameters
    ----------
    batches
        Any iterable of (X, y), of dicts or of tables; also of single samples, which are put together.
    spec
        What to measure (:func:`fedmoments.spec_for`).
    n_classes
        C; from ``class_names``, or from what the data set behind the stream says, by default.
    class_names
        Names of the classes in the order that all parties agree on; needed for labels that are text.
    encoder
        Makes features of X: a ``torch.nn.Module``, a function, one of our encoders or its name. None: X are features.
    feature_map
        Applied to features; then sums are made in this machine's memory.
    device
        Where torch encodes and adds up: ``cuda``, ``mps``, ``cpu``. By default modules stay where they are, and sums
        are made where features are; in float64 by numpy if that is the CPU. On a device, sums are of centred float32
        blocks, folded into float64.
    features, label
        Keys of dicts, the usual names by default; of tables, names or patterns (``emb*``) of columns.
    batch_size
        Samples at once, where the stream is one of single samples.
    seed, fixed_point, client
        See :class:`fedmoments.Accumulator`; with a fixed-point form sums are exact, and made by numpy.

    Examples
    --------
    >>> import fedmoments as fm
    >>> batches = ((np.full((4, 2), float(k)), [0, 1, 0, 1]) for k in range(3))
    >>> stats = measure_stream(batches, fm.spec_for("fedcof", "gh-lda"), n_classes=2)
    >>> stats.counts, stats.rows.block_means()
    (array([6, 6]), array([[1., 1.], [1., 1.]]))
    """
    count = _number_of_classes(batches, n_classes, class_names, label)
    exact = feature_map is not None or fixed_point is not None or not DeviceSums.measures(spec)
    sums: _Sums = _Sums(
        spec, count, None if exact else device, exact=exact, seed=seed, fixed_point=fixed_point, client=client
    )
    with ExitStack() as stack:
        encode = stack.enter_context(_encoding(encoder, device))
        for number, (X, y) in enumerate(_pairs(batches, features, label, batch_size)):
            try:
                made = _one_array(encode(X))
                sums.add(feature_map(as_array(made)) if feature_map else made, _numbers(y, class_names))
            except InputError as error:
                raise InputError(f"batch {number}: {error}") from error
            except Exception as error:  # of somebody's encoder: its own, with where it was
                error.add_note(f"This came of batch {number} of the stream.")
                raise
    return sums.accumulator().statistics()


def _one_array(made: Any) -> Any:
    """Refuse what models give that is not one array, and say what to take of it."""
    if made is None or isinstance(made, Mapping | str | bytes):
        held = f" of {', '.join(map(str, made))}" if isinstance(made, Mapping) else ""
        raise InputError(
            f"an encoder must give one array (n, d), but a {type(made).__name__}{held} arrived: wrap it in a function "
            "that returns the features"
        )
    return made


class _Sums:
    """Adds batches up where they are: on a device, or in memory."""

    def __init__(self, spec: StatisticsSpec, n_classes: int, device: Any, *, exact: bool, **options: Any) -> None:
        self.spec, self.n_classes, self.device, self.exact, self.options = spec, n_classes, device, exact, options
        self._held: Accumulator | None = None
        self._on_device: DeviceSums | None = None

    def add(self, X: Any, y: Any) -> None:
        where = None if self.exact else self._device_of(X)
        if where is not None:
            self._on_device = self._on_device or DeviceSums(self.spec, self.n_classes, where)
            self._on_device.update(X, y)
            return
        features = as_array(X)
        if self._held is None:
            dim = features.shape[1] if features.ndim == 2 else 1
            self._held = Accumulator(self.spec, n_classes=self.n_classes, dim=dim, **self.options)
        self._held.update(features, as_array(y))

    def _device_of(self, X: Any) -> Any:
        """Return the device to add a batch up on, or None for memory."""
        own = getattr(X, "device", None) if hasattr(X, "detach") else None
        return self.device if self.device is not None else own if str(own) not in ("None", "cpu") else None

    def accumulator(self) -> Accumulator:
        parts = [self._on_device.accumulator(**self.options)] if self._on_device else []
        parts += [self._held] if self._held else []
        if not parts:
            raise InputError("the stream has no batch: nothing can be measured of it")
        for other in parts[1:]:
            parts[0].merge(other)
        return parts[0]


# ------------------------------------------------------------------------------------------------------------- batches


def _pairs(batches: Any, features: str | None, label: str | None, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield (X, y) of every batch; single samples are put together."""
    waiting: list[tuple[Any, Any]] = []
    known: Columns | None = None
    for number, batch in enumerate(_stream_of(batches, size)):
        if is_table(batch):
            known = known or same_columns(batch, Columns(_label_of(batch, label), "", features))
            yield own_table(batch, known)
            continue
        X, y = _pair(batch, number, features, label)
        if isinstance(X, list) and not X:
            continue  # an empty list tells no dimension
        if np.ndim(y) if not hasattr(y, "ndim") else y.ndim:
            yield X, y
            continue
        waiting.append((X, y))
        if len(waiting) == size:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def _stream_of(batches: Any, size: int) -> Iterable[Any]:
    """Return what gives batches one by one; what would fall apart into its columns or letters is refused."""
    stream: Iterable[Any] = batches.iter(batch_size=size) if _is_hub_dataset(batches) else batches
    if isinstance(stream, str | bytes | Mapping) or _is_whole(stream) or not hasattr(stream, "__iter__"):
        raise InputError(
            f"a stream is an iterable of batches (X, y), of dicts or of tables, but a {type(batches).__name__} arrived:"
            " a torch Dataset goes into a DataLoader, one table into a list"
        )
    return stream


def _label_of(table: Any, label: str | None) -> str:
    """Return the name of the column of labels of a table."""
    names = getattr(table, "column_names", None) or list(getattr(table, "columns", [])) or table.schema.names
    return _key(dict.fromkeys(map(str, names)), label, LABEL_KEYS, "label")


def _is_whole(stream: Any) -> bool:
    """Say whether this is one table, whose parts would be its columns; not a reader of Arrow's batches."""
    return is_table(stream) and not hasattr(stream, "read_next_batch")


def _is_hub_dataset(given: Any) -> bool:
    return hasattr(given, "iter") and hasattr(given, "column_names")


def _together(samples: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    labels = np.array([as_array(y).item() for _, y in samples])
    parts = [X for X, _ in samples]
    if hasattr(parts[0], "detach"):
        return sys.modules["torch"].stack(parts), labels
    if isinstance(parts[0], str | bytes) or not hasattr(parts[0], "__len__"):
        return parts, labels
    shapes = {np.shape(part) for part in parts}
    if len(shapes) > 1:
        raise InputError(f"samples of a stream have one shape, but these have {', '.join(map(str, sorted(shapes)))}")
    return np.stack(parts), labels


def _pair(batch: Any, number: int, features: str | None, label: str | None) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        return batch[_key(batch, features, FEATURE_KEYS, "features")], batch[_key(batch, label, LABEL_KEYS, "label")]
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    many = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise InputError(
        f"batch {number} must be (X, y), a dict of columns or a table, but is a {type(batch).__name__}{many}"
    )


def _key(batch: Mapping[Any, Any], wanted: str | None, usual: Sequence[str], what: str) -> str:
    found = [name for name in ([wanted] if wanted else usual) if name in batch]
    if not found:
        missing = f"no '{wanted}'" if wanted else f"none of {', '.join(usual)}"
        raise InputError(f"a batch has {', '.join(map(str, batch))}, but {missing}: say by {what}= which it is")
    return found[0]


def _numbers(y: Any, names: Sequence[str] | None) -> Any:
    """Return labels as numbers: those of names, where they are text."""
    if hasattr(y, "detach"):
        return y
    labels = label_array(y)
    if not is_text(labels):
        return labels
    if names is None:
        raise InputError("labels are text: give class_names, in the order that all parties agree on")
    return label_numbers(labels, names)


def _number_of_classes(batches: Any, given: int | None, names: Sequence[str] | None, label: str | None) -> int:
    if given is not None:
        return given
    if names is not None:
        return len(names)
    said = getattr(getattr(batches, "dataset", batches), "classes", None)  # torchvision's data sets
    if isinstance(said, list | tuple):
        return len(said)
    columns = getattr(batches, "features", None) or {}
    for key in (label,) if label else LABEL_KEYS:
        if hasattr(columns, "get") and hasattr(columns.get(key), "num_classes"):
            return int(columns[key].num_classes)
    raise InputError("a stream does not say how many classes there are: give n_classes, or class_names")


# ------------------------------------------------------------------------------------------------------------ encoders


@contextmanager
def _encoding(encoder: Any, device: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield the function that makes features of X."""
    if isinstance(encoder, str):
        from fedmoments.samples.encoders.registry import load_encoder

        encoder = load_encoder(encoder)
    torch = sys.modules.get("torch")
    if encoder is None:
        yield lambda X: X
    elif isinstance(encoder, Encoder):
        yield lambda X: encoder.encode([encoder.prepare(sample) for sample in _samples(X)])
    elif torch is not None and isinstance(encoder, torch.nn.Module):
        with _frozen(torch, encoder, device) as encode:
            yield encode
    elif callable(encoder):
        yield encoder
    else:
        raise InputError(
            "an encoder is a torch.nn.Module, a function, an encoder of fedmoments or its name, but a "
            f"{type(encoder).__name__} arrived"
        )


def _samples(X: Any) -> Iterable[Any]:
    return as_array(X) if hasattr(X, "detach") else X


@contextmanager
def _frozen(torch: Any, module: Any, device: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a module's function, in evaluation mode and without gradients; the module is as it was afterwards."""
    training = {part: part.training for part in module.modules()}
    first = next(iter(module.parameters()), None)
    home = first.device if first is not None else torch.device("cpu")
    where = device_of(device) if device is not None else home
    if where != home:
        module.to(where)
    module.eval()
    try:
        with torch.inference_mode():
            yield lambda X: module(_like(first, torch.as_tensor(X).to(where)))
    finally:
        for part, was in training.items():
            part.training = was
        if where != home:
            module.to(home)


def _like(weights: Any, X: Any) -> Any:
    """Return a batch of floats in the type of a module's weights; what is whole (pixels, tokens) stays."""
    return X.to(weights.dtype) if weights is not None and X.is_floating_point() else X
