"""What every fitted classifier can do: scores, labels, probabilities, a file.

A classifier is a value: arrays, class names, the feature map that stands before it, and notes on where it came from.
A class without a training sample has the score −∞: it is never predicted and its probability is 0.
"""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier.familiar import Distance, Familiar
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.core.maps import FeatureMap, table_of
from fedmoments.core.maps.cells import is_tabular
from fedmoments.core.notebook import html_table
from fedmoments.errors import InputError
from fedmoments.files import Header, pack_tensors, write_whole

__all__ = ["KINDS", "Classifier"]

Floats = NDArray[np.floating[Any]]

#: Kind, as files name it -> class.
KINDS: dict[str, type[Classifier]] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier(ABC):
    """Common parts of all classifiers.

    Parameters
    ----------
    present
        (C,) whether a class had a training sample.
    class_names
        C names; the label numbers as text by default.
    feature_map
        Applied to features before they are scored.
    info
        Notes of origin that travel in the file's header (head, hyper-parameters, fingerprint …), JSON-able.
    temperature
        T > 0: softmax(scores / T) are the probabilities. Heads give it in closed form.
    familiar
        Moments of what it was fitted from, by which it knows what is new to it; None where nothing is known of them.
    ranks
        How probable true classes were to samples that it was tested on, for prediction sets; None if it was not tested.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> classifier = fm.fit("fedncm", parties, class_names=["up", "right"])
    >>> classifier.predict_names([[0.0, 2.0], [2.0, 0.1]])
    ['up', 'right']
    >>> classifier.predict_proba([[1.0, 1.0]]).round(2)
    array([[0.57, 0.43]])
    """

    present: NDArray[np.bool_]
    class_names: tuple[str, ...] = ()
    feature_map: FeatureMap | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    familiar: Familiar | None = None
    ranks: Ranks | None = None

    kind: ClassVar[str]
    #: By which power of the features each array grows; those inside a subspace, which has a unit of its own, do not.
    degrees: ClassVar[Mapping[str, int]] = {}

    def __init_subclass__(cls, *, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = kind
        KINDS[kind] = cls

    def __post_init__(self) -> None:
        if not self.class_names:
            object.__setattr__(self, "class_names", tuple(str(label) for label in range(self.n_classes)))
        if len(self.class_names) != self.n_classes:
            raise InputError(
                f"a classifier of {self.n_classes} classes needs as many names, not {len(self.class_names)}"
            )
        object.__setattr__(self, "temperature", _checked_temperature(self.temperature))
        if self.familiar is not None and len(self.familiar.shares) != self.n_classes:
            raise InputError(
                f"a classifier of {self.n_classes} classes has seen as many, not {len(self.familiar.shares)}"
            )

    # ---------------------------------------------------------------------------------------------- to implement

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the features that are scored, after the feature map."""

    @abstractmethod
    def _scores(self, Z: Floats, arrays: Mapping[str, Floats]) -> Floats:
        """Return scores (n, C) of mapped features (n, d), computing in their type with arrays of that type."""

    def gradients(self, Z: Floats, labels: NDArray[np.int64]) -> Floats:  # noqa: ARG002 - for overriders
        """Return the gradient (n, d) of the score of class ``labels`` (n,) at mapped features Z (n, d)."""
        raise InputError(f"a classifier of kind '{self.kind}' has no gradient of its scores")

    # ---------------------------------------------------------------------------------------------- using it

    @property
    def n_classes(self) -> int:
        """Number of classes C, with or without samples."""
        return len(self.present)

    def scores(self, X: ArrayLike) -> Floats:
        """Return one score a sample and class, (n, C); higher is likelier.

        Parameters
        ----------
        X
            (n, d) features. float32 is scored in float32, anything else in float64. Behind a
            :class:`fedmoments.TableMap` also a raw table of n rows.
        """
        features, mapped = self._mapped(X)
        dtype = np.dtype(np.float32) if features.dtype == np.float32 else np.dtype(np.float64)
        scores = self._scores(mapped.astype(dtype, copy=False), self._arrays_of[dtype])
        scores[:, ~self.present] = -np.inf
        unsure = ~np.isfinite(scores.max(axis=1, initial=-np.inf))  # NaN in one, or overflow in all
        if unsure.any():
            raise InputError(self._whose_fault(int(np.argmax(unsure)), features, mapped))
        return scores

    def _mapped(self, X: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features (n, d) as an array, and behind the feature map; refuse what cannot be scored."""
        table = table_of(self.feature_map) if self.feature_map else None
        features = np.asarray(table.code(X) if table is not None and is_tabular(X) else X)
        if features.ndim != 2:
            raise InputError(
                f"features must be a matrix (samples, dimensions); an array of shape {features.shape} arrived"
            )
        if features.dtype.kind not in "fiub":
            raise InputError(f"features must be numbers; an array of type {features.dtype} arrived")
        mapped = self.feature_map(features) if self.feature_map else features
        if mapped.shape[1] != self.dim:
            raise InputError(
                f"this classifier scores features of {self.dim} dimensions, but {mapped.shape[1]} arrived: "
                "was another encoder or feature map used?"
            )
        return features, mapped

    def _whose_fault(self, row: int, features: NDArray[Any], mapped: NDArray[Any]) -> str:
        """Return why a sample has no score: its features, the feature map, or the classifier itself."""
        if not np.isfinite(features[row]).all():
            return f"features must be finite, but sample {row} holds NaN or infinity: repair or drop it first"
        if not np.isfinite(mapped[row]).all():
            return f"the feature map {self.feature_map} turns sample {row}, which is finite, into NaN or infinity"
        head = f"the head '{self.info['head']}'" if "head" in self.info else f"this {self.kind} classifier"
        if all(np.isfinite(array).all() for _, array in self.arrays() if array.dtype.kind == "f"):
            return (
                f"{head} cannot score sample {row}: its features are finite, but up to "
                f"{float(np.abs(features[row]).max()):.3g}, so large against those it was fitted to that scores "
                f"overflow {features.dtype}; was another encoder or feature map used?"
            )
        return (
            f"{head} scores sample {row} as NaN though its features are finite: the fitted parameters hold NaN or "
            "overflow, which is a fault of the head, not of the data"
        )

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the label (n,) with the highest score."""
        return np.asarray(self.scores(X).argmax(axis=1), dtype=np.int64)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of samples whose label is the one predicted.

        Parameters
        ----------
        X
            (n, d) features.
        y
            (n,) labels, 0 … C − 1.
        """
        labels, predicted = np.asarray(y), self.predict(X)
        if labels.shape != predicted.shape:
            raise InputError(f"{len(predicted)} samples need {len(predicted)} labels, but shape {labels.shape} arrived")
        return float((predicted == labels).mean())

    def predict_names(self, X: ArrayLike) -> list[str]:
        """Return the class name of every sample."""
        return [self.class_names[label] for label in self.predict(X)]

    def predict_proba(self, X: ArrayLike, *, temperature: float | None = None) -> Floats:
        """Return softmax(scores / temperature), (n, C); rows sum to 1, classes without samples have 0.

        Parameters
        ----------
        X
            (n, d) features.
        temperature
            In place of the classifier's own, :attr:`temperature`.
        """
        divisor = self.temperature if temperature is None else _checked_temperature(temperature)
        scores = self.scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        scores /= scores.dtype.type(divisor)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores

    def novelty(self, X: ArrayLike, kind: Distance = "relative") -> NDArray[np.float64]:
        """Return how far samples lie from all that the classifier was fitted from, (n,).

        Parameters
        ----------
        X
            (n, d) features.
        kind
            ``relative``: about 0 for samples of the classes, about 1 for samples that belong to none of them;
            ``mahalanobis``: squared distance to the nearest class by dimension, about 1 for samples of the classes;
            ``level``: by how many standard deviations all features together are lower than on average.

        Raises
        ------
        InputError
            When nothing is known of what it was fitted from: FedNCM's counts and sums hold no spread.

        Examples
        --------
        >>> import fedmoments as fm
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(400) % 2
        >>> classifier = fm.fit("gh-lda", {"a": (rng.normal(size=(400, 8)) + 4 * y[:, None], y)})
        >>> classifier.novelty([[0.0] * 8, [4.0] * 8, [-4.0] * 8]).round(1)
        array([-0.2, -0.2,  2.1])
        >>> classifier.unknown([[0.0] * 8, [-40.0] * 8], share=0.01)
        array([False,  True])
        """
        return self._of_seen(X, lambda seen, mapped: seen.distances(mapped, kind))

    def familiarity(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return about which share (n,) of what the classifier was fitted from is as new as each sample, at most 1.

        By any distance, each with its part of the share: relative ones see nothing of directions in which classes do
        not differ, Mahalanobis distances little of samples between classes, and both little of an empty image.
        """
        return self._of_seen(X, lambda seen, mapped: seen.familiarity(mapped))

    def _of_seen(
        self, X: ArrayLike, found: Callable[[Familiar, NDArray[Any]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        if self.familiar is None:
            raise InputError(
                "this classifier does not know what is new to it: its file is of a former version, or its head (such as"
                " fedncm) is fitted from statistics without a spread inside classes; fit fedcof, sketch or gh-lda"
            )
        features, mapped = self._mapped(X)
        told = found(self.familiar, mapped)
        unsure = ~np.isfinite(told)
        if unsure.any():
            raise InputError(self._whose_fault(int(np.argmax(unsure)), features, mapped))
        return told

    def unknown(self, X: ArrayLike, share: float = 0.01) -> NDArray[np.bool_]:
        """Return which samples (n,) are newer than all but about this share of what the classifier was fitted from."""
        if not 0.0 < share < 1.0:
            raise InputError(f"the share of familiar samples that are rejected must lie between 0 and 1, not {share}")
        return self.familiarity(X) < share

    def prediction_sets(self, X: ArrayLike, coverage: float) -> NDArray[np.bool_]:
        """Return which classes (n, C) are in the set of every sample; it holds the true one with this probability.

        Parameters
        ----------
        X
            (n, d) features, exchangeable with the samples that the classifier was tested on.
        coverage
            Between 0 and 1. Sets are never empty, and hold all classes where too few samples were tested.

        Raises
        ------
        InputError
            When the classifier was not tested: :meth:`ranked`.
        """
        if self.ranks is None:
            raise InputError(
                "this classifier has no prediction sets, because it was not tested on samples: let clients evaluate it,"
                " or use classifier.ranked(Ranks.of(classifier, X, y)) with samples that it was not fitted from"
            )
        shares = self.predict_proba(X, temperature=self.ranks.temperature)
        held = (shares >= self.ranks.threshold(coverage)) & self.present
        held[np.arange(len(shares)), shares.argmax(axis=1)] = True
        return held

    def named(self, class_names: Sequence[str]) -> Self:
        """Return the same classifier with class names."""
        return replace(self, class_names=tuple(class_names))

    def noting(self, **info: Any) -> Self:
        """Return the same classifier with more notes of origin."""
        return replace(self, info={**self.info, **info})

    def tempered(self, temperature: float) -> Self:
        """Return the same classifier with another temperature."""
        return replace(self, temperature=temperature)

    def knowing(self, familiar: Familiar | None) -> Self:
        """Return the same classifier with moments of what it was fitted from."""
        return replace(self, familiar=familiar)

    def ranked(self, ranks: Ranks | None) -> Self:
        """Return the same classifier with what a test found of the probabilities of true classes."""
        return replace(self, ranks=ranks)

    def mapped(self, feature_map: FeatureMap | None) -> Self:
        """Return the same classifier behind a feature map."""
        return replace(self, feature_map=feature_map)

    def for_features_times_power(self, exponent: int, score_degree: int = 0) -> Self:
        """Return the classifier that gives features multiplied by 2^exponent the labels that this one gives features.

        Parameters
        ----------
        exponent
            Of the power of two: no digit changes.
        score_degree
            By which power of the features scores grow; 0 leaves them as they are. Of linear classifiers alone.

        Examples
        --------
        >>> from fedmoments.core.classifier.linear import LinearClassifier
        >>> one = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
        >>> one.for_features_times_power(3).scores([[8.0, 16.0]])
        array([[1., 2.]])
        """
        arrays = dict(self.arrays())
        inside = ("means", "precisions", "whiteners", "projections") if "basis" in arrays else ()
        grown = {name: 0 if name in inside else degree for name, degree in self.degrees.items()}
        for name in ("weights", "bias") if score_degree else ():
            grown[name] = grown.get(name, 0) + score_degree
        with np.errstate(over="ignore", under="ignore"):
            scaled: dict[str, Any] = {
                name: np.ldexp(array, grown[name] * exponent) for name, array in arrays.items() if grown.get(name)
            }
        _require_held(arrays, scaled, exponent)
        seen = self.familiar.times_power(exponent) if self.familiar else None
        warmth = math.ldexp(self.temperature, score_degree * exponent)
        return replace(self, temperature=warmth, familiar=seen, ranks=None, **scaled)

    # ---------------------------------------------------------------------------------------------- arrays and files

    def arrays(self) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yield the name and float64 array of every parameter."""
        common = {f.name for f in fields(Classifier)}
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name not in common and value is not None:
                yield part.name, value

    @cached_property
    def _arrays_of(self) -> Mapping[np.dtype[Any], Mapping[str, Floats]]:
        return _ByType(dict(self.arrays()))

    def __repr__(self) -> str:
        names = ", ".join(self.class_names[:5]) + (" …" if self.n_classes > 5 else "")
        held = f"{int(self.present.sum())} of {self.n_classes} classes: {names}"
        return f"{type(self).__name__}({self._head_name}, {self.dim} features, {held})"

    @property
    def _head_name(self) -> str:
        """The head that made it, and what that chose."""
        head, chosen = str(self.info.get("head", self.kind)), self.info.get("chosen")
        return f"{head} ({chosen})" if chosen and chosen != head else head

    def _repr_html_(self) -> str:
        rows = [
            ("head", self._head_name),
            ("features", self.dim),
            ("classes", f"{int(self.present.sum())} of {self.n_classes}"),
            ("class names", ", ".join(self.class_names[:10]) + (" …" if self.n_classes > 10 else "")),
            ("temperature", f"{self.temperature:.3g}"),
            ("digest", self.digest()[:16]),
        ]
        return html_table("Classifier", ["", ""], rows)

    def digest(self) -> str:
        """Return the SHA-256 of all parameters, the mask and the feature map: equal digests predict equally."""
        described = self.feature_map.describe() if self.feature_map else None
        sha = hashlib.sha256(repr((self.kind, self.n_classes, described)).encode() + self.present.tobytes())
        for name, array in sorted(self.arrays()):
            sha.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array, "<f8").tobytes())
        return sha.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file with a readable JSON header; it appears whole or not at all."""
        write_whole(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that :meth:`save` writes."""
        header: Header = {
            "classifier": self.kind,
            "class_names": list(self.class_names),
            "feature_map": self.feature_map.describe() if self.feature_map else None,
            "info": dict(self.info),
            "temperature": self.temperature,
        }
        if self.ranks is not None:
            header["ranks"] = self.ranks.to_dict()
        seen = self.familiar.tensors() if self.familiar else {}
        return pack_tensors("classifier", {"present": self.present, **dict(self.arrays()), **seen}, header)


