"""Values as people type them: each kind of text that is not simply a word or a number is a type here."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedmoments.cli.hyper import hyper_of_heads
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError

__all__ = [
    "JOINED",
    "KINDS",
    "REPEATED",
    "HelperCard",
    "HyperParameters",
    "ListOf",
    "NumberOrAuto",
    "Pair",
    "RunNumbers",
    "joined",
    "listed",
    "written",
]


def listed(text: str, kind: Callable[[str], Any], option: str) -> list[Any]:
    """Return the values of a list that was typed with commas; commas inside parentheses do not separate.

    Examples
    --------
    >>> listed("10,100", int, "--clients")
    [10, 100]
    >>> listed("iid,flower:F(a=1,b=2)", str, "--split")
    ['iid', 'flower:F(a=1,b=2)']
    """
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    try:
        values = [kind(part) for part in parts]
    except ValueError:
        what = {int: "whole numbers", float: "numbers"}.get(kind, "values")  # type: ignore[call-overload]
        raise InputError(f"{option} takes {what}, separated by commas, but '{text}' arrived") from None
    if not values:
        raise InputError(f"{option} takes at least one value, but '{text}' arrived")
    return values


def joined(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return tables, or tables of tables, as one; what comes later wins.

    Examples
    --------
    >>> joined([{"fed3r": {"ridge": 1}}, {"fed3r": {"center": True}}])
    {'fed3r': {'ridge': 1, 'center': True}}
    """
    merged: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    return merged


def written(value: Any) -> str:
    """Return a value as it is typed.

    Examples
    --------
    >>> written([10, 100]), written(0.5), written("iid")
    ('10,100', '0.5', 'iid')
    """
    return ",".join(map(written, value)) if isinstance(value, list | tuple) else str(value)


def _name(param: click.Parameter | None) -> str:
    return param.opts[0] if param else "the option"


if TYPE_CHECKING:
    _Text = click.ParamType[Any]
else:  # older releases of click do not say what a type makes of a text
    _Text = click.ParamType


class ListOf(_Text):
    """A list with commas."""

    name = "list"

    def __init__(self, kind: type, *, none: bool = False) -> None:
        self._kind, self._none = kind, none

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click's
        """Return what stands for the list in the help."""
        return "N,…" if self._kind in (int, float) else "NAME,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the values, each in its type; the word none stands for an empty list where there may be one."""
        if not isinstance(value, str):
            return value
        return [] if self._none and value == "none" else listed(value, self._kind, _name(param))


class NumberOrAuto(_Text):
    """A number, or the word auto."""

    name = "number|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the number, or the word."""
        if value == "auto":
            return value
        try:
            return float(value)
        except ValueError:
            raise InputError(f"{_name(param)} takes a number above 0, or 'auto', but '{value}' arrived") from None


class Rates(_Text):
    """A number, several with commas between, or the word auto; the plan checks which of them may stand."""

    name = "rates"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the number, or the text."""
        try:
            return float(value)
        except ValueError:
            return value


class HyperParameters(_Text):
    """``HEAD.NAME=VALUE``, in the type that the head declares."""

    name = "hyper-parameter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the hyper-parameter by head and by name."""
        return hyper_of_heads([value]) if isinstance(value, str) else value


class Pair(_Text):
    """``NAME=VALUE``."""

    name = "pair"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the value by name."""
        if not isinstance(value, str):
            return value
        name, equals, text = (part.strip() for part in value.partition("="))
        if not equals or not name or not text:
            raise InputError(f"{_name(param)} is typed as NAME=VALUE, but '{value}' arrived")
        return {name: text}


class RunNumbers(_Text):
    """``RUN.NAME=VALUE``: a number of a plan for some runs."""

    name = "run number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the number by run and by name."""
        if not isinstance(value, str):
            return value
        left, equals, text = value.partition("=")
        run, dot, name = left.rpartition(".")
        if not equals or not dot or not run or not name:
            raise InputError(f"{_name(param)} is typed as RUN.NAME=VALUE, such as random.lr=0.1, but '{value}' arrived")
        return {run: {name: _scalar(text)}}


def _scalar(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


class HelperCard(_Text):
    """The card of a helper, for the public key on it."""

    name = "card"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the key."""
        from fedmoments.federation.keys.helper import read_helper_card

        return read_helper_card(existing_file(Path(value))).key


#: Kinds of text that are tables, each of one value; and all kinds that are typed once for each value.
JOINED = ("hyper", "runs", "pairs")
REPEATED = (*JOINED, "files", "names")
#: Kind of an option -> how its text is read.
KINDS: Mapping[str, _Text] = {
    "hyper": HyperParameters(),
    "runs": RunNumbers(),
    "pairs": Pair(),
    "list or none": ListOf(str, none=True),
    "number or auto": NumberOrAuto(),
    "numbers or auto": Rates(),
    "helper card": HelperCard(),
    "files": click.STRING,
    "names": click.STRING,
}
