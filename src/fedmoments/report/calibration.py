"""Whether confidence is earned: the reliability diagram of every head, and its expected calibration error."""

from collections.abc import Mapping
from typing import Any

from fedmoments.report.answer import first_detail
from fedmoments.report.axes import Box, frame, linear_axis, svg
from fedmoments.report.choosing import chooser, panels
from fedmoments.report.details import Detail
from fedmoments.report.formats import THIN, count, percent
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results
from fedmoments.report.table import bar

__all__ = ["calibration_section"]


def calibration_section(results: Results) -> Html | None:
    """Return the section, or None when no head was calibrated."""
    details = [detail for detail in results.details if _bins(detail.calibration)]
    if not details:
        return None
    chosen = first_detail(results, details)
    options = [(detail.key, detail.words) for detail in details]
    return join(
        [
            tag(
                "p",
                "Of the samples that a head is 80 % sure of, 80 % should be right. Bars above the diagonal mean that "
                "it is too modest, bars below that it is too sure.",
                class_="lead",
            ),
            chooser("head", "Head", options, chosen),
            tag(
                "div",
                tag("div", panels("head", [(detail.key, _panel(detail)) for detail in details], chosen)),
                _errors(details),
                class_="columns",
            ),
        ]
    )


def _bins(calibration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    known = [mapping(each) for each in items(calibration.get("bins"))]
    return [
        each for each in known if as_number(each.get("low")) is not None and as_number(each.get("high")) is not None
    ]


def _panel(detail: Detail) -> Html:
    ece = as_number(detail.calibration.get("ece"))
    temperature = as_number(detail.calibration.get("temperature"))
    words = [f"expected calibration error {percent(ece)}"] if ece is not None else []
    words += [f"temperature {temperature:.3g}"] if temperature is not None else []
    return tag(
        "figure",
        tag("figcaption", tag("b", detail.head), f": {', '.join(words)}" if words else None),
        _chart(detail, _bins(detail.calibration)),
        tag("p", "Bars: accuracy; short lines: mean confidence; below: samples.", class_="note"),
    )


def _chart(detail: Detail, bins: list[Mapping[str, Any]]) -> Html:
    width, height = 348.0, 400.0
    box = Box(36.0, 28.0, width - 8, 318.0)
    y = linear_axis([0, 1], box.bottom, box.top, lambda v: f"{v * 100:g}", ticks=5)
    x = linear_axis([0, 1], box.left, box.right, lambda v: f"{v * 100:g}", ticks=5)
    most = max([1.0, *(as_number(each.get("count")) or 0.0 for each in bins)])
    drawn: list[Node] = [
        frame(Box(box.left, box.top, box.right, box.bottom), x, y, "", f"accuracy,{THIN}%"),
        tag("text", f"confidence,{THIN}%", x=box.right, y=height - 2, text_anchor="end", class_="axis-title"),
        tag("text", "samples", x=0.0, y=height - 2, class_="axis-title"),
    ]
    for each in bins:
        low, high = as_number(each.get("low")) or 0.0, as_number(each.get("high")) or 0.0
        number, right = as_number(each.get("count")) or 0.0, as_number(each.get("accuracy"))
        if not number or right is None:
            continue
        sure = as_number(each.get("confidence")) or (low + high) / 2
        left, across = x(low) + 1, max(x(high) - x(low) - 2, 1.0)
        told = f"{percent(low, 0)} to {percent(high, 0)} sure: {count(number, 'sample')}, {percent(right)} right"
        told += f" at a mean confidence of {percent(sure)}"
        deep = number / most * 34
        drawn.append(
            tag(
                "g",
                tag("title", told),
                tag("rect", x=left, y=box.top, width=across, height=box.bottom - box.top, class_="hit"),
                tag("rect", x=left, y=y(right), width=across, height=box.bottom - y(right), class_="margin"),
                tag("line", x1=left, x2=left + across, y1=y(sure), y2=y(sure), class_="expected"),
                tag("rect", x=left, y=box.bottom + 28, width=across, height=max(deep, 0.7), class_="counts"),
                class_="point",
            )
        )
    drawn.append(tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="diagonal"))
    return svg(width, height, f"Reliability diagram of {detail.words}", *drawn)


def _errors(details: list[Detail]) -> Html:
    known = [(as_number(detail.calibration.get("ece")), detail) for detail in details]
    rows = [
        tag(
            "tr",
            tag("th", detail.words, scope="row", class_="name"),
            tag("td", bar(ece), class_="bars"),
            tag("td", percent(ece), class_="number"),
        )
        for ece, detail in sorted(known, key=lambda each: 2.0 if each[0] is None else each[0])
    ]
    return tag(
        "div",
        tag("h3", "Expected calibration error"),
        tag(
            "table",
            tag("caption", "Expected calibration error by head, least first", class_="unseen"),
            tag("tbody", *rows),
            class_="list",
        ),
        tag(
            "p",
            "Mean distance between confidence and accuracy, weighted by samples; less is better. A temperature "
            "fitted on held-out samples changes it without changing a single prediction.",
            class_="note",
        ),
    )
