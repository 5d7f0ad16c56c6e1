"""Linear probing and fine-tuning in rounds: from heads and from random starts, with curves of accuracy and costs."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from fedmoments.core.heads import head_names, make_head
from fedmoments.core.observations import Observation, read_report
from fedmoments.core.observations.tuning import Tuning
from fedmoments.errors import FileFormatError, InputError, UnknownNameError
from fedmoments.samples.splits.numbers import finds_clients
from fedmoments.settings.plan import RANDOM
from fedmoments.settings.study import StudySettings, TuningStudy
from fedmoments.study.checks import check_tuning, start_heads
from fedmoments.study.jobs.encoding import Encoded
from fedmoments.study.jobs.tuning import run_tuning
from fedmoments.study.memory import identity_of
from fedmoments.study.papers.engines.seeds import Spot
from fedmoments.study.papers.engines.simulation import feasible
from fedmoments.study.papers.engines.tuning_curves import Curves, Place, measured
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation import simulate
from fedmoments.tuning import OPTIMISERS, STAGES, TuningPlan

__all__ = ["Job", "jobs_of", "run"]

_NUMBERS = tuple(entry.name for entry in fields(TuningPlan) if entry.name not in ("stage", "optimiser", "seed"))
_KNOWN = (
    "stages",
    "starts",
    "optimisers",
    "only",
    "heads",
    "hyper",
    "clients",
    "splits",
    "local_epochs",
    "encoders",
    "plan",
    "runs",
    "refit",
    "at",
    "targets",
    "encoder_flops",
    "lr_times",
    "variants",
    *_NUMBERS,
)
#: Words of ``encoders`` and of ``weights``: the encoder as it is, and with weights that are drawn anew.
_WEIGHTS = {"": "trained", "untrained": "untrained"}
#: What an experiment says of a job, whatever the user's configuration has.
_SWEPT = (
    "heads",
    "hyper",
    "clients",
    "splits",
    "shrinkages",
    "means_per_client",
    "projections",
    "budgets",
    "budget_curve",
    "participation",
    "privacy",
    "seeds",
    "jobs",
    "cluster",
    "precision",
)
#: Points of a curve that are tested, about, unless the settings say how often.
TESTED = 50


@dataclass(frozen=True)
class Job:
    """One start under one optimiser in one stage, in one federation; all seeds.

    Parameters
    ----------
    place
        Where its measurements stand.
    config
        What is run.
    encoder
        Name of the encoder, ``untrained:`` included; None for the one that the data's kind decides.
    rounds
        Of the paper, where they differ from those that are run.
    reason
        Why it cannot be run on these data; None where it can.
    """

    place: Place
    config: TuningStudy
    encoder: str | None
    rounds: int
    reason: str | None = None

    @property
    def plan(self) -> TuningPlan:
        """Return the numbers of the run, of its first seed."""
        return self.config.plan_of(self.place.start, self.place.optimiser, self.config.seed)

    def key(self) -> list[Any]:
        """Return everything that the run depends on besides data, encoder and seeds, ready for JSON."""
        config, numbers = self.config, {**asdict(self.plan), "seed": None}
        hyper = {name: dict(values) for name, values in config.hyper.items()}
        place = [config.starts, config.clients, config.splits, config.refit, config.encoder_flops]
        heads = [make_head(name, **hyper.get(name, {})) for name in (*start_heads(config), *config.refit)]
        return ["tuning", numbers, hyper, *place, [identity_of(head) for head in heads]]


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Train in rounds, from every start with every optimiser in every stage, and return accuracies and curves.

    Parameters
    ----------
    settings
        ``stages`` (lp, ft, feat), ``starts`` (random, heads), ``optimisers``, ``clients``, ``splits`` and
        ``local_epochs`` are swept. ``only`` keeps the runs that have all words of one of its entries (``random``,
        ``feat/fed3r``). ``plan`` has the numbers of all runs, ``runs`` those of some, by the same words: the one with
        most words wins, then the last. A number of a plan beside them (``rounds = 20``) is that of all runs, whatever
        these say; ``lr_times`` multiplies the clients' learning rates. ``heads`` are tested untuned, as starts are.
        ``hyper`` has hyper-parameters of heads. ``refit`` heads are fitted anew on tuned features. ``at`` measures
        after some rounds instead of at the end. ``targets`` are accuracies that rounds are counted to. ``encoders``:
        ``""`` is the user's, ``untrained`` the same one with weights that are drawn anew. ``variants`` are tables that
        replace these settings, run besides.
    world
        Data, encoders and seeds.

    Returns
    -------
    list of Observation
        At stage, start, optimiser, clients, split, encoder, weights, variant and refit (``none`` but for refits), with
        ``local_epochs`` and ``after`` where these are swept: ``accuracy``, ``highest accuracy``, ``megabytes`` (both
        ways, all clients), ``gigaflops`` (a client, on average), ``forward passes``, ``rounds to random's final``
        (one more than either run has where it never gets there) and, with several splits, ``lost to skew`` (the end
        with the first of them less the end with this one). Untuned heads stand at stage ``none`` and have the
        megabytes of their upload. ``accuracy by round`` stands at ``round``, ``megabytes`` and ``gigaflops``, too;
        ``rounds to target`` at ``target``.
    """
    known_settings(settings, _KNOWN, "tuning")
    for variant in _variants(settings):
        known_settings(variant, (*_KNOWN, "name"), "tuning")
    jobs = jobs_of(settings, world)
    _tell(jobs, world)
    found = [entry for variant in _variants(settings) for entry in _untuned(variant, world)]
    done = {job.place: _run(job, world, (index, len(jobs))) for index, job in enumerate(jobs)}
    return found + measured(done, settings.get("at", ()), settings.get("targets", ()))


