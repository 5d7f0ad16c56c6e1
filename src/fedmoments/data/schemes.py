"""Find a scheme by the text that a person types, such as ``dirichlet:0.1`` or ``iid``.

`SCHEMES` is the table; a new scheme is one entry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.data.checks import check_alpha, check_count, check_keys
from fedmoments.data.dirichlet import dirichlet_per_class, dirichlet_per_client
from fedmoments.data.draws import Seed
from fedmoments.data.natural import by_domain, by_id
from fedmoments.data.pathological import classes_per_client
from fedmoments.data.quantity import iid, quantity_skew
from fedmoments.data.split import Split
from fedmoments.errors import InputError, UnknownNameError

__all__ = ["SCHEMES", "Parameter", "Request", "Scheme", "SplitRecipe", "parse_split"]


@dataclass(frozen=True, eq=False)
class Request:
    """What a scheme may ask for: labels, domains and ids, (n,) each, the number of clients, and the seed."""

    scheme: str
    y: NDArray[np.generic]
    seed: Seed
    wanted_clients: int | None
    keys: Mapping[str, ArrayLike | None]

    @property
    def n_clients(self) -> int:
        """Number of clients, for schemes that need it."""
        if self.wanted_clients is None:
            raise InputError(f"the split '{self.scheme}' needs the number of clients: give n_clients")
        return self.wanted_clients

    def key(self, what: str) -> NDArray[np.generic]:
        """Return domains or ids, (n,), for schemes that need them."""
        values = self.keys[what]
        if values is None:
            raise InputError(f"the split '{self.scheme}' needs the {what} of the samples, but the data have none")
        keys = check_keys(values, what)
        if len(keys) != len(self.y):
            raise InputError(f"{what} must be one a sample, {len(self.y)}, but are {len(keys)}")
        return keys


@dataclass(frozen=True)
class Parameter:
    """A number after a colon: how it is called, what it may be, and its default (None: it must be given)."""

    name: str
    check: Callable[[float | int], float | int]
    whole: bool
    default: int | None = None

    def read(self, text: str) -> float | int:
        """Read the parameter from text."""
        try:
            number: float | int = int(text) if self.whole else float(text)
        except ValueError:
            kind = "whole number" if self.whole else "number"
            raise InputError(f"{self.name} must be a {kind}, but is {text!r}") from None
        return self.check(number)


@dataclass(frozen=True)
class Scheme:
    """An entry of the table: what it does in one line, its parameters, and the function that splits.

    Attributes
    ----------
    name
        What is typed before the colon.
    summary
        One line for help texts.
    parameters
        What is typed after colons, in order; those with a default come last.
    split
        The function of a request and the parameters' values.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    split: Callable[..., Split]

    @property
    def usage(self) -> str:
        """How it is typed: ``quantity:ALPHA[:MIN_SIZE]``."""
        parts = (f":{p.name}" if p.default is None else f"[:{p.name}]" for p in self.parameters)
        return self.name + "".join(parts)


