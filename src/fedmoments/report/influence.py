"""Whom the server left out and why, and which clients move the head most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.report.axes import Axis, both, linear_axis, svg
from fedmoments.report.formats import THIN, count, percent, shorten
from fedmoments.report.labels import text_width
from fedmoments.report.markup import Html, Node, breakable, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results
from fedmoments.report.table import sortable

__all__ = ["influence_section"]

#: Most clients with a bar, and most that are named with the reason why they were left out.
MOST_BARS, MOST_REASONS = 20, 50
#: Height of a bar with its gap.
STEP = 22.0


@dataclass(frozen=True)
class _Bar:
    client: str
    change: float
    told: str
    dropped: bool


def influence_section(results: Results) -> Html | None:
    """Return the section, or None when nobody was examined and nobody's influence is known."""
    robust = mapping(results.raw.get("robust"))
    if not robust:
        return None
    reasons = {
        str(mapping(each).get("client")): str(mapping(each).get("reason") or "")
        for each in items(robust.get("dropped"))
    }
    bars = _known_bars(robust, reasons)
    return join(
        [
            tag("p", _lead(robust, len(reasons)), class_="lead"),
            _figure(bars, str(robust.get("head") or "")) if bars else None,
            _reasons(reasons) if reasons else None,
        ]
    )


def _lead(robust: Mapping[str, Any], dropped: int) -> str:
    everybody = as_number(robust.get("clients"))
    of = f" of {count(everybody, 'client')}" if everybody else ""
    if not robust.get("examined"):
        words = "Contributions were taken as they came: nobody was examined."
    elif dropped:
        words = f"{count(dropped)}{of} {'was' if dropped == 1 else 'were'} left out."
    else:
        words = f"Nobody{of} was left out."
    attackers, caught, false = (as_number(robust.get(key)) for key in ("attackers", "caught", "false"))
    attackers = float(len(items(robust.get("attackers"))))
    if robust.get("attack"):
        words += f" The simulated attack {robust['attack']} had {count(attackers, 'attacker')}"
        if robust.get("examined") and caught is not None and false is not None:
            words += f"; {count(caught)} {'was' if caught == 1 else 'were'} found, and {count(false)} honest "
            words += f"client{' was' if false == 1 else 's were'} left out"
        words += "."
    untested = as_number(robust.get("untested"))
    if untested:
        words += f" {count(untested, 'class mean')} had too few others to be compared with."
    return words


def _known_bars(robust: Mapping[str, Any], reasons: Mapping[str, str]) -> list[_Bar]:
    found = []
    for each in items(robust.get("influence")):
        entry = mapping(each)
        change, flips = as_number(entry.get("change")), as_number(entry.get("flips"))
        if change is None:
            continue
        name = str(entry.get("client"))
        told = f"{name}: without it, class probabilities change by {percent(change, 2)}"
        told += f", and {percent(flips)} of the client means change class" if flips is not None else ""
        samples = as_number(entry.get("samples"))
        told += f"; {count(samples, 'sample')}" if samples is not None else ""
        told += f"; left out: {reasons[name]}" if name in reasons else ""
        found.append(_Bar(name, change, told, name in reasons))
    return sorted(found, key=lambda bar: -bar.change)[:MOST_BARS]


def _figure(bars: list[_Bar], head: str) -> Html:
    of = f" of {head}" if head else ""
    note = (
        f"How much the class probabilities{of} change on average over all client means when a client is left out and "
    )
    note += "the head is fitted again without it: 0 % nothing, 100 % everything."
    if any(bar.dropped for bar in bars):
        note += " Orange: left out by the server; their influence is what they would have had."
    return join(
        [
            tag("h3", "Who moves the head"),
            tag("figure", both(lambda width: _chart(bars, width, of))),
            tag("p", note, class_="note"),
        ]
    )


def _chart(bars: list[_Bar], width: float, of: str) -> Html:
    letters = 30 if width > 500 else 14
    names = [shorten(bar.client, letters) for bar in bars]
    left = max(text_width(name, 12) for name in names) + 10
    right, top = width - 62.0, 8.0
    bottom = top + STEP * len(bars)
    ticks = linear_axis([0.0, *(bar.change for bar in bars)], left, right, "{:g}".format, ticks=4, bounds=(0.0, 1.0))
    axis = Axis(0.0, max(ticks.high, 1e-9), ticks.ticks, left, right)
    drawn: list[Node] = [
        tag("line", x1=axis(place), x2=axis(place), y1=top, y2=bottom, class_="grid") for place, _ in axis.ticks
    ]
    drawn += [
        tag("text", f"{place * 100:g}", x=axis(place), y=bottom + 17, text_anchor="middle", class_="tick")
        for place, _ in axis.ticks
    ]
    for place, (bar, name) in enumerate(zip(bars, names, strict=True)):
        middle = top + (place + 0.5) * STEP
        drawn.append(_bar(bar, name, middle, axis, width))
    words = f"change of class probabilities,{THIN}%"
    drawn.append(tag("text", words, x=right, y=bottom + 36, text_anchor="end", class_="axis-title"))
    title = (
        f"The {count(len(bars), 'most influential client')}{of}: {bars[0].client} first, {percent(bars[0].change, 2)}"
    )
    return svg(width, bottom + 44, title, *drawn)


def _bar(bar: _Bar, name: str, middle: float, axis: Axis, width: float) -> Html:
    end = axis(min(bar.change, axis.high))
    kind = "margin dropped" if bar.dropped else "margin"
    return tag(
        "g",
        tag("title", bar.told),
        tag("rect", x=0.0, y=middle - STEP / 2, width=width, height=STEP, class_="hit"),
        tag("rect", x=axis.start, y=middle - 7, width=max(end - axis.start, 0.7), height=14.0, class_=kind),
        tag("text", name, x=axis.start - 6, y=middle, dy="0.34em", text_anchor="end", class_="tick"),
        tag("text", percent(bar.change, 2), x=end + 5, y=middle, dy="0.34em", class_="tick"),
        class_="point",
    )


def _reasons(reasons: Mapping[str, str]) -> Html:
    rows = [
        tag("tr", tag("th", breakable(client), scope="row", class_="name", dir="auto"), tag("td", reason))
        for client, reason in list(reasons.items())[:MOST_REASONS]
    ]
    more = len(reasons) - len(rows)
    return join(
        [
            tag("h3", "Left out"),
            sortable("Clients that were left out, and why", [("Client", False), ("Why", False)], rows),
            tag("p", f"… and {more:,} more, in results.json.", class_="note") if more > 0 else None,
        ]
    )
