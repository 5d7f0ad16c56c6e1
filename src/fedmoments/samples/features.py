"""Features files: ``.npz`` archives of frozen features and labels.

==================  =========================  ====================================================
array               shape                      holds
==================  =========================  ====================================================
x_train, x_test     (n, d) numbers             one feature vector a sample
y_train, y_test     (n,) whole numbers         labels from 0 to C − 1
classes             (C,) text, optional        class names, in the order of the labels
domain_train        (n,) optional              domain of each training sample, for the split ``domain``
domains             (m,) text, optional        names of the domains, when domain_train holds their numbers
client_train        (n,) optional              user of each training sample, for the split ``id``
group_train         (n,) optional              what must stay at one client: a patient
encoder             () text, optional          which encoder made the features, as ``fedmoments encode`` notes it (JSON)
==================  =========================  ====================================================

Pickled arrays, and arrays of other names, are refused.
Every array is checked when it is read, and a refusal names the file and the array.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import StatisticsSpec
from fedmoments.core.statistics.checks import check_features, check_labels
from fedmoments.durable.placing import part_of
from fedmoments.errors import InputError
from fedmoments.samples.npz_arrays import read_npz, refuse_unknown

if TYPE_CHECKING:
    from fedmoments.samples.encoders.pipeline import EncodedSamples

__all__ = ["Features", "Samples", "load_features", "save_features"]

#: A label above this, in a file that does not say how many classes there are, is taken for a mistake.
MOST_CLASSES = 2**20
#: What a file may say of each training sample, besides its domain.
_KEYS = ("client", "group")


@dataclass(frozen=True, eq=False)
class Samples:
    """Features X (n, d), finite, and labels y (n,), int64."""

    X: NDArray[np.floating[Any]]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)


_NOTHING = Samples(np.zeros((0, 1)), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class Features:
    """What a features file holds, checked.

    Parameters
    ----------
    name
        Where it came from, for messages and results.
    n_classes
        C.
    train, test
        Samples; without any when the file was read without that part.
    class_names
        C names, or none.
    domains, ids, groups
        (n_train,) domain, user and group (what must stay at one client) of every training sample, or None.
    public_map
        What all clients apply to features before they measure, or None; it is not applied yet.
    advised_map
        The same, where all heads of a federation leave the map to a rule (``Head.map_rule``), and nobody named one.
    first_exchange
        What clients send before, because the map was made of it, and in how many columns; None without one.
    names
        (C, d) features of the class names, which count as one sample of each class, or None.
    encoder
        Note of the encoder that made the features, where the file has one.

    Examples
    --------
    >>> part = Samples(np.ones((3, 2)), np.array([0, 1, 1]))
    >>> Features("toy", 2, train=part, test=part).dim
    2
    """

    name: str
    n_classes: int
    train: Samples = _NOTHING
    test: Samples = _NOTHING
    class_names: tuple[str, ...] = ()
    domains: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    public_map: FeatureMap | None = None
    advised_map: FeatureMap | None = None
    first_exchange: tuple[StatisticsSpec, int] | None = None
    names: NDArray[np.floating[Any]] | None = None
    encoder: dict[str, Any] | None = None

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        return int((self.train if len(self.train) else self.test).X.shape[1])

    def summary(self) -> dict[str, Any]:
        """Return name and sizes, ready for JSON."""
        sizes = {"train": len(self.train), "test": len(self.test), "dim": self.dim, "classes": self.n_classes}
        return {"name": self.name, **sizes}


def load_features(
    path: str | os.PathLike[str], parts: Collection[str] = ("train", "test"), *, n_classes: int | None = None
) -> Features:
    """Read and check a features file.

    Parameters
    ----------
    path
        An ``.npz`` file; see the module for its arrays.
    parts
        What is needed of it: ``train``, ``test`` or both.
    n_classes
        C, when the file has no array ``classes``; the highest label of the file plus one by default.

    Raises
    ------
    FileFormatError
        When the file is not an npz archive, or is damaged.
    InputError
        When an array is missing, or is not what it must be.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "f.npz"), x_train=np.ones((2, 3)), y_train=[0, 4])
    ...     features = load_features(Path(folder, "f.npz"), ["train"])
    >>> features.n_classes, features.dim, len(features.train)
    (5, 3, 2)
    """
    wanted = [f"{axis}_{part}" for part in parts for axis in "xy"]
    arrays = _read(path, wanted)
    names = _class_names(path, arrays.get("classes"))
    count = _count_classes(path, arrays, names, n_classes)
    samples: dict[str, Samples] = {}
    dim: int | None = None
    for part in parts:
        samples[part] = _samples(path, arrays, part, count, dim)
        dim = samples[part].X.shape[1]
    train, test = samples.get("train", _NOTHING), samples.get("test", _NOTHING)
    domains = _domains(path, arrays, len(train)) if "train" in samples else None
    ids, groups = (_key(path, arrays, f"{what}_train", len(train)) if len(train) else None for what in _KEYS)
    encoder = _encoder(path, arrays.get("encoder"))
    return Features(
        os.fspath(path), count, train, test, class_names=names, domains=domains, ids=ids, groups=groups, encoder=encoder
    )


def save_features(
    path: str | os.PathLike[str], parts: Mapping[str, "EncodedSamples"], encoder: Mapping[str, Any] | None = None
) -> None:
    """Write a features file.

    Parameters
    ----------
    path
        An ``.npz`` file; see the module for its arrays.
    parts
        ``train``, ``test`` or both, under the same class names.
    encoder
        Note of what made the features.
    """
    arrays: dict[str, Any] = {}
    for name, samples in parts.items():
        arrays |= {f"x_{name}": samples.features, f"y_{name}": samples.labels}
        keys = {"domain": samples.domains, "client": samples.clients, "group": samples.groups}
        arrays |= {f"{what}_{name}": np.asarray(key, str) for what, key in keys.items() if key is not None}
        arrays["classes"] = np.array(samples.class_names, str)
    if encoder is not None:
        arrays["encoder"] = np.array(json.dumps(dict(encoder), sort_keys=True))
    with part_of(Path(path)) as part:  # features are near to samples: their owner alone reads them
        with part.open("wb") as file:
            np.savez(file, **arrays)
        part.replace(path)


def _encoder(path: str | os.PathLike[str], text: NDArray[Any] | None) -> dict[str, Any] | None:
    """Return the note of the encoder that a file has."""
    if text is None:
        return None
    try:
        note = json.loads(str(text)) if text.shape == () and text.dtype.kind == "U" else None
    except ValueError:
        note = None
    if not isinstance(note, dict) or not isinstance(note.get("name"), str):
        raise InputError(
            f"the array 'encoder' in {path} must be the note that 'fedmoments encode' writes, JSON with a name, not "
            f"{text.dtype} {text.shape}: leave it out, and name the encoder by --encoder"
        )
    return note


def _read(path: str | os.PathLike[str], wanted: list[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays that matter here; all labels, because they say how many classes there are."""
    known = {*wanted, "y_train", "y_test", "classes", "domain_train", "domains", "encoder"}
    known |= {f"{what}_train" for what in _KEYS}
    arrays, held = read_npz(path, known)
    refuse_unknown(path, held)
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise InputError(
            f"{path} lacks the array '{missing[0]}': a features file needs {', '.join(wanted)}, but this one holds "
            f"{', '.join(held) or 'nothing'}"
        )
    return arrays


