"""The model that is served, and how another takes its place without dropping a request.

Every sample keeps the model that it was prepared for, so a swap changes nothing for what is under way.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.errors import FedMomentsError, InputError
from fedmoments.handover.answers import Answer, Asked, answers_of
from fedmoments.handover.model import Model

__all__ = ["Served", "answer_batch", "prepare_all"]

log = logging.getLogger("fedmoments.serve")
#: Seconds between two looks at the model's file.
LOOK = 1.0


def prepare(model: Model, sample: Any) -> Any:
    """Return a sample as the model's batches take it; raises InputError when it cannot be read."""
    if model.encoder is not None:
        return model.encoder.prepare(sample)
    try:
        features = np.asarray(sample, np.float64) if _is_row(sample) else None
    except OverflowError:  # a whole number of any length is JSON
        features = None
    if features is None or not np.isfinite(features).all():
        raise InputError("features must be a list of finite numbers")
    return features


def prepare_all(
    model: Model, samples: Sequence[Any], admitted: Callable[[Any], AbstractContextManager[None]] = nullcontext
) -> list[Any]:
    """Return samples as the model's batches take them; one that cannot be read has its error in its place.

    Parameters
    ----------
    model, samples
        What takes them, and what arrived.
    admitted
        Lets one sample in for as long as it is being read, or refuses it.
    """
    ready: list[Any] = []
    for sample in samples:
        try:
            with admitted(sample):
                ready.append(prepare(model, sample))
        except FedMomentsError as error:
            ready.append(error)
    return ready


def _is_row(sample: Any) -> bool:
    numbers = isinstance(sample, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in sample
    )
    return numbers and bool(sample)


def answer_batch(model: Model, prepared: list[Any], asked: Asked) -> list[Answer | FedMomentsError]:
    """Return what a model says of samples that were prepared for it; one that it cannot score has an error."""
    given = asdict(asked)
    if model.encoder is not None:
        return list(answers_of(model.classifier, model.encoder.encode(prepared), **given))
    answers: list[Answer | FedMomentsError] = []
    for row in prepared:  # rows of features may differ in length, and one that is wrong is nobody else's fault
        try:
            answers += answers_of(model.classifier, row[np.newaxis], **given)
        except FedMomentsError as error:
            answers.append(error)
    return answers


class Served:
    """The current model, read again whenever its file changes.

    Parameters
    ----------
    file
        Of the classifier.
    read
        Makes a model of the file; may take the encoder of the one before, if it is the same.
    asked
        What answers hold; a model that cannot give it is not served.
    """

    def __init__(self, file: Path, read: Callable[[Path, Model | None], Model], asked: Asked | None = None) -> None:
        self._file, self._read = file, read
        self.asked = asked or Asked()
        self._seen = self._state()
        self.model = read(file, None)
        self.model.require_no_sounds("a served model")
        self.asked.require_of(self.model)
        self.swaps = 0
        #: Why the file that is there now is not the one that is served; empty when it is.
        self.problem = ""

    def _state(self) -> tuple[int, int, int] | None:
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    async def follow(self) -> None:
        """Watch the file, and take a new model when it is whole and readable."""
        while True:
            await asyncio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """Take the model of the file if that has changed; a file that cannot be served changes nothing."""
        state = self._state()
        if state in (None, self._seen):
            return
        self._seen = state
        try:
            fresh = await asyncio.to_thread(self._read, self._file, self.model)
            if fresh.takes != self.model.takes:
                raise InputError(f"it takes {fresh.takes}, but the model that is served takes {self.model.takes}")
            self.asked.require_of(fresh)
        except Exception as error:  # whatever lies there now, the model that is served goes on, and looks are taken
            self.problem = f"{self._file} changed, but is not served: {error}"
            log.error("%s", self.problem)
            return
        self.model, self.problem = fresh, ""
        self.swaps += 1
        log.info("now serving %s", fresh.digest[:16])
