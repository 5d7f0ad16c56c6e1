"""What hyper-parameters mean: read from the docstring of the class whose fields they are.

The section ``Parameters`` (numpy style) of the class itself speaks first, then those of its base classes in order. An
entry may name several fields at once. An entry that only says "As in :class:`Other`" is answered by that class.
"""

import inspect
import pkgutil
import re
import sys
from dataclasses import fields
from typing import Any

__all__ = ["meanings_of", "plain_text", "raw_meaning"]

_REFERENCE = re.compile(r"as in :class:`~?([\w.]+)`\.?", re.IGNORECASE)
_ROLE = re.compile(r":[\w:]+:`(?P<last>~?)(?P<text>[^`<]+?)(?:\s*<[^`>]*>)?`")


def meanings_of(declared: type[Any]) -> dict[str, str]:
    """Return what the fields of a dataclass mean, as plain text; a field that nobody documents is left out.

    Parameters
    ----------
    declared
        A head, a baseline or any dataclass whose docstring has a section ``Parameters``.

    Examples
    --------
    >>> from fedmoments.core.heads.ridge import FourierRidge
    >>> meanings_of(FourierRidge)["n_features"]
    'D, how many random features (5,000 or 10,000 in the paper).'
    >>> meanings_of(FourierRidge)["scatter"]  # there "As in :class:`Ridge`"
    'total (Fed3R) or within (FedCOF).'
    """
    meanings = {parameter.name: raw_meaning(declared, parameter.name) for parameter in fields(declared)}
    return {name: plain_text(text) for name, text in meanings.items() if text}


def raw_meaning(declared: type[Any], name: str, asked: frozenset[type[Any]] = frozenset()) -> str:
    """Return what docstrings say of a field, with their markup, or nothing.

    Parameters
    ----------
    declared
        The class that has the field.
    name
        The field.
    asked
        Classes that referred to this one and are not asked again.

    Examples
    --------
    >>> from fedmoments.core.heads.nearest_mean import NearestMean
    >>> raw_meaning(NearestMean, "metric")
    '``cosine`` (FedNCM) or ``euclidean``.'
    """
    for owner in declared.__mro__:
        text = _entries(owner.__dict__.get("__doc__") or "").get(name, "")
        reference = _REFERENCE.fullmatch(text)
        other = _class_named(reference[1], owner) if reference else None
        if other is None or other in asked | {declared}:
            if text and not reference:
                return text
            continue
        if answer := raw_meaning(other, name, asked | {declared}):
            return answer
    return ""


def plain_text(text: str) -> str:
    """Return a text without the markup of docstrings.

    Examples
    --------
    >>> plain_text("``automatic``, or any :class:`~fedmoments.core.gaussian.Pooling`; see :func:`fedmoments.fit`.")
    'automatic, or any Pooling; see fedmoments.fit.'
    """
    text = _ROLE.sub(lambda role: role["text"].rpartition(".")[2] if role["last"] else role["text"], text)
    return re.sub(r"(`{1,2})([^`]+)\1_{0,2}", r"\2", text)


def _entries(docstring: str) -> dict[str, str]:
    """Return the entries of the section ``Parameters`` by name, each on one line."""
    entries: dict[str, list[str]] = {}
    body: list[str] = []
    for line in _parameter_lines(inspect.cleandoc(docstring).splitlines()):
        if line[:1].strip():
            body = []
            names = re.split(r"\s*:(?:\s|$)", line, maxsplit=1)[0]
            entries.update({name.strip().lstrip("*"): body for name in names.split(",")})
        else:
            body.append(line.strip())
    return {name: " ".join(part for part in body if part) for name, body in entries.items()}


def _parameter_lines(lines: list[str]) -> list[str]:
    """Return the lines of the section ``Parameters``; none without one."""
    rules = [place for place, line in enumerate(lines) if place and re.fullmatch(r"-{3,}\s*", line)]
    start = next((rule for rule in rules if lines[rule - 1].strip() == "Parameters"), None)
    if start is None:
        return []
    return lines[start + 1 : next((rule - 1 for rule in rules if rule > start), len(lines))]


def _class_named(name: str, seen_from: type[Any]) -> type[Any] | None:
    """Return the class that a docstring refers to: a base class, one of the same module, or one by its full name."""
    known = {base.__name__: base for base in seen_from.__mro__[1:]}
    named: Any = known.get(name) or getattr(sys.modules.get(seen_from.__module__), name, None)
    if named is None and "." in name:
        try:
            named = pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            return None
    return named if isinstance(named, type) else None
