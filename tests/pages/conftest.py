"""Small results with every part that a report can show, and one headless Chromium for all tests."""

import hashlib
import math
from collections.abc import Callable
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from fedmoments.core.observations import Outcome, Report, Row, Setting
from fedmoments.core.observations.budget import BudgetPoint
from fedmoments.core.observations.codec import to_plain
from fedmoments.errors import FileFormatError

CLASSES = ["cat", "dog", "tree frog", "oak", "newt", "elm"]


def row(head: str, accuracy: float | None, size: float, **more: Any) -> dict[str, Any]:
    """Return a row as results.json has it, of two seeds whose accuracies have a mean and a deviation."""
    given: dict[str, Any] = {name: more.pop(name) for name in ("hyper", "baseline", "detail", "sends") if name in more}
    of_row = {"sends": "counts + sums", "hyper": {"shrinkage": "automatic", "ridge": 0.5}} | given
    apart = more.pop("accuracy_std", 0.004) / math.sqrt(2)
    reason, fit_seconds = more.pop("reason", None), None if accuracy is None else 0.02
    told = {name: more.pop(name) for name in ("notes", "choice", "client_seconds") if name in more}
    outcomes = tuple(
        Outcome(
            seed,
            None if accuracy is None else accuracy + sign * apart,
            8,
            0,
            1,
            fit_seconds,
            reason,
            **told,
            coded_bytes=round(8 * size),
        )
        for seed, sign in enumerate((-1, 1))
    )
    setting = Setting(**{"clients": 8, "split": "dirichlet:0.1", **more})
    return Row(head, setting, outcomes=outcomes, **of_row).to_dict()


def detail(head: str, wrong: int) -> dict[str, Any]:
    """Return the details of a head that takes so many cats for dogs."""
    table = [[20 if i == j else 0 for j in range(6)] for i in range(6)]
    table[0][0], table[0][1] = 20 - wrong, wrong
    bins: list[dict[str, Any]] = [
        {"low": i / 5, "high": (i + 1) / 5, "count": 10 * i, "confidence": i / 5 + 0.1, "accuracy": i / 5}
        for i in range(5)
    ]
    bins[0] |= {"confidence": None, "accuracy": None}
    digests = {name: hashlib.sha256(f"{name} {head}".encode()).hexdigest() for name in ("digest", "statistics_digest")}
    return {
        "head": head,
        "seed": 0,
        "confusion": table,
        "calibration": {"bins": bins, "ece": 0.1, "temperature": 0.5},
        **digests,
        "measured": "counts + class_grams",
        "digest_reason": None,
    }


def bias(relative: list[float | None], held_by: list[int]) -> dict[str, Any]:
    """Return the bias of the free covariance, whose exact traces are all 1."""
    free = [None if value is None else 1 + value for value in relative]
    return {"free_trace": free, "exact_trace": [1.0] * len(free), "held_by": held_by, "counts": [30] * len(free)}


def rounds(head: str, *, replacement: bool) -> list[dict[str, Any]]:
    """Return two seeds of a head's accuracy per round."""
    return [
        {
            "head": head,
            "clients": 8,
            "split": "dirichlet:0.1",
            "per_round": 2,
            "replacement": replacement,
            "seed": seed,
            "points": [{"round": i, "seen": min(2 * i, 8), "accuracy": 0.9 - 0.3 / i} for i in range(1, 5 + seed)],
        }
        for seed in (0, 1)
    ]


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    """Return what makes a row of results from a head, an accuracy and bytes per client."""
    return row


