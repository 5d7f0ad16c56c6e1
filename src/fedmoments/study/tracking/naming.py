"""Names and numbers as trackers take them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fedmoments.core.observations import Observation, Scalar

__all__ = ["flat", "metric_name", "place_of", "short_name", "step_of"]

#: Keys of a place that run along an axis, so that their figures belong to one run.
ALONG = ("round", "seen")


def metric_name(result: Observation) -> str:
    """Return the name of a figure: letters, digits and underscores.

    Examples
    --------
    >>> metric_name(Observation({}, (1.0,), "up, total", unit="bytes"))
    'up_total_bytes'
    """
    words = f"{result.quantity} {result.unit}"
    return "_".join(re.findall(r"\w+", words))


def place_of(result: Observation) -> dict[str, Scalar]:
    """Return where a figure belongs: its place, without what runs along an axis and without what was not set.

    Examples
    --------
    >>> place_of(Observation({"head": "fedcof", "clients": 10, "budget": None, "round": 3}, (0.9,)))
    {'head': 'fedcof', 'clients': 10}
    """
    return {key: value for key, value in result.where.items() if key not in ALONG and value not in (None, "")}


def step_of(result: Observation, seed: int | None) -> int:
    """Return where a figure stands along the axis: its round, or else its seed."""
    number = result.where.get("round")
    return number if isinstance(number, int) else (seed or 0)


def short_name(place: Mapping[str, Scalar]) -> str:
    """Return a place in a few words, which are safe as the name of a folder.

    Examples
    --------
    >>> short_name({"head": "fedcof", "clients": 10, "split": "dirichlet:0.1"})
    'fedcof clients=10 split=dirichlet-0.1'
    """
    words = [str(value) if key == "head" else f"{key}={value}" for key, value in place.items()]
    return re.sub(r"[^\w .=+-]", "-", " ".join(words)).strip(". ") or "result"


def flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values that were set in nested settings, by dotted names.

    Examples
    --------
    >>> list(flat({"data": "digits", "plan": {"rounds": 5}, "clients": [10, 20], "privacy": {}, "map": None}))
    [('data', 'digits'), ('plan.rounds', '5'), ('clients', '10, 20')]
    """
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            if value:
                yield f"{before}{name}", ", ".join(map(str, value))
        elif value not in (None, ""):
            yield f"{before}{name}", str(value)
