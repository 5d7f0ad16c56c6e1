"""A claim over runs whose accuracy never changed says so, whatever their order."""

from dataclasses import replace

import pytest

from fedmoments.core.observations import Observation
from fedmoments.core.observations.tuning import RoundPoint, TuningCurve
from fedmoments.study.papers.claims import CLAIM_VERDICTS, compare_claims
from fedmoments.study.papers.engines import tuning_curves
from fedmoments.study.papers.experiment import Claim

CLAIM = Claim("start", "FedNCM ends above random", {"start": "fedncm"}, {"start": "random"})


def measured(ends: dict[str, tuple[float, float]]) -> list[Observation]:
    """Return the curves of two runs, (start, end), and their ends."""
    found = []
    for start, (first, last) in ends.items():
        place: dict[str, str | int] = {"stage": "ft", "start": start, "clients": 10}
        found.append(Observation(place, (last, last + 0.01), seeds=(0, 1)))
        for number, value in enumerate((first, last)):
            found.append(
                Observation({**place, "round": number}, (value, value + 0.01), "accuracy by round", seeds=(0, 1))
            )
    return found


@pytest.mark.parametrize(
    ("fedncm", "random", "verdict"),
    [
        ((0.5, 0.7), (0.1, 0.4), "holds"),
        ((0.5, 0.5), (0.1, 0.4), "did not train"),
        ((0.5, 0.7), (0.1, 0.1), "did not train"),
        ((0.5, 0.6), (0.1, 0.9), "fails"),
    ],
)
def test_a_run_that_did_not_move_shows_nothing(
    fedncm: tuple[float, float], random: tuple[float, float], verdict: str
) -> None:
    judged = compare_claims([CLAIM], measured({"fedncm": fedncm, "random": random}))
    assert judged[0]["verdict"] == verdict
    assert verdict in CLAIM_VERDICTS


def test_heads_without_training_are_no_runs() -> None:
    place: dict[str, str | int] = {"stage": "none", "clients": 10}
    heads = [Observation({**place, "start": name}, (value,), seeds=(0,)) for name, value in CLAIMED.items()]
    curves = [Observation({**each.where, "round": 0}, each.values, "accuracy by round", seeds=(0,)) for each in heads]
    assert compare_claims([CLAIM], [*heads, *curves])[0]["verdict"] == "holds"


CLAIMED = {"fedncm": 0.9, "random": 0.1}


def test_a_run_that_diverged_shows_nothing_either() -> None:
    found = measured({"fedncm": (0.5, 0.7), "random": (0.1, 0.4)})
    ends = [replace(one, reason="diverged: in round 5 …") if one.where["start"] == "random" else one for one in found]
    assert compare_claims([CLAIM], ends)[0]["verdict"] == "did not train"


@pytest.mark.parametrize("quantity", ["megabytes", "gigaflops"])
def test_what_a_run_that_diverged_has_cost_shows_nothing_either(quantity: str) -> None:
    done = {}
    for start, ended in (("fed3r", None), ("random", "diverged: in round 1 …")):
        points = [RoundPoint(t, 0.1 + t / 10, up=10**6 * t, flops=1e9 * t) for t in range(1 if ended else 4)]
        curve = TuningCurve(start, "fedavg", 0, tuple(points), stopped=ended)
        place = tuning_curves.Place("squeezenet-1.1", "trained", "main", "ft", start, "fedavg", "iid", 1)
        done[place] = tuning_curves.Curves((curve,), (0,), 3, clients=1)
    less = Claim("less", "…", {"start": "fed3r", "quantity": quantity}, {"start": "random", "quantity": quantity})
    judged = compare_claims([replace(less, relation="below")], tuning_curves.measured(done))
    assert judged[0]["verdict"] == "did not train"