def _class_names(path: str | os.PathLike[str], classes: NDArray[Any] | None) -> tuple[str, ...]:
    if classes is None:
        return ()
    names = tuple(str(name) for name in classes.ravel().tolist())
    if classes.ndim != 1 or not names or len(set(names)) != len(names):
        raise InputError(
            f"the array 'classes' in {path} must hold different names, (C,); it has the shape {classes.shape} and "
            f"{len(set(names))} different names"
        )
    return names


def _count_classes(
    path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], names: tuple[str, ...], given: int | None
) -> int:
    if given is not None and given < 1:
        raise InputError(f"the number of classes must be 1 or more, not {given}")
    if names:
        if given not in (None, len(names)):
            raise InputError(f"{path} names {len(names)} classes, but {given} were requested")
        return len(names)
    if given is not None:
        return given
    return 1 + _highest_label(path, arrays)


def _highest_label(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]]) -> int:
    """Return the highest label of both parts; 0 without any."""
    highest = 0
    for name in ("y_train", "y_test"):
        labels = arrays.get(name)
        if labels is not None and labels.size and labels.dtype.kind in "iuf":
            top = labels.max()
            if not top < MOST_CLASSES:
                raise InputError(
                    f"'{name}' in {path} holds the label {top}, which is hardly a class number: say how many classes "
                    "there are, or number them from 0"
                )
            highest = max(highest, int(top))
    return highest


def _samples(
    path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], part: str, n_classes: int, dim: int | None
) -> Samples:
    try:
        X = check_features(arrays[f"x_{part}"])
    except InputError as error:
        raise InputError(f"'x_{part}' in {path}: {error}") from error
    if dim not in (None, X.shape[1]):
        raise InputError(
            f"'x_{part}' in {path} has {X.shape[1]} dimensions, but 'x_train' has {dim}: were two encoders used?"
        )
    if not len(X):
        raise InputError(f"'x_{part}' in {path} holds no sample")
    return Samples(X, check_labels(arrays[f"y_{part}"], len(X), n_classes, whose=f"labels 'y_{part}' in {path}"))


def _key(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], name: str, n: int) -> NDArray[Any] | None:
    values = arrays.get(name)
    if values is not None and values.shape != (n,):
        raise InputError(f"'{name}' in {path} must be one a training sample, ({n},), but has the shape {values.shape}")
    return values


def _domains(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], n: int) -> NDArray[Any] | None:
    """Return the domain of every training sample, by name if the file names domains."""
    numbers, names = _key(path, arrays, "domain_train", n), arrays.get("domains")
    if numbers is None or names is None or numbers.dtype.kind not in "iu":
        return numbers
    if names.ndim != 1 or numbers.min() < 0 or numbers.max() >= len(names):
        raise InputError(
            f"'domains' in {path} must name the domains {numbers.min()} to {numbers.max()} of 'domain_train', but has "
            f"the shape {names.shape}"
        )
    return np.asarray(names.astype(str)[numbers])
