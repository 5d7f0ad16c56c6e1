"""What was measured: one typed record, whoever measured it, and what is worked out from many of them.

A simulation, rounds, budgets, tuning, a reproduction and a deployed federation all emit :class:`Observation`. Memory,
tables, files and pages read it: ``at`` and ``matching`` find observations by place, ``mean``, ``spread`` and
``interval`` are over seeds. A :class:`Report` holds all that one run found. JSON is written and read at the edge alone,
by :mod:`fedmoments.core.observations.codec`.
"""

from fedmoments.core.observations.observation import (
    ACCURACY,
    Interval,
    Observation,
    Scalar,
    is_known,
    is_share,
    matching,
    sorted_values,
    student_interval,
)
from fedmoments.core.observations.report import Report, read_report
from fedmoments.core.observations.results import Comparison, Pivot, Results
from fedmoments.core.observations.rows import Outcome, Row, plain_moments
from fedmoments.settings.setting import SWEPT, Setting

__all__ = [
    "ACCURACY",
    "SWEPT",
    "Comparison",
    "Interval",
    "Observation",
    "Outcome",
    "Pivot",
    "Report",
    "Results",
    "Row",
    "Scalar",
    "Setting",
    "is_known",
    "is_share",
    "matching",
    "plain_moments",
    "read_report",
    "sorted_values",
    "student_interval",
]
