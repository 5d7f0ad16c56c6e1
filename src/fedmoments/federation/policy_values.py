"""Which values the rules of a client's policy may have: a mistyped rule must not be one that is not applied."""

import re
from collections.abc import Mapping
from typing import Any

from fedmoments.errors import InputError
from fedmoments.privacy.obfuscation import parse_obfuscation
from fedmoments.privacy.sketch_limits import check_limits
from fedmoments.statistics import StatisticsSpec

__all__ = ["SMALL_CLASSES", "SMALL_SKETCHES", "TUNING", "check_values", "checked_moments"]

#: What may be done with classes and means of too few samples.
SMALL_CLASSES = ("withhold", "merge")
#: What may be done where there are too few samples for the rows of a scatter sketch.
SMALL_SKETCHES = ("trace", "refuse")
#: What may be trained on a client's samples, from nothing to everything: each allows those before it.
TUNING = ("none", "lp", "feat", "ft")

_COUNTS = ("min_count", "max_per_class", "max_bytes", "max_means", "max_rounds")
_WORDS = {"small_classes": SMALL_CLASSES, "small_sketches": SMALL_SKETCHES, "tuning": TUNING}


def check_values(rules: Mapping[str, Any]) -> None:
    """Refuse rules whose values are of the wrong type, out of range, or against each other.

    Parameters
    ----------
    rules
        All rules of a :class:`~fedmoments.federation.policy.ClientPolicy`, by name.

    Examples
    --------
    >>> from dataclasses import asdict
    >>> from fedmoments.federation.policy import ClientPolicy
    >>> check_values(asdict(ClientPolicy()))
    >>> check_values(asdict(ClientPolicy()) | {"min_count": 0})
    Traceback (most recent call last):
    fedmoments.errors.InputError: min_count of a client's policy must be a whole number of 1 or more, not 0
    """
    for name in _COUNTS:
        value = rules[name]
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not whole and (value is not None or name == "min_count"):
            raise InputError(f"{name} of a client's policy must be a whole number of 1 or more, not {value!r}")
    if not isinstance(rules["report_withheld"], bool):
        raise InputError(f"report_withheld of a policy must be true or false, not {rules['report_withheld']!r}")
    _check_protection(rules)
    for name, known in _WORDS.items():
        if rules[name] not in known:
            listed = " or ".join(known) if len(known) == 2 else ", ".join(known)
            raise InputError(f"{name} of a client's policy must be {listed}, not {rules[name]!r}")
    _check_sketch(rules)
    if rules["obfuscate"] is not None:
        parse_obfuscation(rules["obfuscate"])
    if rules["max_per_class"] is not None and rules["max_per_class"] < rules["min_count"]:
        raise InputError(
            f"a client's policy that measures at most {rules['max_per_class']} samples of a class (max_per_class) and "
            f"withholds classes of fewer than {rules['min_count']} (min_count) withholds everything: raise the former, "
            "or lower the latter"
        )


def _check_protection(rules: Mapping[str, Any]) -> None:
    if not isinstance(rules["require_secure"], bool):
        raise InputError(f"require_secure of a policy must be true or false, not {rules['require_secure']!r}")
    helper, most = rules["helper"], rules["max_epsilon"]
    if helper is not None and not re.fullmatch("[0-9a-f]{64}", str(helper)):
        raise InputError(
            f"helper of a client's policy must be a public key, 64 lower-case hexadecimal digits, not {helper!r}"
        )
    if most is not None and not (type(most) in (int, float) and most > 0):
        raise InputError(f"max_epsilon of a client's policy must be a number above 0, not {most!r}")


def _check_sketch(rules: Mapping[str, Any]) -> None:
    try:
        check_limits(rules["sketch_share"], rules["sketch_spare"])
    except InputError as error:
        raise InputError(f"sketch_share and sketch_spare of a client's policy: {error}") from error


def checked_moments(names: object) -> tuple[str, ...]:
    """Return the names, sorted and unique, once each is known to be that of a moment.

    Examples
    --------
    >>> checked_moments(["gram", "client_means", "gram"])
    ('client_means', 'gram')
    """
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"moments of a client's policy must be a list of names, not {names!r}")
    StatisticsSpec.of(*names)
    return tuple(sorted(set(names)))
