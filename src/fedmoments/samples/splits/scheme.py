"""What a scheme of splitting is: a name, parameters behind colons, and a function of a request.

A file of this room declares ``SPLITS``, a tuple of :class:`Scheme`; :mod:`fedmoments.samples.splits.registry` finds it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import Seed, check_alpha, check_count, check_keys
from fedmoments.samples.splits.split import Split
from fedmoments.samples.splits.together import kept_together

__all__ = ["Parameter", "Request", "Scheme", "SplitRecipe", "alpha", "count"]


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
    """What is typed behind a colon: how it is called, how it is read, and its default (None: it must be given).

    The last parameter may take the ``rest`` of the text, colons and all.
    """

    name: str
    read: Callable[[str], Any]
    default: int | None = None
    rest: bool = False


def alpha(*, zero: bool) -> Parameter:
    """Return the concentration of a Dirichlet distribution; 0 may be allowed."""
    return Parameter("ALPHA", lambda text: check_alpha(_number(text, "ALPHA", float), zero=zero))


def count(name: str, *, least: int = 1, default: int | None = None) -> Parameter:
    """Return a whole number of at least ``least``."""
    return Parameter(name, lambda text: check_count(_number(text, name, int), name, least=least), default)


def _number(text: str, name: str, kind: type[float] | type[int]) -> float:
    try:
        return kind(text)
    except ValueError:
        must = "whole number" if kind is int else "number"
        raise InputError(f"{name} must be a {must}, but is {text!r}") from None


@dataclass(frozen=True)
class Scheme:
    """An entry of the registry: what it does in one line, its parameters, and the function that splits.

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
    finds_clients
        Tells from the parameters' values whether the data (or the values) say how many clients there are.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    split: Callable[..., Split]
    finds_clients: Callable[..., bool] = lambda *_: False

    @property
    def usage(self) -> str:
        """How it is typed: ``quantity:ALPHA[:MIN_SIZE]``."""
        parts = (f":{p.name}" if p.default is None else f"[:{p.name}]" for p in self.parameters)
        return self.name + "".join(parts)

    def parse(self, text: str) -> "SplitRecipe":
        """Read a text that begins with this scheme's name."""
        rest = bool(self.parameters) and self.parameters[-1].rest
        given = text.strip().split(":", maxsplit=len(self.parameters) if rest else -1)[1:]
        needed = sum(parameter.default is None for parameter in self.parameters)
        if not needed <= len(given) <= len(self.parameters):
            raise InputError(f"split '{text}' has {len(given)} parameters after colons. Type {self.usage}.")
        values = []
        for i, parameter in enumerate(self.parameters):
            try:
                values.append(parameter.read(given[i]) if i < len(given) else parameter.default)
            except InputError as error:
                raise InputError(f"split '{text}': {error}. Type {self.usage}.") from error
        return SplitRecipe(text, self, tuple(values))


@dataclass(frozen=True)
class SplitRecipe:
    """A scheme with its parameters, ready to be applied to data; made by :func:`parse_split`.

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
    values: tuple[Any, ...]

    @property
    def finds_clients(self) -> bool:
        """Whether the data, or the text, say how many clients there are."""
        return self.scheme.finds_clients(*self.values)

    def apply(
        self,
        y: ArrayLike,
        n_clients: int | None = None,
        seed: Seed = 0,
        *,
        domains: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Split:
        """Split data.

        Parameters
        ----------
        y
            (n,), class labels; schemes that ignore labels take only their number.
        n_clients
            Number of clients. Some schemes (``domain``, ``id``, ``file``) find it: leave it out, or give the same.
        seed
            A whole number, or a generator (which is advanced).
        domains
            (n,), the domain of each sample, for ``domain``.
        ids
            (n,), the user of each sample, for ``id``.
        groups
            (n,), what must stay together, such as a patient: a group that the scheme deals to several clients goes
            whole to the one that has most of it. Where the data say who holds what, such a group is refused.

        Returns
        -------
        Split
            With `scheme` as it was typed.

        Examples
        --------
        >>> from fedmoments.samples import parse_split
        >>> parse_split("domain").apply([0, 1, 0], domains=["photo", "sketch", "photo"]).names
        ('photo', 'sketch')
        """
        wanted = None if n_clients is None else check_count(n_clients, "n_clients")
        request = Request(self.text, check_keys(y, "labels"), seed, wanted, {"domains": domains, "ids": ids})
        split = self.scheme.split(request, *self.values)
        if wanted not in {None, split.n_clients}:
            raise InputError(
                f"the split '{self.text}' gives {split.n_clients} clients on these data, but {wanted} were requested: "
                "leave the number of clients (n_clients, --clients) out"
            )
        if groups is not None:
            split = kept_together(split, check_keys(groups, "groups"), moving=not self.finds_clients)
        return split.renamed(self.text)
