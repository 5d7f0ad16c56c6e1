"""Models against labelled samples: which class each is of, and which class a model says."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import table_of
from fedmoments.errors import InputError
from fedmoments.handover.answers import encoded
from fedmoments.handover.model import Model
from fedmoments.samples.encoders.pipeline import Progress
from fedmoments.samples.features import Samples as Features
from fedmoments.samples.reading import read_data
from fedmoments.samples.samples import Problem, Samples
from fedmoments.settings.samples import SampleSource

__all__ = ["labelled_features", "labels_for", "predicted_names", "read_labelled"]


def read_labelled(source: SampleSource, classifier: Classifier | None = None) -> Samples:
    """Return the samples that a model is tested on: the test part of data that have one, or all of them.

    Parameters
    ----------
    source
        The data.
    classifier
        Whose map codes the cells, where it was fitted from raw tables.

    Examples
    --------
    >>> len(read_labelled(SampleSource("digits")))
    1797
    """
    table = table_of(classifier.feature_map) if classifier is not None else None
    data = read_data(replace(source, test_share=source.test_share or 0.0), table)
    return data.test if len(data.test) else data.train


def labels_for(classifier: Classifier, samples: Samples, whose: str) -> NDArray[np.int64]:
    """Return the labels (n,) of samples as a classifier numbers its classes.

    Classes are matched by name. Where the data have numbers for names, these are the classifier's labels.

    Raises
    ------
    InputError
        When samples are of classes that the classifier does not have.

    Examples
    --------
    >>> import fedmoments as fm
    >>> classifier = fm.fit("fedncm", {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])}, class_names=["up", "right"])
    >>> labels_for(classifier, Samples(["x", "y"], np.array([0, 1]), ("right", "up"), "text"), "toy").tolist()
    [1, 0]
    """
    places = {name: place for place, name in enumerate(classifier.class_names)}
    used = [samples.class_names[label] for label in np.unique(samples.labels)]
    unknown = [name for name in used if name not in places]
    if not unknown:
        return np.array([places.get(name, -1) for name in samples.class_names], np.int64)[samples.labels]
    numbers = [str(label) for label in range(len(samples.class_names))]
    if list(samples.class_names) != numbers:
        raise InputError(
            f"{whose} has classes that this classifier does not know ({', '.join(unknown[:5])}); it knows "
            f"{', '.join(classifier.class_names[:8])}"
        )
    if (highest := int(samples.labels.max())) >= classifier.n_classes:
        raise InputError(
            f"the labels of {whose} go up to {highest}, but this classifier knows the classes 0 to "
            f"{classifier.n_classes - 1}"
        )
    return samples.labels


def labelled_features(
    model: Model, samples: Samples, whose: str, progress: Progress | None = None, **options: Any
) -> tuple[Features, tuple[Problem, ...]]:
    """Return features with the classifier's labels, and what could not be read.

    Parameters
    ----------
    model
        Its encoder makes the features.
    samples
        Labelled.
    whose
        What a person typed, for messages.
    progress, options
        As in :func:`fedmoments.handover.answers.encoded`.
    """
    labels = labels_for(model.classifier, samples, whose)
    done = encoded(model, samples, progress, **options)
    return Features(done.features, labels[done.kept]), done.problems


def predicted_names(classifier: Classifier, features: NDArray[Any]) -> NDArray[np.str_]:
    """Return the name (n,) of the class that a classifier says of features (n, d)."""
    names = np.array(classifier.class_names)
    return np.concatenate([names[classifier.predict(features[block])] for block in blocks(len(features))])
