"""Targets that are not classes: numbers to predict, and labels of which a sample has any number.

The gram is the same as for classes; only the right side differs. How targets travel stands in
:mod:`fedmoments.core.targets.joint`; the heads are found by name beside those for classes.
"""

from fedmoments.core.targets.head import TargetHead
from fedmoments.core.targets.joint import EVERYBODY, joint, with_targets

__all__ = ["EVERYBODY", "TargetHead", "joint", "with_targets"]
