"""Numbers and words as people read them; a narrow no-break space stands before a unit."""

import re
from collections.abc import Sequence
from typing import Any

from fedmoments.settings.setting import split_words

__all__ = [
    "METHODS",
    "THIN",
    "bytes_",
    "clients_words",
    "count",
    "flops_",
    "list_of",
    "percent",
    "plain_words",
    "points",
    "seconds",
    "sentences",
    "shorten",
    "split_words",
    "three_digits",
    "times",
]

#: Between a number and its unit, and in large numbers.
THIN = "\u202f"
#: Methods as papers write them.
METHODS = {
    "fedncm": "FedNCM",
    "fed3r": "Fed3R",
    "fed3r-rf": "Fed3R-RF",
    "fedcof": "FedCOF",
    "fedcof-oracle": "FedCOF Oracle",
    "fedcgs": "FedCGS",
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedprox": "FedProx",
    "feddyn": "FedDyn",
    "mimelite": "MimeLite",
    "mime": "Mime",
    "fedpft": "FedPFT",
    "scaffold": "SCAFFOLD",
    "ccvr": "CCVR",
    "dense": "DENSE",
    "iid": "IID",
    "fishermix": "FisherMix",
    "proto-hyper": "Proto-Hyper",
    "gh-nb": "GH-NB",
    "gh-qda-fisher": "GH-QDA, Fisher",
    "co-boosting": "Co-Boosting",
    "lp": "linear probing",
    "ft": "fine-tuning",
}


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share of one, in percent.

    Examples
    --------
    >>> percent(0.9204).replace(THIN, " "), percent(None)
    ('92.0 %', '–')
    """
    return "–" if share is None else f"{share * 100:.{digits}f}{THIN}%"


def points(difference: float) -> str:
    """Return the size of a difference of shares, in percentage points.

    Examples
    --------
    >>> points(-0.113), points(0.01)
    ('11.3 points', '1.0 point')
    """
    number = f"{abs(difference) * 100:.1f}"
    return f"{number} point{'' if number == '1.0' else 's'}"


def bytes_(number: float | None) -> str:
    """Return a number of bytes with a decimal unit.

    Examples
    --------
    >>> [bytes_(n).replace(THIN, " ") for n in (12, 5242.1, 326599.7, 5982958, None)]
    ['12 B', '5.2 kB', '327 kB', '6.0 MB', '–']
    """
    return _scaled(number, ("B", "kB", "MB", "GB", "TB", "PB"))


def flops_(number: float | None) -> str:
    """Return a number of floating-point operations with a decimal unit.

    Examples
    --------
    >>> [flops_(n).replace(THIN, " ") for n in (800, 3.14e9, 2.5e14, None)]
    ['800 FLOP', '3.1 GFLOP', '250 TFLOP', '–']
    """
    return _scaled(number, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))


def _scaled(number: float | None, units: Sequence[str]) -> str:
    """Return a number in the largest of units, each a thousand of the one before, that leaves at least one whole."""
    if number is None:
        return "–"
    unit, size = units[0], float(number)
    for larger in units[1:]:
        if size < 999.5:
            break
        unit, size = larger, size / 1000
    return f"{size:.0f}{THIN}{unit}" if unit == units[0] or size >= 99.95 else f"{size:.1f}{THIN}{unit}"


def seconds(number: float | None) -> str:
    """Return a duration.

    Examples
    --------
    >>> [seconds(n).replace(THIN, " ") for n in (0.0002, 0.024, 3.41, 48, 754, 9000)]
    ['0.2 ms', '24 ms', '3.4 s', '48 s', '12 min 34 s', '2 h 30 min']
    """
    if number is None:
        return "–"
    if number < 0.9995:
        return f"{number * 1000:.{1 if number < 0.00995 else 0}f}{THIN}ms"
    if number < 59.5:
        return f"{number:.{1 if number < 9.95 else 0}f}{THIN}s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest}{THIN}s"
    return f"{minutes // 60}{THIN}h {minutes % 60}{THIN}min"


def count(number: float | None, word: str = "", plural: str = "") -> str:
    """Return a whole number, with a word in the right number.

    Examples
    --------
    >>> count(10003), count(1, "client"), count(2, "class", "classes")
    ('10,003', '1 client', '2 classes')
    """
    if number is None:
        return "–"
    written = f"{round(number):,}"
    return f"{written} {word if round(number) == 1 else plural or word + 's'}" if word else written


def times(factor: float) -> str:
    """Return how many times as much something is.

    Examples
    --------
    >>> times(193.4), times(2.04), times(12.2)
    ('193', '2', '12')
    """
    return f"{factor:,.0f}" if factor >= 9.5 else f"{factor:.1f}".removesuffix(".0")


def shorten(words: str, most: int) -> str:
    """Return text of at most that many characters.

    Examples
    --------
    >>> shorten("card_payment_fee_charged", 12)
    'card_paymen…'
    """
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def list_of(words: Sequence[str], most: int = 6) -> str:
    """Return words as a list in a sentence.

    Examples
    --------
    >>> list_of(["a", "b", "c"]), list_of(["a", "b", "c", "d"], most=2)
    ('a, b and c', 'a, b and 2 more')
    """
    shown = [*words[:most]]
    if len(words) > most:
        shown.append(f"{len(words) - most} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def clients_words(clients: float | None, split: Any, otherwise: str = "these clients") -> str:
    """Return how many clients there are and how they were split.

    Examples
    --------
    >>> clients_words(100, "dirichlet:0.1"), clients_words(None, None)
    ('100 clients (Dirichlet 0.1)', 'these clients')
    """
    who = count(clients, "client") if clients else otherwise
    return f"{who} ({split_words(split)})" if isinstance(split, str) and split else who


def sentences(*said: str | None) -> str:
    """Return what is said, without what is not.

    Examples
    --------
    >>> sentences("One.", None, "", "Two.")
    'One. Two.'
    """
    return " ".join(sentence for sentence in said if sentence)


def three_digits(value: float | None) -> str:
    """Return a figure with three digits, whole from a thousand on.

    Examples
    --------
    >>> three_digits(0.12345), three_digits(12345.6), three_digits(None)
    ('0.123', '12,346', '–')
    """
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def plain_words(value: object) -> str:
    r"""Return text that Markdown shows as it is: on one line, and without markup.

    Examples
    --------
    >>> print(plain_words("a|b <i>\n *c*"))
    a\|b &lt;i> \*c\*
    >>> print(plain_words("# a heading"), plain_words("\x1b[31m\u202e"))
    \# a heading \[31m
    >>> print(plain_words("1. item"), plain_words("3.5"), plain_words("7)"))
    1\. item 3.5 7\)
    """
    text = " ".join("".join(mark if mark.isprintable() else " " for mark in str(value)).split())
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"^(\d+(?=[.)](?:\s|$)))?([#>+=~-]|(?<=\d)[.)])", r"\1\\\2", text)
