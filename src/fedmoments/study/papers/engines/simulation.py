"""One-shot federations: heads and baselines over numbers of clients, splits, shrinkages, means, projections, noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import numpy as np

from fedmoments.core.heads import Head
from fedmoments.core.observations import ACCURACY, Observation, Row
from fedmoments.core.observations.rows import BYTES_PER_NUMBER
from fedmoments.privacy.sweep import read_protections
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features
from fedmoments.samples.splits.numbers import finds_clients
from fedmoments.study.papers.engines.seeds import Spot
from fedmoments.study.papers.engines.simulation_derived import against, best_of, inference
from fedmoments.study.papers.world import World, known_settings, numbers_of_clients
from fedmoments.study.simulation import simulate
from fedmoments.study.simulation.methods import Method, all_names, choose_methods
from fedmoments.study.simulation.points import Point, make_split

__all__ = ["feasible", "run"]

_KNOWN = (
    "heads",
    "clients",
    "splits",
    "shrinkages",
    "means_per_client",
    "projections",
    "obfuscations",
    "hyper",
    "variants",
    "means_per_class",
    "best",
    "against",
    "inference",
    "once",
)


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Simulate all combinations of the settings, and return accuracy, bytes and time of every head.

    Parameters
    ----------
    settings
        ``heads`` (heads and baselines), ``clients``, ``splits``, ``shrinkages``, ``means_per_client``, ``projections``
        (0 for the features as they are), ``obfuscations`` (``uniform:0.1``; ``none``) are swept. ``hyper`` has the
        hyper-parameters of heads. ``variants`` are tables of settings that replace these: each is run, too, and its
        measurements have ``variant`` = its ``name``; settings outside belong to the variant ``main``.

        ``means_per_class`` adds how many means the server holds of a class. ``best`` is a list of tables with ``name``
        and ``heads``: the one of these heads that is best on average stands under that name, too. ``against`` names a
        quantity of costs: every accuracy stands once more, in per cent, at its cost. ``inference`` names a head: the
        memory and time that all classifiers take, as multiples of its own. ``once`` names heads that are fitted for
        the first split and number of clients alone, and whose accuracy stands for all others; refused, with a word,
        where who holds what would change it.
    world
        Data, encoders and seeds; every encoder is run, and measurements have its name as ``encoder``.

    Returns
    -------
    list of Observation
        Of ``accuracy``, ``megabytes`` (up, all clients together), ``megabytes whole`` (the same as the papers count it:
        no matrix is packed, and FedCOF's oracle sends a covariance of every class), ``kilobytes`` (a client) and
        ``seconds`` (server), at head, clients, split, shrinkage, means_per_client, projection, noise, intensity,
        encoder and variant. A shrinkage that a head has by itself is called ``own``. A head whose fit takes long, and
        whose statistics add up to the same whoever holds what, has a value for the first seed alone, unless the seed
        draws a projection or noise, too.
    """
    known_settings(settings, _KNOWN, "simulation")
    common = {key: value for key, value in settings.items() if key != "variants"}
    variants = [{"name": "main", **common}] if "heads" in common else []
    variants += [{**common, **variant} for variant in settings.get("variants", [])]
    for variant in variants:
        known_settings(variant, ("name", *_KNOWN), "simulation")
    measurements: list[Observation] = []
    for encoder in world.encoder_names:
        for variant in variants:
            measurements += _variant(dict(variant), world, encoder)
    return measurements


def _variant(settings: dict[str, Any], world: World, encoder: str | None) -> list[Observation]:
    """Return everything that is measured of one variant behind one encoder."""
    place = {"encoder": world.encoded(encoder).encoder.name, "variant": settings.pop("name")}
    features = world.features(encoder)
    heads = all_names(settings["heads"])
    hyper = {head: values for head, values in settings.get("hyper", {}).items() if head in heads}
    settings = {**settings, "projections": _projections(features, settings, world)}
    sweep = _Sweep(features, choose_methods(heads, hyper), hyper, settings, world, encoder, place)
    measurements: list[Observation] = []
    for splits, clients in _groups(features, settings, world):
        measurements += sweep.run(splits, clients)
        if settings.get("means_per_class"):
            measurements += [observation for scheme in splits for observation in _means(sweep, scheme, clients)]
    measurements += sweep.left_out()
    for table in settings.get("best", []):
        measurements += best_of(measurements, table)
    if "against" in settings:
        measurements += against(measurements, settings["against"])
    if "inference" in settings:
        measurements += inference(sweep.methods, settings, place, world, encoder)
    return measurements


