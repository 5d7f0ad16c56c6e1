"""The question and the answer in two sentences, from the rows alone.

Two accuracies are told apart only beyond the noise: twice the square root of m(1 − m)/n + s²/k, where m is their
mean, n the number of test samples, s the larger deviation over seeds and k the number of seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from fedmoments.report.details import Detail
from fedmoments.report.formats import bytes_, count, list_of, percent, points, times
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import as_number
from fedmoments.report.reading import Results, Row

__all__ = ["answer", "cheapest", "first_detail", "frontier", "noise_words", "question"]

#: Uploads that differ by less than this share count as the same bytes.
SAME_BYTES = 0.02
#: The head that others are compared with when it sends as much.
BASELINE = "fedncm"
#: Standard errors within which two accuracies are not told apart.
ERRORS = 2.0


def frontier(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of heads that no other head beats at the same bytes or fewer, by bytes."""
    best: list[Row] = []
    drawn = [row for row in rows if row.drawn and not row.baseline]
    for row in sorted(drawn, key=lambda row: (row.place[0], -row.place[1])):
        if not best or row.place[1] > best[-1].place[1]:
            best.append(row)
    return tuple(best)


def cheapest(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of heads that send least (or as good as least), best first."""
    drawn = [row for row in rows if row.drawn and not row.baseline]
    least = min((row.place[0] for row in drawn), default=0.0)
    close = [row for row in drawn if row.place[0] <= least * (1 + SAME_BYTES)]
    return tuple(sorted(close, key=lambda row: (-row.place[1], row.place[0])))


def first_detail(results: Results, details: Sequence[Detail]) -> str:
    """Return the key of the detail to show first: the best of the cheapest heads, as in the answer."""
    cheap = cheapest(results.rivals_of(results.main_setting))
    wanted = f"d{cheap[0].detail}" if cheap else ""
    keys = [detail.key for detail in details]
    return wanted if wanted in keys else keys[0]


def question(results: Results) -> Html:
    """Return the question."""
    if len(results.settings) > 1:
        clients = sorted({known for s in results.settings if (known := results.clients_of(s))})
        splits = list(dict.fromkeys(s.word("split") for s in results.settings if s.split))
        number = count(clients[0], "client") if len(clients) == 1 else "any number of clients"
        if len(clients) > 1:
            number = f"{count(clients[0])} to {count(clients[-1], 'client')}"
        who = f"{number} ({list_of(splits, 4)})" if splits else number
    else:
        who = results.clients_words(results.main_setting)
    return join(["With ", who, ", what can be learned from one upload?"])


def answer(results: Results) -> Html:
    """Return the answer: the best head for the least bytes, the best head of all, and baselines that beat them."""
    everything = results.rivals_of(results.main_setting)
    rows = tuple(row for row in everything if not row.baseline)
    cheap = cheapest(rows)
    better = _better(results, rows, tuple(row for row in everything if row.baseline), cheap[0] if cheap else None)
    where = ""
    settings = {replace(setting, budget=None) for setting in results.settings}
    if len(settings) > 1:
        where = f"In the first of {len(settings)} settings ({results.rival_words(results.main_setting)}), "
    if not cheap:
        fitted = [row for row in rows if row.accuracy is not None]
        if not fitted:
            return join([_nothing(rows, baselines=any(row.baseline for row in everything)), better])
        top = max(fitted, key=lambda row: row.accuracy or 0)
        return join([where, _name(results, top), " is the best head and reaches ", _accuracy(top), ".", better])
    best = max((row for row in rows if row.drawn), key=lambda row: row.place[1])
    first = cheap[0]
    spent = tag("span", f"{bytes_(first.place[0])} a client", class_="nowrap")
    parts = [where, _name(results, first), " reaches ", _accuracy(first), " with ", spent, _gain(results, cheap)]
    if best is first:
        tail = "; no other head that was run does better, whatever it sends." if len(rows) > 1 else "."
        return join([*parts, tail, better])
    factor = best.place[0] / first.place[0]
    more = f" ({times(factor)} times as much)" if factor > 1 + SAME_BYTES else ""
    noise = _noise(results, best, first)
    return join(
        [
            *parts,
            "; the best head, ",
            _name(results, best),
            ", reaches ",
            _accuracy(best),
            " with ",
            tag("span", bytes_(best.place[0]), class_="nowrap"),
            more,
            f", {noise}." if noise else ".",
            better,
        ]
    )


def _better(results: Results, heads: tuple[Row, ...], baselines: tuple[Row, ...], first: Row | None) -> Html | None:
    """Return what baselines do better: than the head that was named first for no more bytes, and than every head."""
    fitted = [row for row in baselines if row.accuracy is not None]
    if not fitted:
        return None
    best = max(fitted, key=lambda row: row.accuracy or 0.0)
    beats_all = not any((row.accuracy or 0.0) >= (best.accuracy or 0.0) for row in heads)
    thrifty = _thrifty(fitted, first)
    said: list[Node] = []
    if first is not None and thrifty is not None:
        noise = _noise(results, thrifty, first)
        said = [" For no more bytes, the baseline ", _name(results, thrifty), " reaches ", _accuracy(thrifty)]
        said += [", more than any head" if thrifty is best and beats_all else "", f", {noise}." if noise else "."]
    if beats_all and best is not thrifty:
        spent = f" with {bytes_(best.bytes_per_client)} a client" if best.drawn else ""
        said += [" A baseline, ", _name(results, best), ", reaches ", _accuracy(best), f"{spent}."]
    return join(said) if said else None


def _thrifty(baselines: list[Row], first: Row | None) -> Row | None:
    """Return the best baseline that reaches more than a head for no more bytes, if there is one."""
    if first is None:
        return None
    most, reached = first.place[0] * (1 + SAME_BYTES), first.place[1]
    found = [row for row in baselines if row.drawn and row.place[0] <= most and row.place[1] > reached]
    return max(found, key=lambda row: row.place[1], default=None)


def _gain(results: Results, cheap: tuple[Row, ...]) -> Html | None:
    """Return how far the best of the cheapest heads is from the baseline among them, or from the runner-up."""
    first, others = cheap[0], cheap[1:]
    if not others:
        return None
    second = others[0]
    close = _noise(results, first, second)
    if first.head == BASELINE:
        said = join([", the most of all heads that send as little"])
        return join([said, _close(results, second, close)])
    other = next((row for row in others if row.head == BASELINE), second)
    gain = first.place[1] - other.place[1]
    if round(gain, 3) == 0:
        return join([", as ", _name(results, other), " does at the same bytes"])
    if noise := _noise(results, first, other):
        return join([", as ", _name(results, other), " does at the same bytes ", noise])
    said = join([", ", tag("strong", points(gain)), " above ", _name(results, other), " at the same bytes"])
    return join([said, _close(results, second, close) if other is not second else None])


def _close(results: Results, row: Row, noise: str) -> Html | None:
    """Return that the runner-up may be as good."""
    return join([" (", _name(results, row), ", ", _accuracy(row), f", is {noise})"]) if noise else None


def _noise(results: Results, one: Row, other: Row) -> str:
    """Return words when two accuracies are not told apart by this many test samples, or nothing when they are."""
    if one.accuracy is None or other.accuracy is None:
        return ""
    deviation = max(one.deviation or 0.0, other.deviation or 0.0)
    return noise_words(results, (one.accuracy, other.accuracy), deviation, results.seeds)


def noise_words(results: Results, pair: tuple[float, float], deviation: float, seeds: int) -> str:
    """Return words when two accuracies are not told apart by the test samples, or nothing when they are.

    Parameters
    ----------
    results
        They say how many test samples there are.
    pair
        Two accuracies, means over seeds.
    deviation, seeds
        The larger deviation over seeds, and the number of seeds.

    Examples
    --------
    >>> from fedmoments.report.reading import read_results
    >>> results = read_results({"rows": [], "data": {"test": 1000}})
    >>> noise_words(results, (0.90, 0.91), 0.0, 1), noise_words(results, (0.80, 0.91), 0.0, 1)
    ('within the noise of 1,000 test samples', '')
    """
    n = as_number(results.data.get("test"))
    if not n or n < 1:
        return ""
    middle = min(max(0.5 * (pair[0] + pair[1]), 0.0), 1.0)
    if abs(pair[0] - pair[1]) >= ERRORS * math.sqrt(middle * (1.0 - middle) / n + deviation**2 / max(seeds, 1)):
        return ""
    return f"within the noise of {count(n, 'test sample')}"


def _nothing(rows: tuple[Row, ...], *, baselines: bool) -> Html:
    if baselines and not rows:
        return join(["No head was run, only baselines."])
    reason = next((reason for row in rows for reason in row.reasons), None)
    return join(["No head could be fitted", f": {reason}" if reason else "", "."])


def _name(results: Results, row: Row) -> Html:
    return tag("span", results.name(row), class_="head")


def _accuracy(row: Row) -> Html:
    return tag("strong", percent(row.accuracy), class_="nowrap")
