"""What leaves a party, who can read it, and what it proves: policies are the client's own, and come first.

Rooms: ``secure`` (sums that no server sees a summand of), ``dp`` (differential privacy of what is released) and
``robust`` (poisoned contributions). Beside them: what a contribution reveals, obfuscated counts, the privacy card.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmoments.privacy.card import privacy_card
    from fedmoments.privacy.dense import DenseLayout
    from fedmoments.privacy.leaks import Finding, LeakReport
    from fedmoments.privacy.obfuscation import Obfuscation, parse_obfuscation
    from fedmoments.privacy.protection import Agreed, Protection

__all__ = [
    "Agreed",
    "DenseLayout",
    "Finding",
    "LeakReport",
    "Obfuscation",
    "Protection",
    "parse_obfuscation",
    "privacy_card",
]

_ROOMS = {
    "fedmoments.privacy.card": ("privacy_card",),
    "fedmoments.privacy.dense": ("DenseLayout",),
    "fedmoments.privacy.leaks": (
        "Finding",
        "LeakReport",
    ),
    "fedmoments.privacy.obfuscation": (
        "Obfuscation",
        "parse_obfuscation",
    ),
    "fedmoments.privacy.protection": (
        "Agreed",
        "Protection",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    # rules of privacy are read to show a command's help, which must not wait for numpy and scipy
    if name in _ROOM_OF:
        return getattr(import_module(_ROOM_OF[name]), name)
    raise AttributeError(f"module 'fedmoments.privacy' has no attribute '{name}'")