@dataclass(frozen=True)
class _Sweep:
    """All combinations of one variant."""

    features: Features
    methods: Mapping[str, Method]
    hyper: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    world: World
    encoder: str | None
    place: Mapping[str, Any]

    @property
    def plain(self) -> bool:
        """Whether neither a projection nor noise is drawn with the seed."""
        obfuscations = list(self.settings.get("obfuscations", ["none"]))
        return list(self.settings["projections"]) == [0] and obfuscations == ["none"]

    def run(self, splits: Sequence[str], clients: Sequence[int]) -> list[Observation]:
        """Return the measurements of all heads in splits and numbers of clients that go together."""
        same = self._same_for_all(splits, clients)
        once = self._once(same, splits, clients)
        steady = self._steady(same, once)
        drawn = [head for head in self.methods if head not in steady and head not in once]
        measured = self._simulated(drawn, splits, clients, self.world.seeds)
        measured += self._simulated(steady, splits, clients, 1)
        first = self._simulated(once, splits[:1], clients[:1], 1 if self.plain else self.world.seeds)
        if self.plain:
            measured = self._with_draws(measured, steady, splits, clients)
            first = self._with_draws(first, once, splits, clients)
        moved = (_moved(first, scheme, number) for scheme in splits for number in clients)
        return [*measured, *chain.from_iterable(moved)]

    def _once(self, same: Sequence[str], splits: Sequence[str], clients: Sequence[int]) -> list[str]:
        """Return the heads that are fitted in the first setting alone: those of ``same`` that the file names."""
        once = [head for head in self.settings.get("once", []) if head in self.methods]
        if not set(once) <= set(same):
            self.world.deviate(
                f"{', '.join(once)}: fitted in every setting, because who holds what changes their statistics here"
            )
            return []
        if once and len(splits) * len(clients) > 1:
            where = f"{splits[0]}" + (f" and {clients[0]} clients" if clients else "")
            self.world.deviate(
                f"{', '.join(once)}: fitted for {where} alone, and the accuracy repeated in all other settings, where "
                "sums over all samples are the same"
            )
        return once

    def _steady(self, same: Sequence[str], once: Sequence[str]) -> list[str]:
        """Return the heads that are fitted in every setting, but with one seed, because the others change nothing."""
        steady = [head for head in same if head not in once] if self.plain else []
        fixed = [head for head in steady if not hasattr(self.methods[head], "draw_seed")]
        if fixed and self.world.seeds > 1:
            self.world.deviate(f"{', '.join(fixed)}: one seed, because no other one changes what they are fitted from")
        return steady

    def _with_draws(
        self, measured: list[Observation], heads: Sequence[str], splits: Sequence[str], clients: Sequence[int]
    ) -> list[Observation]:
        """Return measurements with more seeds of heads that draw samples: other draws, in the first setting alone."""
        drawing = [head for head in heads if hasattr(self.methods[head], "draw_seed")]
        if not drawing or self.world.seeds == 1:
            return measured
        self.world.deviate(
            f"{', '.join(drawing)}: every seed draws other synthetic samples, for {splits[0]} alone; one draw elsewhere"
        )
        more = [
            observation
            for seed in self.world.each_seed[1:]
            for observation in self._simulated(drawing, splits[:1], clients[:1], 1, draw_seed=seed)
        ]
        return [_joined([first, *(other for other in more if _is_at(other, first))]) for first in measured]

    def _same_for_all(self, splits: Sequence[str], clients: Sequence[int]) -> list[str]:
        """Return the heads of long fits whose statistics are sums over all samples, of which somebody holds each."""
        if any(finds_clients(scheme) for scheme in splits):
            return []
        whole = all(
            not len(make_split(self.features, number, scheme, self.world.config.seed).dropped)
            for scheme in splits
            for number in clients
        )
        return [name for name, method in self.methods.items() if whole and _adds_up(method)]

    def _simulated(
        self,
        heads: Sequence[str],
        splits: Sequence[str],
        clients: Sequence[int],
        seeds: int,
        *,
        draw_seed: int | None = None,
    ) -> list[Observation]:
        if not heads or not splits:
            return []
        settings, world = self.settings, self.world
        result = simulate(
            self.features,
            heads,
            clients=clients,
            splits=splits,
            shrinkages=settings.get("shrinkages") or (None,),
            means_per_client=settings.get("means_per_client", (1,)),
            projections=[size or None for size in settings["projections"]],
            protections=read_protections({"obfuscation": list(settings.get("obfuscations", ["none"]))}),
            seeds=seeds,
            first_seed=world.config.seed if draw_seed is None else draw_seed,
            hyper=self._hyper_of(heads, draw_seed),
            memory_limit=world.config.memory_limit * 1e9,
            memory=world.memory(self.encoder),
            progress=world.progress,
            crew=world.crew,
        )
        rows = (_measurements(row, self.features.dim, self.place) for row in result.rows)
        return list(chain.from_iterable(rows))

    def _hyper_of(self, heads: Sequence[str], draw_seed: int | None) -> dict[str, Mapping[str, Any]]:
        if draw_seed is None:
            return {head: self.hyper[head] for head in heads if head in self.hyper}
        return {head: {**self.hyper.get(head, {}), "draw_seed": draw_seed} for head in heads}

    def left_out(self) -> list[Observation]:
        """Return a reason for every head, split and number of clients that leaves classes without a client."""
        settings = self.settings
        common = {"means_per_client": settings.get("means_per_client", (1,))[0], "noise": "none", "intensity": 0.0}
        common |= {"shrinkage": (settings.get("shrinkages") or ("own",))[0], "projection": settings["projections"][0]}
        return [
            Observation({**self.place, "head": head, "clients": number, "split": scheme, **common}, (None,), reason=why)
            for scheme, number, why in _homeless(self.features, settings, self.world)
            for head in (*self.methods, *(table["name"] for table in settings.get("best", [])))
        ]