@pytest.fixture
def results() -> dict[str, Any]:
    """Return results with everything, four heads of which one could not be fitted."""
    return {
        "format": 2,
        "version": "0.1.0",
        "created": "2026-02-03T14:21:07+00:00",
        "command": "fedmoments simulate folder:photos --clients 8 --split dirichlet:0.1 --seeds 2 --out run",
        "config": {"seed": 0, "data": {"source": "folder:photos", "label": None}, "heads": ["fedncm", "fedcof"]},
        "seconds": 12.3,
        "timings": {"encode": 10.0, "measure": 2.0},
        "data": {
            "name": "photos",
            "train": 600,
            "test": 120,
            "dim": 64,
            "classes": 6,
            "class_names": list(CLASSES),
            "modality": "image",
            "digest": "sha256:1234",
            "problems": [{"where": "cat/broken.jpg", "why": "it is cut short"}],
            "encoder": {
                "name": "efficientnet-lite0",
                "fingerprint": "abcd",
                "preprocessing": {"size": 224},
                "runtime": "torch",
                "dim": 64,
            },
        },
        "seeds": 2,
        "bytes_per_number": 4,
        "rows": [
            row("fedncm", 0.807, 5242.1, detail=0),
            row("fedcof", 0.92, 5242.1, detail=1),
            row("gh-qda", 0.951, 600_000.0, detail=2),
            row("gh-lda", None, 50_000.0, reason="the covariance is singular"),
        ],
        "splits": [
            {
                "seed": seed,
                "scheme": "dirichlet:0.1",
                "samples": 600,
                "clients": 8,
                "empty_clients": 1,
                "smallest": 3,
                "largest": 90 + seed,
                "dropped": 0,
                "why": "",
                "notes": ["one client is empty"],
            }
            for seed in (0, 1)
        ],
        "details": [detail("fedncm", 12), detail("fedcof", 4), detail("gh-qda", 0)],
        "holders": {
            "clients": [f"site {i}" for i in range(8)],
            "cells": [[i, j, (i * 7 + j * 3) % 11] for i in range(8) for j in range(6) if (i + j) % 3],
            "n_clients": 8,
            "seed": 0,
            "split": "dirichlet:0.1",
        },
        "bias": bias([0.1, -0.2, 0.0, 0.3, None, 0.05], [5, 6, 5, 4, 1, 6]),
        "rounds": rounds("fedcof", replacement=True) + rounds("fedcof", replacement=False),
    }


def read_unless_refused(document: dict[str, Any]) -> Report | None:
    """Return the report that a document holds, or None where it is refused by the name of what is wrong in it."""
    try:
        return Report.from_dict(document)
    except FileFormatError as error:
        if not str(error).startswith("results.json "):
            raise
        return None


# ---------------------------------------------------------------------------------------------- tuning

#: Of a start: accuracy before tuning, at the end of FedAvg, rounds in which the rest falls to 1/e; bytes up, FLOPs.
STARTS = {
    "random": (0.013, 0.871, 30.0, 0.0, 0.0),
    "fedncm": (0.806, 0.893, 24.0, 6.2e6, 8.0e6),
    "fed3r": (0.902, 0.909, 18.0, 8.3e7, 3.1e9),
    "fedcof": (0.896, 0.912, 20.0, 6.2e6, 8.0e6),
}
#: One-shot heads that nothing starts from: accuracy, bytes up and FLOPs.
OTHERS = {"gh-lda": (0.899, 1.7e8, 6.2e9), "fedcgs": (0.871, 6.4e6, 9.0e6)}
#: How much faster and lower each optimiser is in this world.
OPTIMISERS = {"fedavg": (1.0, 0.0), "fedadam": (0.5, 0.004)}


def tuned_accuracy(start: str, optimiser: str, seed: int, number: int) -> float:
    """Return the accuracy of a world in which the rest to the limit falls exponentially, with a ripple."""
    first, last, pace, *_ = STARTS[start]
    faster, lower = OPTIMISERS.get(optimiser, (1.0, 0.0))
    rest = (last - lower - first) * (1 - math.exp(-number / (pace * faster)))
    ripple = 0.002 * math.sin(1.7 * number + seed) * min(number / 5, 1.0)
    return first + rest + ripple + 0.003 * (seed - 1)


