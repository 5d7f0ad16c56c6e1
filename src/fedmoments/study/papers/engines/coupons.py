"""Rounds until a share of the clients was seen, when every round draws some of them afresh."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedmoments.core.costs import expected_rounds, rounds_without_replacement, simulate_rounds
from fedmoments.core.observations import Observation
from fedmoments.errors import InputError
from fedmoments.study.papers.world import World, known_settings

__all__ = ["run"]

_KNOWN = ("clients", "sampled", "shares", "draws")


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Count rounds by formula, and on request by drawing.

    Parameters
    ----------
    settings
        ``clients`` and ``sampled``: whole numbers or lists, which are swept. ``shares`` of the clients, all of them by
        default. ``draws`` is how many federations are drawn for every seed, besides; 0, the default, draws none.
    world
        Seeds, and memory of what was counted and drawn.

    Returns
    -------
    list of Observation
        At clients, sampled, share and ``by`` (``formula`` or ``draws``): ``rounds`` and ``deviation`` (mean and
        standard deviation, in rounds). By formula also ``rounds without replacement``, where no client is drawn twice,
        and ``participation``, the percentage of the clients in a round.

    Examples
    --------
    >>> from fedmoments.settings.study import StudySettings
    >>> found = run({"clients": 100, "sampled": 10, "shares": [0.5]}, World(StudySettings(), cache_dir=False))
    >>> [(each.quantity, round(each.mean, 2)) for each in found]
    [('rounds', 7.02), ('deviation', 0.56), ('rounds without replacement', 5.0), ('participation', 10.0)]
    """
    known_settings(settings, _KNOWN, "coupons")
    for key in ("clients", "sampled"):
        if key not in settings:
            raise InputError(f"'{key}' is missing: rounds depend on how many clients there are and how many are drawn.")
    places: list[dict[str, Any]] = [
        {"clients": clients, "sampled": sampled, "share": share}
        for clients in _several(settings["clients"])
        for sampled in _several(settings["sampled"])
        for share in _several(settings.get("shares", 1.0))
    ]
    measurements = []
    for done, place in enumerate(places):
        measurements += world.memory("none").once(["coupons", place], partial(_by_formula, place))
        if settings.get("draws", 0):
            world.say(done, len(places), f"draw {place['sampled']} of {place['clients']:,} clients a round")
            measurements += _by_draws(place, settings["draws"], world)
    return measurements


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _by_formula(place: Mapping[str, Any]) -> list[Observation]:
    counted = expected_rounds(**place)
    values = {
        "rounds": counted.mean,
        "deviation": counted.standard_deviation,
        "rounds without replacement": float(rounds_without_replacement(**place)),
        "participation": 100 * place["sampled"] / place["clients"],
    }
    return [Observation({**place, "by": "formula"}, (value,), quantity) for quantity, value in values.items()]


def _by_draws(place: Mapping[str, Any], draws: int, world: World) -> list[Observation]:
    """Return mean and standard deviation of drawn federations for every seed; draws of a seed are remembered."""
    means, deviations = [], []
    for seed in world.each_seed:
        key = ["coupons", dict(place), draws, seed]
        mean, deviation = world.memory("none").once(key, partial(_draw, place, draws, seed))[0].values
        means.append(mean)
        deviations.append(deviation)
    seeds = tuple(world.each_seed)
    where = {**place, "by": "draws"}
    return [
        Observation(where, tuple(means), "rounds", seeds=seeds),
        Observation(where, tuple(deviations), "deviation", seeds=seeds),
    ]


def _draw(place: Mapping[str, Any], draws: int, seed: int) -> list[Observation]:
    rounds = simulate_rounds(**place, repetitions=draws, seed=seed)
    return [Observation(place, (float(rounds.mean()), float(rounds.std())), "rounds")]
