"""The server's part of a tuning: the start from the ledger, rounds over the grid, files that it leaves.

**Law** a server that is stopped after any round and started again with the same folder ends with the same parameters:
everything that the rounds depend on is in that folder or, control variates, with the clients.
"""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid

import fedmoments
from fedmoments.core.classifier import Classifier, load, load_bytes
from fedmoments.core.heads import presets
from fedmoments.core.observations.codec import to_plain
from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.flower.server import Progress, dismiss, wait_for_nodes
from fedmoments.federation.flower.tuning_engine import GridEngine
from fedmoments.federation.flower.tuning_report import tuning_report
from fedmoments.federation.flower.tuning_run import Begun, RunFolder
from fedmoments.federation.flower.tuning_task import Task
from fedmoments.federation.policy import require_clear
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.pages import write_report
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.samples.reading import choose_encoder
from fedmoments.settings.plan import RANDOM
from fedmoments.settings.samples import Encoding
from fedmoments.settings.server import TuningSettings
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.loop import Tuned, run_rounds
from fedmoments.tuning.prices import Bill, Prices
from fedmoments.tuning.start import Start, random_start, start_from
from fedmoments.tuning.temperature import TEMPERATURES, best_temperature

__all__ = ["TuningRun", "run_tuning"]


@dataclass(frozen=True, eq=False)
class TuningRun:
    """What a tuning found.

    Parameters
    ----------
    start
        Where it began.
    classifier
        Where it ended.
    tuned
        Parameters and points.
    failures
        Who did not do its part, and why.
    folder
        Where all this is written.
    """

    start: Start
    classifier: Classifier
    tuned: Tuned
    failures: list[dict[str, Any]]
    folder: Path


def run_tuning(grid: Grid, settings: TuningSettings, progress: Progress | None = None) -> TuningRun:
    """Run a tuning to its end, or go on with one that was stopped.

    Parameters
    ----------
    grid
        Flower's, or ours.
    settings
        The server's own; its ledger holds the terms, and what the start is fitted from.
    progress
        Called when something happened.

    Raises
    ------
    PolicyError
        When the terms promise secure sums or an epsilon.
    DeploymentError
        When too few nodes came, or a round brought too few updates; the folder says how far it got.
    """
    with FederationStore.open(settings.ledger) as store:
        session = _Session(grid, store, settings, RunFolder(settings), progress)
        try:
            outcome = session.run()
        finally:
            dismiss(grid, settings)
    return outcome


@dataclass(frozen=True, eq=False)
class _Session:
    """What one start of the server works with."""

    grid: Grid
    store: FederationStore
    settings: TuningSettings
    folder: RunFolder
    progress: Progress | None

    def run(self) -> TuningRun:
        """Greet the clients, choose the temperature, run the rounds, and write what came of it."""
        store, settings, folder = self.store, self.settings, self.folder
        terms = store.terms
        require_clear(terms)
        begun = folder.load(terms.id) or folder.fresh(terms.id, _start_bytes(store, settings))
        plan = folder.plan(begun)
        encoder = None if plan.stage == "lp" else _encoder(terms)
        start = _start(begun, plan)
        store.note("tuning started", run=begun.run, plan=plan.to_dict(), start=settings.start)
        wait_for_nodes(self.grid, settings, self.progress)
        task = Task(terms, plan, begun.run, start.name, begun.start_digest, start.temperature)
        engine = GridEngine(self.grid, store, settings, task, begun.start_bytes, roster=begun.clients or None)
        engine.greet()
        if not begun.clients:
            _require_enough(settings, plan, engine)
            begun = _settled(begun, start, plan, engine)
            folder.keep(begun)
        start = replace(start, temperature=float(begun.temperature or start.temperature))
        engine.task = replace(task, temperature=start.temperature)
        outcome = self._rounds(engine, begun, start, encoder)
        store.note("tuning finished", run=begun.run, digest=outcome.classifier.digest())
        return outcome

    def _rounds(self, engine: GridEngine, begun: Begun, start: Start, encoder: Encoder | None) -> TuningRun:
        """Run the rounds, and write the files."""
        began, plan, folder = time.perf_counter(), engine.task.plan, self.folder
        tuned = run_rounds(
            plan,
            engine,
            _initial(plan, start, encoder),
            prices=_prices(self.store, start, encoder, self.settings, plan, broadcast=len(begun.start_bytes)),
            checkpoint=folder.checkpoint,
            basis=begun.basis,
            progress=self.progress,
        )
        notes = _notes(engine.task, tuned)
        if encoder is not None:
            notes |= _save_encoder(
                folder.path / "encoder.safetensors",
                encoder,
                _plain(plan, start, encoder, tuned.arrays),
                self.store.terms,
            )
        if plan.stage == "feat":
            classifier = start.classifier.tempered(start.temperature).noting(start=start.name, **notes)
        else:
            classifier = start.tuned(tuned.arrays, **notes)
        classifier.save(folder.path / "tuned.safetensors")
        outcome = TuningRun(start, classifier, tuned, engine.failures, folder.path)
        document = _document(outcome, begun, plan)
        document |= {
            "minimum": self.settings.minimum,
            "test_samples": engine.tested,
            "seconds": time.perf_counter() - began,
        }
        folder.write_json("tuning.json", document)
        write_report(folder.path / "report.html", tuning_report(document, self.store.terms))
        return outcome


