"""One file a head: formula, what it needs, ``fit(statistics) -> classifier``; found by name."""

from fedmoments.heads.head import Head, Preset
from fedmoments.heads.registry import head_names, make_head, presets

__all__ = ["Head", "Preset", "head_names", "make_head", "presets"]
