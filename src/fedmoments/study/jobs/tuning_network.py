"""Runs that train the encoder: samples themselves instead of features, and closed-form heads on what was tuned."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.observations.tuning import Probe
from fedmoments.errors import InputError
from fedmoments.samples.encoders.registry import load_encoder
from fedmoments.samples.features import Samples
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.study.checks import hyper_of
from fedmoments.study.jobs.encoding import Encoded
from fedmoments.study.jobs.tuning_world import World
from fedmoments.study.probing import PROBE, refit
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.engine import Arrays, Engine
from fedmoments.tuning.network import NetworkEngine, parameter_count, prepare_all, save_encoder
from fedmoments.tuning.start import BIAS, WEIGHTS, random_start

__all__ = ["NetworkRun", "PreparedSamples"]


class PreparedSamples:
    """Samples as the encoder's network takes them, prepared once for all runs of a job.

    Parameters
    ----------
    encoded
        The data, and which of its samples have features.
    readers
        Threads that read them.
    """

    def __init__(self, encoded: Encoded, readers: int) -> None:
        self._encoded, self._readers = encoded, readers
        if encoded.data.modality == "features":
            raise InputError(
                "stages ft and feat train the encoder, but these data are features already: give the samples "
                "(folder:, csv:, digits …) and an encoder, or take stage lp"
            )

    @cached_property
    def train(self) -> Any:
        """All training samples."""
        return self._prepared(0)

    @cached_property
    def test(self) -> Any:
        """All test samples."""
        return self._prepared(1)

    def _prepared(self, part: int) -> Any:
        data = self._encoded.data
        samples = (data.train, data.test)[part].take(self._encoded.kept[part])
        return prepare_all(self._encoded.encoder, samples.items, readers=self._readers)


class NetworkRun:
    """A run of ``ft`` or ``feat``.

    Parameters
    ----------
    world
        The federation, with its prepared samples.
    plan
        What is trained, and how.
    start
        Name of the start.
    """

    def __init__(self, world: World, plan: TuningPlan, start: str) -> None:
        begun = self._fitted_in(world, plan, start).begin(start, plan, parameter_count(world.encoded.encoder))
        self.world, self.plan = world, plan
        self.start, self.temperatures, self.prices = begun.start, begun.temperatures, begun.prices
        train, test, y = world.prepared.train, world.prepared.test, world.features.train.y
        parts = {name: (_chosen(train, rows), y[rows]) for name, rows in world.holders.items()}
        self._network = NetworkEngine(
            plan,
            self.start,
            world.encoded.encoder,
            parts,
            (test, world.features.test.y),
            threads=world.config.threads or 1,
            device=world.config.device,
        )
        self.engine: Engine = self._network
        self.arrays = self._network.initial()
        if plan.adapts:
            self.prices = replace(self.prices, encoder_parameters=self._network.encoder_parameters)

    @staticmethod
    def _fitted_in(world: World, plan: TuningPlan, start: str) -> World:
        """Return the federation that a head is fitted in: behind new prompts, which change features, where it has some.

        Clients know the prompts, which are public, before they measure: it is the same one upload.
        """
        if plan.adapter_part[0] != "prompt" or start not in world.methods:
            return world
        any_start = random_start(world.features.dim, world.present, seed=0)
        threads, device = world.config.threads or 1, world.config.device
        engine = NetworkEngine(plan, any_start, world.encoded.encoder, {}, threads=threads, device=device)
        first = engine.initial()
        return world.behind(*(engine.features(first, part) for part in (world.prepared.train, world.prepared.test)))

    def refits(self, arrays: Arrays) -> tuple[dict[str, float | None], Probe | None]:
        """Return the accuracy of closed-form heads on the tuned features, and of the probe before and after."""
        world = self.world
        heads = world.config.refit
        if not heads:
            return {}, None
        X_train, X_test = (self._network.features(arrays, part) for part in (world.prepared.train, world.prepared.test))
        tuned = replace(
            world.features,
            train=Samples(X_train, world.features.train.y),
            test=Samples(X_test, world.features.test.y),
        )
        settings: dict[str, Any] = {"hyper": hyper_of(world.config, heads), "seed": world.seed}
        accuracies = {name: head.accuracy for name, head in refit(tuned, world.split, heads, **settings).items()}
        if PROBE not in heads:
            return accuracies, None
        before = refit(world.features, world.split, heads, **settings)[PROBE].accuracy
        return accuracies, Probe(before, accuracies[PROBE])

    def save(self, folder: Path, arrays: Arrays) -> None:
        """Write the tuned encoder and the head behind it."""
        folder.mkdir(parents=True, exist_ok=True)
        world, path = self.world, (folder / "encoder.safetensors").resolve()
        save_encoder(path, world.encoded.encoder, self._network.plain(arrays))
        encoder = load_encoder(f"tuned:{path}", threads=1, trusted=[world.encoded.encoder.name, *world.config.trust])
        names = world.encoded.data.class_names
        about = {**encoder.note({}), "preprocessing": dict(encoder.preprocessing)}
        measured = Fingerprint.of(encoder, None, names)
        notes = {"encoder": about, "fingerprint": measured.digest, "data": world.config.data}
        notes |= {"stage": self.plan.stage, "plan": self.plan.to_dict()}
        if WEIGHTS in arrays:
            head = self.start.tuned({name: arrays[name] for name in (WEIGHTS, BIAS)}, **notes)
        else:  # in feat it stays as it came, to the last bit
            head = self.start.classifier.tempered(self.start.temperature).noting(start=self.start.name, **notes)
        head.named(names).save(folder / "head.safetensors")


def _chosen(samples: Any, rows: NDArray[np.int64]) -> Any:
    return samples[rows] if isinstance(samples, np.ndarray) else [samples[row] for row in rows]
