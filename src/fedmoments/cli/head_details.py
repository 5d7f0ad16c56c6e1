"""One head or baseline in detail: its hyper-parameters, what each means, and how one of them is set."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from fedmoments.cli.output import print_line, print_table
from fedmoments.core.heads.parameters import meanings_of, raw_meaning

__all__ = ["example_options", "hyper_example", "hyper_table", "print_hyper"]

#: A value that a docstring names, such as ``balanced`` or ``blend:0.05``.
_VALUE = re.compile(r"``([a-z]+(?::[0-9.]+)?)``")


def hyper_table(preset: Any) -> list[dict[str, Any]]:
    """Return name, default and meaning of every hyper-parameter; the meaning is None where nobody wrote it down.

    Examples
    --------
    >>> from fedmoments.core.heads import presets
    >>> hyper_table(presets()["fedncm"])
    [{'name': 'metric', 'default': 'cosine', 'meaning': 'cosine (FedNCM) or euclidean.'}]
    """
    meanings = meanings_of(preset.head)
    return [
        {"name": name, "default": default, "meaning": meanings.get(name)}
        for name, default in preset.make().settings().items()
    ]


def hyper_example(preset: Any) -> str | None:
    """Return a hyper-parameter with another value than its default, as it is typed, or None where none is known.

    It is one that the head takes and that does not decide what clients send: the same upload serves.

    Examples
    --------
    >>> from fedmoments.core.heads import presets
    >>> [hyper_example(presets()[name]) for name in ("fishermix", "gh-lda", "fedncm")]
    ['tau=0.8', 'shrinkage=blend:0.05', 'metric=euclidean']
    """
    needs = _needs(preset)
    for name, values in _others(preset):
        allowed = {value: _needs(preset, **{name: value}) for value in values if _is_taken(preset, name, value)}
        if allowed and all(other == needs for other in allowed.values()):
            return f"{name}={_typed(next(iter(allowed)))}"
    return None


def example_options(name: str, setting: str | None, *, baseline: bool) -> dict[str, str]:
    """Return the option that sets it, by the command that takes it.

    Examples
    --------
    >>> example_options("fishermix", "tau=0.8", baseline=False)
    {'simulate': '--set fishermix.tau=0.8', 'fit': '--set tau=0.8'}
    """
    if setting is None:
        return {}
    simulate = {"simulate": f"--set {name}.{setting}"}
    return simulate if baseline else {**simulate, "fit": f"--set {setting}"}


def print_hyper(rows: Sequence[Mapping[str, Any]], options: Mapping[str, str]) -> None:
    """Print the table of hyper-parameters, and how to set one.

    Parameters
    ----------
    rows
        Of :func:`hyper_table`.
    options
        Of :func:`example_options`.
    """
    if not rows:
        print_line("It has no hyper-parameters.")
        return
    table = [[row["name"], _typed(row["default"]), row["meaning"] or "not documented"] for row in rows]
    print_table(["hyper-parameter", "default", "meaning"], table)
    if options:
        typed = [f"fedmoments {command} … {option}" for command, option in options.items()]
        print_line()
        print_line(f"To set one: {', or '.join(typed)}")


def _needs(preset: Any, **hyper: Any) -> Any:
    """Return what statistics a head needs; a baseline, which sends none, has no such thing."""
    return getattr(preset.make(**hyper), "needs", None)


def _is_taken(preset: Any, name: str, value: Any) -> bool:
    try:
        preset.make(**{name: value})
    except ValueError:
        return False
    return True


def _typed(value: Any) -> str:
    """Return a value as it is typed after ``--set``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _others(preset: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield hyper-parameters with other values: what makes the preset itself last, numbers that grade first."""
    ranks = {float: 0, bool: 1, str: 2, int: 3}
    settings = preset.make().settings()
    for name in sorted(settings, key=lambda name: (name in preset.defaults, ranks.get(type(settings[name]), 4))):
        value = settings[name]
        if isinstance(value, bool):
            yield name, [not value]
        elif isinstance(value, float) and value > 0:
            yield name, [_a_little_less(value)]
        elif isinstance(value, int) and value > 1:
            yield name, [value // 2]
        elif isinstance(value, str):
            named = _VALUE.findall(raw_meaning(preset.head, name))
            yield name, [other for other in named if other != value]


def _a_little_less(value: float) -> float:
    """Return a number one less in its first digit: 0.8 of 0.9, 2e-05 of 3e-05; and half of one that begins with 1."""
    exact = Decimal(repr(value))
    first = Decimal(1).scaleb(exact.adjusted())
    return float(exact - first if exact >= 2 * first else exact / 2)