def _is_at(one: Observation, other: Observation) -> bool:
    return one.where == other.where and one.quantity == other.quantity


def _joined(several: Sequence[Observation]) -> Observation:
    """Return one measurement with the seeds of all."""
    values = tuple(value for one in several for value in one.values)
    reasons = dict.fromkeys(one.reason for one in several if one.reason)
    seeds = tuple(seed for one in several for seed in one.seeds)
    return replace(several[0], values=values, reason="; ".join(reasons) or None, seeds=seeds)


def _adds_up(method: Method) -> bool:
    return isinstance(method, Head) and method.slow and not method.needs.keeps_clients_apart


def _moved(first: Sequence[Observation], scheme: str, number: int) -> Iterator[Observation]:
    """Yield accuracies as those of another split and number of clients."""
    for one in first:
        if one.quantity == ACCURACY:
            yield replace(one, where={**one.where, "split": scheme, "clients": number})


def feasible(features: Features, settings: Mapping[str, Any], world: World) -> tuple[list[str], list[int]]:
    """Return the splits and numbers of clients that the data allow; whatever they do not is noted as a deviation.

    Parameters
    ----------
    features
        Training samples: their number, domains and ids decide.
    settings
        ``splits`` and ``clients``.
    world
        Where deviations are noted.
    """
    splits = []
    for scheme in settings.get("splits", ["dirichlet:0.1"]):
        kind = scheme.partition(":")[0]
        keys = {"domain": features.domains, "id": features.ids}
        if kind in keys and keys[kind] is None:
            world.deviate(f"left out: the split '{scheme}', because these data name no {kind} of a sample")
        else:
            splits.append(scheme)
    numbers = numbers_of_clients(settings)
    clients = [number for number in numbers if number <= len(features.train)]
    samples = len(features.train)
    if clients and len(clients) < len(numbers):
        world.deviate(f"left out: more clients than the {samples:,} training samples of these data")
    elif numbers and not clients:
        clients = [max(samples // 10, 1)]
        world.deviate(f"{clients[0]:,} clients instead of {min(numbers):,}, because there are {samples:,} samples")
    return splits, clients


def _groups(features: Features, settings: Mapping[str, Any], world: World) -> list[tuple[list[str], tuple[int, ...]]]:
    """Return splits with the numbers of clients that they are run with, those of the same numbers together."""
    splits, clients = feasible(features, settings, world)
    homeless = {(scheme, number) for scheme, number, _ in _homeless(features, settings, world)}
    groups: dict[tuple[int, ...], list[str]] = {}
    for scheme in splits:
        natural = finds_clients(scheme)
        numbers = () if natural else tuple(number for number in clients if (scheme, number) not in homeless)
        if natural or numbers or not clients:
            groups.setdefault(numbers, []).append(scheme)
    return [(several, numbers) for numbers, several in groups.items()]


def _homeless(features: Features, settings: Mapping[str, Any], world: World) -> list[tuple[str, int, str]]:
    """Return the splits into few classes a client that leave classes without any, and why."""
    homeless = []
    for scheme in feasible(features, settings, world)[0]:
        parsed = parse_split(scheme)
        if parsed.scheme.name == "classes" or scheme.endswith(":0"):
            for number in feasible(features, settings, world)[1]:
                split = make_split(features, number, scheme, world.config.seed)
                if len(split.dropped):
                    homeless.append((scheme, number, split.why))
                    world.deviate(f"left out: {split.why}")
    return homeless


def _projections(features: Features, settings: Mapping[str, Any], world: World) -> list[int]:
    """Return the projections that make features smaller; 0 stands for the features as they are."""
    asked = settings.get("projections", [0])
    smaller = [size for size in asked if size < features.dim]
    for size in asked:
        if size >= features.dim:
            world.deviate(f"no projection to {size} dimensions, because these features have {features.dim}")
    return smaller or [0]


def _measurements(row: Row, dim: int, place: Mapping[str, Any]) -> list[Observation]:
    """Return the measurements of a row of the simulation."""
    outcomes = row.outcomes
    spot = Spot({**place, **_where(row)}, tuple(outcome.seed for outcome in outcomes))
    return [
        spot.observe((outcome.accuracy for outcome in outcomes), reason="; ".join(row.reasons) or None),
        spot.observe((outcome.up_bytes / 1e6 for outcome in outcomes), "megabytes"),
        spot.observe(_whole(row, dim), "megabytes whole"),
        spot.observe((outcome.up_bytes / max(outcome.clients, 1) / 1e3 for outcome in outcomes), "kilobytes"),
        spot.observe((outcome.fit_seconds for outcome in outcomes), "seconds"),
    ]


def _where(row: Row) -> dict[str, Any]:
    """Return the place of a row; what the data or a head decide by themselves has a word."""
    setting = row.setting
    noise, _, intensity = str(cast("Point", setting).protection.obfuscation or "none").partition(":")
    return {
        "head": row.head,
        "clients": setting.clients if setting.clients is not None else row.outcomes[0].clients,
        "split": setting.split,
        "means_per_client": setting.means_per_client,
        "shrinkage": setting.shrinkage or "own",
        "projection": setting.projection or 0,
        "noise": noise,
        "intensity": float(intensity or 0),
    }


def _whole(row: Row, dim: int) -> tuple[float, ...]:
    """Return megabytes of every seed as the papers count them: (d, d) numbers a matrix, a covariance a class."""
    sends = row.sends.split(" + ")
    dim = int(row.hyper.get("n_features", row.setting.projection or dim))
    megabytes = []
    for outcome in row.outcomes:
        packed = {"gram": outcome.clients, "class_grams": outcome.up_counts}
        lower = sum(packed.get(moment, 0) for moment in sends) * dim * (dim - 1) // 2
        floats = outcome.up_bytes / BYTES_PER_NUMBER + lower
        if row.head == "fedcof-oracle":
            floats = outcome.up_counts * (dim * dim + dim)
        megabytes.append(floats * BYTES_PER_NUMBER / 1e6)
    return tuple(megabytes)


def _means(sweep: _Sweep, scheme: str, clients: Sequence[int]) -> list[Observation]:
    """Return how many means the server holds of a class, on average, for every number that a client may send."""
    features, world, measurements = sweep.features, sweep.world, []
    numbers: Sequence[int | None] = [None] if finds_clients(scheme) else clients
    for number in numbers:
        splits = [make_split(features, number, scheme, seed) for seed in world.each_seed]
        held = [split.cells(features.train.y, features.n_classes).tocoo().data for split in splits]
        senders = int(np.count_nonzero(splits[0].sizes)) if number is None else number
        for means in sweep.settings.get("means_per_client", (1,)):
            # A class with fewer than twice as many samples as means is sent as one mean.
            several = tuple(
                float((1 + (means - 1) * (counts >= 2 * means)).sum()) / features.n_classes for counts in held
            )
            where = {**sweep.place, "clients": senders, "split": scheme, "means_per_client": means}
            measurements.append(Observation(where, several, "means per class", seeds=tuple(world.each_seed)))
    return measurements
