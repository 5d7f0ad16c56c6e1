"""One file a head: formula, what it needs, ``fit(statistics) -> classifier``; found by name."""

from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset, head_names, make_head, presets, register_head

__all__ = ["Head", "Preset", "head_names", "make_head", "presets", "register_head"]