def _variants(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    common = {key: value for key, value in settings.items() if key != "variants"}
    own = [{"name": "main", **common}] if "starts" in common else []
    overrides = {key: value for key, value in common.items() if key in (*_NUMBERS, "lr_times")}
    return own + [{**common, **variant, **overrides} for variant in settings.get("variants", [])]


def jobs_of(settings: Mapping[str, Any], world: World) -> list[Job]:
    """Return what the settings ask for, one job for every start, optimiser, stage and federation.

    Parameters
    ----------
    settings
        Of the experiment.
    world
        Data decide which splits and numbers of clients there can be.
    """
    return [job for variant in _variants(settings) for job in _jobs(variant, world)]


def _jobs(settings: dict[str, Any], world: World) -> list[Job]:
    stages, starts = settings.get("stages", ["lp"]), settings.get("starts", [RANDOM])
    optimisers, only = settings.get("optimisers", ["fedavg"]), settings.get("only", [])
    encoders = settings.get("encoders", [""])
    _check_words(settings)
    jobs = []
    for base in world.encoder_names:
        encoded = world.encoded(base)
        splits, clients = feasible(encoded.features, settings, world)
        for word, split, stage, optimiser, start in product(encoders, splits, stages, optimisers, starts):
            weights = _weights(word)
            mine = {weights, stage, optimiser, start}
            if only and not any(set(entry.split("/")) <= mine for entry in only):
                continue
            name = base if weights == "trained" else f"untrained:{encoded.encoder.name}"
            numbers = [None] if finds_clients(split) else clients
            for number, epochs in product(numbers, settings.get("local_epochs", [None])):
                run_at = (stage, start, optimiser, split, number, epochs)
                place = Place(encoded.encoder.name, weights, settings["name"], *run_at)
                jobs.append(_job(settings, world, encoded, place, name))
    return jobs


def _weights(word: str) -> str:
    if word not in _WEIGHTS:
        raise UnknownNameError("encoder of an experiment ('' is the user's)", word, list(_WEIGHTS))
    return _WEIGHTS[word]


def _check_words(settings: Mapping[str, Any]) -> None:
    """Refuse words that no run can have."""
    known = (*_WEIGHTS.values(), *STAGES, *OPTIMISERS, RANDOM, *head_names())
    for entry in (*settings.get("only", []), *settings.get("runs", {})):
        for word in entry.split("/"):
            if word not in known:
                raise UnknownNameError("word of 'only' or 'runs' of the engine 'tuning'", word, list(known))


def _numbers(settings: Mapping[str, Any], place: Place) -> tuple[dict[str, Any], int]:
    """Return the numbers of a run's plan, and the rounds that it has by the file."""
    numbers = {**settings.get("plan", {}), **_own_numbers(settings.get("runs", {}), place)}
    if place.local_epochs is not None:
        numbers["epochs"] = place.local_epochs
    by_file = int(numbers.get("rounds", TuningPlan.rounds))
    if "lr_times" in settings:
        numbers["lr"] = TuningPlan(lr=numbers.get("lr", TuningPlan.lr)).step * settings["lr_times"]
    numbers |= {name: settings[name] for name in _NUMBERS if name in settings}
    rounds = numbers.get("rounds", by_file)
    numbers.setdefault("test_every", _tested_every(settings.get("at", []), rounds))
    return {**numbers, "stage": place.stage}, by_file


def _own_numbers(runs: Mapping[str, Mapping[str, Any]], place: Place) -> dict[str, Any]:
    """Return the numbers of the tables that fit a run; the one that names more words of it wins."""
    words = {place.weights, place.stage, place.optimiser, place.start}
    fitting = [key for key in runs if set(key.split("/")) <= words]
    return {name: value for key in sorted(fitting, key=lambda key: key.count("/")) for name, value in runs[key].items()}


def _tested_every(at: Sequence[int], rounds: int) -> int:
    """Return after how many rounds heads are tested, so that all rounds to compare at are."""
    reached = [number for number in at if number <= rounds]
    return math.gcd(*reached) if reached else max(1, rounds // TESTED)


def _job(settings: Mapping[str, Any], world: World, encoded: Encoded, place: Place, encoder: str | None) -> Job:
    numbers, rounds = _numbers(settings, place)
    refit = tuple(settings.get("refit", ())) if place.stage != "lp" else ()
    named = {place.start, *refit}
    own: dict[str, Any] = {
        entry.name: getattr(world.config, entry.name) for entry in fields(StudySettings) if entry.name not in _SWEPT
    }
    config = TuningStudy(
        **{**own, "encoder": encoder},
        starts=(place.start,),
        optimisers=(place.optimiser,),
        plan=numbers,
        refit=refit,
        hyper={name: values for name, values in settings.get("hyper", {}).items() if name in named},
        clients=() if place.clients is None else (place.clients,),
        splits=(place.split,),
        encoder_flops=settings.get("encoder_flops"),
        seeds=world.seeds,
    )
    check_tuning(config)
    return Job(place, config, encoder, rounds, _reason(encoded, place))


def _reason(encoded: Encoded, place: Place) -> str | None:
    """Return why a run is impossible on these data."""
    if encoded.data.modality != "features":
        return None
    if place.weights == "untrained":
        return "these data are features already: nothing can encode them anew without its training"
    if place.stage != "lp":
        return f"these data are features already: {place.stage} trains the encoder, which needs the samples"
    return None


def _tell(jobs: Sequence[Job], world: World) -> None:
    """Note what departs from the file: rounds that were changed, and runs that these data rule out."""
    changed = [job for job in jobs if job.plan.rounds != job.rounds]
    if changed:
        paper = sorted({job.rounds for job in changed})
        words = str(paper[0]) if len(paper) == 1 else f"{paper[0]} to {paper[-1]}"
        world.deviate(f"{changed[0].plan.rounds} rounds instead of {words}: curves end before they are level")
    for reason in dict.fromkeys(job.reason for job in jobs if job.reason):
        world.deviate(f"left out: {reason}")


def _run(job: Job, world: World, step: tuple[int, int]) -> Curves:
    """Return the curves of a job, from the cache where it was run before."""
    if job.reason:
        return Curves((), tuple(world.each_seed), job.plan.rounds, reason=job.reason)
    encoded = world.encoded(job.encoder)
    folder = world.folder(job.key(), job.encoder)
    tuning = _kept(folder, job.config)
    if tuning is not None:
        world.memory(job.encoder).found += world.seeds
    else:

        def say(done: int, total: int, what: str) -> None:
            world.say(step[0] * total + done, step[1] * total, f"{job.place.stage} {what}")

        try:
            tuning = run_tuning(job.config, folder, cache_dir=world.cache_dir, progress=say, crew=world.crew).tuning
        except InputError as error:
            world.deviate(f"left out: {job.place.stage} from {job.place.start} with {job.place.optimiser}: {error}")
            return Curves((), tuple(world.each_seed), job.plan.rounds, reason=str(error))
        if folder is not None:  # networks are large, and nothing goes on from them
            shutil.rmtree(folder / "tuned", ignore_errors=True)
    clients = tuning.clients or 0
    return Curves(tuning.curves, tuple(world.each_seed), job.plan.rounds, clients, _forward(encoded))


def _kept(folder: Any, config: TuningStudy) -> Tuning | None:
    """Return what the very same job found before; None where it was not run to its end."""
    path = folder / "results.json" if folder is not None else None
    if path is None or not path.exists():
        return None
    try:
        report = read_report(path)
    except (FileFormatError, InputError):  # cut off, or of another release
        return None
    return report.tuning if report.config == json.loads(json.dumps(config.to_dict())) else None


def _forward(encoded: Encoded) -> float | None:
    """Return the multiply-adds of encoding one sample; None where they cannot be counted."""
    if encoded.data.modality == "features":
        return None
    from fedmoments.tuning.network import forward_flops

    try:
        return forward_flops(encoded.encoder)
    except InputError:  # no network on torch
        return None


def _untuned(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Return the accuracy of heads as they are, and the megabytes of their upload."""
    named = (*settings.get("starts", []), *settings.get("heads", []))
    heads = [name for name in dict.fromkeys(named) if name in head_names()]
    observed: list[Observation] = []
    for base in world.encoder_names if heads else ():
        for split in feasible(world.features(base), settings, world)[0]:
            observed += _untuned_behind(base, heads, split, settings, world)
    return observed


def _untuned_behind(
    base: str | None, heads: Sequence[str], split: str, settings: Mapping[str, Any], world: World
) -> list[Observation]:
    """Return what heads reach behind one encoder and with one split."""
    encoded, natural = world.encoded(base), finds_clients(split)
    result = simulate(
        encoded.features,
        heads,
        clients=() if natural else feasible(encoded.features, settings, world)[1],
        splits=[split],
        seeds=world.seeds,
        first_seed=world.config.seed,
        hyper={name: values for name, values in settings.get("hyper", {}).items() if name in heads},
        memory_limit=world.config.memory_limit * 1e9,
        memory=world.memory(base),
        progress=world.progress,
        crew=world.crew,
    )
    observed: list[Observation] = []
    for row in result.rows:
        number = None if natural else row.setting.clients
        place = Place(encoded.encoder.name, "trained", settings["name"], "none", row.head, "none", split, number)
        observed += _one_shot(place, row, settings.get("refit", ()), len(encoded.features.train))
    return observed


def _one_shot(place: Place, row: Any, refit: Sequence[str], samples: int) -> list[Observation]:
    outcomes = row.outcomes
    spot = Spot(place.where(outcomes[0].clients), tuple(outcome.seed for outcome in outcomes))
    values = tuple(outcome.accuracy for outcome in outcomes)
    sent = tuple(outcome.up_bytes / 1e6 for outcome in outcomes)
    reason = "; ".join(row.reasons) or None
    observed = [
        spot.observe(values, reason=reason),
        spot.observe(sent, "megabytes"),
        spot.observe((float(samples),) * len(outcomes), "forward passes"),
        spot.observe(values, "accuracy by round", reason, round=0, megabytes=float(f"{sent[0]:.6g}")),
    ]
    if row.head in refit:  # what a refit is compared with: the same head on the features as they came
        observed.append(spot.observe(values, reason=reason, refit=row.head))
    return observed