def _checked_temperature(value: object) -> float:
    """Return a temperature, or refuse what no score can be divided by."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < float(value) < math.inf:
        raise InputError(f"temperature must be positive, not {value}")
    return float(f"{float(value):.15g}")  # so many digits tell every number from its neighbours, in files too


class _ByType(dict[np.dtype[Any], Mapping[str, Floats]]):
    """Parameters by floating type, converted once when first asked for."""

    def __init__(self, arrays: Mapping[str, Floats]) -> None:
        super().__init__({np.dtype(np.float64): arrays})
        self._source = arrays

    def __missing__(self, dtype: np.dtype[Any]) -> Mapping[str, Floats]:
        with np.errstate(over="ignore"):  # who cannot compute with what float32 holds of a number does not use it
            self[dtype] = {name: array.astype(dtype) for name, array in self._source.items()}
        return self[dtype]


def _require_held(arrays: Mapping[str, Floats], scaled: Mapping[str, Floats], exponent: int) -> None:
    """Refuse parameters that float64 does not hold for features multiplied by 2^exponent."""
    if any((np.isfinite(arrays[name]) & ~np.isfinite(array)).any() for name, array in scaled.items()):
        raise InputError(
            f"features of size 2^{exponent} cannot be scored in float64: their variances leave what it holds; multiply "
            "them by a constant first"
        )
