"""The files that a job leaves: results as JSON and CSV, the report, the configuration and the fitted classifiers."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.classifier import Classifier
from fedmoments.core.observations import Row
from fedmoments.files import write_whole
from fedmoments.pages import Results, write_report

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


def to_csv(rows: Iterable[Row]) -> str:
    """Return one line for every setting, head and seed.

    Examples
    --------
    >>> from fedmoments.core.observations import Outcome, Setting
    >>> row = Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 640, 10, 0.1),))
    >>> print(to_csv([row]).splitlines()[1])
    fedncm,10,iid,1,,0,0.9,2560,256.0,0.1,,,,False,,,
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        for outcome in row.outcomes:
            total = outcome.up_bytes
            sizes = {"up_bytes_total": total, "up_bytes_per_client": total / max(outcome.clients, 1)}
            about = {"head": row.head, "baseline": row.baseline, **sizes}
            writer.writerow({**vars(outcome), **row.setting.to_dict(), **about})
    return text.getvalue()


def write_outputs(
    folder: Path,
    document: Mapping[str, Any],
    rows: Sequence[Row],
    configuration: str,
    classifiers: Mapping[str, Classifier],
) -> list[Path]:
    """Write all files of a job and return their paths; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n"
    texts = {"results.json": text, "results.csv": to_csv(rows), "config.toml": configuration}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    write_report(folder / "report.html", Results(document, tuple(rows)))
    heads = folder / "heads"
    heads.mkdir(exist_ok=True)
    for former in heads.glob("*.safetensors"):  # of an earlier run in this folder, with another configuration
        if former.stem not in classifiers:
            former.unlink()
    for name, classifier in classifiers.items():
        classifier.save(heads / f"{name}.safetensors")
    return [folder / name for name in ("report.html", *texts)] + [heads]
