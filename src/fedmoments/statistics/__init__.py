"""What can be measured about labelled features, and how it merges."""

from fedmoments.statistics.accumulator import Accumulator
from fedmoments.statistics.files import load_statistics, save_statistics
from fedmoments.statistics.fixed_point import FixedPoint
from fedmoments.statistics.ledger import Ledger
from fedmoments.statistics.mean_rows import MeanRows
from fedmoments.statistics.moments import MOMENTS, Layout, Moment
from fedmoments.statistics.sketch_plan import SketchPlan
from fedmoments.statistics.sketches import Sketches
from fedmoments.statistics.spec import StatisticsSpec
from fedmoments.statistics.statistics import Statistics

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
    "save_statistics",
]
