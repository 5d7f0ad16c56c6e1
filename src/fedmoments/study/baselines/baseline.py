"""What a baseline is: what a client makes of its own samples, and what a server makes of what all clients sent.

What baselines ask of samples, hyper-parameters and uploads.

All baselines by name: built in (the ``PRESETS`` of every file of this room), installed, registered at run time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads.registry import Preset, made, preset_of
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.registry import Registry, scan

__all__ = [
    "BASELINES",
    "Baseline",
    "Upload",
    "baseline_names",
    "baselines",
    "check_choice",
    "check_number",
    "check_samples",
    "classes_held",
    "counts_of",
    "make_baseline",
    "register_baseline",
]


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Upload:
    """What one client sends.

    Parameters
    ----------
    arrays
        Name -> numbers; all of them are counted as sent.
    counts
        (C,) samples of every class at the client; the positive ones are sent.

    Examples
    --------
    >>> Upload({"weights": np.zeros((4, 2))}, np.array([3, 0])).n_floats
    8
    """

    arrays: Mapping[str, Floats]
    counts: NDArray[np.int64]

    @property
    def n_floats(self) -> int:
        """How many numbers travel, besides the counts."""
        return sum(array.size for array in self.arrays.values())

    @property
    def n_counts(self) -> int:
        """How many counts travel: one for every class present."""
        return int(np.count_nonzero(self.counts))


@dataclass(frozen=True)
class Baseline(ABC):
    """A one-shot method without sufficient statistics. Frozen: its fields are its hyper-parameters."""

    #: What a client sends, in a few words, for tables.
    sends: ClassVar[str]

    @abstractmethod
    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:
        """Return what a client with features X (n, d), n ≥ 1, and labels y (n,) sends."""

    @abstractmethod
    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:
        """Return the server's classifier of features in ``dim`` dimensions from all clients' uploads."""

    def most_floats(self, dim: int, held: int) -> int:  # noqa: ARG002 - what others need
        """Return how many numbers a client with ``held`` classes and as many samples as it takes sends: the most.

        Examples
        --------
        >>> make_baseline("dense").most_floats(512, 10)
        6154
        """
        raise InputError(f"{type(self).__name__} says of no number that its clients send at most")

    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters as plain values, for tables and file headers."""
        return asdict(self)


def check_samples(X: ArrayLike, y: ArrayLike, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a client's features (n, d) in float64 and labels (n,), or say what is wrong with them.

    Examples
    --------
    >>> check_samples([[1.0]], [3], 2)
    Traceback (most recent call last):
    fedmoments.errors.InputError: labels must be whole numbers from 0 to 1 (2 classes), but 3 arrived
    """
    features, labels = np.asarray(X), np.asarray(y)
    if features.ndim != 2 or not len(features):
        raise InputError(f"a client's features must be a matrix (samples, dimensions), not of shape {features.shape}")
    if labels.shape != (len(features),):
        raise InputError(f"{len(features)} samples need as many labels, but labels of shape {labels.shape} arrived")
    if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < n_classes)).all():
        wrong = labels if labels.dtype.kind not in "iu" else labels[(labels < 0) | (labels >= n_classes)]
        raise InputError(
            f"labels must be whole numbers from 0 to {n_classes - 1} ({n_classes} classes), but {wrong[0]} arrived"
        )
    wide = features.astype(np.float64, copy=False)
    if not np.isfinite(wide).all():
        row = int(np.argmin(np.isfinite(wide).all(axis=1)))
        raise InputError(f"features must be finite, but sample {row} holds NaN or infinity: repair or drop it first")
    return wide, labels.astype(np.int64, copy=False)


def check_number(name: str, value: float, *, least: float = 0.0, whole: bool = False, zero: bool = False) -> None:
    """Refuse a hyper-parameter that is not above ``least`` (not below it, if ``zero``), or not whole where it must be.

    Examples
    --------
    >>> check_number("decay", -1.0)
    Traceback (most recent call last):
    fedmoments.errors.InputError: decay must be more than 0, not -1.0
    """
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    sound = isinstance(value, kinds) and not isinstance(value, bool) and np.isfinite(value)
    if not (sound and (value > least or (zero and value == least))):
        kind = "a whole number" if whole else ""
        bound = f"{least:g} or more" if zero else f"more than {least:g}"
        raise InputError(f"{name} must be {' '.join(filter(None, (kind, bound)))}, not {value}")


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not among those allowed.

    Examples
    --------
    >>> check_choice("covariance", "round", ["full", "diagonal"])
    Traceback (most recent call last):
    fedmoments.errors.InputError: covariance must be one of full, diagonal, not 'round'
    """
    choices = list(allowed)
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def counts_of(uploads: Sequence[Upload]) -> NDArray[np.int64]:
    """Return the samples of every client and class, (K, C).

    Examples
    --------
    >>> counts_of([Upload({}, np.array([2, 0])), Upload({}, np.array([1, 0]))]).sum(axis=0)
    array([3, 0])
    """
    if not uploads:
        raise NotEnoughDataError("no client sent anything, so there is nothing to combine")
    return np.stack([upload.counts for upload in uploads])


def classes_held(uploads: Sequence[Upload]) -> NDArray[np.bool_]:
    """Return which classes some client holds, (C,).

    Examples
    --------
    >>> classes_held([Upload({}, np.array([2, 0])), Upload({}, np.array([1, 0]))])
    array([ True, False])
    """
    return np.asarray(counts_of(uploads).any(axis=0))


Given = TypeVar("Given", bound=type[Baseline] | Baseline | Preset[Baseline])

BASELINES: Registry[Preset[Baseline]] = Registry(
    "baseline",
    group="fedmoments.baselines",
    accept=preset_of(Baseline),
    built_in=scan("fedmoments.study.baselines", "PRESETS"),
)


def register_baseline(baseline: Given, name: str | None = None) -> Given:
    """Make a baseline (a class, an instance or a preset) known by name in this process; also a class decorator.

    Examples
    --------
    >>> from fedmoments.study.baselines.ensemble import ClientEnsemble
    >>> _ = register_baseline(ClientEnsemble(weighting="samples"), "vote")
    >>> make_baseline("vote").settings()["weighting"]
    'samples'
    >>> BASELINES.remove("vote")
    """
    BASELINES.register(baseline, name)
    return baseline


def baselines() -> Mapping[str, Preset[Baseline]]:
    """Return all baselines by name, in alphabetical order.

    Examples
    --------
    >>> baselines()["ensemble"].make().sends
    'a linear head'
    """
    return BASELINES


def baseline_names() -> tuple[str, ...]:
    """Return the names of all baselines.

    Examples
    --------
    >>> "fedpft" in baseline_names()
    True
    """
    return tuple(BASELINES)


def make_baseline(name: str, **hyper: Any) -> Baseline:
    """Return the baseline of that name with these hyper-parameters.

    Examples
    --------
    >>> make_baseline("ensemble", colour="red")
    Traceback (most recent call last):
    fedmoments.errors.InputError: baseline 'ensemble' has no hyper-parameter 'colour': it takes decay, weighting
    """
    return made(BASELINES, name, hyper)
