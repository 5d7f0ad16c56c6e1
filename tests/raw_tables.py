"""Raw tables for tests: a clinic's columns of numbers, texts and gaps, and a class that they tell."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = ("age", "score", "ward", "patient", "outcome")


def clinic(n: int, seed: int) -> dict[str, list[Any]]:
    """Return the columns of a table of n rows, three of every patient."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    wards = np.where(
        ill, rng.choice(["west", "north", "attic"], n, p=[0.7, 0.28, 0.02]), rng.choice(["east", "north"], n)
    )
    return {
        "age": ["NA" if rng.random() < 0.15 else int(age) for age in rng.integers(20, 90, n)],
        "score": np.round(np.where(ill, 1200.0, 800.0) + rng.normal(size=n) * 150, 2).tolist(),
        "ward": ["" if rng.random() < 0.1 else str(ward) for ward in wards],
        "patient": [f"p{seed}-{row // 3}" for row in range(n)],
        "outcome": np.where(ill, "ill", "well").tolist(),
    }


def write_clinic(path: Path, n: int = 120, seed: int = 0, **changes: list[Any]) -> Path:
    """Write such a table as CSV."""
    cells = {**clinic(n, seed), **changes}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
    return path
