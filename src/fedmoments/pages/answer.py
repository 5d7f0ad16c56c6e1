"""The question and the answer in two sentences, from the rows alone.

Two accuracies are told apart only beyond the noise: twice the square root of m(1 − m)/n + s²/k, where m is their
mean, n the number of test samples, s the larger deviation over seeds and k the number of seeds.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape

from fedmoments.core.observations import Report, Row
from fedmoments.core.observations.interval import ERRORS, standard_error, wilson
from fedmoments.core.observations.parts import UNTESTED, UNTOLD
from fedmoments.pages.formats import bytes_, count, list_of, percent, points, times
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.reading import Panel, is_drawn, name_of, parties_words, place_of, rival_words

__all__ = ["answer", "answer_text", "cheapest", "facts", "first_panel", "frontier", "noise_words", "question"]

#: Uploads that differ by less than this share count as the same bytes.
SAME_BYTES = 0.02
#: The head that others are compared with when it sends as much.
BASELINE = "fedncm"


def frontier(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of heads that no other head beats at the same bytes or fewer, by bytes."""
    best: list[Row] = []
    drawn = [row for row in rows if is_drawn(row) and not row.baseline]
    for row in sorted(drawn, key=lambda row: (row.up_bytes_per_client, -place_of(row)[1])):
        if not best or place_of(row)[1] > place_of(best[-1])[1]:
            best.append(row)
    return tuple(best)


