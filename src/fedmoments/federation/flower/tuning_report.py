"""The page of a tuning with the clients of a federation: one curve, in the form that pages of simulated tuning read."""

from collections.abc import Mapping
from typing import Any

from fedmoments.federation.terms import Terms
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.reached import reached

__all__ = ["page_document"]

#: What a curve takes over from ``tuning.json`` as it is.
_SAME = ("start", "temperature", "temperatures", "plan", "best_round", "stopped", "points")


def page_document(run: Mapping[str, Any], terms: Terms) -> dict[str, Any]:
    """Return what :func:`fedmoments.pages.write_report` draws.

    Parameters
    ----------
    run
        What ``tuning.json`` holds.
    terms
        Of the federation; they say what the samples are.

    Examples
    --------
    >>> from fedmoments.samples.fingerprint import Fingerprint
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
    >>> run = {"plan": TuningPlan(rounds=3).to_dict(), "clients": {"clinic": {"train": 90, "validation": 10}}}
    >>> run |= {"start": "fedcof", "temperature": 0.1, "temperatures": {}, "best_round": None, "stopped": None}
    >>> document = page_document({**run, "points": [], "version": "1", "seconds": 2.0}, terms)
    >>> document["data"]["train"], document["tuning"]["per_round"], document["tuning"]["curves"][0]["optimiser"]
    (90, 1, 'fedavg')
    """
    plan = TuningPlan(**run["plan"])
    numbers = run["clients"].values()
    curve = {name: run[name] for name in _SAME}
    curve |= {"optimiser": plan.optimiser, "seed": plan.seed, "refit": {}, "probe": None}
    return {
        "format": 1,
        "version": run["version"],
        "seconds": run["seconds"],
        "rows": [],
        "data": {
            "name": terms.name,
            "train": sum(client["train"] for client in numbers),
            "test": run.get("test_samples") or None,
            "dim": terms.dim,
            "classes": len(terms.classes),
            "class_names": list(terms.classes),
            "encoder": terms.encoder_note,
        },
        "tuning": {
            "stage": plan.stage,
            "clients": len(numbers),
            "per_round": plan.per_round(len(numbers)),
            "replacement": plan.replacement,
            "rounds": plan.rounds,
            "batchnorm": None if plan.stage == "lp" else plan.batchnorm,
            "curves": [curve],
            "heads": [],
            "reached": reached([curve]),
        },
    }
