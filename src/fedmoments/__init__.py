"""Training-free, one-shot federated learning: moments of frozen features in, one classifier out.

>>> import fedmoments as fm
>>> parties = {"clinic": ([[0.0, 1.0], [0.2, 1.1]], [0, 0]), "lab": ([[1.0, 0.0], [0.1, 0.9]], [1, 0])}
>>> fm.fit("fedncm", parties).predict([[0.0, 2.0]])
array([0])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmoments.core.api import fit, measure, spec_for
    from fedmoments.core.classifier import Classifier, load
    from fedmoments.core.diagnostics import diagnose
    from fedmoments.core.floats import precision
    from fedmoments.core.gaussian import ClassGaussians, Shrinkage, covariance_bias
    from fedmoments.core.heads import Head, Preset, head_names, make_head, presets, register_head
    from fedmoments.core.heads.recursive import RecursiveRidge
    from fedmoments.core.maps import TableMap
    from fedmoments.core.observations import Observation, Report, Results, read_report
    from fedmoments.core.statistics import (
        Accumulator,
        FixedPoint,
        Layout,
        Ledger,
        Moment,
        SketchPlan,
        Statistics,
        StatisticsSpec,
        load_statistics,
        register_moment,
        save_statistics,
    )
    from fedmoments.core.tables import draft_table, table_map, table_sums
    from fedmoments.core.targets import with_targets
    from fedmoments.privacy.modes.registry import register_privacy
    from fedmoments.samples import register_source, register_split
    from fedmoments.samples.corruptions import register_corruption
    from fedmoments.samples.encoders import register_encoder
    from fedmoments.samples.lakes import measure_files
    from fedmoments.samples.streams import measure_stream
    from fedmoments.settings.optimisers import register_optimiser
    from fedmoments.settings.plan import TuningPlan
    from fedmoments.study.baselines import register_baseline
    from fedmoments.study.simulation import simulate
    from fedmoments.study.tracking import Callback, register_tracker
    from fedmoments.tuning.head_tuning import tune

__version__ = "0.2.0"

__all__ = [
    "Accumulator",
    "Callback",
    "ClassGaussians",
    "Classifier",
    "FixedPoint",
    "Head",
    "Layout",
    "Ledger",
    "Moment",
    "Observation",
    "Preset",
    "RecursiveRidge",
    "Report",
    "Results",
    "Shrinkage",
    "SketchPlan",
    "Statistics",
    "StatisticsSpec",
    "TableMap",
    "TuningPlan",
    "covariance_bias",
    "diagnose",
    "draft_table",
    "fit",
    "head_names",
    "load",
    "load_statistics",
    "make_head",
    "measure",
    "measure_files",
    "measure_stream",
    "precision",
    "presets",
    "read_report",
    "register_baseline",
    "register_corruption",
    "register_encoder",
    "register_head",
    "register_moment",
    "register_optimiser",
    "register_privacy",
    "register_source",
    "register_split",
    "register_tracker",
    "save_statistics",
    "simulate",
    "spec_for",
    "table_map",
    "table_sums",
    "tune",
    "with_targets",
]

_ROOMS = {
    "fedmoments.core.api": ("fit", "measure", "spec_for"),
    "fedmoments.core.classifier": ("Classifier", "load"),
    "fedmoments.core.diagnostics": ("diagnose",),
    "fedmoments.core.floats": ("precision",),
    "fedmoments.core.gaussian": ("ClassGaussians", "Shrinkage", "covariance_bias"),
    "fedmoments.core.heads": ("Head", "Preset", "head_names", "make_head", "presets", "register_head"),
    "fedmoments.core.heads.recursive": ("RecursiveRidge",),
    "fedmoments.core.maps": ("TableMap",),
    "fedmoments.core.observations": ("Observation", "Report", "Results", "read_report"),
    "fedmoments.core.statistics": (
        "Accumulator",
        "FixedPoint",
        "Ledger",
        "Statistics",
        "Layout",
        "Moment",
        "SketchPlan",
        "StatisticsSpec",
        "load_statistics",
        "register_moment",
        "save_statistics",
    ),
    "fedmoments.core.tables": ("draft_table", "table_map", "table_sums"),
    "fedmoments.core.targets": ("with_targets",),
    "fedmoments.privacy.modes.registry": ("register_privacy",),
    "fedmoments.samples": ("register_source", "register_split"),
    "fedmoments.samples.corruptions": ("register_corruption",),
    "fedmoments.samples.encoders": ("register_encoder",),
    "fedmoments.samples.lakes": ("measure_files",),
    "fedmoments.samples.streams": ("measure_stream",),
    "fedmoments.settings.optimisers": ("register_optimiser",),
    "fedmoments.settings.plan": ("TuningPlan",),
    "fedmoments.study.baselines": ("register_baseline",),
    "fedmoments.study.simulation": ("simulate",),
    "fedmoments.study.tracking": ("Callback", "register_tracker"),
    "fedmoments.tuning.head_tuning": ("tune",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
#: Names of former versions, and what they are called now.
_FORMER = {"tune_head": "tune"}


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        from warnings import warn

        warn(f"fedmoments.{name} is called fedmoments.{_FORMER[name]} now", DeprecationWarning, stacklevel=2)
        return __getattr__(_FORMER[name])
    # scipy takes a while to import: `import fedmoments` waits until a name is used.
    if name in _ROOM_OF:
        globals()[name] = value = getattr(import_module(_ROOM_OF[name]), name)
        return value
    raise AttributeError(f"module 'fedmoments' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
