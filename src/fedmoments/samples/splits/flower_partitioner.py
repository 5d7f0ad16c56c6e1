"""Partitioners of Flower Datasets, where a split is expected.

Flower's ``FederatedDataset`` shuffles the data before it partitions them, and partitioners count on it: its
``IidPartitioner`` deals consecutive rows, which are one class if the data are sorted. So the rows are shuffled here
too, by our seed, and the split refers to the rows as they were.
"""

import ast
import contextlib
import inspect
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.extras import require
from fedmoments.samples.splits.draws import Seed, check_count, check_keys, generator, shuffle
from fedmoments.samples.splits.scheme import Parameter, Request, Scheme
from fedmoments.samples.splits.split import DROPPED, Split

__all__ = ["split_from_partitioner"]

_PLACE = "fedmoments_place"
_WHAT = "Splitting by a Flower partitioner"


def split_from_partitioner(
    partitioner: Any,
    y: ArrayLike,
    *,
    domains: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    seed: Seed = 0,
    shuffled: bool = True,
) -> Split:
    """Split data by a partitioner of ``flwr_datasets``.

    Parameters
    ----------
    partitioner
        An object without data, such as ``DirichletPartitioner(num_partitions=10, partition_by="label", alpha=0.1)``.
        The data are assigned to it, so it serves once.
    y
        (n,) labels: the column ``label`` of the partitioner's ``partition_by``.
    domains, ids
        (n,) where there are: the columns ``domain`` and ``client``.
    columns
        Further columns by name, (n,) each.
    seed
        For shuffling the rows first; the partitioner has its own.
    shuffled
        Whether to shuffle.

    Returns
    -------
    Split
        With what the partitioner warned of as notes. Samples that it left out are dropped.

    Raises
    ------
    InputError
        When it wants a column that is not there, or gives a sample to two clients.
    """
    library = require("datasets", _WHAT, "hub", "datasets")
    labels = check_keys(y, "labels")
    n = len(labels)
    own = {name: values for name, values in (("domain", domains), ("client", ids)) if values is not None}
    table = _table(n, {"label": labels, **(columns or {}), **own})
    wanted = getattr(partitioner, "_partition_by", None)
    if isinstance(wanted, str) and wanted not in table:
        raise InputError(f"the partitioner splits by '{wanted}': it may be {', '.join(table)}")
    order = shuffle(generator(seed), n) if shuffled else np.arange(n)
    rows = library.Dataset.from_dict({name: values[order] for name, values in table.items()} | {_PLACE: order})
    kind = type(partitioner).__name__
    with _heard() as notes:
        try:
            partitioner.dataset = rows
            clients, n_clients = _assign(partitioner, n)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise InputError(f"Flower's {kind} cannot split these data: {error}") from error
    dropped = int((clients == DROPPED).sum())
    return Split(
        clients,
        n_clients,
        f"flower:{kind}",
        names=_names(partitioner, n_clients),
        why=f"Flower's {kind} left {dropped:,} of {n:,} samples out." if dropped else "",
        notes=tuple(notes),
    )


def _table(n: int, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    """Return columns as arrays of n values each."""
    table = {}
    for name, values in columns.items():
        table[name] = check_keys(values, name)
        if len(table[name]) != n:
            raise InputError(f"{name} must be one a sample, {n}, but are {len(table[name])}")
    return table


def _split(request: Request, typed: tuple[str, Mapping[str, Any]]) -> Split:
    """Split by a partitioner that was typed.

    The number of clients and the seed are passed on as ``num_partitions`` and ``seed``, where the partitioner has such
    parameters and the text does not set them.
    """
    kind, given = typed[0], dict(typed[1])
    room = require("flwr_datasets.partitioner", _WHAT, "hub", "flwr-datasets")
    known = [name for name in room.__all__ if name not in {"Partitioner"} and not name.startswith("Vertical")]
    if kind not in known:
        raise UnknownNameError("Flower partitioner", kind, known)
    takes = inspect.signature(getattr(room, kind)).parameters
    rng = generator(request.seed)
    if "seed" in takes and "seed" not in given:
        given["seed"] = int(rng.random() * 2**31)
    if "num_partitions" in takes and request.wanted_clients is not None:
        given.setdefault("num_partitions", request.wanted_clients)
    try:
        partitioner = getattr(room, kind)(**given)
    except (TypeError, ValueError) as error:
        raise InputError(f"split '{request.scheme}': {error}") from error
    return split_from_partitioner(
        partitioner, request.y, domains=request.keys["domains"], ids=request.keys["ids"], seed=rng
    )


def _parse(text: str) -> tuple[str, Mapping[str, Any]]:
    """Read a partitioner as a person types it; values are Python literals, a bare word is text, nothing is evaluated.

    Examples
    --------
    >>> _parse("DirichletPartitioner(partition_by=label, alpha=0.1)")
    ('DirichletPartitioner', {'partition_by': 'label', 'alpha': 0.1})
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            return call.id, {}
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise InputError("it is not the name of a partitioner with named values (numbers, text or lists)")
        return call.func.id, {_keyword(word): _value(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{error}; values are numbers, text or lists") from error


def _keyword(word: ast.keyword) -> str:
    if word.arg is None:
        raise ValueError("** is not allowed")
    return word.arg


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _assign(partitioner: Any, n: int) -> tuple[NDArray[np.int64], int]:
    n_clients = check_count(int(partitioner.num_partitions), "num_partitions")
    clients = np.full(n, DROPPED, dtype=np.int64)
    for client in range(n_clients):
        part = partitioner.load_partition(client)
        if _PLACE not in part.column_names:
            raise InputError("it divides columns, not samples: a split gives whole samples to clients")
        places = np.asarray(part.with_format("numpy")[_PLACE][:], dtype=np.int64)
        if (clients[places] != DROPPED).any():
            raise InputError("it gives a sample to two clients, which a split cannot")
        clients[places] = client
    return clients, n_clients


def _names(partitioner: Any, n_clients: int) -> tuple[str, ...]:
    """Return the ids that clients have by nature, if the partitioner knows them."""
    natural = getattr(partitioner, "partition_id_to_natural_id", None)
    if not isinstance(natural, dict) or len(natural) != n_clients:
        return ()
    names = tuple(str(natural[client]) for client in range(n_clients))
    return names if len(set(names)) == n_clients else ()


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect what a partitioner warns of, once each, and keep its progress bars off the terminal."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        try:
            yield notes
        finally:
            said = [str(item.message) for item in caught if issubclass(item.category, UserWarning)]
            notes.extend(dict.fromkeys(said))


def _finds_clients(typed: tuple[str, Mapping[str, Any]]) -> bool:
    return "num_partitions" in typed[1] or "NaturalId" in typed[0]


SPLITS = (
    Scheme(
        "flower",
        "a partitioner of Flower Datasets",
        (Parameter("CLASS(NAME=VALUE, …)", _parse, rest=True),),
        _split,
        finds_clients=_finds_clients,
    ),
)