def tuned_curve(start: str, optimiser: str, seed: int, rounds: int, *, every: int = 1, stop: int | None = None) -> Any:
    """Return one curve as the document has it."""
    head, work = STARTS[start][3:]
    message = 4.0 * (77 * 384 + 77) * 30
    points = []
    for number in range(0, (stop or rounds) + 1, every):
        points.append(
            {
                "round": number,
                "accuracy": tuned_accuracy(start, optimiser, seed, number),
                "loss": 0.4,
                "validation": None,
                "train_loss": None if number == 0 else 0.3,
                "participants": 30 if number else 0,
                "up": 1.004 * (head + number * message),
                "down": number * message,
                "up_formula": head + number * message,
                "down_formula": number * message,
                "flops": work + number * 6.0 * 77 * 384 * 3000,
            }
        )
    plan = {"stage": "lp", "optimiser": optimiser, "rounds": rounds, "fraction": 0.3, "replacement": False}
    plan |= {"lr": 1.0 if start == "random" else 0.1, "momentum": 0.9, "weight_decay": 1e-4, "batch_size": 32}
    plan |= {"epochs": 1, "server_lr": None, "server_momentum": 0.9, "beta_1": 0.9}
    plan |= {"beta_2": 0.999, "tau": 0.001, "mu": 0.01, "validation": 0.1 if stop else 0.0, "check_every": 5}
    plan |= {"patience": 5, "batchnorm": "frozen", "seed": seed}
    return {
        "start": start,
        "optimiser": optimiser,
        "seed": seed,
        "temperature": 1.0 if start == "random" else 0.1,
        "plan": plan,
        "best_round": stop - 25 if stop else None,
        "stopped": f"no better validation in 5 checks in a row; round {stop - 25} is kept" if stop else None,
        "points": points,
        "refit": {},
        "probe": None,
    }


def reached_by(curves: list[Any]) -> list[dict[str, Any]]:
    """Return when each start first is as accurate as the random one ends, seed by seed: means of those that are."""
    found = []
    for optimiser in dict.fromkeys(each["optimiser"] for each in curves):
        mine = [each for each in curves if each["optimiser"] == optimiser]
        ends = {
            each["seed"]: each["points"][-1 if each["best_round"] is None else each["best_round"]]["accuracy"]
            for each in mine
            if each["start"] == "random"
        }
        if not ends:
            continue
        for start in dict.fromkeys(each["start"] for each in mine):
            seeds = [each for each in mine if each["start"] == start]
            hits = [
                hit
                for each in seeds
                if (hit := next((p for p in each["points"] if p["accuracy"] >= ends[each["seed"]]), None)) is not None
            ]
            entry = {"start": start, "optimiser": optimiser, "target": fmean(ends.values()), "seeds": len(seeds)}
            entry |= {"hit": len(hits), "rounds": fmean(hit["round"] for hit in hits) if hits else None}
            entry |= {"bytes": fmean(hit["up"] + hit["down"] for hit in hits) if hits else None}
            found.append(entry | {"flops": fmean(hit["flops"] for hit in hits) if hits else None})
    return found


def tuned_document(
    starts: tuple[str, ...] = tuple(STARTS),
    optimisers: tuple[str, ...] = tuple(OPTIMISERS),
    *,
    seeds: int = 3,
    rounds: int = 200,
    stage: str = "lp",
    **more: Any,
) -> dict[str, Any]:
    """Return a document of tuning."""
    curves = [
        tuned_curve(start, how, seed, rounds, **more) for how in optimisers for start in starts for seed in range(seeds)
    ]
    heads = []
    known = {name: (STARTS[name][0], *STARTS[name][3:]) for name in starts if name != "random"} | OTHERS
    for seed in range(seeds):
        for name, (accuracy, up, flops) in known.items():
            entry = {"head": name, "seed": seed, "accuracy": accuracy + 0.003 * (seed - 1), "up": 1.004 * up}
            heads.append(entry | {"up_formula": up, "flops": flops})
    data = {"name": "banking77", "train": 10003, "test": 3080, "dim": 384, "classes": 77}
    return {
        "format": 2,
        "version": "0.1.0",
        "command": "fedmoments tune banking77.npz --starts random,fedncm,fed3r,fedcof --optimisers fedavg,fedadam",
        "config": {"seed": 0, "tuning": {"stage": stage, "rounds": rounds}},
        "seconds": 104.2,
        "data": data | {"encoder": {"name": "all-MiniLM-L6-v2"}},
        "rows": [],
        "tuning": {
            "stage": stage,
            "clients": 100,
            "split": "dirichlet:0.1",
            "per_round": 30,
            "replacement": False,
            "rounds": rounds,
            "batchnorm": None if stage == "lp" else "frozen",
            "curves": curves,
            "heads": heads,
        },
    }


