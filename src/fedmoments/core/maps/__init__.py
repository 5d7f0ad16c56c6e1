"""Feature maps: shared by seed, applied at the client before statistics.

A map is a frozen value that all parties rebuild from one small description; see ``core.maps.base`` for what maps
have in common and `fedmoments.core.maps.randomness` for the generator behind the seeds.

Examples
--------
>>> from fedmoments.core.maps import Normalize, RandomFourier
>>> pipeline = Normalize() | RandomFourier(input_dim=384, n_features=1000, bandwidth=1.2, seed=7)
>>> pipeline.output_dim(384)
1000
"""

from fedmoments.core.maps.bandwidth import median_bandwidth
from fedmoments.core.maps.base import Chain, FeatureMap, Identity, compose, from_description, known_kinds
from fedmoments.core.maps.clip import Clip
from fedmoments.core.maps.directions import Directions
from fedmoments.core.maps.fourier import RandomFourier
from fedmoments.core.maps.lengths import Lengths
from fedmoments.core.maps.normalize import Normalize
from fedmoments.core.maps.offset import Offset
from fedmoments.core.maps.power import FeatureShape, Power, named_map, recommended_map
from fedmoments.core.maps.projection import RandomProjection
from fedmoments.core.maps.relu_layer import ReluBeside, ReluResidual
from fedmoments.core.maps.table import Categories, Numbers, TableMap, table_of

__all__ = [
    "Categories",
    "Chain",
    "Clip",
    "Directions",
    "FeatureMap",
    "FeatureShape",
    "Identity",
    "Lengths",
    "Normalize",
    "Numbers",
    "Offset",
    "Power",
    "RandomFourier",
    "RandomProjection",
    "ReluBeside",
    "ReluResidual",
    "TableMap",
    "compose",
    "from_description",
    "known_kinds",
    "median_bandwidth",
    "named_map",
    "recommended_map",
    "table_of",
]
