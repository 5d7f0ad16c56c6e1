"""From statistics to a Gaussian description of the classes: sources of covariance, shrinkage, diagnostics."""

from fedmoments.core.gaussian.bias import CovarianceBias, covariance_bias, expected_bias
from fedmoments.core.gaussian.class_gaussians import ClassGaussians, require
from fedmoments.core.gaussian.fisher import FisherSubspace
from fedmoments.core.gaussian.fisher_classes import FisherClasses
from fedmoments.core.gaussian.pooling import Pooling
from fedmoments.core.gaussian.recompression import SketchReservoir, recompress
from fedmoments.core.gaussian.scatter import DiagonalScatter, MatrixScatter, RowScatter, Scatter
from fedmoments.core.gaussian.shrinkage import Shrinkage
from fedmoments.core.gaussian.sketch_scatter import SketchScatter
from fedmoments.core.gaussian.sources import SOURCES, CovarianceSource, covariance_source
from fedmoments.core.gaussian.synthesis import GaussianSamples

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
