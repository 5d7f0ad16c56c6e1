"""Accuracy while clients arrive round by round: every client sends its statistics once, and nothing is trained."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from fedmoments.core.heads import Head, make_head
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations import Observation
from fedmoments.core.observations.parts import RoundAccuracy
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.samples.features import Features
from fedmoments.samples.splits.numbers import finds_clients
from fedmoments.study.memory import identity_of
from fedmoments.study.papers.engines.seeds import Spot
from fedmoments.study.papers.engines.simulation import feasible
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.methods import map_features
from fedmoments.study.simulation.points import make_split
from fedmoments.study.simulation.rounds import Participation, simulate_rounds

__all__ = ["run"]

_KNOWN = ("heads", "clients", "splits", "participations", "hyper", "variants", "points", "shares")
#: How a round is drawn.
_DRAWS = {False: "without replacement", True: "with replacement"}


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Fit heads after every round from the clients seen so far, and return their accuracies.

    Parameters
    ----------
    settings
        ``heads``, ``clients`` and ``splits`` (all combinations are run), ``participations`` (clients a round: numbers,
        or shares such as ``"30%"``, each with ``:replacement`` behind it where a client may be drawn again), ``hyper``,
        ``points`` (rounds that are fitted at most, 50), ``shares`` of clients at which the accuracy is told, too.
        ``variants`` are tables of settings that replace these, as for the engine ``simulation``.
    world
        Data, encoder and seeds.

    Returns
    -------
    list of Observation
        ``accuracy`` after a ``round``, at the ``stage`` ``final`` (everybody was seen) and when a ``share`` of the
        clients was seen, and ``rounds`` until everybody was: all at head, clients, split, per_round, draw, encoder and
        variant. A round that was not fitted has the accuracy of the last one that was.
    """
    known_settings(settings, _KNOWN, "rounds")
    common = {key: value for key, value in settings.items() if key != "variants"}
    variants = [{"name": "main", **common}] if "heads" in common else []
    variants += [{**common, **variant} for variant in settings.get("variants", [])]
    observations: list[Observation] = []
    for variant in variants:
        known_settings(variant, ("name", *_KNOWN), "rounds")
        for encoder in world.encoder_names:
            observations += _variant(variant, world, encoder)
    return observations


def _variant(settings: Mapping[str, Any], world: World, encoder: str | None) -> list[Observation]:
    splits, clients = feasible(world.features(encoder), settings, world)
    place = {"encoder": world.encoded(encoder).encoder.name, "variant": settings["name"]}
    observations: list[Observation] = []
    for scheme in splits:
        numbers: Sequence[int | None] = [None] if finds_clients(scheme) else clients
        for number in numbers:
            for word in settings.get("participations", ["10"]):
                observations += _curves(
                    {**settings, "split": scheme, "number": number, "word": str(word)}, world, encoder
                )
    return [
        Observation({**place, **one.where}, one.values, one.quantity, one.reason, one.seeds) for one in observations
    ]


def _curves(settings: Mapping[str, Any], world: World, encoder: str | None) -> list[Observation]:
    """Return the curves of all heads in one setting, over seeds."""
    scheme, number, word = settings["split"], settings["number"], settings["word"]
    hyper = {head: values for head, values in settings.get("hyper", {}).items() if head in settings["heads"]}
    most = settings.get("points", 50)
    curves: dict[str, list[list[RoundAccuracy]]] = {}
    senders = 0
    for seed in world.each_seed:
        for name, head in choose_heads(settings["heads"], hyper).items():
            world.say(seed - world.config.seed, world.seeds, f"{scheme}, {word} clients a round, seed {seed}, {name}")
            key = ["rounds", name, identity_of(head), scheme, number, word, most, seed]
            points = _points(key, head, settings, world, encoder)
            curves.setdefault(name, []).append(points)
            senders = max(senders, points[-1].seen)
    participation = _participation(word, senders, most)
    where = {
        "clients": senders if number is None else number,
        "split": scheme,
        "per_round": participation.per_round,
        "draw": _DRAWS[participation.replacement],
    }
    return [
        measurement
        for name, several in curves.items()
        for measurement in _measurements(
            {"head": name, **where}, several, settings.get("shares", []), tuple(world.each_seed)
        )
    ]


