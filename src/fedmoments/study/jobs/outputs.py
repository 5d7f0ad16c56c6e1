"""The files that a job leaves: results as JSON and CSV, the report, the configuration and the fitted classifiers."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedmoments.core.classifier import Classifier
from fedmoments.core.observations import SWEPT, Report, Row
from fedmoments.files import write_whole
from fedmoments.pages import write_report

__all__ = ["COLUMNS", "to_csv", "write_outputs"]

_FIGURES = ("accuracy", "up_bytes_total", "up_bytes_per_client", "fit_seconds", "client_seconds", "reason")
#: Columns of results.csv: one row for every setting, head and seed.
COLUMNS = ("head", "baseline", *SWEPT, "seed", *_FIGURES)


def to_csv(rows: Iterable[Row]) -> str:
    """Return one line for every setting, head and seed.

    Examples
    --------
    >>> from fedmoments.core.observations import Outcome, Setting
    >>> row = Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 640, 10, 0.1),))
    >>> print(to_csv([row]).splitlines()[1])
    fedncm,False,10,iid,1,,,,,,0,0.9,2560,256.0,0.1,,
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
    folder: Path, report: Report, configuration: str, classifiers: Mapping[str, Classifier]
) -> list[Path]:
    """Write all files of a job and return their paths; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    report.write(folder / "results.json")
    write_whole(folder / "results.csv", to_csv(report.rows).encode())
    write_whole(folder / "config.toml", configuration.encode())
    write_report(folder / "report.html", report)
    heads = folder / "heads"
    heads.mkdir(exist_ok=True)
    for former in heads.glob("*.safetensors"):  # of an earlier run in this folder, with another configuration
        if former.stem not in classifiers:
            former.unlink()
    for name, classifier in classifiers.items():
        classifier.save(heads / f"{name}.safetensors")
    return [folder / name for name in ("report.html", "results.json", "results.csv", "config.toml")] + [heads]
