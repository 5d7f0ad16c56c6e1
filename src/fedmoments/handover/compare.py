"""What changed from one classifier to another: how they were made, and what they say of the same samples."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier, load
from fedmoments.core.classifier.version import version_of
from fedmoments.core.observations.observation import McNemar, mcnemar
from fedmoments.handover.answers import encoded
from fedmoments.handover.evidence import evidence_of
from fedmoments.handover.labelled import predicted_names, read_labelled
from fedmoments.handover.model import Model
from fedmoments.samples.encoders.pipeline import Progress
from fedmoments.samples.samples import Samples
from fedmoments.settings.samples import SampleSource

__all__ = ["Comparison", "changes", "compare_names", "compare_on", "sums_compared"]

Files = tuple[Path, Path]


@dataclass(frozen=True)
class Comparison:
    """How two classifiers differ on the same samples.

    Parameters
    ----------
    samples
        n.
    right
        Right answers of the first and of the second.
    by_class
        Class, its samples, and right answers of either.
    disagreements
        What the first says, what the second says, and on how many samples; most frequent first.
    test
        Samples that one alone is right on, and how probable so uneven a share is if both are equally good.
    """

    samples: int
    right: tuple[int, int]
    by_class: tuple[tuple[str, int, int, int], ...]
    disagreements: tuple[tuple[str, str, int], ...]
    test: McNemar

    def to_dict(self) -> dict[str, Any]:
        """Return everything ready for JSON."""
        keys = ("class", "samples", "right_first", "right_second")
        return {
            "samples": self.samples,
            "accuracy": [count / self.samples for count in self.right],
            "by_class": [dict(zip(keys, row, strict=True)) for row in self.by_class],
            "disagreements": [
                {"first": first, "second": second, "samples": count} for first, second, count in self.disagreements
            ],
            "mcnemar": vars(self.test),
        }


def compare_names(true: ArrayLike, first: ArrayLike, second: ArrayLike) -> Comparison:
    """Compare what two classifiers say of the same samples, by the names of classes.

    Examples
    --------
    >>> found = compare_names(["cat", "cat", "dog"], ["cat", "dog", "dog"], ["cat", "cat", "dog"])
    >>> found.right, found.by_class, found.disagreements
    ((2, 3), (('cat', 2, 1, 2), ('dog', 1, 1, 1)), (('dog', 'cat', 1),))
    """
    labels, said, other = (np.asarray(names) for names in (true, first, second))
    hits = said == labels, other == labels
    names, places = np.unique(labels, return_inverse=True)
    counts = [np.bincount(places, weights=weights, minlength=len(names)) for weights in (None, *hits)]
    rows = zip(names.tolist(), *(count.astype(int).tolist() for count in counts), strict=True)
    differs = said != other
    pairs = Counter(zip(said[differs].tolist(), other[differs].tolist(), strict=True))
    return Comparison(
        len(labels),
        (int(hits[0].sum()), int(hits[1].sum())),
        tuple(rows),
        tuple((one, another, count) for (one, another), count in pairs.most_common()),
        mcnemar(int((hits[0] & ~hits[1]).sum()), int((hits[1] & ~hits[0]).sum())),
    )


def changes(first: Classifier, second: Classifier) -> dict[str, Any]:
    """Return what differs between two classifiers themselves, ready for JSON: facts by name, first and second.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])}
    >>> old, new = (fm.fit("fedncm", parties, class_names=names) for names in (["up", "left"], ["up", "right"]))
    >>> changes(old, new)["classes_added"], changes(old, new)["same_parameters"]
    (['right'], True)
    """
    before = version_of(second)
    facts = [dict(_facts(classifier)) for classifier in (first, second)]
    differing = {
        name: [fact.get(name) for fact in facts]
        for name in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(name) != facts[1].get(name)
    }
    return {
        "same_parameters": first.digest() == second.digest(),
        "second_follows_first": before is not None and before.parent == first.digest(),
        "classes_added": [name for name in second.class_names if name not in first.class_names],
        "classes_removed": [name for name in first.class_names if name not in second.class_names],
        "changed": differing,
    }


def _facts(classifier: Classifier) -> Iterator[tuple[str, Any]]:
    info = classifier.info
    noted = info.get("encoder")
    yield "digest", classifier.digest()
    yield "kind", classifier.kind
    yield "encoder", noted.get("name") if isinstance(noted, Mapping) else None
    yield "encoder fingerprint", noted.get("fingerprint") if isinstance(noted, Mapping) else None
    yield "feature map", str(classifier.feature_map) if classifier.feature_map else None
    yield "dimensions", classifier.dim
    yield "temperature", classifier.temperature
    for name in ("head", "settings", "clients", "samples", "statistics"):
        yield name, info.get(name)
    version = version_of(classifier)
    yield "version", str(version) if version else None
    absent = [name for name, there in zip(classifier.class_names, classifier.present, strict=True) if not there]
    yield "never predicted", absent


def compare_on(
    files: Files, source: SampleSource, loading: Mapping[str, Any], progress: Progress | None = None, **options: Any
) -> tuple[tuple[Classifier, Classifier], Comparison]:
    """Read two classifiers, and compare what they say of labelled samples that both can encode.

    Parameters
    ----------
    files
        Of the classifiers.
    source
        The samples.
    loading
        How encoders are loaded, as in :meth:`fedmoments.handover.model.Model.read`.
    progress, options
        As in :func:`fedmoments.handover.answers.encoded`.
    """
    samples = read_labelled(source, load(files[0]))
    encode = samples.modality != "features"
    first = Model.read(files[0], encode=encode, **loading)
    second = Model.read(files[1], encode=encode, before=first, **loading)
    one = encoded(first, samples, progress, **options)
    same = first.encoder is second.encoder and first.taking.dim == second.taking.dim
    other = one if same else encoded(second, samples, progress, **options)
    both, places, others = np.intersect1d(one.kept, other.kept, assume_unique=True, return_indices=True)
    classifiers = first.classifier, second.classifier
    true = _true_names(samples, both, classifiers)
    said = predicted_names(first.classifier, one.features[places])
    return classifiers, compare_names(true, said, predicted_names(second.classifier, other.features[others]))


def _true_names(samples: Samples, kept: NDArray[np.int64], classifiers: tuple[Classifier, ...]) -> NDArray[np.str_]:
    """Return the name of each sample's class; numbers without names are the first classifier's labels."""
    names: Any = samples.class_names
    known = {name for classifier in classifiers for name in classifier.class_names}
    if list(names) == [str(label) for label in range(len(names))] and known.isdisjoint(names):
        first = classifiers[0].class_names
        names = (*first, *(str(label) for label in range(len(first), len(names))))
    return np.array(names)[samples.labels[kept]]


def sums_compared(files: Files) -> tuple[tuple[Classifier, Classifier], list[dict[str, Any] | None]]:
    """Read two classifiers, and what the reports of their runs say of them: sums over those who tested.

    Returns
    -------
    tuple
        The classifiers, and for each ``samples``, ``right`` and ``by_class`` (class, samples, right), or None where no
        report beside it has a table of true and predicted classes.
    """
    classifiers = load(files[0]), load(files[1])
    summaries: list[dict[str, Any] | None] = []
    for classifier, file in zip(classifiers, files, strict=True):
        evidence = evidence_of(classifier, file)
        if evidence is None or evidence.detail.confusion is None:
            summaries.append(None)
            continue
        detail = evidence.detail
        rows = zip(classifier.class_names, detail.tested.tolist(), detail.found.tolist(), strict=True)
        keys = ("class", "samples", "right")
        by_class = [dict(zip(keys, row, strict=True)) for row in rows]
        right, samples = evidence.outcome
        summaries.append({"samples": samples, "right": right, "by_class": by_class})
    return classifiers, summaries
