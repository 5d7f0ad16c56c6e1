"""Samples of many requests, answered in batches by one thread: encoders are fastest that way."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fedmoments.errors import FedMomentsError
from fedmoments.handover.answers import Answer
from fedmoments.handover.model import Model

__all__ = ["Batcher", "QueueFullError"]

#: Seconds that the first sample of a batch waits for others, where nothing is being computed.
WAIT = 0.003


class QueueFullError(FedMomentsError):
    """More samples wait than the server may hold."""


@dataclass
class _Waiting:
    model: Model
    prepared: Any
    answer: "asyncio.Future[Answer]"


class Batcher:
    """Collects prepared samples, and answers them together.

    Parameters
    ----------
    answer
        From a model and prepared samples to answers, or errors, in their order.
    batch_size
        Most samples of a batch.
    capacity
        Most samples that may wait.
    """

    def __init__(
        self,
        answer: Callable[[Model, list[Any]], Sequence[Answer | FedMomentsError]],
        *,
        batch_size: int,
        capacity: int,
    ) -> None:
        self._answer, self._batch_size, self._capacity = answer, batch_size, capacity
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedmoments-batches")
        self.batches = 0
        self.samples = 0

    @property
    def length(self) -> int:
        """How many samples wait."""
        return self._waiting.qsize()

    async def submit(self, model: Model, prepared: Sequence[Any]) -> list[Answer | BaseException]:
        """Return the answers to one request's samples; those that could not be scored are exceptions.

        Raises
        ------
        QueueFullError
            When too many wait; none of these does then.
        """
        if self.length + len(prepared) > self._capacity:
            raise QueueFullError(f"{self.length} samples wait, and at most {self._capacity} may: try again later")
        loop = asyncio.get_running_loop()
        entries = [_Waiting(model, sample, loop.create_future()) for sample in prepared]
        for entry in entries:
            self._waiting.put_nowait(entry)
        return await asyncio.gather(*(entry.answer for entry in entries), return_exceptions=True)

    async def run(self) -> None:
        """Answer requests until stopped."""
        loop = asyncio.get_running_loop()
        kept: _Waiting | None = None
        while True:
            first = kept or await self._waiting.get()
            batch, kept = await self._collect(first)
            prepared = [entry.prepared for entry in batch]
            try:
                answers = await loop.run_in_executor(self._thread, self._answer, first.model, prepared)
            except Exception as error:  # one batch's failure is that of its requests, not of the server
                answers = [FedMomentsError(f"the model failed: {error}")] * len(batch)
            self.batches, self.samples = self.batches + 1, self.samples + len(batch)
            for entry, answer in zip(batch, answers, strict=True):
                _settle(entry.answer, answer)

    async def _collect(self, first: _Waiting) -> tuple[list[_Waiting], _Waiting | None]:
        """Return a batch for one model, and the sample after it if it wants another model."""
        batch = [first]
        if self.length + 1 < self._batch_size:
            await asyncio.sleep(WAIT)  # once for all of them: a timer a sample would cost more than its scores
        while len(batch) < self._batch_size and not self._waiting.empty():
            entry = self._waiting.get_nowait()
            if entry.model is not first.model:
                return batch, entry
            batch.append(entry)
        return batch, None

    def close(self) -> None:
        """Let the thread end after its batch."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _settle(future: "asyncio.Future[Answer]", answer: Answer | FedMomentsError) -> None:
    if future.done():  # whoever asked has gone
        return
    if isinstance(answer, Answer):
        future.set_result(answer)
    else:
        future.set_exception(answer)
