"""One seed of a job of tuning: who holds what, the one-shot heads, and a run for every start."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, load
from fedmoments.core.costs import client_flops
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations.tuning import OneShot, Probe
from fedmoments.errors import InputError
from fedmoments.provenance import code_of
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.samples.splits.split import DROPPED, Split, client_name
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import RANDOM
from fedmoments.settings.study import TuningStudy
from fedmoments.study.checks import heads_of, hyper_of
from fedmoments.study.jobs.encoding import Encoded
from fedmoments.study.memory import identity_of
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.points import make_split
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.engine import Arrays, Engine, message_size
from fedmoments.tuning.head_tuning import start_at
from fedmoments.tuning.prices import Bill, Prices
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.rates import scaled, spread_of
from fedmoments.tuning.start import Start, random_start

__all__ = ["Run", "World"]

#: Bytes of a number that a client sends of a statistic, as the papers count them.
FLOAT = 4


class Run(Protocol):
    """A run that is ready to begin."""

    plan: TuningPlan
    engine: Engine
    arrays: Arrays
    prices: Prices
    start: Start
    temperatures: dict[str, float]

    def refits(self, arrays: Arrays) -> tuple[dict[str, float | None], Probe | None]:
        """Return the accuracy of closed-form heads on the tuned encoder, and that of the probe before and after."""

    def save(self, folder: Path, arrays: Arrays) -> None:
        """Write what was tuned."""


class World:
    """A federation of one seed.

    Parameters
    ----------
    config
        Of the job.
    encoded
        Features and where they came from.
    seed
        Of the split, the heads and the runs.
    prepared
        The samples themselves, for stages that train the encoder.
    """

    def __init__(self, config: TuningStudy, encoded: Encoded, seed: int, prepared: Any = None) -> None:
        self.config, self.encoded, self.seed, self.prepared = config, encoded, seed, prepared
        scheme = config.splits[0]
        number = config.clients[0] if config.clients else None if finds_clients(scheme) else CLIENTS
        self.features = encoded.features
        self.split = make_split(self.features, number, scheme, seed)
        self.holders = {
            client_name(k, self.split.n_clients): self.split.indices(k)
            for k in np.flatnonzero(self.split.sizes > 0).tolist()
        }
        wanted = heads_of(config)
        self.methods = choose_heads(wanted, hyper_of(config, wanted)) if wanted else {}
        self._federations: dict[float, Federation] = {}

    def federation(self, validation: float = 0.0) -> Federation:
        """Return the federation that heads are fitted from, without the samples of clients' validation shares.

        A start that had seen them would look better in every check than it is, and tuning would stop at once.
        """
        if validation not in self._federations:
            self._federations[validation] = Federation(
                self.features,
                self._without(validation),
                list(self.methods.values()),
                seed=self.seed,
                memory_limit=self.config.memory_limit * 1e9,
            )
        return self._federations[validation]

    def behind(self, train: NDArray[Any], test: NDArray[Any]) -> "World":
        """Return the same federation with other features (n, d) of its samples."""
        given = self.features
        features = replace(given, train=replace(given.train, X=train), test=replace(given.test, X=test))
        return World(self.config, replace(self.encoded, features=features), self.seed, self.prepared)

    def _without(self, validation: float) -> Split:
        """Return the split without the samples of validation shares."""
        clients = self.split.clients.copy()
        for name, rows in self.holders.items():
            clients[rows[held_out(len(rows), validation, seed=self.seed, client=name)[1]]] = DROPPED
        if (clients == self.split.clients).all():
            return self.split
        return replace(self.split, clients=clients, why="they are in clients' validation shares")

    @cached_property
    def parts(self) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
        """Features (n_k, d) and labels (n_k,) of every client that holds a sample."""
        train = self.features.train
        return {name: (train.X[rows], train.y[rows]) for name, rows in self.holders.items()}

    def _training(self, validation: float) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Return what clients train on."""
        rows = {
            name: held_out(len(y), validation, seed=self.seed, client=name)[0] for name, (_, y) in self.parts.items()
        }
        return [(self.parts[name][0][mine], self.parts[name][1][mine]) for name, mine in rows.items()]

    @property
    def present(self) -> NDArray[np.bool_]:
        """(C,) classes that some client has."""
        held = np.concatenate(list(self.holders.values()))
        return np.bincount(self.features.train.y[held], minlength=self.features.n_classes) > 0

    @cached_property
    def encoder_flops(self) -> float | None:
        """FLOPs of the encoder for one sample; None where they are not known."""
        if self.config.encoder_flops is not None or self.encoded.data.modality == "features":
            return self.config.encoder_flops
        from fedmoments.tuning.network import forward_flops

        return forward_flops(self.encoded.encoder)

    @cached_property
    def heads(self) -> list[OneShot]:
        """The one-shot heads of this seed."""
        shots = []
        for name, head in self.methods.items():
            outcome = self.federation().outcome(head)
            bill = self._bill(name, 0.0) if outcome.accuracy is not None else None
            shot = OneShot(name, self.seed, outcome.accuracy, reason=outcome.reason)
            shots.append(replace(shot, up=bill.up, up_formula=bill.up_formula, flops=bill.flops) if bill else shot)
        return shots

    def _bill(self, head: str, validation: float) -> Bill:
        """Return what a one-shot head costs before any round."""
        federation = self.federation(validation)
        outcome = federation.outcome(self.methods[head])
        flops = None
        if self.encoder_flops is not None:
            own = federation.fitted(self.methods[head]).dim if self.methods[head].has_own_map else None
            flops = client_flops(
                head,
                samples=int(federation.split.sizes.sum()),
                encoder_flops=self.encoder_flops,
                d=self.features.dim,
                classes=self.features.n_classes,
                map_dimension=own,
            )
        up = (outcome.up_floats + outcome.up_counts) * FLOAT
        return Bill(up=up, up_formula=outcome.up_floats * FLOAT, flops=flops)

    def basis(self, start: str, plan: TuningPlan) -> str:
        """Return what a run depends on besides its plan."""
        config = self.config
        parts = [
            *self.encoded.basis(),
            self.split.digest(),
            repr((_identities(config, config.refit), config.encoder_flops)),
            code_of(OPTIMISERS[plan.optimiser].make),
        ]
        parts.append(self._classifier(start, plan.validation).digest() if start != RANDOM else RANDOM)
        return " ".join(parts)

    def _classifier(self, start: str, validation: float) -> Classifier:
        if start in self.methods:
            federation = self.federation(validation)
            outcome = federation.outcome(self.methods[start])
            if outcome.accuracy is None:
                raise InputError(f"the start '{start}' cannot be fitted here: {outcome.reason}")
            return federation.fitted(self.methods[start])
        loaded = load(start)
        if loaded.n_classes != self.features.n_classes:
            raise InputError(
                f"the start {start} knows {loaded.n_classes} classes, but the data have {self.features.n_classes}"
            )
        self._require_same(loaded, start)
        return loaded

    def _require_same(self, classifier: Classifier, start: str) -> None:
        """Refuse a saved classifier that says that it was fitted on other classes or behind another encoder."""
        ours, theirs = self.features.class_names, classifier.class_names
        unnamed = ((), tuple(str(label) for label in range(classifier.n_classes)))
        if ours not in unnamed and theirs not in (ours, *unnamed):
            place = next(number for number, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
            raise InputError(
                f"the start {start} calls class {place} '{theirs[place]}', but the data call it '{ours[place]}': it "
                "was fitted on other classes, or on these in another order"
            )
        noted, encoder = classifier.info.get("encoder"), self.encoded.encoder
        if not isinstance(noted, dict) or "identity" in (noted.get("name"), encoder.name):
            return  # features that were given: nobody knows by whom they were made
        encoder.require_same(noted, f"the start {start} was fitted behind")

    def begin(self, start: str, plan: TuningPlan, encoder_parameters: int = 0) -> "Begun":
        """Return a start with its temperature, the cross-entropies that chose it, and what runs from it are charged."""
        nothing = Bill(flops=None if self.encoder_flops is None else 0.0)
        bill, opening, table = nothing, nothing, dict[str, float]()
        if start == RANDOM:
            fixed = plan.temperature if isinstance(plan.temperature, int | float) else None
            found = random_start(self.features.dim, self.present, seed=plan.seed, temperature=fixed)
        else:
            classifier = self._classifier(start, plan.validation)
            found, chosen = start_at(classifier, start, plan, self._training(plan.validation))
            bill = self._bill(start, plan.validation) if start in self.methods else nothing
            if chosen is not None:
                table = {f"{temperature:g}": loss for temperature, loss in chosen.table.items()}
                down = message_size(found.arrays()) + FLOAT * found.frozen("lp")
                opening = replace(nothing, up=8 * len(table) * len(self.parts), down=down * len(self.parts))
        prices = Prices(
            found.width,
            self.features.n_classes,
            encoder_parameters,
            self.encoder_flops,
            start=bill,
            opening=opening,
            frozen=0 if table else FLOAT * found.frozen(plan.stage),  # who helped to choose has the start already
        )
        training = self._training
        settled, found = scaled(plan, found, lambda: spread_of(found, training(plan.validation)))
        return Begun(settled, found, table, prices)

    def prepare(self, start: str, plan: TuningPlan) -> Run:
        """Return a run that is ready to begin."""
        if plan.stage == "lp":
            return _Probing(self, self.begin(start, plan))
        from fedmoments.study.jobs.tuning_network import NetworkRun

        return NetworkRun(self, plan, start)

    def notes(self) -> dict[str, Any]:
        """Return notes of origin for a tuned head on features of the encoder as it came."""
        return {
            "encoder": self.encoded.describe().encoder,
            "fingerprint": self.encoded.measured_as().digest,
            "data": self.config.data,
        }


def _identities(config: TuningStudy, names: Sequence[str]) -> list[Any]:
    """Return what heads compute, ready for JSON."""
    heads = choose_heads(names, hyper_of(config, names)) if names else {}
    return [identity_of(head) for head in heads.values()]


@dataclass(frozen=True)
class Begun:
    """A plan with its start, the training cross-entropy of each temperature that was tried, and what is charged."""

    plan: TuningPlan
    start: Start
    temperatures: dict[str, float]
    prices: Prices


class _Probing:
    """A run of ``lp`` on features."""

    def __init__(self, world: World, begun: Begun) -> None:
        self.world, self.plan = world, begun.plan
        self.start, self.temperatures, self.prices = begun.start, begun.temperatures, begun.prices
        test = (world.features.test.X, world.features.test.y)
        self.engine: Engine = FeatureEngine(begun.plan, self.start, world.parts, test)
        self.arrays = self.start.arrays()

    def refits(self, arrays: Arrays) -> tuple[dict[str, float | None], Probe | None]:  # noqa: ARG002 - the encoder stays
        """Return nothing: the encoder is as it was."""
        return {}, None

    def save(self, folder: Path, arrays: Arrays) -> None:
        """Write the tuned head."""
        folder.mkdir(parents=True, exist_ok=True)
        names = self.world.features.class_names
        tuned = self.start.tuned(arrays, stage=self.plan.stage, plan=self.plan.to_dict(), **self.world.notes())
        (tuned.named(names) if names else tuned).save(folder / "head.safetensors")
