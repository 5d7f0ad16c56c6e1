"""What a model says of samples: the one way by which ``predict``, ``serve``, ``evaluate`` and ``compare`` score."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError
from fedmoments.handover.model import Model
from fedmoments.samples.encoders.pipeline import EncodedSamples, Progress, encode_samples
from fedmoments.samples.samples import Problem, Samples

__all__ = ["UNKNOWN", "Answer", "Asked", "answers_of", "encoded", "predict"]

#: What a sample is called that is new to the classifier, where it may abstain.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Asked:
    """What answers hold beside probabilities.

    Parameters
    ----------
    abstain, coverage
        As in :func:`answers_of`.
    """

    abstain: float | None = None
    coverage: float | None = None

    def require_of(self, model: Model) -> None:
        """Refuse a model that cannot say what is new to it, or that has no sets, where that is requested."""
        classifier = model.classifier
        if self.abstain is not None and classifier.familiar is None:
            raise InputError(
                "it cannot abstain: its head (such as fedncm) is fitted from statistics without a spread inside"
                " classes, or its file is of a former version; take another head, or do not let it abstain"
            )
        if self.coverage is not None and classifier.ranks is None:
            raise InputError(
                "it has no prediction sets, because nobody tested it: let clients evaluate it, or ask for no coverage"
            )


@dataclass(frozen=True)
class Answer:
    """What a model says of one sample: classes with their probabilities, likeliest first.

    Examples
    --------
    >>> Answer((("cat", 0.75), ("dog", 0.25))).to_dict(top=1)
    {'class': 'cat', 'probability': 0.75, 'top': [{'class': 'cat', 'probability': 0.75}]}
    >>> Answer((("cat", 0.75), ("dog", 0.25)), novel=True).name
    'unknown'
    """

    ranked: tuple[tuple[str, float], ...]
    novel: bool = False
    #: Classes that hold the true one with the coverage that was requested; none of an unknown sample, of which coverage
    #: says nothing.
    likely: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The likeliest class, or "unknown"."""
        return UNKNOWN if self.novel else self.ranked[0][0]

    def to_dict(self, top: int) -> dict[str, Any]:
        """Return the class, its probability and the likeliest classes, ready for JSON."""
        likeliest = [{"class": other, "probability": value} for other, value in self.ranked[:top]]
        sets = {} if self.likely is None else {"set": None if self.novel else list(self.likely)}
        return {"class": self.name, "probability": None if self.novel else self.ranked[0][1], "top": likeliest, **sets}


def answers_of(
    classifier: Classifier, features: NDArray[Any], *, abstain: float | None = None, coverage: float | None = None
) -> Iterator[Answer]:
    """Yield what a classifier says of features (n, d), in their order.

    Parameters
    ----------
    classifier, features
        What scores, and what is scored.
    abstain
        Samples are unknown that are newer than all but this share of what the classifier was fitted from.
    coverage
        With which probability the set of a sample holds its class; needs a classifier that was tested.

    Examples
    --------
    >>> import fedmoments as fm
    >>> classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])}, class_names=["up", "right"])
    >>> [answer.ranked[0][0] for answer in answers_of(classifier, np.array([[0.0, 2.0]]))]
    ['up']
    """
    names = classifier.class_names
    for block in blocks(len(features)):
        shares = classifier.predict_proba(features[block])
        order = np.argsort(-shares, axis=1, kind="stable")
        novel = np.zeros(len(shares), np.bool_) if abstain is None else classifier.unknown(features[block], abstain)
        held = None if coverage is None else classifier.prediction_sets(features[block], coverage)
        for row, (share, best) in enumerate(zip(shares, order, strict=True)):
            likely = None if held is None else tuple(names[at] for at in best if held[row, at] and not novel[row])
            yield Answer(tuple((names[label], float(share[label])) for label in best), bool(novel[row]), likely)


def encoded(model: Model, samples: Samples, progress: Progress | None = None, **options: Any) -> EncodedSamples:
    """Return the features of samples as the model's classifier takes them, before its own map.

    Parameters
    ----------
    model
        Its encoder is used; without one, samples are features.
    samples
        What is encoded; those that cannot be read are among the result's problems.
    progress, options
        As in :func:`~fedmoments.samples.encoders.pipeline.encode_samples`.
    """
    return encode_samples(model.taking, samples, progress=progress, **options)


def predict(
    model: Model,
    samples: Samples,
    *,
    abstain: float | None = None,
    coverage: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[list[tuple[str, Answer]], tuple[Problem, ...]]:
    """Return the names of samples with their answers, in order, and what could not be read.

    Parameters
    ----------
    model
        Classifier and encoder.
    samples
        Their labels are not looked at.
    abstain, coverage
        As in :func:`answers_of`.
    progress, options
        As in :func:`encoded`.

    Examples
    --------
    >>> import fedmoments as fm
    >>> classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])}, class_names=["up", "right"])
    >>> given = Samples(np.array([[0.0, 2.0]]), np.zeros(1, np.int64), (), "features", ["a.csv row 1"])
    >>> [(name, answer.ranked[0][0]) for name, answer in predict(Model(classifier), given)[0]]
    [('a.csv row 1', 'up')]
    """
    done = encoded(model, samples, progress, cache_dir=False, **options)
    names = [samples.source(int(place)) for place in done.kept]
    answers = answers_of(model.classifier, done.features, abstain=abstain, coverage=coverage)
    return list(zip(names, answers, strict=True)), done.problems
