r"""``npz:PATH``: arrays of features or of images, as ``np.savez`` writes them.

=========================  ===================================  ===============================================
array                      shape                                holds
=========================  ===================================  ===============================================
x_train, x_test            (n, d) numbers                       one feature vector a sample, or
\                          (n, h, w) or (n, h, w, 3) of uint8   one image a sample
y_train, y_test            (n,) whole numbers or text           labels
classes                    (C,) text, optional                  names of the labels 0 … C − 1
domain_train, domain_test  (n,) optional                        domain of each sample
domains                    (m,) text, optional                  names of the domains, when those are numbers
client_train, client_test  (n,) optional                        user of each sample
group_train, group_test    (n,) optional                        what must stay together: a patient
=========================  ===================================  ===============================================

Without x_test, a test part is held out. Pickled arrays, and arrays of other names, are refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.npz_arrays import ARRAYS, read_npz, refuse_unknown
from fedmoments.samples.samples import Modality
from fedmoments.samples.sources.columns import label_name
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "data_of_arrays", "load_npz", "require_arrays"]

_Arrays = Mapping[str, NDArray[Any]]
#: A label above this, without names of classes, is taken for a mistake.
MOST_CLASSES = 2**20


def load_npz(argument: str, *, test_share: float = 0.2, seed: Seed = 0, strict: bool = False) -> DataSet:
    """Load arrays.

    Parameters
    ----------
    argument
        The file; see the module for its arrays.
    test_share, seed
        For holding out a test part, when the file has none.
    strict
        Whether to stop at the first problem.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "f.npz"), x_train=np.ones((4, 3)), y_train=[0, 1, 0, 1], classes=["a", "b"])
    ...     data = load_npz(str(Path(folder, "f.npz")), test_share=0.5)
    >>> data.modality, data.class_names, data.train.items.shape
    ('features', ('a', 'b'), (2, 3))
    """
    path = Path(argument).expanduser()
    return data_of_arrays(f"npz:{argument}", path, _read(path), test_share=test_share, seed=seed, strict=strict)


def data_of_arrays(name: str, path: Path, arrays: _Arrays, *, test_share: float, seed: Seed, strict: bool) -> DataSet:
    """Return the data set of arrays, which are checked; see the module for their names.

    Parameters
    ----------
    name, path
        What was typed, and where the arrays are, for messages.
    arrays
        By name; rows of features may be mapped from a file, and are not copied unless a test part is held out.
    test_share, seed, strict
        As for :func:`load_npz`.
    """
    names = _class_names(path, arrays)
    modality: Modality = "image" if arrays["x_train"].ndim > 2 else "features"
    problems = Problems(strict=strict)
    parts = {part: _rows(path, arrays, part, names, problems) for part in ("train", "test") if f"x_{part}" in arrays}
    if "test" in parts:
        _require_same_kind(path, arrays["x_train"], arrays["x_test"])
    return assemble(
        name,
        parts["train"],
        parts.get("test"),
        modality,
        problems,
        test_share=test_share,
        seed=seed,
        class_names=names,
    )


def _read(path: Path) -> _Arrays:
    if not path.is_file():
        raise InputError(f"{path} cannot be read: there is no such file")
    arrays, held = read_npz(path, ARRAYS)
    require_arrays(path, held)
    return arrays


def require_arrays(path: Path, held: Sequence[str]) -> None:
    """Refuse arrays that nothing reads, and a lack of samples or of labels."""
    refuse_unknown(path, held)
    for name in ("x_train", "y_train"):
        if name not in held:
            raise InputError(f"{path} lacks the array '{name}': it holds {', '.join(held) or 'nothing'}")


def _class_names(path: Path, arrays: _Arrays) -> Sequence[str]:
    """Return the names of whole-number labels; none when labels are text, and name themselves."""
    classes, labels = arrays.get("classes"), arrays["y_train"]
    if classes is not None:
        return _given_names(path, classes)
    if labels.dtype.kind not in "iuf" or not labels.size:
        return ()
    top = max(label.max() for name in ("y_train", "y_test") if (label := arrays.get(name, labels)).dtype.kind in "iuf")
    if not top < MOST_CLASSES:
        raise InputError(
            f"{path} has the label {top}, which is hardly a class number: number them from 0, or name them"
        )
    return [str(number) for number in range(int(top) + 1)]


def _given_names(path: Path, classes: NDArray[Any]) -> list[str]:
    names = [str(name) for name in classes.ravel().tolist()]
    if classes.ndim != 1 or not names or len(set(names)) != len(names):
        raise InputError(f"'classes' in {path} must be different names, (C,), but has the shape {classes.shape}")
    return names


def _rows(path: Path, arrays: _Arrays, part: str, names: Sequence[str], problems: Problems) -> Rows:
    x, y, images = _checked_part(path, arrays, part)
    labels = [_name(label, names) for label in y.tolist()]
    flaws = _flaws(x, y, labels, len(names), images=images)
    for i, flaw in flaws.items():
        if not images:  # a program wrote these features: a flaw is its mistake, not one bad file of many
            raise InputError(f"{path}: {part} sample {i}: {flaw}; repair or drop it first")
        problems.add(f"{part} sample {i}", flaw)
    kept = [i for i in range(len(x)) if i not in flaws]
    keys = {what: _keys(path, arrays, what, part, len(x)) for what in ("domain", "client", "group")}
    return Rows(
        x[kept] if flaws else x,
        [labels[i] for i in kept],
        [f"{part} sample {i}" for i in kept],
        _taken(keys["domain"], kept),
        _taken(keys["client"], kept),
        _taken(keys["group"], kept),
    )


def _taken(values: Sequence[str], places: Sequence[int]) -> list[str]:
    """Return some of the values; nothing where there are none at all."""
    return [values[place] for place in places] if values else []


def _checked_part(path: Path, arrays: _Arrays, part: str) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return samples and labels of a part, and whether the samples are images."""
    x, y = arrays[f"x_{part}"], arrays.get(f"y_{part}")
    images = x.ndim in {3, 4} and x.dtype == np.uint8 and x.shape[3:] in {(), (3,)}
    if not images and (x.ndim != 2 or x.dtype.kind not in "fiu"):
        raise InputError(
            f"'x_{part}' in {path} must be features (n, d), or images (n, h, w) or (n, h, w, 3) of uint8, but is of "
            f"{x.dtype} and the shape {x.shape}"
        )
    if y is None:
        raise InputError(f"{path} lacks the array 'y_{part}': the labels of 'x_{part}'")
    if y.shape != (len(x),):
        raise InputError(
            f"'y_{part}' in {path} must be one label a sample of 'x_{part}', ({len(x)},), but has the shape {y.shape}"
        )
    return x, y, bool(images)


