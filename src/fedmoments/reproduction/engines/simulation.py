"""One-shot federations: heads and baselines over numbers of clients, splits, shrinkages, means, projections, noise."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.jobs.protections import read_protections
from fedmoments.reproduction.measurement import Measurement
from fedmoments.reproduction.world import World, known_settings, numbers_of_clients
from fedmoments.simulation import Features, simulate
from fedmoments.simulation.methods import all_names
from fedmoments.simulation.results import Row
from fedmoments.simulation.run import finds_clients, make_split

__all__ = ["run"]

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
)


def run(settings: Mapping[str, Any], world: World) -> list[Measurement]:
    """Simulate all combinations of the settings, and return accuracy, bytes and time of every head.

    Parameters
    ----------
    settings
        ``heads`` (heads and baselines), ``clients``, ``splits``, ``shrinkages``, ``means_per_client``, ``projections``
        (0 for the features as they are), ``obfuscations`` (``uniform:0.1``; ``none``) are swept. ``hyper`` has the
        hyper-parameters of heads. ``variants`` are tables of settings that replace these: each is run, too, and its
        measurements have ``variant`` = its ``name``; settings outside belong to the variant ``main``.
        ``means_per_class`` adds how many means the server holds of a class.
    world
        Data, encoders and seeds; every encoder is run, and measurements have its name as ``encoder``.

    Returns
    -------
    list of Measurement
        Of ``accuracy``, ``megabytes`` (up, all clients together), ``kilobytes`` (a client) and ``seconds`` (server), at
        head, clients, split, shrinkage, means_per_client, projection, obfuscation, encoder and variant. A shrinkage
        that a head has by itself is called ``own``.
    """
    known_settings(settings, _KNOWN, "simulation")
    common = {key: value for key, value in settings.items() if key != "variants"}
    variants = [{"name": "main", **common}] if "heads" in common else []
    variants += [{**common, **variant} for variant in settings.get("variants", [])]
    found: list[Measurement] = []
    for encoder in world.encoder_names:
        for variant in variants:
            found += _variant(dict(variant), world, encoder)
    return found


def _variant(settings: dict[str, Any], world: World, encoder: str | None) -> list[Measurement]:
    name = settings.pop("name")
    features = world.features(encoder)
    heads = all_names(settings["heads"])
    splits, clients = feasible(features, settings, world)
    if not splits:
        return []
    hyper = {head: values for head, values in settings.get("hyper", {}).items() if head in heads}
    # 'none' of a shrinkage sweep means no shrinkage; an empty sweep leaves every head its own
    result = simulate(
        features,
        heads,
        clients=clients,
        splits=splits,
        shrinkages=settings.get("shrinkages") or (None,),
        means_per_client=settings.get("means_per_client", (1,)),
        projections=[size or None for size in _projections(features, settings, world)],
        protections=read_protections({"obfuscation": list(settings.get("obfuscations", ["none"]))}),
        seeds=world.seeds,
        first_seed=world.config.seed,
        hyper=hyper,
        memory_limit=world.config.memory_limit * 1e9,
        memory=world.record(encoder),
        progress=world.progress,
    )
    place = {"encoder": world.encoded(encoder).encoder.name, "variant": name}
    found = [each for row in result.rows for each in _measurements(row, place)]
    if settings.get("means_per_class"):
        for scheme in splits:
            found += _means(features, {**settings, "split": scheme, "clients": clients}, world, place)
    return found


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
    if len(clients) < len(numbers):
        world.deviate(f"left out: more clients than the {len(features.train):,} training samples of these data")
    return splits, clients


def _projections(features: Features, settings: Mapping[str, Any], world: World) -> list[int]:
    """Return the projections that make features smaller; 0 stands for the features as they are."""
    asked = settings.get("projections", [0])
    found = [size for size in asked if size < features.dim]
    for size in asked:
        if size >= features.dim:
            world.deviate(f"no projection to {size} dimensions, because these features have {features.dim}")
    return found or [0]


def _measurements(row: Row, place: Mapping[str, Any]) -> list[Measurement]:
    """Return the measurements of a row of the simulation."""
    setting, outcomes = row.setting, row.outcomes
    obfuscation = setting.protection.obfuscation or "none"
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
        Measurement(where, tuple(outcome.accuracy for outcome in outcomes), reason=reason, seeds=seeds),
        Measurement(where, sent, "megabytes", seeds=seeds),
        Measurement(where, each, "kilobytes", seeds=seeds),
        Measurement(where, tuple(outcome.fit_seconds for outcome in outcomes), "seconds", seeds=seeds),
    ]


def _means(
    features: Features, settings: Mapping[str, Any], world: World, place: Mapping[str, Any]
) -> list[Measurement]:
    """Return how many means the server holds of a class, on average, for every number that a client may send."""
    found = []
    scheme = settings["split"]
    numbers: Sequence[int | None] = [None] if finds_clients(scheme) else settings["clients"]
    for number in numbers:
        splits = [make_split(features, number, scheme, seed) for seed in world.each_seed]
        held = [split.cells(features.train.y, features.n_classes).tocoo().data for split in splits]
        for means in settings.get("means_per_client", (1,)):
            # A class with fewer than twice as many samples as means is sent as one mean.
            several = tuple(
                float((1 + (means - 1) * (counts >= 2 * means)).sum()) / features.n_classes for counts in held
            )
            where = {**place, "clients": number, "split": scheme, "means_per_client": means}
            found.append(Measurement(where, several, "means per class", seeds=tuple(world.each_seed)))
    return found
