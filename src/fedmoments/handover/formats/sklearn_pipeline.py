"""scikit-learn: a pipeline of its own classes, for linear classifiers on features.

``joblib.load(FILE)`` gives it back with nothing but scikit-learn installed. A joblib file is a pickle: load it only
where you trust who wrote it.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.maps import Chain, FeatureMap, Normalize, Offset, RandomFourier, RandomProjection
from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.files import write_whole
from fedmoments.handover.export import Export
from fedmoments.handover.model import Model

__all__ = ["EXPORTS", "to_sklearn"]

WHAT = "Export to scikit-learn"


def to_sklearn(model: Model) -> Any:
    """Return a pipeline of scikit-learn's own classes with the same probabilities.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> pipeline = to_sklearn(Model(fm.fit("fedncm", parties, class_names=["up", "right"])))
    >>> pipeline.predict([[0.0, 2.0]])
    array(['up'], dtype='<U5')
    """
    classifier = model.classifier
    if not isinstance(classifier, LinearClassifier):
        raise InputError(
            f"scikit-learn has no class for a {classifier.kind} classifier with given parameters: only linear heads "
            "are exported to it; 'onnx' and 'torch' take every head"
        )
    present = np.flatnonzero(classifier.present)
    offset = classifier.offset if classifier.offset is not None else np.zeros(classifier.dim)
    weights = classifier.weights[:, present].T / classifier.temperature
    bias = classifier.bias[present] / classifier.temperature - weights @ offset
    if len(present) == 2:  # scikit-learn keeps one row for two classes
        weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
    regression = require("sklearn.linear_model", WHAT, "sklearn", "scikit-learn").LogisticRegression()
    regression.coef_, regression.intercept_ = weights, bias
    regression.classes_ = np.array(classifier.class_names)[present]
    _require_sorted(regression)
    regression.n_features_in_ = classifier.dim
    steps = [(f"{place}-{stage.kind}", _step(stage, classifier.dim)) for place, stage in enumerate(_stages(model))]
    pipeline = require("sklearn.pipeline", WHAT, "sklearn", "scikit-learn").Pipeline
    made = pipeline([*steps, ("head", regression)])
    # What scikit-learn has no class for travels as plain values and arrays.
    made.doubts_ = model.doubts()
    made.familiar_ = classifier.familiar.tensors() if classifier.familiar else {}
    return made


def _require_sorted(regression: Any) -> None:
    """Put classes into the order that scikit-learn assumes everywhere: sorted."""
    order = np.argsort(regression.classes_)
    if len(order) == 2 and order[0] == 1:
        regression.coef_, regression.intercept_ = -regression.coef_, -regression.intercept_
    elif len(order) > 2:
        regression.coef_, regression.intercept_ = regression.coef_[order], regression.intercept_[order]
    regression.classes_ = regression.classes_[order]


def _stages(model: Model) -> tuple[FeatureMap, ...]:
    given = model.classifier.feature_map
    if given is None:
        return ()
    return given.maps if isinstance(given, Chain) else (given,)


def _step(stage: FeatureMap, dim: int) -> Any:
    if isinstance(stage, Normalize):
        return require("sklearn.preprocessing", WHAT, "sklearn", "scikit-learn").Normalizer()
    if isinstance(stage, Offset):
        scaler = require("sklearn.preprocessing", WHAT, "sklearn", "scikit-learn").StandardScaler(with_std=False)
        scaler.mean_, scaler.scale_, scaler.n_features_in_ = stage.array.copy(), None, len(stage.array)
        return scaler
    if isinstance(stage, RandomFourier):
        sampler = require("sklearn.kernel_approximation", WHAT, "sklearn", "scikit-learn").RBFSampler(
            gamma=0.5 / stage.bandwidth**2, n_components=stage.n_features, random_state=stage.seed
        )
        sampler.random_weights_, sampler.random_offset_ = stage.frequencies.copy(), stage.phases.copy()
        sampler.n_features_in_ = stage.input_dim
        return sampler
    if isinstance(stage, RandomProjection):
        projection = require("sklearn.random_projection", WHAT, "sklearn", "scikit-learn").GaussianRandomProjection(
            n_components=stage.n_components, random_state=stage.seed
        )
        projection.components_, projection.n_components_ = stage.matrix.T.copy(), stage.n_components
        projection.n_features_in_ = stage.input_dim
        return projection
    raise InputError(
        f"scikit-learn has no step for the feature map '{stage.kind}' ({dim} dimensions come out of it): export to "
        "'onnx' or 'torch'"
    )


def _write(model: Model, place: Path) -> list[Path]:
    if model.encoder is not None:
        raise InputError("a scikit-learn pipeline takes features: export the head alone (no encoder)")
    joblib = require("joblib", WHAT, "sklearn")
    buffer = io.BytesIO()
    joblib.dump(to_sklearn(model), buffer)
    write_whole(place, buffer.getvalue())
    return [place]


EXPORTS = (
    Export("sklearn", "a scikit-learn pipeline (.joblib, a pickle) for linear heads on features", _write, ".joblib"),
)
