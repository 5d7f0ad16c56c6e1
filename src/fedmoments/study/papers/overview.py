"""Many results together: what their data are called, where they lie, and which claims hold on which data."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from fedmoments.pages.plain import items, mapping

__all__ = ["claims_by_data", "data_label", "folder_of"]

#: What results that need no data are called.
COMPUTED = "no data"
_FILES = (".npz", ".csv", ".parquet", ".tsv")


def data_label(document: Mapping[str, Any]) -> str:
    """Return a short name of the data and encoders of a result.

    Examples
    --------
    >>> data_label({"data": {"name": "npz:/data/banking77-minilm.npz", "encoder": {"name": "identity"}}})
    'banking77-minilm'
    >>> data_label({"data": {"name": "digits", "encoder": {"name": "squeezenet-1.1"}}}), data_label({"data": None})
    ('digits, squeezenet-1.1', 'no data')
    """
    data = mapping(document.get("data"))
    if not data:
        return COMPUTED
    path = PurePath(str(data.get("name")).rpartition(":")[2])
    name = path.stem if path.suffix in _FILES else path.name
    encoders = [str(encoder) for encoder in mapping(data.get("fingerprints"))]
    encoders = encoders or [str(mapping(data.get("encoder")).get("name", "identity"))]
    return ", ".join([name, *(encoder for encoder in encoders if encoder != "identity")])


def folder_of(document: Mapping[str, Any]) -> str:
    """Return the folder of a result among others: that of its data, and one of its own within.

    Examples
    --------
    >>> folder_of({"experiment": {"name": "gh-ofl/table2"}, "data": None})
    'no-data/gh-ofl-table2'
    """
    name = str(mapping(document.get("experiment")).get("name"))
    return "/".join(
        re.sub("[^A-Za-z0-9_.+-]+", "-", level).strip(".-") or "-" for level in (data_label(document), name)
    )


def claims_by_data(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every claim of every experiment, with what was found on each data set.

    Parameters
    ----------
    documents
        Results of :func:`~fedmoments.study.papers.run.run_experiment`.

    Returns
    -------
    list of dict
        ``id``, ``text``, ``experiment``, and ``found``: label of the data -> (result, claim as it was judged there).
        Claims with the same id follow one another.

    Examples
    --------
    >>> claim = {"id": "a", "text": "A", "verdict": "holds", "pairs": []}
    >>> documents = [{"data": None, "experiment": {"name": "fedcof/prop3"}, "claims": [claim]}]
    >>> [(each["id"], each["found"]["no data"][1]["verdict"]) for each in claims_by_data(documents)]
    [('a', 'holds')]
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for document in documents:
        name = str(mapping(document.get("experiment")).get("name"))
        for claim in map(mapping, items(document.get("claims"))):
            key = (str(claim.get("id")), str(claim.get("text")), name)
            fresh = {"id": key[0], "text": key[1], "experiment": name, "found": {}}
            rows.setdefault(key, fresh)["found"][data_label(document)] = (document, claim)
    order = list(dict.fromkeys(key[0] for key in rows))
    return sorted(rows.values(), key=lambda row: order.index(row["id"]))
