"""Numbers, places and verdicts as people read them, the same on the page, in Markdown and in a terminal."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmoments.pages.formats import METHODS, count

__all__ = [
    "CLAIM_MARKS",
    "MARKS",
    "data_words",
    "decimals_of",
    "key_words",
    "number_words",
    "place_words",
    "signed_words",
    "spread_words",
    "value_words",
    "varying_keys",
    "verdict_class",
]

#: What stands beside a cell's number, besides its colour.
MARKS: Mapping[str, str] = {
    "agrees": "✓",
    "as derived": "✓",
    "unexplained": "◌",
    "misprint": "‡",
    "near": "≈",
    "differs": "✗",
    "in range": "✓",
    "same sign": "⇉",
    "flat": "=",
    "opposite": "⇄",
    "": "",
}
#: What stands beside a claim.
CLAIM_MARKS: Mapping[str, str] = {
    "holds": "✓", "in part": "≈", "unclear": "?", "fails": "✗", "did not train": "∅", "not tested": "–",
}  # fmt: skip
#: Most decimals of a paper's number that are looked at.
MOST_DECIMALS = 6
_SPLITS = {"dirichlet": "Dirichlet %", "dirichlet-client": "Dirichlet % per client", "iid": "IID"}
#: Keys whose values are names, which need no word beside them.
_PLAIN = {
    "head",
    "method",
    "start",
    "optimiser",
    "encoder",
    "variant",
    "block",
    "noise",
    "split",
    "stage",
    "corruption",
}


def decimals_of(values: Iterable[float | None]) -> int | None:
    """Return how many decimals numbers are printed with, or None when there is no number.

    Examples
    --------
    >>> decimals_of([41.5, None, 56.0]), decimals_of([5120000.0]), decimals_of([None])
    (1, 0, None)
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    texts = [f"{value:.{MOST_DECIMALS}f}".rstrip("0") for value in known]
    return max(len(text.partition(".")[2]) for text in texts)


def number_words(value: float | None, decimals: int | None = None) -> str:
    """Return a number, with so many decimals or with about four digits; one that would become 0 keeps a digit.

    Examples
    --------
    >>> number_words(31334400.0, 0), number_words(56.14, 1), number_words(0.0123, 1), number_words(None)
    ('31,334,400', '56.1', '0.01', '–')
    >>> number_words(1234.5678), number_words(3.2e-9), number_words(2.5e12)
    ('1,235', '3.2e-09', '2.50e+12')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
        return text if text.strip("-0.,") or not value else f"{value:.1g}"
    return _four_digits(value, abs(value))


def _four_digits(value: float, size: float) -> str:
    if size >= 1e10 or 0 < size < 1e-3:
        return f"{value:.2e}" if size >= 1 else f"{value:.2g}"
    if value == round(value) or size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(3 - math.floor(math.log10(size)), 0)}f}".rstrip("0").rstrip(".")


def signed_words(value: float | None, decimals: int | None = 1) -> str:
    """Return a difference with its sign.

    Examples
    --------
    >>> signed_words(12.34), signed_words(-0.04), signed_words(None)
    ('+12.3', '−0.04', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return number_words(0.0, decimals)
    digits = number_words(abs(value), decimals)
    return f"{'−' if value < 0 else '+'}{digits}"


def spread_words(value: float, decimals: int | None) -> str:
    """Return a spread or an error with as many decimals as its number; below that, it is nothing.

    Examples
    --------
    >>> spread_words(0.023, 1), spread_words(0.1966, None), spread_words(1234.5, None)
    ('0.0', '0.2', '1,200')
    """
    return number_words(float(f"{value:.2g}")) if decimals is None else f"{value:,.{decimals}f}"


def data_words(name: object) -> str:
    """Return data by the end of what was typed for them.

    Examples
    --------
    >>> data_words("npz:/data/banking77.npz"), data_words("digits"), data_words("hf:cifar100")
    ('banking77', 'digits', 'cifar100')
    """
    last = re.split(r"[/\\\\]", str(name).rstrip("/"))[-1]
    return re.sub(r"^(npz|csv|parquet|folder|hf):|\.(npz|csv|parquet)$", "", last) or str(name)


def value_words(key: str, value: Any) -> str:
    """Return the value of a key as one says it.

    Examples
    --------
    >>> value_words("head", "fedcof"), value_words("clients", 100), value_words("split", "dirichlet:0.1")
    ('FedCOF', '100 clients', 'Dirichlet 0.1')
    >>> value_words("packed", False), value_words("shrinkage", "absolute:1"), value_words("gamma", 0.5)
    ('not packed', 'shrinkage absolute:1', 'gamma 0.5')
    """
    if isinstance(value, bool):
        return key_words(key) if value else f"not {key_words(key)}"
    if isinstance(value, int | float):
        return count(value, "client") if key == "clients" else f"{key_words(key)} {number_words(float(value))}"
    text = str(value)
    if key == "split":
        scheme, _, rest = text.partition(":")
        return _SPLITS.get(scheme, f"{scheme} %").replace("%", rest).strip()
    if key == "variant" and text == "main":
        return ""
    named = METHODS.get(text, text.upper() if text.startswith("gh-") else text)
    return named if key in _PLAIN else f"{key_words(key)} {named}"


def key_words(key: str) -> str:
    """Return a key as words.

    Examples
    --------
    >>> key_words("means_per_client")
    'means per client'
    """
    return key.replace("_", " ")


def varying_keys(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that tell places apart.

    Examples
    --------
    >>> varying_keys([{"clients": 10, "split": "iid"}, {"clients": 100, "split": "iid"}])
    ['clients']
    """
    keys = list(dict.fromkeys(key for place in places for key in place))
    return [key for key in keys if len({repr(place.get(key)) for place in places}) > 1]


def place_words(place: Mapping[str, Any], keys: Sequence[str] | None = None) -> str:
    """Return a place, or some of its keys, in words.

    Examples
    --------
    >>> place_words({"head": "fedcof", "clients": 100, "split": "iid"}, ["clients", "split"])
    '100 clients, IID'
    """
    chosen = place if keys is None else [key for key in keys if key in place]
    parts = [value_words(key, place[key]) for key in chosen if place[key] is not None]
    return ", ".join(part for part in parts if part)


def verdict_class(verdict: str) -> str:
    """Return the style of a verdict.

    Examples
    --------
    >>> verdict_class("in range")
    'v-in-range'
    """
    return f"v-{verdict.replace(' ', '-')}"