def _flaws(x: NDArray[Any], y: NDArray[Any], labels: Sequence[str], n_classes: int, *, images: bool) -> dict[int, str]:
    """Return what is wrong with samples, by their number; nothing of those that are sound."""
    finite = np.ones(len(x), np.bool_)
    for block in blocks(len(x)) if not images else ():  # a mapped file is not to be in memory as a whole
        finite[block] = np.isfinite(x[block]).all(axis=1)
    flaws: dict[int, str] = {}
    for i, label in enumerate(labels):
        if not label:
            flaws[i] = f"its label {y[i]} is not one of the {n_classes} classes"
        elif not finite[i]:
            flaws[i] = "its features hold NaN or infinity"
    return flaws


def _require_same_kind(path: Path, train: NDArray[Any], test: NDArray[Any]) -> None:
    """Refuse features to train on and images to test on, or features of two dimensions."""
    if (train.ndim == 2) != (test.ndim == 2):
        raise InputError(
            f"'x_train' and 'x_test' in {path} must both be features, or both images, but have the shapes "
            f"{train.shape} and {test.shape}"
        )
    if train.ndim == 2 and train.shape[1] != test.shape[1]:
        raise InputError(
            f"'x_test' in {path} has {test.shape[1]} dimensions, but 'x_train' has {train.shape[1]}: were two encoders "
            "used?"
        )


def _name(label: Any, names: Sequence[str]) -> str:
    if isinstance(label, str | bool) or not names:
        return label_name(label)
    number = int(label) if label == label and float(label).is_integer() else -1  # noqa: PLR0124 - NaN
    return names[number] if 0 <= number < len(names) else ""


def _keys(path: Path, arrays: _Arrays, what: str, part: str, n: int) -> list[str]:
    values = arrays.get(f"{what}_{part}")
    if values is None:
        return []
    if values.shape != (n,):
        raise InputError(f"'{what}_{part}' in {path} must be one a sample, ({n},), but has the shape {values.shape}")
    if what == "domain" and values.dtype.kind in "iu" and "domains" in arrays and n:
        return _named_domains(path, values, arrays["domains"], part)
    return [label_name(value) for value in values.tolist()]


def _named_domains(path: Path, values: NDArray[Any], names: NDArray[Any], part: str) -> list[str]:
    if names.ndim != 1 or values.min() < 0 or values.max() >= len(names):
        raise InputError(
            f"'domains' in {path} must name the domains {values.min()} to {values.max()} of 'domain_{part}'"
        )
    return [str(name) for name in names[values].tolist()]


SOURCES = (Source("npz", "PATH", "arrays of features or of images", load_npz, (".npz",)),)