def cheapest(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of heads that send least (or as good as least), best first."""
    drawn = [row for row in rows if is_drawn(row) and not row.baseline]
    least = min((row.up_bytes_per_client for row in drawn), default=0.0)
    close = [row for row in drawn if row.up_bytes_per_client <= least * (1 + SAME_BYTES)]
    return tuple(sorted(close, key=lambda row: (-place_of(row)[1], row.up_bytes_per_client)))


def first_panel(report: Report, panels: Sequence[Panel]) -> str:
    """Return the key of the panel to show first: the best of the cheapest heads, as in the answer."""
    cheap = cheapest(report.rivals_of(report.main_setting))
    wanted = f"d{cheap[0].detail}" if cheap else ""
    keys = [panel.key for panel in panels]
    return wanted if wanted in keys else keys[0]


def question(report: Report) -> Html:
    """Return the question."""
    if len(report.settings) > 1:
        clients = sorted({known for s in report.settings if (known := report.clients_of(s))})
        splits = list(dict.fromkeys(s.word("split") for s in report.settings if s.split))
        number = count(clients[0], "client") if len(clients) == 1 else "any number of clients"
        if len(clients) > 1:
            number = f"{count(clients[0])} to {count(clients[-1], 'client')}"
        who = f"{number} ({list_of(splits, 4)})" if splits else number
    else:
        who = parties_words(report, report.main_setting)
    return join(["With ", who, ", what can be learned from one upload?"])


def answer(report: Report) -> Html:
    """Return the answer: the best head for the least bytes, the best head of all, and baselines that beat them."""
    everything = report.rivals_of(report.main_setting)
    rows, baselines = (tuple(row for row in everything if row.baseline == kind) for kind in (False, True))
    fitted = _fitted(rows)
    cheap = cheapest(rows)
    better = _better(report, rows, baselines, cheap[0] if cheap else None)
    if not fitted:
        return join([_nothing(rows, baselines=bool(baselines)), better])
    if not cheap:
        top = max(fitted, key=_reached)
        parts: list[Node] = [_name(report, top), " is the best head and reaches ", _accuracy(top), "."]
    else:
        top = cheap[0]
        parts = [*_thrift(report, cheap), *_best(report, rows, top)]
    return join([_where(report), *parts, better, _tested(report, top)])


def answer_text(report: Report) -> str:
    """Return the answer without markup, for a terminal."""
    return unescape(re.sub("<[^>]*>", "", answer(report))).replace("\u202f", " ")


def _tested(report: Report, row: Row) -> str:
    """Return who tested a head of a federation, on how many samples, and how far its accuracy is known."""
    n, accuracy = report.data.test, row.accuracy
    if report.federation is None or not n or accuracy is None:
        return ""
    low, high = wilson(round(accuracy * n), n)
    spread = report.federation.spread.get(row.head)
    nodes = spread.nodes if spread else None
    who = f"{count(nodes, 'node')} tested" if nodes else "Clients tested"
    return (
        f" {who} {row.head} on {count(n, 'sample')} held out: its accuracy on such samples lies "
        f"between {percent(low)} and {percent(high)} (95 % interval)."
    )


def _where(report: Report) -> str:
    """Return which of several settings the answer is about."""
    settings = {replace(setting, budget=None) for setting in report.settings}
    words = rival_words(report, report.main_setting)
    return f"In the first of {len(settings)} settings ({words}), " if len(settings) > 1 else ""


def _thrift(report: Report, cheap: tuple[Row, ...]) -> list[Node]:
    """Return what the best of the cheapest heads reaches."""
    spent = tag("span", f"{bytes_(cheap[0].up_bytes_per_client)} per client", class_="nowrap")
    return [_name(report, cheap[0]), " reaches ", _accuracy(cheap[0]), " with ", spent, _gain(report, cheap)]


def _best(report: Report, rows: tuple[Row, ...], first: Row) -> list[Node]:
    """Return what the best head of all reaches, and for how much more."""
    best = max((row for row in rows if is_drawn(row)), key=lambda row: place_of(row)[1])
    if best is first:
        return ["; no other head that was run does better, whatever it sends." if len(rows) > 1 else "."]
    factor = best.up_bytes_per_client / first.up_bytes_per_client
    more = f" ({times(factor)} times as much)" if factor > 1 + SAME_BYTES else ""
    spent = tag("span", bytes_(best.up_bytes_per_client), class_="nowrap")
    said: list[Node] = ["; the best head, ", _name(report, best), ", reaches ", _accuracy(best), " with ", spent, more]
    return [*said, _behind(_noise(report, best, first))]


def _behind(noise: str) -> str:
    """Return the end of a sentence, with a word on noise where there is any."""
    return f", {noise}." if noise else "."


def facts(report: Report) -> Html:
    """Return one line on what was measured."""
    data, simulated = report.data, bool(report.rows) and report.federation is None
    counts = [
        (data.train, "training samples", "training samples"),
        (data.test, "test samples", "test samples"),
        (data.classes, "class", "classes"),
    ]
    known: list[Node] = [tag("b", data.name) if data.name else None]
    known += [count(number, *words) for number, *words in counts if number]
    known += [str(data.encoder.get("name") or ""), f"{count(data.dim)} dimensions" if data.dim else ""]
    known.append(count(report.seeds, "seed") if simulated else None)
    return tag("ul", *(tag("li", fact) for fact in known if fact), class_="facts")


def _better(report: Report, heads: Sequence[Row], baselines: Sequence[Row], first: Row | None) -> Html | None:
    """Return what baselines do better: than the head that was named first for no more bytes, and than every head."""
    fitted = _fitted(baselines)
    if not fitted:
        return None
    best = max(fitted, key=_reached)
    beats_all = _reached(best) > max(map(_reached, heads), default=-1.0)
    thrifty = _thrifty(fitted, first)
    said: list[Node] = []
    if first is not None and thrifty is not None:
        most = ", more than any head" if thrifty is best and beats_all else ""
        said = [" For no more bytes, the baseline ", _name(report, thrifty), " reaches ", _accuracy(thrifty), most]
        said.append(_behind(_noise(report, thrifty, first)))
    if beats_all and best is not thrifty:
        spent = f" with {bytes_(best.up_bytes_per_client)} per client" if is_drawn(best) else ""
        said += [" A baseline, ", _name(report, best), ", reaches ", _accuracy(best), f"{spent}."]
    return join(said) if said else None


def _fitted(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.accuracy is not None]


def _reached(row: Row) -> float:
    return row.accuracy or 0.0


def _thrifty(baselines: list[Row], first: Row | None) -> Row | None:
    """Return the best baseline that reaches more than a head for no more bytes, if there is one."""
    if first is None:
        return None
    most, reached = first.up_bytes_per_client * (1 + SAME_BYTES), place_of(first)[1]
    cheaper = [
        row for row in baselines if is_drawn(row) and row.up_bytes_per_client <= most and place_of(row)[1] > reached
    ]
    return max(cheaper, key=lambda row: place_of(row)[1], default=None)


def _gain(report: Report, cheap: tuple[Row, ...]) -> Html | None:
    """Return how far the best of the cheapest heads is from the baseline among them, or from the runner-up."""
    first, others = cheap[0], cheap[1:]
    if not others:
        return None
    second = others[0]
    close = _noise(report, first, second)
    if first.head == BASELINE:
        said = join([", the most of all heads that send as little"])
        return join([said, _close(report, second, close)])
    other = next((row for row in others if row.head == BASELINE), second)
    gain = place_of(first)[1] - place_of(other)[1]
    if round(gain, 3) == 0:
        return join([", as ", _name(report, other), " does at the same bytes"])
    if noise := _noise(report, first, other):
        return join([", as ", _name(report, other), " does at the same bytes ", noise])
    said = join([", ", tag("strong", points(gain)), " above ", _name(report, other), " at the same bytes"])
    return join([said, _close(report, second, close) if other is not second else None])


def _close(report: Report, row: Row, noise: str) -> Html | None:
    """Return that the runner-up may be as good."""
    return join([" (", _name(report, row), ", ", _accuracy(row), f", is {noise})"]) if noise else None


def _noise(report: Report, one: Row, other: Row) -> str:
    """Return words when two accuracies are not told apart by this many test samples, or nothing when they are."""
    if one.accuracy is None or other.accuracy is None:
        return ""
    deviation = max(one.accuracy_std or 0.0, other.accuracy_std or 0.0)
    return noise_words(report, (one.accuracy, other.accuracy), deviation, report.seeds)


def noise_words(report: Report, pair: tuple[float, float], deviation: float, seeds: int) -> str:
    """Return words when two accuracies are not told apart by the test samples, or nothing when they are.

    Parameters
    ----------
    report
        They say how many test samples there are.
    pair
        Two accuracies, means over seeds.
    deviation, seeds
        The larger deviation over seeds, and the number of seeds.

    Examples
    --------
    >>> from fedmoments.core.observations.parts import Data
    >>> report = Report(data=Data(test=1000))
    >>> noise_words(report, (0.90, 0.91), 0.0, 1), noise_words(report, (0.80, 0.91), 0.0, 1)
    ('within the noise of 1,000 test samples', '')
    """
    n = report.data.test
    if not n:
        return ""
    if abs(pair[0] - pair[1]) >= ERRORS * standard_error(0.5 * (pair[0] + pair[1]), n, deviation, seeds):
        return ""
    return f"within the noise of {count(n, 'test sample')}"


def _nothing(rows: tuple[Row, ...], *, baselines: bool) -> Html:
    if baselines and not rows:
        return join(["No head was run, only baselines."])
    reasons = [reason for row in rows for reason in row.reasons]
    reason = reasons[0] if reasons else None
    if reasons and reasons[0] in (UNTESTED, UNTOLD) and len(set(reasons)) == 1:
        return join([f"{count(len(rows), 'head')} fitted, not tested: {reasons[0]}."])
    return join(["No head could be fitted", f": {reason}" if reason else "", "."])


def _name(report: Report, row: Row) -> Html:
    return tag("span", name_of(report, row), class_="head")


def _accuracy(row: Row) -> Html:
    return tag("strong", percent(row.accuracy), class_="nowrap")
