"""The page of a tuning with the clients of a federation: one curve, in the form that pages of simulated tuning read."""

from collections.abc import Mapping
from typing import Any

from fedmoments.core.observations import Report
from fedmoments.core.observations.codec import from_plain
from fedmoments.core.observations.parts import Data
from fedmoments.core.observations.tuning import Tuning, TuningCurve
from fedmoments.federation.terms import Terms

__all__ = ["tuning_report"]

#: What a curve takes over from ``tuning.json`` as it is.
_SAME = ("start", "temperature", "temperatures", "plan", "best_round", "stopped", "points")


def tuning_report(run: Mapping[str, Any], terms: Terms) -> Report:
    """Return what :func:`fedmoments.pages.write_report` draws.

    Parameters
    ----------
    run
        What ``tuning.json`` holds.
    terms
        Of the federation; they say what the samples are.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> from fedmoments.samples.fingerprint import Fingerprint
    >>> from fedmoments.tuning import TuningPlan
    >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
    >>> run = {"plan": TuningPlan(rounds=3).to_dict(), "clients": {"clinic": {"train": 90, "validation": 10}}}
    >>> run |= {"start": "fedcof", "temperature": 0.1, "temperatures": {}, "best_round": None, "stopped": None}
    >>> report = tuning_report({**run, "points": [], "version": "1", "seconds": 2.0}, terms)
    >>> report.data.train, report.tuning.per_round, report.tuning.curves[0].optimiser
    (90, 1, 'fedavg')
    """
    plan, clients = run["plan"], len(run["clients"])
    own = {"optimiser": plan["optimiser"], "seed": plan["seed"]}
    curve = from_plain(TuningCurve, {**{name: run[name] for name in _SAME}, **own}, "tuning.json")
    data = Data(
        terms.name,
        train=sum(client["train"] for client in run["clients"].values()),
        test=run.get("test_samples") or None,
        dim=terms.dim,
        classes=len(terms.classes),
        class_names=tuple(terms.classes),
        encoder=terms.encoder_note,
    )
    tuning = Tuning(
        curve.plan.stage,
        clients,
        None,
        curve.plan.per_round(clients),
        curve.plan.replacement,
        curve.plan.rounds,
        None if curve.plan.stage == "lp" else curve.plan.batchnorm,
        (curve,),
    )
    return Report(data=data, tuning=tuning, version=run["version"], seconds=run["seconds"])
