"""Fitted classifiers: linear, quadratic, mixtures and ensembles, with scores, labels, probabilities and a file each."""

from fedmoments.core.classifier.base import Classifier
from fedmoments.core.classifier.ensemble import EnsembleClassifier
from fedmoments.core.classifier.linear import LinearClassifier
from fedmoments.core.classifier.mixture import MixtureClassifier
from fedmoments.core.classifier.quadratic import DiagonalClassifier, LowRankClassifier, QuadraticClassifier
from fedmoments.core.classifier.stored import load, load_bytes
from fedmoments.core.classifier.targets import MultiLabel, Regression, TargetModel, target_matrix

__all__ = [
    "Classifier",
    "DiagonalClassifier",
    "EnsembleClassifier",
    "LinearClassifier",
    "LowRankClassifier",
    "MixtureClassifier",
    "MultiLabel",
    "QuadraticClassifier",
    "Regression",
    "TargetModel",
    "load",
    "load_bytes",
    "target_matrix",
]
