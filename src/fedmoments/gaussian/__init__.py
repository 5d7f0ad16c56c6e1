"""From statistics to a Gaussian description of the classes: sources of covariance, shrinkage, diagnostics."""

from fedmoments.gaussian.bias import CovarianceBias, covariance_bias, expected_bias
from fedmoments.gaussian.class_gaussians import ClassGaussians, require
from fedmoments.gaussian.fisher import FisherSubspace
from fedmoments.gaussian.fisher_classes import FisherClasses
from fedmoments.gaussian.pooling import Pooling
from fedmoments.gaussian.recompression import SketchReservoir, recompress
from fedmoments.gaussian.scatter import DiagonalScatter, MatrixScatter, RowScatter, Scatter
from fedmoments.gaussian.shrinkage import Shrinkage
from fedmoments.gaussian.sketch_scatter import SketchScatter
from fedmoments.gaussian.sources import SOURCES, CovarianceSource, covariance_source
from fedmoments.gaussian.synthesis import GaussianSamples

__all__ = [
    "SOURCES",
    "ClassGaussians",
    "CovarianceBias",
    "CovarianceSource",
    "DiagonalScatter",
    "FisherClasses",
    "FisherSubspace",
    "GaussianSamples",
    "MatrixScatter",
    "Pooling",
    "RowScatter",
    "Scatter",
    "Shrinkage",
    "SketchReservoir",
    "SketchScatter",
    "covariance_bias",
    "covariance_source",
    "expected_bias",
    "recompress",
    "require",
]