@dataclass(frozen=True)
class SplitRecipe:
    """A scheme with its parameters, ready to be applied to data; made by `parse_split`.

    Attributes
    ----------
    text
        What was typed.
    scheme
        The entry of the table.
    values
        The parameters' values.
    """

    text: str
    scheme: Scheme
    values: tuple[float | int, ...]

    def apply(
        self,
        y: ArrayLike,
        n_clients: int | None = None,
        seed: Seed = 0,
        *,
        domains: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Split:
        """Split data.

        Parameters
        ----------
        y
            (n,), class labels; schemes that ignore labels take only their number.
        n_clients
            Number of clients. ``domain`` and ``id`` find it in the data: leave it out, or give the same number.
        seed
            A whole number, or a generator (which is advanced).
        domains
            (n,), the domain of each sample, for ``domain``.
        ids
            (n,), the user of each sample, for ``id``.

        Returns
        -------
        Split
            With `scheme` as it was typed.

        Examples
        --------
        >>> parse_split("domain").apply([0, 1, 0], domains=["photo", "sketch", "photo"]).names
        ('photo', 'sketch')
        """
        wanted = None if n_clients is None else check_count(n_clients, "n_clients")
        request = Request(self.text, check_keys(y, "labels"), seed, wanted, {"domains": domains, "ids": ids})
        split = self.scheme.split(request, *self.values)
        if wanted not in {None, split.n_clients}:
            raise InputError(
                f"the split '{self.text}' gives {split.n_clients} clients on these data, but {wanted} were asked for: "
                "leave the number of clients (n_clients, --clients) out"
            )
        return split.renamed(self.text)


def parse_split(text: str) -> SplitRecipe:
    """Read a split as a person types it: a name, and parameters after colons.

    Parameters
    ----------
    text
        For example ``dirichlet:0.1``; `SCHEMES` lists what there is. ``flower:CLASS(name=value, …)`` is a partitioner
        of Flower Datasets.

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
     'domain[:CLIENTS_PER_DOMAIN]', 'id', 'iid', 'quantity:ALPHA[:MIN_SIZE]']
    """
    name, *given = text.strip().split(":")
    if name == "flower":
        from fedmoments.data.flower_partitioner import parse_flower_split

        return parse_flower_split(text)
    if name not in SCHEMES:
        raise UnknownNameError("split", name, [*SCHEMES, "flower"])
    scheme = SCHEMES[name]
    needed = sum(parameter.default is None for parameter in scheme.parameters)
    if not needed <= len(given) <= len(scheme.parameters):
        raise InputError(f"split '{text}' has {len(given)} parameters after colons. Type {scheme.usage}.")
    values = []
    for i, parameter in enumerate(scheme.parameters):
        try:
            values.append(parameter.read(given[i]) if i < len(given) else parameter.default or 0)
        except InputError as error:
            raise InputError(f"split '{text}': {error}. Type {scheme.usage}.") from error
    return SplitRecipe(text, scheme, tuple(values))


def _alpha(*, zero: bool) -> Parameter:
    return Parameter("ALPHA", lambda value: check_alpha(value, zero=zero), whole=False)


def _count(name: str, *, least: int = 1, default: int | None = None) -> Parameter:
    return Parameter(name, lambda value: check_count(value, name, least=least), whole=True, default=default)


def _per_class(request: Request, alpha: float) -> Split:
    return dirichlet_per_class(request.y, request.n_clients, alpha, request.seed)


def _per_client(request: Request, alpha: float) -> Split:
    return dirichlet_per_client(request.y, request.n_clients, alpha, request.seed)


def _classes(request: Request, n_classes: int) -> Split:
    return classes_per_client(request.y, request.n_clients, n_classes, request.seed)


def _iid(request: Request) -> Split:
    return iid(len(request.y), request.n_clients, request.seed)


def _quantity(request: Request, alpha: float, min_size: int) -> Split:
    return quantity_skew(len(request.y), request.n_clients, alpha, request.seed, min_size=min_size)


def _domain(request: Request, per_domain: int) -> Split:
    return by_domain(request.key("domains"), per_domain, request.seed)


def _id(request: Request) -> Split:
    return by_id(request.key("ids"))


_ENTRIES = (
    Scheme("classes", "each client holds this many classes", (_count("CLASSES"),), _classes),
    Scheme("dirichlet", "the same as dirichlet-class", (_alpha(zero=True),), _per_class),
    Scheme("dirichlet-class", "each class is divided by Dirichlet shares", (_alpha(zero=True),), _per_class),
    Scheme("dirichlet-client", "each client draws its class proportions", (_alpha(zero=True),), _per_client),
    Scheme("domain", "each client holds one domain", (_count("CLIENTS_PER_DOMAIN", default=1),), _domain),
    Scheme("id", "each user id is a client", (), _id),
    Scheme("iid", "shuffled, in equal parts", (), _iid),
    Scheme(
        "quantity", "iid, with Dirichlet sizes", (_alpha(zero=False), _count("MIN_SIZE", least=0, default=0)), _quantity
    ),
)

SCHEMES: Mapping[str, Scheme] = MappingProxyType({scheme.name: scheme for scheme in _ENTRIES})
"""Every scheme by its name, sorted."""
