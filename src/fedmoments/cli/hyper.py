"""Hyper-parameters as people type them, each in the type that its head declares."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.files import choices_of, types_of

__all__ = ["hyper_of_heads", "hyper_parameters"]


def hyper_of_heads(pairs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return hyper-parameters by head or baseline, from ``head.key=value`` texts.

    Examples
    --------
    >>> hyper_of_heads(["gh-dlr-qda.rank=4"])
    {'gh-dlr-qda': {'rank': 4}}
    """
    hyper: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        head, dot, rest = pair.partition(".")
        if not dot or "=" in head:
            raise InputError(f"--set is typed as HEAD.NAME=VALUE here, but '{pair}' arrived")
        hyper.setdefault(head, {}).update(hyper_parameters(head, [rest]))
    return hyper


def hyper_parameters(head: str, pairs: Iterable[str]) -> dict[str, Any]:
    """Return hyper-parameters of a head from ``key=value`` texts, each in the type that the head declares.

    Parameters
    ----------
    head
        Its name.
    pairs
        What was typed.

    Examples
    --------
    >>> hyper_parameters("gh-dlr-qda", ["rank=4", "shrinkage=relative:0.5"])
    {'rank': 4, 'shrinkage': 'relative:0.5'}
    """
    declared = _declared(head)
    kinds = types_of(declared)
    allowed = [field.name for field in fields(declared)]
    hyper: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name or not text:
            raise InputError(f"a hyper-parameter is typed as name=value, but '{pair}' arrived")
        if name not in allowed:
            takes = ", ".join(allowed) or "none"
            raise InputError(f"head '{head}' has no hyper-parameter '{name}': it takes {takes}")
        hyper[name] = _typed(head, name, text, kinds[name])
    return hyper


def _declared(name: str) -> type[Any]:
    """Return the class whose fields are the hyper-parameters."""
    from fedmoments.core.heads import presets
    from fedmoments.core.heads.registry import TARGET_HEADS
    from fedmoments.study.baselines import baselines

    table, more = {**presets(), **TARGET_HEADS}, baselines()
    if name in table:
        return table[name].head
    if name in more:
        return more[name].head
    raise UnknownNameError("head", name, [*table, *more])


def _typed(head: str, name: str, text: str, kind: Any) -> Any:
    """Return a text as the first of the types that a field may have, narrowest first."""
    choices = choices_of(kind)
    booleans = {"true": True, "yes": True, "false": False, "no": False}
    if bool in choices and text.lower() in booleans:
        return booleans[text.lower()]
    for number in (int, float):
        if number in choices:
            try:
                return number(text)
            except ValueError:
                continue
    if str in choices or not {bool, int, float}.intersection(choices):
        return text
    wanted = " or ".join(
        {bool: "true or false", int: "a whole number", float: "a number"}.get(c, str(c)) for c in choices
    )
    raise InputError(f"hyper-parameter '{name}' of head '{head}' must be {wanted}, but '{text}' arrived")
