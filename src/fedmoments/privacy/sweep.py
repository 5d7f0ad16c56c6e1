"""The table ``[privacy]`` of a job: one protection, or several where ε or the obfuscation is swept."""

import math
from collections.abc import Mapping
from dataclasses import fields
from itertools import product
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.modes import secure_names, takers
from fedmoments.privacy.protection import Agreed, Protection
from fedmoments.settings.option import option_of

__all__ = ["read_protections"]

_AGREED = tuple(f.name for f in fields(Agreed) if f.name != "helper")
_OWN = tuple(f.name for f in fields(Protection) if f.name != "agreed")
#: Rules that say nothing without an epsilon, and those that say nothing without secure sums.
_OF_NOISE, _OF_MASKS = (
    tuple(f.name for f in fields(Agreed) if (said := option_of(f)) and said.needs == owner and f.name != "helper")
    for owner in ("epsilon", "secure")
)
#: What stands for no noise, and for counts as they are, in a sweep.
NO_NOISE, PLAIN = (None, math.inf, "inf"), "none"


def read_protections(table: Mapping[str, Any]) -> tuple[Protection, ...]:
    """Return what a table asks for: all combinations of its values of ε and of its obfuscations.

    Parameters
    ----------
    table
        Rules of :class:`~fedmoments.privacy.protection.Agreed` and
        :class:`~fedmoments.privacy.protection.Protection` by name; ``epsilon`` and ``obfuscation`` may be lists, with
        inf for no noise and ``none`` for counts as they are.

    Examples
    --------
    >>> [protection.description for protection in read_protections({"epsilon": [1, 2.0, math.inf], "secure": "sums"})]
    ['secure=sums, epsilon=1.0', 'secure=sums, epsilon=2.0', 'secure=sums']
    >>> read_protections({})
    (Protection(agreed=Agreed(...), min_count=1, ...),)
    >>> read_protections({"epsilom": 1})
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown rule of privacy 'epsilom': did you mean 'epsilon'? ...
    """
    _check_names(table)
    own = {name: value for name, value in table.items() if name in _OWN and name != "obfuscation"}
    agreed = {name: value for name, value in table.items() if name in _AGREED and name != "epsilon"}
    _check_mask_rules(agreed)
    _check_noise_rules(agreed, _several(table.get("epsilon")))
    protections = []
    for epsilon, obfuscation in product(_several(table.get("epsilon")), _several(table.get("obfuscation"))):
        counts = {} if obfuscation in (None, PLAIN) else {"obfuscation": obfuscation}
        protections.append(Protection(_with_epsilon(agreed, epsilon), **own, **counts))
        protections[-1].check_rules()
    return tuple(dict.fromkeys(protections))


def _check_names(table: Mapping[str, Any]) -> None:
    for name in table:
        if name not in (*_AGREED, *_OWN):
            raise UnknownNameError("rule of privacy", str(name), (*_AGREED, *_OWN))


def _with_epsilon(agreed: Mapping[str, Any], epsilon: Any) -> Agreed:
    """Return the agreement with this ε; without noise, the rules of noise are left out."""
    if _is_silent(epsilon):
        return Agreed(**{name: value for name, value in agreed.items() if name not in _OF_NOISE})
    return Agreed(**agreed, epsilon=_number(epsilon))


def _check_mask_rules(agreed: Mapping[str, Any]) -> None:
    """Refuse rules of secure sums where there are none, and rules that the mode does not obey."""
    secure = agreed.get("secure")
    given = [name for name in _OF_MASKS if name in agreed]
    if given and secure is None:
        raise InputError(
            f"{', '.join(given)} of the privacy belong to secure sums, but contributions travel in the clear: give "
            "secure, or leave them out"
        )
    for name in given:
        if secure in secure_names() and secure not in takers(name):
            raise InputError(
                f"{name} belongs to secure {' and '.join(takers(name))}, but secure is '{secure}': give secure = "
                f"'{takers(name)[0]}', or leave {name} out"
            )


def _check_noise_rules(agreed: Mapping[str, Any], epsilons: list[Any]) -> None:
    """Refuse rules of the noise that are wrong, or that no noise obeys: they are left out where ε is inf."""
    given = [name for name in agreed if name in _OF_NOISE]
    if given and all(_is_silent(epsilon) for epsilon in epsilons):
        raise InputError(
            f"{', '.join(given)} of the privacy say how noise is drawn, but there is none: give an epsilon, or leave "
            "them out"
        )
    if given:
        Agreed(**{**agreed, "epsilon": 1.0})


def _several(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value) or [None]
    return [value]


def _is_silent(epsilon: Any) -> bool:
    """Whether this stands for no noise; JSON has no infinity, so that the word does, too."""
    return epsilon in NO_NOISE


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"epsilon must be a number above 0, or inf for no noise, not {value!r}")
    return float(value)
