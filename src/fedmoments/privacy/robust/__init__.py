"""Contributions that were made to harm: what no data have, what lies too far from the others, and who moves the head.

The server must see every client's statistics for this: per-client checks and secure sums exclude each other. Under
secure sums by cohorts, rows of cohorts can be filtered.
"""

from fedmoments.privacy.robust.attacks import ATTACKS, Attack, parse_attack, poison
from fedmoments.privacy.robust.consistency import cap_reason, inconsistencies
from fedmoments.privacy.robust.filtering import Suspicion, suspects
from fedmoments.privacy.robust.influence import Influence, influences, robust_record
from fedmoments.privacy.robust.rows import suspect_rows, without_rows

__all__ = [
    "ATTACKS",
    "Attack",
    "Influence",
    "Suspicion",
    "cap_reason",
    "inconsistencies",
    "influences",
    "parse_attack",
    "poison",
    "robust_record",
    "suspect_rows",
    "suspects",
    "without_rows",
]
