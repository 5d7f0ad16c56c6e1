"""What a simulation found: its rows, and what they were measured on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from fedmoments.core.observations import Observation, Results, Row
from fedmoments.core.observations.results import DISCORDANT
from fedmoments.core.observations.rows import BYTES_PER_NUMBER

__all__ = ["SimulationResult"]


@dataclass(frozen=True)
class SimulationResult:
    """All rows, and what they were measured on.

    Parameters
    ----------
    data
        Name, sizes, dimension and classes of the features.
    splits
        For every setting of clients and split, and every seed, the split's own report.
    rows
        One for every setting and head.
    seconds
        How long everything took.
    """

    data: Mapping[str, Any]
    splits: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]
    seconds: float

    @property
    def results(self) -> Results:
        """All observations, and for every pair of methods in a setting the test samples that one alone is right on."""
        every = [each for row in self.rows for each in row.observations]
        for one, other in permutations(self.rows, 2):
            if replace(one.setting, budget=None) == replace(other.setting, budget=None):
                where = {"head": one.head, "against": other.head, **one.setting.to_dict()}
                seeds = tuple(outcome.seed for outcome in one.outcomes)
                every.append(Observation(where, one.only_right(other), DISCORDANT, None, seeds, "samples"))
        return Results(tuple(every))

    @property
    def seeds(self) -> int:
        """How many seeds every row has."""
        return len(self.rows[0].outcomes) if self.rows else 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "data": dict(self.data),
            "seeds": self.seeds,
            "bytes_per_number": BYTES_PER_NUMBER,
            "rows": [row.to_dict() for row in self.rows],
            "splits": [dict(split) for split in self.splits],
            "seconds": self.seconds,
        }

    def to_json(self) -> str:
        """Return everything as JSON text.

        Examples
        --------
        >>> SimulationResult({"name": "toy"}, (), (), 0.5).to_json()[:30]
        '{"data": {"name": "toy"}, "see'
        """
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)
