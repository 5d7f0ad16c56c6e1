"""Training-free, one-shot federated learning: moments of frozen features in, one classifier out.

>>> import fedmoments as fm
>>> parties = {"clinic": ([[0.0, 1.0], [0.2, 1.1]], [0, 0]), "lab": ([[1.0, 0.0], [0.1, 0.9]], [1, 0])}
>>> fm.fit("fedncm", parties).predict([[0.0, 2.0]])
array([0])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmoments.api import fit, measure, spec_for
    from fedmoments.classifier import Classifier, load
    from fedmoments.gaussian import ClassGaussians, Shrinkage, covariance_bias
    from fedmoments.heads import Head, Preset, head_names, make_head, presets
    from fedmoments.heads.recursive import RecursiveRidge
    from fedmoments.statistics import (
        Accumulator,
        FixedPoint,
        Ledger,
        SketchPlan,
        Statistics,
        StatisticsSpec,
        load_statistics,
        save_statistics,
    )

__version__ = "0.1.0"

__all__ = [
    "Accumulator",
    "ClassGaussians",
    "Classifier",
    "FixedPoint",
    "Head",
    "Ledger",
    "Preset",
    "RecursiveRidge",
    "Shrinkage",
    "SketchPlan",
    "Statistics",
    "StatisticsSpec",
    "covariance_bias",
    "fit",
    "head_names",
    "load",
    "load_statistics",
    "make_head",
    "measure",
    "presets",
    "save_statistics",
    "spec_for",
]

_ROOMS = {
    "fedmoments.api": ("fit", "measure", "spec_for"),
    "fedmoments.classifier": ("Classifier", "load"),
    "fedmoments.gaussian": ("ClassGaussians", "Shrinkage", "covariance_bias"),
    "fedmoments.heads": ("Head", "Preset", "head_names", "make_head", "presets"),
    "fedmoments.heads.recursive": ("RecursiveRidge",),
    "fedmoments.statistics": (
        "Accumulator",
        "FixedPoint",
        "Ledger",
        "Statistics",
        "SketchPlan",
        "StatisticsSpec",
        "load_statistics",
        "save_statistics",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    # scipy takes a while to import: `import fedmoments` waits until a name is used.
    if name in _ROOM_OF:
        return getattr(import_module(_ROOM_OF[name]), name)
    raise AttributeError(f"module 'fedmoments' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
