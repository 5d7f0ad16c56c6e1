"""How many rounds and bytes each start needs to reach the final accuracy of a random start."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

__all__ = ["final_accuracy", "reached"]


def final_accuracy(curve: Mapping[str, Any]) -> float | None:
    """Return the accuracy of what a run returns: of its best check, or of its last round.

    Examples
    --------
    >>> points = [{"round": 0, "accuracy": 0.5}, {"round": 1, "accuracy": 0.8}, {"round": 2, "accuracy": 0.7}]
    >>> final_accuracy({"points": points, "best_round": 1}), final_accuracy({"points": points, "best_round": None})
    (0.8, 0.7)
    """
    points = curve["points"]
    if curve.get("best_round") is not None:
        points = [point for point in points if point["round"] == curve["best_round"]]
    accuracy: float | None = points[-1]["accuracy"] if points else None
    return accuracy


def reached(curves: Sequence[Mapping[str, Any]], against: str = "random") -> list[dict[str, Any]]:
    """Return, for every start and optimiser, when it first has the final accuracy of the random start.

    Seeds are compared with themselves: the target of a seed is what the random start ends at under the same optimiser
    and seed. Rounds, bytes and FLOPs are means over the seeds that get there.

    Parameters
    ----------
    curves
        As results hold them.
    against
        The start that sets the targets.

    Examples
    --------
    >>> def curve(start, *accuracies):
    ...     rest = {"down": 0, "flops": None}
    ...     points = [{"round": t, "accuracy": a, "up": 10 * t, **rest} for t, a in enumerate(accuracies)]
    ...     return {"start": start, "optimiser": "fedavg", "seed": 0, "points": points, "best_round": None}
    >>> rows = reached([curve("random", 0.1, 0.5, 0.7), curve("fedcof", 0.6, 0.8, 0.8)])
    >>> [(row["start"], row["rounds"], row["bytes"]) for row in rows]
    [('random', 2.0, 20.0), ('fedcof', 1.0, 10.0)]
    """
    targets = {
        (curve["optimiser"], curve["seed"]): final
        for curve in curves
        if curve["start"] == against and (final := final_accuracy(curve)) is not None
    }
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for curve in curves:
        if (curve["optimiser"], curve["seed"]) in targets:
            groups.setdefault((curve["start"], curve["optimiser"]), []).append(curve)
    rows = []
    for (start, optimiser), group in groups.items():
        goals = [targets[optimiser, curve["seed"]] for curve in group]
        rows.append({"start": start, "optimiser": optimiser, **_means(group, goals)})
    return rows


def _means(group: Sequence[Mapping[str, Any]], goals: Sequence[float]) -> dict[str, Any]:
    """Return the mean goal of a start's curves, how many reach theirs, and after how much on the mean."""
    hits = [point for curve, goal in zip(group, goals, strict=True) if (point := _first(curve, goal)) is not None]
    flops = [point["flops"] for point in hits]
    return {
        "target": fmean(goals),
        "seeds": len(group),
        "hit": len(hits),
        "rounds": fmean(point["round"] for point in hits) if hits else None,
        "bytes": fmean(point["up"] + point["down"] for point in hits) if hits else None,
        "flops": fmean(flops) if hits and None not in flops else None,
    }


def _first(curve: Mapping[str, Any], goal: float) -> Mapping[str, Any] | None:
    return next((p for p in curve["points"] if p["accuracy"] is not None and p["accuracy"] >= goal), None)
