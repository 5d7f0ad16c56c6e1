"""One-shot federations: heads and baselines over numbers of clients, splits, shrinkages, means, projections, noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from fedmoments.core.heads import Head
from fedmoments.core.observations import Observation, Row
from fedmoments.core.observations.rows import BYTES_PER_NUMBER
from fedmoments.privacy.sweep import read_protections
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features
from fedmoments.samples.splits.numbers import finds_clients
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
    found: list[Observation] = []
    for encoder in world.encoder_names:
        for variant in variants:
            found += _variant(dict(variant), world, encoder)
    return found


def _variant(settings: dict[str, Any], world: World, encoder: str | None) -> list[Observation]:
    """Return everything that is measured of one variant behind one encoder."""
    place = {"encoder": world.encoded(encoder).encoder.name, "variant": settings.pop("name")}
    features = world.features(encoder)
    heads = all_names(settings["heads"])
    hyper = {head: values for head, values in settings.get("hyper", {}).items() if head in heads}
    settings = {**settings, "projections": _projections(features, settings, world)}
    sweep = _Sweep(features, choose_methods(heads, hyper), hyper, settings, world, encoder, place)
    found: list[Observation] = []
    for splits, clients in _groups(features, settings, world):
        found += sweep.run(splits, clients)
        if settings.get("means_per_class"):
            found += [each for scheme in splits for each in _means(sweep, scheme, clients)]
    found += sweep.left_out()
    for table in settings.get("best", []):
        found += best_of(found, table)
    if "against" in settings:
        found += against(found, settings["against"])
    if "inference" in settings:
        found += inference(sweep.methods, settings, place, world, encoder)
    return found


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

    def run(self, splits: Sequence[str], clients: Sequence[int]) -> list[Observation]:
        """Return the measurements of all heads in splits and numbers of clients that go together."""
        settings, every = self.settings, self.world.seeds
        plain = list(settings["projections"]) == [0] and list(settings.get("obfuscations", ["none"])) == ["none"]
        same = self._same_for_all(splits, clients)
        once = [head for head in settings.get("once", []) if head in self.methods]
        if not set(once) <= set(same):
            self.world.deviate(
                f"{', '.join(once)}: fitted in every setting, because who holds what changes their statistics here"
            )
            once = []
        steady = [head for head in same if head not in once] if plain else []
        fixed = [head for head in steady if not hasattr(self.methods[head], "draw_seed")]
        if fixed and every > 1:
            self.world.deviate(f"{', '.join(fixed)}: one seed, because no other one changes what they are fitted from")
        if once and len(splits) * len(clients) > 1:
            where = f"{splits[0]}" + (f" and {clients[0]} clients" if clients else "")
            self.world.deviate(
                f"{', '.join(once)}: fitted for {where} alone, and the accuracy repeated in all other settings, where "
                "sums over all samples are the same"
            )
        drawn = [head for head in self.methods if head not in steady and head not in once]
        found = self._simulated(drawn, splits, clients, every)
        found += self._simulated(steady, splits, clients, 1)
        first = self._simulated(once, splits[:1], clients[:1], 1 if plain else every)
        if plain:
            found = self._with_draws(found, steady, splits, clients)
            first = self._with_draws(first, once, splits, clients)
        return found + [each for scheme in splits for number in clients for each in _moved(first, scheme, number)]

    def _with_draws(
        self, found: list[Observation], heads: Sequence[str], splits: Sequence[str], clients: Sequence[int]
    ) -> list[Observation]:
        """Return measurements with more seeds of heads that draw samples: other draws, in the first setting alone."""
        drawing = [head for head in heads if hasattr(self.methods[head], "draw_seed")]
        if not drawing or self.world.seeds == 1:
            return found
        self.world.deviate(
            f"{', '.join(drawing)}: every seed draws other synthetic samples, for {splits[0]} alone; one draw elsewhere"
        )
        more = [
            each
            for seed in self.world.each_seed[1:]
            for each in self._simulated(drawing, splits[:1], clients[:1], 1, draw_seed=seed)
        ]
        return [_joined([each, *(one for one in more if _is_at(one, each))]) for each in found]

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
        drawn = {} if draw_seed is None else {"draw_seed": draw_seed}
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
            hyper={head: {**self.hyper.get(head, {}), **drawn} for head in heads if drawn or head in self.hyper},
            memory_limit=world.config.memory_limit * 1e9,
            memory=world.memory(self.encoder),
            progress=world.progress,
        )
        return [each for row in result.rows for each in _measurements(row, self.features.dim, self.place)]

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
    values = tuple(value for each in several for value in each.values)
    reasons = dict.fromkeys(each.reason for each in several if each.reason)
    seeds = tuple(seed for each in several for seed in each.seeds)
    return replace(several[0], values=values, reason="; ".join(reasons) or None, seeds=seeds)


def _adds_up(method: Method) -> bool:
    return isinstance(method, Head) and method.slow and not method.needs.keeps_clients_apart


def _moved(first: Sequence[Observation], scheme: str, number: int) -> Iterator[Observation]:
    """Yield accuracies as those of another split and number of clients."""
    for each in first:
        if each.quantity == "accuracy":
            where = {**each.where, "split": scheme, "clients": number}
            yield Observation(where, each.values, reason=each.reason, seeds=each.seeds)


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
    found = []
    for scheme in feasible(features, settings, world)[0]:
        parsed = parse_split(scheme)
        if parsed.scheme.name == "classes" or scheme.endswith(":0"):
            for number in feasible(features, settings, world)[1]:
                split = make_split(features, number, scheme, world.config.seed)
                if len(split.dropped):
                    found.append((scheme, number, split.why))
                    world.deviate(f"left out: {split.why}")
    return found


def _projections(features: Features, settings: Mapping[str, Any], world: World) -> list[int]:
    """Return the projections that make features smaller; 0 stands for the features as they are."""
    asked = settings.get("projections", [0])
    found = [size for size in asked if size < features.dim]
    for size in asked:
        if size >= features.dim:
            world.deviate(f"no projection to {size} dimensions, because these features have {features.dim}")
    return found or [0]


def _measurements(row: Row, dim: int, place: Mapping[str, Any]) -> list[Observation]:
    """Return the measurements of a row of the simulation."""
    setting, outcomes = row.setting, row.outcomes
    obfuscation = cast("Point", setting).protection.obfuscation or "none"
    noise, _, intensity = str(obfuscation).partition(":")
    where = {
        **place,
        "head": row.head,
        "clients": setting.clients if setting.clients is not None else outcomes[0].clients,
        "split": setting.split,
        "means_per_client": setting.means_per_client,
        "shrinkage": setting.shrinkage or "own",
        "projection": setting.projection or 0,
        "noise": noise,
        "intensity": float(intensity) if intensity else 0.0,
    }
    seeds = tuple(outcome.seed for outcome in outcomes)
    reason = "; ".join(row.reasons) or None
    sent = tuple(outcome.up_bytes / 1e6 for outcome in outcomes)
    each = tuple(outcome.up_bytes / max(outcome.clients, 1) / 1e3 for outcome in outcomes)
    return [
        Observation(where, tuple(outcome.accuracy for outcome in outcomes), reason=reason, seeds=seeds),
        Observation(where, sent, "megabytes", seeds=seeds),
        Observation(where, _whole(row, dim), "megabytes whole", seeds=seeds),
        Observation(where, each, "kilobytes", seeds=seeds),
        Observation(where, tuple(outcome.fit_seconds for outcome in outcomes), "seconds", seeds=seeds),
    ]


def _whole(row: Row, dim: int) -> tuple[float, ...]:
    """Return megabytes of every seed as the papers count them: (d, d) numbers a matrix, a covariance a class."""
    sends = row.sends.split(" + ")
    dim = int(row.hyper.get("n_features", row.setting.projection or dim))
    found = []
    for outcome in row.outcomes:
        packed = {"gram": outcome.clients, "class_grams": outcome.up_counts}
        lower = sum(packed.get(moment, 0) for moment in sends) * dim * (dim - 1) // 2
        floats = outcome.up_bytes / BYTES_PER_NUMBER + lower
        if row.head == "fedcof-oracle":
            floats = outcome.up_counts * (dim * dim + dim)
        found.append(floats * BYTES_PER_NUMBER / 1e6)
    return tuple(found)


def _means(sweep: _Sweep, scheme: str, clients: Sequence[int]) -> list[Observation]:
    """Return how many means the server holds of a class, on average, for every number that a client may send."""
    features, world, found = sweep.features, sweep.world, []
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
            found.append(Observation(where, several, "means per class", seeds=tuple(world.each_seed)))
    return found
