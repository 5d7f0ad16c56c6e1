"""What can be measured about labelled features, and how it merges."""

from fedmoments.core.statistics.accumulator import Accumulator
from fedmoments.core.statistics.files import load_statistics, save_statistics
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.ledger import Ledger
from fedmoments.core.statistics.mean_rows import MeanRows
from fedmoments.core.statistics.moments import MOMENTS, Layout, Moment, register_moment
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.core.statistics.sketches import Sketches
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics

__all__ = [
    "MOMENTS",
    "Accumulator",
    "FixedPoint",
    "Layout",
    "Ledger",
    "MeanRows",
    "Moment",
    "SketchPlan",
    "Sketches",
    "Statistics",
    "StatisticsSpec",
    "load_statistics",
    "register_moment",
    "save_statistics",
]
