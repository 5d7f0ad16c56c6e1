"""Fitted classifiers: linear, quadratic and ensembles, with scores, labels, probabilities and a file each."""

from fedmoments.classifier.base import Classifier, load, load_bytes
from fedmoments.classifier.ensemble import EnsembleClassifier
from fedmoments.classifier.linear import LinearClassifier
from fedmoments.classifier.quadratic import DiagonalClassifier, LowRankClassifier, QuadraticClassifier

__all__ = [
    "Classifier",
    "DiagonalClassifier",
    "EnsembleClassifier",
    "LinearClassifier",
    "LowRankClassifier",
    "QuadraticClassifier",
    "load",
    "load_bytes",
]
