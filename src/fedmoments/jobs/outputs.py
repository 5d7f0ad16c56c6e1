"""The files that a job leaves: results as JSON and CSV, the report, the configuration and the fitted classifiers."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmoments.classifier import Classifier
from fedmoments.files import write_whole
from fedmoments.report import write_report

__all__ = ["COLUMNS", "to_csv", "write_outputs"]

#: Columns of results.csv: one row for every setting, head and seed.
COLUMNS = (
    "head",
    "clients",
    "split",
    "means_per_client",
    "shrinkage",
    "seed",
    "accuracy",
    "up_bytes_total",
    "up_bytes_per_client",
    "fit_seconds",
    "reason",
    "projection",
    "client_seconds",
    "baseline",
    "epsilon",
    "privacy",
    "budget",
)


def to_csv(results: Mapping[str, Any]) -> str:
    """Return one line for every setting, head and seed.

    Examples
    --------
    >>> row = {"head": "fedncm", "clients": 10, "split": "iid", "means_per_client": 1, "shrinkage": None, "seeds": [
    ...     {"seed": 0, "accuracy": 0.9, "clients": 10, "up_floats": 640, "fit_seconds": 0.1, "reason": None}]}
    >>> print(to_csv({"bytes_per_number": 4, "rows": [row]}).splitlines()[1])
    fedncm,10,iid,1,,0,0.9,2560,256.0,0.1,,,,,,,
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    width = results["bytes_per_number"]
    for row in results["rows"]:
        for outcome in row["seeds"]:
            coded = outcome.get("coded_bytes")
            total = outcome["up_floats"] * width if coded is None else coded
            sizes = {"up_bytes_total": total, "up_bytes_per_client": total / max(outcome["clients"], 1)}
            writer.writerow({**row, **{k: v for k, v in outcome.items() if k != "clients"}, **sizes})
    return text.getvalue()


def write_outputs(
    folder: Path, results: Mapping[str, Any], configuration: str, classifiers: Mapping[str, Classifier]
) -> list[Path]:
    """Write all files of a job and return their paths; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(results, allow_nan=False, ensure_ascii=False) + "\n"
    texts = {"results.json": document, "results.csv": to_csv(results), "config.toml": configuration}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    write_report(folder / "report.html", results)
    heads = folder / "heads"
    heads.mkdir(exist_ok=True)
    for former in heads.glob("*.safetensors"):  # of an earlier run in this folder, with another configuration
        if former.stem not in classifiers:
            former.unlink()
    for name, classifier in classifiers.items():
        classifier.save(heads / f"{name}.safetensors")
    return [folder / name for name in ("report.html", *texts)] + [heads]