# -------------------------------------------------------------------------------------------------- the start


def _start_bytes(store: FederationStore, settings: TuningSettings) -> bytes:
    """Return the bytes of the classifier to begin from."""
    terms, name = store.terms, settings.start
    if name in presets():
        return fit_heads(store, [name], {name: settings.hyper})[name].classifier.to_bytes()
    if name == RANDOM:
        present = np.array(store.status().class_counts) > 0
        drawn = random_start(terms.dim, present, seed=settings.tuning_plan.seed).classifier
        return drawn.named(terms.classes).mapped(terms.map_or_none).to_bytes()
    if not Path(name).is_file():
        raise InputError(
            f"the start '{name}' is neither a head (see 'fedmoments heads'), nor 'random', nor the file of a classifier"
        )
    saved = load(name)
    if saved.class_names != terms.classes:
        raise InputError(f"{name} has other classes than the terms of the federation '{terms.name}': fit another")
    return saved.to_bytes()


def _start(begun: Begun, plan: TuningPlan) -> Start:
    """Return the start of a run, with the plan's temperature or, where clients are to choose it, any."""
    given = plan.temperature
    return start_from(load_bytes(begun.start_bytes), begun.start, given if isinstance(given, int | float) else None)


def _settled(begun: Begun, start: Start, plan: TuningPlan, engine: GridEngine) -> Begun:
    """Return the beginning of a run with its clients and its temperature; a random start has none to choose by."""
    begun = replace(begun, clients=engine.roster)
    if plan.temperature != "auto" or begun.start == RANDOM:
        return replace(begun, temperature=start.temperature)
    chosen = best_temperature(engine.cross_entropies(TEMPERATURES))
    table = {f"{temperature:g}": total for temperature, total in chosen.table.items()}
    return replace(begun, temperature=chosen.temperature, temperatures=table)


def _require_enough(settings: TuningSettings, plan: TuningPlan, engine: GridEngine) -> None:
    """Refuse a minimum that no round can reach."""
    drawn = plan.per_round(len(engine.clients))
    if settings.minimum > drawn:
        raise DeploymentError(
            f"{len(engine.clients)} clients take part, of which a round draws {drawn}, but {settings.minimum} updates "
            "are asked for (minimum): wait for more nodes, raise the fraction, or ask for fewer"
        )


def _encoder(terms: Terms) -> Encoder:
    """Return the encoder that the terms name: the server sends its parameters in the first round."""
    name = terms.encoder["name"]
    if name == "identity":
        raise InputError("the terms agree on features that are given: on those only the head can be tuned, stage 'lp'")
    encoder = choose_encoder(Encoding(name, **terms.encoder["options"]), "", None)
    here = Fingerprint.of(encoder, terms.fingerprint.feature_map, terms.classes)
    terms.fingerprint.require_same(here, ours="the federation's terms", theirs="this server")
    return encoder


