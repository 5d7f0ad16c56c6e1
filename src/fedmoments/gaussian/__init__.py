"""From statistics to a Gaussian description of the classes: sources of covariance, shrinkage, diagnostics."""

from fedmoments.gaussian.bias import CovarianceBias, covariance_bias, expected_bias
from fedmoments.gaussian.class_gaussians import ClassGaussians, require
from fedmoments.gaussian.fisher import FisherSubspace
from fedmoments.gaussian.scatter import DiagonalScatter, MatrixScatter, RowScatter, Scatter
from fedmoments.gaussian.shrinkage import Shrinkage
from fedmoments.gaussian.sources import SOURCES, CovarianceSource, covariance_source

__all__ = [
    "SOURCES",
    "ClassGaussians",
    "CovarianceBias",
    "CovarianceSource",
    "DiagonalScatter",
    "FisherSubspace",
    "MatrixScatter",
    "RowScatter",
    "Scatter",
    "Shrinkage",
    "covariance_bias",
    "covariance_source",
    "expected_bias",
    "require",
]