@pytest.fixture(scope="session")
def world() -> Any:
    """Return a world of tuning: its starts, other heads, accuracies, and what makes documents of it."""
    return SimpleNamespace(
        starts=tuple(STARTS),
        others=tuple(OTHERS),
        accuracy=tuned_accuracy,
        reached=reached_by,
        document=tuned_document,
    )


# ---------------------------------------------------------------------------------------------- budgets

MEANS, GRAM = 17_100.0, 312_960.0
BUDGETS = {f"means/{n}": MEANS / n for n in (8, 4, 2)} | {"means": MEANS}
BUDGETS |= {f"means*{n}": MEANS * n for n in (2, 4, 8, 16)} | {"gram": GRAM}
#: Accuracy as published, and bytes, of every head that is not on sketches.
RIVALS = {"fedncm": (0.806, MEANS), "fedcof": (0.894, MEANS), "fed3r": (0.889, GRAM), "gh-lda": (0.903, GRAM)}


def budget_point(budget: str | None, size: float, accuracy: float, std: float) -> dict[str, Any]:
    """Return a point of three seeds whose accuracies have a mean and a deviation."""
    point = BudgetPoint((accuracy - std, accuracy, accuracy + std), (size,) * 3, (0, 1, 2), budget)
    return dict(to_plain(point))


def sketch_curve(head: str, loss: float) -> dict[str, Any]:
    """Return a curve that rises from 82 to 90.5 percent and ends where its rank does."""
    points = []
    for i, (budget, size) in enumerate(BUDGETS.items()):
        accuracy, std = 0.905 - loss - 0.085 * 0.4**i, 0.002 + 0.006 * 0.5**i
        point = budget_point(budget, 0.985 * min(size, 6 * MEANS), accuracy, std)
        points.append(point | {"rank": 0.37 * 2**i, "dimensions": 241 if i == 0 else None})
    return {"head": head, "kind": "sketch", "points": points}


def projected_curve(head: str, top: float, full: float) -> dict[str, Any]:
    """Return a curve that ends at the method as it is published."""
    points = []
    for budget, size in BUDGETS.items():
        if size > full:
            break
        own = size == full
        accuracy, spent = top - 0.03 * math.log(full / size), size if own else 0.99 * size
        point = budget_point(None if own else budget, spent, accuracy, 0.0043)
        points.append(point | {"own": own, "dimensions": None if own else round(384 * (size / full) ** 0.6)})
    return {"head": head, "kind": "projected", "points": points}


def budget_document(others: dict[str, tuple[float, float]] | None = None) -> dict[str, Any]:
    """Return results of a budget curve alone."""
    curves = [sketch_curve("auto", 0.0), sketch_curve("sketch", 0.008)]
    curves += [projected_curve(head, *found) for head, found in (RIVALS if others is None else others).items()]
    curve = {"clients": 100, "split": "dirichlet:0.1", "dim": 384, "n_classes": 77, "means": MEANS}
    bounded = [{"head": "auto", "rows": 768, "of": 9999, "blocks": 7, "accuracy": 0.9012, "unbounded": 0.9034}]
    bounded.append({"head": "sketch", "rows": 1234, "of": 9999, "blocks": 4, "accuracy": 0.8976, "unbounded": 0.8952})
    return {
        "format": 2,
        "version": "0.1.0",
        "command": "fedmoments simulate banking77.npz --budget-curve",
        "data": {"name": "banking77", "train": 10003, "test": 3080, "dim": 384, "classes": 77},
        "seeds": 3,
        "rows": [],
        "budget_curve": curve | {"gram": GRAM, "curves": curves, "recompressed": bounded},
    }


@pytest.fixture(scope="session")
def budgets() -> Any:
    """Return a world of budgets: payloads, budgets in bytes, heads without sketches, and what makes documents of it."""
    return SimpleNamespace(
        means=MEANS, gram=GRAM, sizes=BUDGETS, others=RIVALS, projected=projected_curve, document=budget_document
    )
