"""Small results with every part that a report can show, and one headless Chromium for all tests."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CLASSES = ["cat", "dog", "tree frog", "oak", "newt", "elm"]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def row(head: str, accuracy: float | None, size: float, **more: Any) -> dict[str, Any]:
    """Return a row as results.json has it."""
    return {
        "head": head,
        "clients": 8,
        "split": "dirichlet:0.1",
        "means_per_client": 1,
        "shrinkage": None,
        "sends": "counts + sums",
        "hyper": {"shrinkage": "automatic", "ridge": 0.5},
        "accuracy": accuracy,
        "accuracy_std": None if accuracy is None else 0.004,
        "up_bytes_per_client": size,
        "up_bytes_total": size * 8,
        "fit_seconds": None if accuracy is None else 0.02,
        "reasons": [],
        "seeds": [{"seed": 0, "accuracy": accuracy, "clients": 8, "up_floats": 10, "up_counts": 1}],
        "detail": None,
    } | more


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
        "format": 1,
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
            row("gh-lda", None, 50_000.0, reasons=["the covariance is singular"]),
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
        "bias": {"overall": 0.02, "relative": [0.1, -0.2, 0.0, 0.3, None, 0.05], "held_by": [5, 6, 5, 4, 1, 6]},
        "rounds": rounds("fedcof", replacement=True) + rounds("fedcof", replacement=False),
    }


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start one headless Chromium for all tests; skip where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no Chromium with chromedriver on the PATH: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        started = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield started
        finally:
            started.quit()
