"""The question and the answer in two sentences, from the rows alone."""

from collections.abc import Sequence

from fedmoments.report.details import Detail
from fedmoments.report.formats import bytes_, count, list_of, percent, points, times
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.reading import Results, Row

__all__ = ["answer", "cheapest", "first_detail", "frontier", "question"]

#: Uploads that differ by less than this share count as the same bytes.
SAME_BYTES = 0.02
#: The head that others are compared with when it sends as much.
BASELINE = "fedncm"


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
    cheap = cheapest(results.rows_of(results.main_setting))
    wanted = f"d{cheap[0].detail}" if cheap else ""
    keys = [detail.key for detail in details]
    return wanted if wanted in keys else keys[0]


def question(results: Results) -> Html:
    """Return the question."""
    if len(results.settings) > 1:
        clients = sorted({setting.clients for setting in results.settings if setting.clients})
        splits = list(dict.fromkeys(s.word("split") for s in results.settings if s.split))
        number = count(clients[0], "client") if len(clients) == 1 else "any number of clients"
        if len(clients) > 1:
            number = f"{count(clients[0])} to {count(clients[-1], 'client')}"
        who = f"{number} ({list_of(splits, 4)})" if splits else number
    else:
        who = results.clients_words(results.main_setting)
    return join(["With ", who, ", what can be learned from one upload?"])


def answer(results: Results) -> Html:
    """Return the answer: the best head for the least bytes, the best head of all, and a baseline that beats it."""
    everything = results.rows_of(results.main_setting)
    rows = tuple(row for row in everything if not row.baseline)
    better = _better(rows, tuple(row for row in everything if row.baseline))
    where = ""
    if len(results.settings) > 1:
        where = f"In the first of {len(results.settings)} settings ({results.setting_words(results.main_setting)}), "
    cheap = cheapest(rows)
    if not cheap:
        fitted = [row for row in rows if row.accuracy is not None]
        if not fitted:
            return join([_nothing(rows, baselines=any(row.baseline for row in everything)), better])
        top = max(fitted, key=lambda row: row.accuracy or 0)
        return join([where, _name(top), " is the best head and reaches ", _accuracy(top), ".", better])
    best = max((row for row in rows if row.drawn), key=lambda row: row.place[1])
    first = cheap[0]
    spent = tag("span", f"{bytes_(first.place[0])} a client", class_="nowrap")
    parts = [where, _name(first), " reaches ", _accuracy(first), " with ", spent, _gain(cheap)]
    if best is first:
        tail = "; no head does better, whatever it sends." if len(rows) > 1 else "."
        return join([*parts, tail, better])
    factor = best.place[0] / first.place[0]
    more = f" ({times(factor)} times as much)." if factor > 1 + SAME_BYTES else "."
    return join(
        [
            *parts,
            "; the best head, ",
            _name(best),
            ", reaches ",
            _accuracy(best),
            " with ",
            tag("span", bytes_(best.place[0]), class_="nowrap"),
            more,
            better,
        ]
    )


def _better(heads: tuple[Row, ...], baselines: tuple[Row, ...]) -> Html | None:
    """Return a sentence on the best baseline, if it is better than every head."""
    fitted = [row for row in baselines if row.accuracy is not None]
    if not fitted:
        return None
    best = max(fitted, key=lambda row: row.accuracy or 0.0)
    if any((row.accuracy or 0.0) >= (best.accuracy or 0.0) for row in heads):
        return None
    spent = f" with {bytes_(best.bytes_per_client)} a client" if best.drawn else ""
    return join([" A baseline, ", _name(best), ", reaches ", _accuracy(best), f"{spent}."])


def _gain(cheap: tuple[Row, ...]) -> Html | None:
    """Return how far the best of the cheapest heads is from the baseline among them, or from the runner-up."""
    first, others = cheap[0], cheap[1:]
    if not others:
        return None
    if first.head == BASELINE:
        return join([", the most of all heads that send as little"])
    other = next((row for row in others if row.head == BASELINE), others[0])
    gain = first.place[1] - other.place[1]
    if round(gain, 3) == 0:
        return join([", as ", _name(other), " does at the same bytes"])
    return join([", ", tag("strong", points(gain)), " above ", _name(other), " at the same bytes"])


def _nothing(rows: tuple[Row, ...], *, baselines: bool) -> Html:
    if baselines and not rows:
        return join(["No head was run, only baselines."])
    reason = next((reason for row in rows for reason in row.reasons), None)
    return join(["No head could be fitted", f": {reason}" if reason else "", "."])


def _name(row: Row) -> Html:
    return tag("span", row.head, class_="head")


def _accuracy(row: Row) -> Html:
    return tag("strong", percent(row.accuracy), class_="nowrap")