def _initial(plan: TuningPlan, start: Start, encoder: Encoder | None) -> Arrays:
    """Return the parameters that the first round begins with."""
    if encoder is None:
        return start.arrays()
    from fedmoments.tuning.network import NetworkEngine

    return NetworkEngine(plan, start, encoder, {}).initial()


def _prices(
    store: FederationStore,
    start: Start,
    encoder: Encoder | None,
    settings: TuningSettings,
    plan: TuningPlan,
    *,
    broadcast: int,
) -> Prices:
    """Return what rounds are charged by.

    A start from the ledger has cost what clients sent for it; its bytes go to every client when it is greeted.
    """
    status = store.status()
    sent = status.bytes if settings.start in presets() else 0
    if encoder is None:
        before = Bill(up=sent, up_formula=float(sent), flops=None)
        return Prices(start.width, len(start.present), start=before, frozen=broadcast)
    from fedmoments.tuning.network import forward_flops, parameter_count

    flops = forward_flops(encoder)
    before = Bill(up=sent, up_formula=float(sent), flops=flops * status.samples if sent else 0.0)
    sent_each_way = _trained(plan, start, encoder) if plan.adapts else parameter_count(encoder)
    return Prices(start.width, len(start.present), sent_each_way, flops, before, frozen=broadcast)


# -------------------------------------------------------------------------------------------------- what it leaves


def _notes(task: Task, tuned: Tuned) -> dict[str, Any]:
    """Return notes of origin for the classifier."""
    terms, plan = task.terms, task.plan
    return {
        "federation": terms.id,
        "encoder": terms.encoder_note,
        "fingerprint": terms.fingerprint.digest,
        "tuning": {"run": task.run, "method": plan.method, "round": tuned.result.round, "plan": plan.to_dict()},
    }


def _trained(plan: TuningPlan, start: Start, encoder: Encoder) -> int:
    """Return how many numbers of the encoder are trained and sent."""
    from fedmoments.tuning.network import NetworkEngine

    return NetworkEngine(plan, start, encoder, {}).encoder_parameters


def _plain(plan: TuningPlan, start: Start, encoder: Encoder, arrays: Arrays) -> Arrays:
    """Return arrays as those of an encoder without adapters."""
    from fedmoments.tuning.network import NetworkEngine

    return NetworkEngine(plan, start, encoder, {}).plain(arrays)


def _save_encoder(path: Path, encoder: Encoder, arrays: Arrays, terms: Terms) -> dict[str, Any]:
    """Write the encoder that the rounds ended with, and return what the classifier behind it notes of it."""
    from fedmoments.samples.encoders import load_encoder
    from fedmoments.tuning.network import save_encoder

    save_encoder(path, encoder, arrays)
    name = f"tuned:{path}"
    now = load_encoder(name, trusted=[encoder.name])
    own = Fingerprint.of(now, terms.fingerprint.feature_map, terms.classes)
    return {
        "encoder": now.note({}),
        "fingerprint": own.digest,
    }


def _document(outcome: TuningRun, begun: Begun, plan: TuningPlan) -> dict[str, Any]:
    """Return what a run found, ready for JSON."""
    return {
        "format": 1,
        "version": fedmoments.__version__,
        "run": begun.run,
        "federation": begun.federation,
        "start": begun.start,
        "start_digest": outcome.start.classifier.digest(),
        "classifier": outcome.classifier.digest(),
        "temperature": outcome.start.temperature,
        "temperatures": dict(begun.temperatures),
        "plan": plan.to_dict(),
        "clients": {client: asdict(numbers) for client, numbers in begun.clients.items()},
        "best_round": outcome.tuned.best_round,
        "stopped": outcome.tuned.stopped,
        "resumed": outcome.tuned.resumed,
        "points": to_plain(outcome.tuned.points),
        "failures": outcome.failures,
    }
