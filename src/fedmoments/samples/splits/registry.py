"""Find a scheme by the text that a person types, such as ``dirichlet:0.1`` or ``iid``.

Schemes are built in (the ``SPLITS`` of every file of this room), of installed packages (entry points of the group
``fedmoments.splits``, each naming a :class:`Scheme`, a tuple of them, or a function of a :class:`Request`), or
registered at run time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from fedmoments.errors import InputError
from fedmoments.registry import Registry, first_line, scan
from fedmoments.samples.splits.scheme import Scheme, SplitRecipe

__all__ = ["SCHEMES", "parse_split", "register_split"]

Given = TypeVar("Given")


def _accept(given: Any, name: str | None) -> Scheme:
    if isinstance(given, Scheme):
        return given
    if not callable(given):
        raise InputError("it must be a Scheme, or a function of a Request that returns a Split")
    return Scheme(name or given.__name__.replace("_", "-"), first_line(given), (), given)


SCHEMES: Registry[Scheme] = Registry(
    "split", group="fedmoments.splits", accept=_accept, built_in=scan("fedmoments.samples.splits", "SPLITS")
)
"""Every scheme by its name."""


def register_split(scheme: Given, name: str | None = None) -> Given:
    """Make a way of splitting known by name in this process; also a decorator of a function.

    Parameters
    ----------
    scheme
        A :class:`Scheme`, or a function of a :class:`Request` that returns a :class:`Split`.
    name
        What users type; by default the scheme's, or the function's (``halves_first`` is typed ``halves-first``).

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples import Split
    >>> @register_split
    ... def alternating(request):
    ...     return Split(np.arange(len(request.y)) % request.n_clients, request.n_clients, request.scheme)
    >>> parse_split("alternating").apply([0, 0, 1, 1], n_clients=2).clients
    array([0, 1, 0, 1])
    >>> SCHEMES.remove("alternating")
    """
    SCHEMES.register(scheme, name)
    return scheme


def parse_split(text: str) -> SplitRecipe:
    """Read a split as a person types it: a name, and parameters after colons; or the path of a split file.

    Parameters
    ----------
    text
        For example ``dirichlet:0.1``; :data:`SCHEMES` lists what there is. ``flower:CLASS(name=value, …)`` is a
        partitioner of Flower Datasets, ``file:PATH`` (or a path alone) what ``fedmoments split`` wrote.

    Returns
    -------
    SplitRecipe
        Of which `apply` splits data.

    Examples
    --------
    >>> parse_split("classes:2").apply([0, 0, 1, 1, 2, 2], n_clients=3, seed=0).sizes.tolist()
    [2, 2, 2]
    >>> parse_split("dirichlet:abc")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: split 'dirichlet:abc': ALPHA must be a number, but is 'abc'. Type dirichlet:ALPHA.
    >>> [scheme.usage for scheme in SCHEMES.values()]
    ['classes:CLASSES', 'dirichlet:ALPHA', 'dirichlet-class:ALPHA', 'dirichlet-client:ALPHA',
     'domain[:CLIENTS_PER_DOMAIN]', 'file:PATH', 'flower:CLASS(NAME=VALUE, …)', 'id', 'iid',
     'quantity:ALPHA[:MIN_SIZE]', 'sizes:PATH']
    """
    name = text.strip().partition(":")[0]
    if name not in SCHEMES and Path(text).is_file():
        return SCHEMES["file"].parse(f"file:{text}")
    return SCHEMES.find(name).parse(text)
