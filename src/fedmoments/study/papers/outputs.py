"""What a reproduction leaves in a folder: the document, its measurements, a page, drawings, a summary; and an index."""

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.files import write_whole
from fedmoments.pages.plain import items, mapping
from fedmoments.study.papers.library import experiments
from fedmoments.study.papers.overview import folder_of
from fedmoments.study.papers.pages import figure_files, index_summary, render_index, render_page, summary

__all__ = ["plain_document", "read_documents", "write_index", "write_outputs"]

#: File of a document.
RESULTS = "results.json"


def write_outputs(document: Mapping[str, Any], folder: str | os.PathLike[str]) -> list[Path]:
    """Write everything of one experiment into a folder of its own.

    Parameters
    ----------
    document
        What :func:`fedmoments.study.papers.run_experiment` returns.
    folder
        Where the experiment's folder is made, within one of its data.

    Returns
    -------
    list of Path
        ``results.json``, ``measurements.csv``, ``report.html``, ``summary.md`` and a ``figure-N.svg`` for each figure.

    Examples
    --------
    >>> import tempfile
    >>> document = {"experiment": {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes"}, "mode": "computed"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_outputs(document, folder)]
    ['results.json', 'measurements.csv', 'report.html', 'summary.md']
    """
    sound = plain_document(document)
    place = Path(folder, folder_of(sound))
    _refuse_other_data(place / RESULTS, sound)
    place.mkdir(parents=True, exist_ok=True)
    figures = figure_files(sound)
    texts = {
        RESULTS: json.dumps(sound, allow_nan=False, ensure_ascii=False, indent=2) + "\n",
        "measurements.csv": _csv(sound),
        "report.html": render_page(sound),
        "summary.md": summary(sound),
        **{f"figure-{number}.svg": drawn for number, drawn in enumerate(figures, 1)},
    }
    for old in place.glob("figure-*.svg"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        write_whole(place / name, text.encode("utf-8", "replace"))
    return [place / name for name in texts]


def _refuse_other_data(path: Path, document: Mapping[str, Any]) -> None:
    """Refuse to replace the results of other data that have the same name."""
    try:
        before = mapping(mapping(json.loads(path.read_text("utf-8"))).get("data"))
    except (OSError, ValueError, RecursionError):
        return
    data = mapping(document.get("data"))
    if before.get("name") != data.get("name") and before.get("digest") != data.get("digest"):
        raise InputError(
            f"{path.parent} has results of {before.get('name')}, other data of the same name than {data.get('name')}: "
            "write into another folder (what was measured is kept, and will not be measured again)"
        )


def write_index(folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``index.html`` and ``index.md`` over all experiments that a folder holds, or nothing for fewer than two.

    Examples
    --------
    >>> write_index("no such folder")
    []
    """
    documents = read_documents(folder)
    if len(documents) < 2:
        return []
    texts = {"index.html": render_index(documents), "index.md": index_summary(documents)}
    for name, text in texts.items():
        write_whole(Path(folder, name), text.encode("utf-8", "replace"))
    return [Path(folder, name) for name in texts]


def read_documents(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the documents that a folder holds, in the order of the library; files of another kind are passed over."""
    documents = []
    for path in sorted(Path(folder).glob(f"*/*/{RESULTS}")):
        try:
            document = json.loads(path.read_text("utf-8"))
        except (ValueError, OSError, RecursionError):
            continue
        if mapping(document) and folder_of(document) == path.parent.relative_to(folder).as_posix():
            documents.append(document)
    order = [known.name for known in experiments()]
    names = [str(document["experiment"]["name"]) for document in documents]
    ranks = [order.index(name) if name in order else len(order) for name in names]
    return [document for _, document in sorted(zip(ranks, documents, strict=True), key=lambda pair: pair[0])]


def plain_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that JSON can hold: numbers that are none become None.

    Examples
    --------
    >>> plain_document({"values": (1.0, float("nan"))})
    {'values': [1.0, None]}
    """
    return {str(key): _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain_document(value)
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    number = getattr(value, "item", None)  # numbers of numpy
    return _plain(number()) if callable(number) else str(value)


def _csv(document: Mapping[str, Any]) -> str:
    """Return measurements with a line for each seed."""
    rows = [mapping(measurement) for measurement in items(document.get("measurements"))]
    keys = list(dict.fromkeys(key for row in rows for key in mapping(row.get("where"))))
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow([*keys, "quantity", "seed", "value", "reason"])
    for row in rows:
        where, seeds = mapping(row.get("where")), items(row.get("seeds"))
        for place, value in enumerate(items(row.get("values"))):
            seed = seeds[place] if place < len(seeds) else ""
            reason = "" if value is not None else row.get("reason") or ""
            table.writerow([*(where.get(key, "") for key in keys), row.get("quantity"), seed, value, reason])
    return written.getvalue()
