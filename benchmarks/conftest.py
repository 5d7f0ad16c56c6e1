"""Ratios measured in one run: both sides take turns in one process, on one BLAS thread, and a closing table.

Times are CPU seconds of this process, best of the rounds: on one thread that is the wall clock of an idle machine, and
neighbours disturb it least. What is asserted is a ratio of two such times, never a time.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Run = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of the closing table."""

    name: str
    ours: str
    reference: str
    ratio: str
    required: str


ROWS = pytest.StashKey[list[Row]]()


class Benchmark(Protocol):
    """The part of pytest-benchmark's fixture that is used here."""

    extra_info: dict[str, Any]

    def pedantic(self, target: Run, *, setup: Run, rounds: int) -> object: ...


class Federation(NamedTuple):
    """Samples of many clients, in no particular order: X (n, d) float32, y (n,) labels, clients (n,) holders."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    clients: NDArray[np.int64]
    n_clients: int
    n_classes: int


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        yield


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str, str, str], None]:
    """Return what puts a line without a reference (name, value, required) into the closing table."""
    rows = request.config.stash.setdefault(ROWS, [])
    return lambda name, value, required: rows.append(Row(name, value, "", "", required))


@pytest.fixture
def compare(benchmark: Benchmark, request: pytest.FixtureRequest) -> Callable[..., float]:
    """Return what times two sides in turns, notes their ratio and asserts its bound."""
    rows = request.config.stash.setdefault(ROWS, [])

    def race(
        name: str,
        ours: Run,
        reference: Run,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        rounds: int = 5,
        scale: float = 1.0,
        **also: Run,
    ) -> float:
        """Time ``ours`` and ``reference`` (its time times ``scale``); ``also`` are further references, without a bound.

        The ratio is ours/reference where at most so much is allowed, else reference/ours, how many times faster.
        """
        references = {name: reference} | {f"  … {label.replace('_', ' ')}": run for label, run in also.items()}
        times: dict[str, list[float]] = {label: [] for label in ("ours", *references)}

        def timed(label: str, run: Run) -> None:
            start = time.process_time()
            result = run()
            times[label].append(time.process_time() - start)
            del result

        def turn_of_references() -> None:
            for label, run in references.items():
                timed(label, run)

        for run in (ours, *references.values()):  # memory that is touched for the first time is slow
            run()
        benchmark.pedantic(lambda: timed("ours", ours), setup=turn_of_references, rounds=rounds)
        mine = min(times["ours"])
        ratios: list[float] = []
        for label in references:
            theirs = min(times[label]) * scale
            ratios.append(mine / theirs if at_most is not None else theirs / mine)
            bounds = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else "-"
            required = bounds if label == name else "-"
            rows.append(Row(label, _seconds(mine), _seconds(theirs), f"{ratios[-1]:.2f}", required))
            print(f"\n{label}: {ratios[-1]:.2f} (required: {required})")
        benchmark.extra_info["ratio"] = ratios[0]
        assert at_least is None or ratios[0] >= at_least, f"{name}: {ratios[0]:.2f}, at least {at_least} is required"
        assert at_most is None or ratios[0] <= at_most, f"{name}: {ratios[0]:.2f}, at most {at_most} is required"
        return ratios[0]

    return race


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print all ratios of the run as one table."""
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    head = Row("benchmark (CPU time, one thread)", "ours", "reference", "ratio", "required")
    width = max(len(row.name) for row in (head, *rows))
    terminalreporter.section("ratios")
    for row in (head, *rows):
        cells = f"{row.ours:>12}{row.reference:>12}{row.ratio:>10}{row.required:>11}"
        terminalreporter.write_line(f"{row.name:<{width}}{cells}")


# -------------------------------------------------------------------------------------------------- a large federation

N_CLIENTS, N_SAMPLES, N_ROWS, N_CLASSES, DIM = 9_275, 120_293, 54_555, 1_203, 1_280


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Return a federation of the size of iNaturalist-Users-120K.

    Client sizes are log-normal (median 2, 95 % below 50, 99 % below 204, largest about 1,500; the real quantiles are
    2, 43, 232 and 2,511), cut to whole numbers with the exact total. A client of n samples holds about n^0.79 classes,
    so that there are exactly 54,555 (client, class) cells.
    """
    rng = np.random.default_rng(0)
    spread = np.exp(2.1 * rng.normal(size=N_CLIENTS))
    sizes = _whole(lambda scale: np.clip(np.rint(scale * spread), 1, 2_511), N_SAMPLES, np.full(N_CLIENTS, 2_511))
    most = np.minimum(sizes, N_CLASSES)
    held = _whole(lambda power: np.minimum(np.rint(sizes**power), most), N_ROWS, most)
    labels = []
    for size, n_held in zip(sizes, held, strict=True):
        mine = rng.choice(N_CLASSES, n_held, replace=False)
        labels.append(np.concatenate([mine, rng.choice(mine, size - n_held)]))
    order = rng.permutation(N_SAMPLES)
    y, clients = np.concatenate(labels)[order], np.repeat(np.arange(N_CLIENTS), sizes)[order]
    X = rng.standard_normal((N_SAMPLES, DIM), dtype=np.float32)
    return Federation(X, y, clients, N_CLIENTS, N_CLASSES)


def _whole(numbers: Callable[[float], NDArray[np.float64]], total: int, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole numbers, growing with a parameter, that add up to ``total`` exactly and stay within ``most``."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if numbers(middle).sum() <= total else (low, middle)
    chosen = numbers(low).astype(np.int64)
    room = np.flatnonzero(chosen < most)[: total - chosen.sum()]
    chosen[room] += 1
    assert chosen.sum() == total
    return chosen
