"""What leaves a party, who can read it, and what it proves: policies are the client's own, and come first.

Rooms: ``secure`` (sums that no server sees a summand of), ``dp`` (differential privacy of what is released) and
``robust`` (poisoned contributions). Beside them: what a contribution reveals, obfuscated counts, the privacy card.
"""

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
