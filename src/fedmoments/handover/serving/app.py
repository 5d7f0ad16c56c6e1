"""The HTTP interface: one route that classifies, three that say what is served and how it goes.

``POST /predict`` takes JSON, ``{"images": [base64, …]}``, ``{"texts": [sentence, …]}`` or ``{"features": [[…], …]}``,
as the model takes, with ``"top"`` for the number of classes; a multipart form of image files; or one image as it is,
under its own content type. Where the server was told to abstain, samples that are new to the model are of the class
"unknown", with a probability of null; where it was given a coverage, ``set`` holds the classes of a prediction set.
A sample that cannot be read has an ``error`` in its place, and the others have their answers.
"""

import asyncio
import base64
import binascii
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fedmoments.errors import FedMomentsError
from fedmoments.handover.answers import Answer
from fedmoments.handover.model import Model
from fedmoments.handover.serving.batcher import Batcher, QueueFullError
from fedmoments.handover.serving.room import Admission
from fedmoments.handover.serving.served import Served, answer_batch, prepare_all

__all__ = ["Limits", "application"]

#: What a JSON body calls the samples of each kind of model.
KEYS = {"image": "images", "text": "texts", "features": "features"}
#: Samples of a request that one thread decodes in a go.
PIECE = 4
#: Bodies of the largest size that all requests together may hold in memory; requests that are taken apart at the same
#: time, for what JSON holds is up to twenty times as large in memory; seconds in which a body must have arrived.
BODIES, APART, ARRIVAL = 8, 4, 60.0


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may ask for.

    Parameters
    ----------
    body
        Bytes of a request.
    samples
        Samples of a request.
    waiting
        Samples of all requests that may wait.
    pixels
        Pixels of one image, and of all images that are decoded at the same time; a request has at most four times as
        many.
    characters
        Characters of one text.
    """

    body: int = 32_000_000
    samples: int = 256
    waiting: int = 2048
    pixels: int = 50_000_000
    characters: int = 20_000


@dataclass
class _Counts:
    answered: Counter[int] = field(default_factory=Counter)
    unreadable: int = 0
    seconds: float = 0.0


class _Refusal(HTTPException):
    """An answer that is not 200, with its reason."""


class _Json(JSONResponse):
    """JSON in ASCII: whatever text arrived can be told again, half of a character included."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def application(served: Served, limits: Limits, batch_size: int) -> Starlette:
    """Return the ASGI application of a served model."""
    batcher = Batcher(partial(answer_batch, asked=served.asked), batch_size=batch_size, capacity=limits.waiting)
    service = _Service(served, batcher, limits)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(batcher.run()), asyncio.create_task(served.follow())]
        yield
        for task in tasks:
            task.cancel()
        batcher.close()

    routes = [
        Route("/predict", service.predict, methods=["POST"]),
        Route("/model", service.describe, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
        Route("/metrics", service.metrics, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refused})


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _Json({"error": error.detail}, error.status_code, headers=error.headers)


class _Service:
    def __init__(self, served: Served, batcher: Batcher, limits: Limits) -> None:
        self._served, self._batcher, self._limits, self._counts = served, batcher, limits, _Counts()
        self._admission = Admission(limits.pixels, limits.characters)
        self._apart = asyncio.Semaphore(APART)
        self._held = 0  # bytes of bodies in memory

    async def predict(self, request: Request) -> Response:
        started = time.perf_counter()
        status = 500
        try:
            response = await self._predict(request)
            status = response.status_code
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            self._counts.answered[status] += 1
            self._counts.seconds += time.perf_counter() - started
        return response

    async def _predict(self, request: Request) -> Response:
        model = self._served.model  # this request keeps it, whatever is swapped meanwhile
        ready, top = await self._ready(request, model)
        readable = [sample for sample in ready if not isinstance(sample, FedMomentsError)]
        try:
            answers = iter(await self._batcher.submit(model, readable))
        except QueueFullError as error:
            raise _Refusal(503, str(error), {"Retry-After": "1"}) from error
        outcomes = [next(answers) if not isinstance(sample, FedMomentsError) else sample for sample in ready]
        predictions = [self._prediction(outcome, top) for outcome in outcomes]
        return _Json({"model": model.digest, "predictions": predictions})

    async def _ready(self, request: Request, model: Model) -> tuple[list[Any], int]:
        """Return the samples of a request as the model's batches take them, and how many classes are wanted."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await self._body(request)
        try:
            async with self._apart:
                samples, top = await self._samples(request, model, kind, body)
                admit = partial(self._admission.admitted, self._admission.account())
                pieces = [samples[start : start + PIECE] for start in range(0, len(samples), PIECE)]
                prepared = await asyncio.gather(
                    *(asyncio.to_thread(prepare_all, model, each, admit) for each in pieces)
                )
        finally:
            self._held -= len(body)
        return [sample for piece in prepared for sample in piece], top

    def _prediction(self, outcome: Answer | BaseException, top: int) -> dict[str, Any]:
        if isinstance(outcome, Answer):
            return outcome.to_dict(top)
        if not isinstance(outcome, FedMomentsError):
            raise outcome
        self._counts.unreadable += 1
        return {"error": str(outcome)}

    async def _samples(self, request: Request, model: Model, kind: str, body: bytes) -> tuple[list[Any], int]:
        if kind == "multipart/form-data":
            samples, top = await self._form(request, body, model), 3
        elif kind.startswith("image/") and model.takes == "image":
            samples, top = [body], 3
        elif kind == "application/json":
            samples, top = self._document(body, model)
        else:
            raise _Refusal(415, "send application/json, multipart/form-data or, to a model of images, an image")
        if not 0 < len(samples) <= self._limits.samples:
            raise _Refusal(
                413 if samples else 400, f"a request has 1 to {self._limits.samples} samples, not {len(samples)}"
            )
        return samples, top

    async def _body(self, request: Request) -> bytes:
        """Return the body, stopping to read where it is larger or slower than allowed, whatever its header says.

        Its bytes are charged as they arrive, so somebody who announces much and sends little takes no room; the caller
        gives them back.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(ARRIVAL):
                async for part in request.stream():
                    if size + len(part) > self._limits.body:
                        raise _Refusal(413, f"a request has at most {self._limits.body:,} bytes")
                    if self._held + len(part) > BODIES * self._limits.body:
                        raise _Refusal(503, "too many large requests at once: try again later", {"Retry-After": "1"})
                    size, self._held = size + len(part), self._held + len(part)
                    parts.append(part)
        except BaseException as error:
            self._held -= size
            if isinstance(error, TimeoutError):
                raise _Refusal(408, f"a request arrives within {ARRIVAL:.0f} seconds") from error
            if isinstance(error, ClientDisconnect):
                raise _Refusal(400, "the request ended before its body did") from error
            raise
        return b"".join(parts)

    async def _form(self, request: Request, body: bytes, model: Model) -> list[Any]:
        if model.takes != "image":
            raise _Refusal(400, f"this model takes {KEYS[model.takes]} in JSON, not files")

        async def whole() -> AsyncGenerator[bytes, None]:
            yield body

        try:
            parser = MultiPartParser(request.headers, whole(), max_files=self._limits.samples, max_fields=16)
            form = await parser.parse()
        except (MultiPartException, KeyError, LookupError, ValueError) as error:
            raise _Refusal(400, f"the body is not a multipart form: {error}") from error
        try:
            return [await file.read() for _, file in form.multi_items() if not isinstance(file, str)]
        finally:
            await form.close()

    def _document(self, body: bytes, model: Model) -> tuple[list[Any], int]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _Refusal(400, f"the body is not JSON: {error}") from error
        key = KEYS[model.takes]
        given = document.get(key) if isinstance(document, dict) else None
        if not isinstance(given, list):
            raise _Refusal(400, f'this model takes {{"{key}": […]}}')
        top = document.get("top", 3)
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise _Refusal(400, f"top must be a whole number from 1 on, not {str(top)[:40]}")
        return [_decoded(sample) if model.takes == "image" else sample for sample in given], top

    async def describe(self, _request: Request) -> Response:
        model = self._served.model
        names, asked = list(model.classifier.class_names), asdict(self._served.asked)
        return _Json({**model.notes(), "class_names": names, "limits": vars(self._limits), **asked})

    async def health(self, _request: Request) -> Response:
        status = {"status": "ready", "model": self._served.model.digest, "problem": self._served.problem}
        return _Json(status)

    async def metrics(self, _request: Request) -> Response:
        counts, batcher = self._counts, self._batcher
        lines = [
            "# TYPE fedmoments_requests_total counter",
            *(f'fedmoments_requests_total{{status="{code}"}} {n}' for code, n in sorted(counts.answered.items())),
            "# TYPE fedmoments_request_seconds_total counter",
            f"fedmoments_request_seconds_total {counts.seconds:.6f}",
            "# TYPE fedmoments_samples_total counter",
            f"fedmoments_samples_total {batcher.samples}",
            "# TYPE fedmoments_unreadable_samples_total counter",
            f"fedmoments_unreadable_samples_total {counts.unreadable}",
            "# TYPE fedmoments_batches_total counter",
            f"fedmoments_batches_total {batcher.batches}",
            "# TYPE fedmoments_waiting_samples gauge",
            f"fedmoments_waiting_samples {batcher.length}",
            "# TYPE fedmoments_model_swaps_total counter",
            f"fedmoments_model_swaps_total {self._served.swaps}",
            "# TYPE fedmoments_model_info gauge",
            f'fedmoments_model_info{{digest="{self._served.model.digest}"}} 1',
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _decoded(sample: Any) -> Any:
    try:
        return base64.b64decode(sample, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return sample  # no image either: the encoder's own words say so