def _points(
    key: list[Any], head: Head, settings: Mapping[str, Any], world: World, encoder: str | None
) -> list[RoundAccuracy]:
    """Return the curve of one head and seed, measured once."""
    seed = key[-1]

    def measured() -> list[Observation]:
        features = world.features(encoder)
        split = make_split(features, settings["number"], settings["split"], seed)
        senders = int((split.sizes > 0).sum())
        participation = _participation(settings["word"], senders, settings.get("points", 50))
        features, plain = _plain(features, head)
        federation = Federation(features, split, [plain], seed=seed, memory_limit=math.inf)
        curve = simulate_rounds(federation, {"head": plain}, participation)[0]
        return [
            Observation({"round": point.round, "seen": point.seen}, (point.accuracy,), seeds=(seed,))
            for point in curve.points
        ]

    observations = world.memory(encoder).once(key, measured)
    return [
        RoundAccuracy(int(one.where["round"] or 0), int(one.where["seen"] or 0), one.values[0]) for one in observations
    ]


def _participation(word: str, clients: int, points: int) -> Participation:
    """Return who takes part in a round: a number of clients, or a share of all of them such as ``30%``.

    Examples
    --------
    >>> _participation("30%:replacement", 95, 50)
    Participation(per_round=29, replacement=True, most_points=50)
    """
    read = re.fullmatch("([0-9]+)(%?)(:replacement)?", word)
    if read is None or int(read[1]) < 1 or (read[2] and int(read[1]) > 100):
        raise InputError(
            f"participations are numbers of clients or shares such as 30%, with :replacement or not; '{word}' arrived"
        )
    size = ceil(int(read[1]) * clients / 100) if read[2] else int(read[1])
    return Participation(max(size, 1), replacement=read[3] is not None, most_points=points)


def _plain(features: Features, head: Head) -> tuple[Features, Head]:
    """Return a head without a map of its own, and the features behind that map, which all clients share."""
    if not head.has_own_map:
        return features, head
    train = features.train
    pilot = None
    if head.pilot_needs is not None:
        pilot = Statistics.of(train.X, train.y, head.pilot_needs, n_classes=features.n_classes)
    mapping = head.feature_map(features.dim, pilot)
    if mapping is None:
        return features, head
    hyper = {key: getattr(head, key) for key in ("ridge", "intercept", "normalize")}
    everybody = make_split(features, 1, "iid", seed=0)
    return map_features(replace(features, domains=None, ids=None), everybody, mapping), make_head("fed3r", **hyper)


def _measurements(
    where: Mapping[str, Any], curves: Sequence[Sequence[RoundAccuracy]], shares: Sequence[float], seeds: tuple[int, ...]
) -> list[Observation]:
    """Return the curve of a head over all seeds."""
    spot = Spot(where, seeds)
    rounds = sorted({point.round for points in curves for point in points})
    by_round = [spot.observe((_at(points, number) for points in curves), round=number) for number in rounds]
    by_share = [spot.observe((_once_seen(points, share) for points in curves), share=share) for share in shares]
    return [*by_round, *_ends(spot, [points[-1] for points in curves]), *by_share]


def _ends(spot: Spot, last: Sequence[RoundAccuracy]) -> list[Observation]:
    """Return where curves end, and in how many rounds they could have."""
    return [
        spot.observe((point.accuracy for point in last), stage="final"),
        spot.observe((float(point.round) for point in last), "rounds"),
        spot.observe((float(ceil(point.seen / spot.where["per_round"])) for point in last), "least rounds"),
    ]


def _once_seen(points: Sequence[RoundAccuracy], share: float) -> float | None:
    """Return the accuracy of the first fit after this share of all clients that ever took part."""
    return next(point.accuracy for point in points if point.seen >= share * points[-1].seen)


def _at(points: Sequence[RoundAccuracy], number: int) -> float | None:
    """Return the accuracy of the last fit up to a round, or None before the first."""
    before = [point.accuracy for point in points if point.round <= number]
    return before[-1] if before else None
