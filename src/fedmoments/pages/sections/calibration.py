"""Whether confidence is earned: the reliability diagram of every head, and its expected calibration error."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedmoments.pages.answer import first_detail
from fedmoments.pages.blocks import note
from fedmoments.pages.chart import Chart, Point, Scale, Series, Trace, share_scale
from fedmoments.pages.choosing import chooser, panels
from fedmoments.pages.details import Detail
from fedmoments.pages.figure import draw_alone
from fedmoments.pages.formats import THIN, count, percent
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Row, Table, bar_cell, number_cell

__all__ = ["calibration_section", "reliability_chart", "samples_chart"]

#: From unsure to sure.
SHARE = replace(share_scale(f"confidence,{THIN}%", values=(0.0, 1.0), about=5), exact=True)


@section("calibration", "Is confidence earned?", place=140)
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


@dataclass(frozen=True)
class Bin:
    """Samples of about the same confidence: how many, how sure the head is of them, and how many are right."""

    low: float
    high: float
    samples: float
    confidence: float
    accuracy: float

    @property
    def told(self) -> str:
        """All of it, in a sentence."""
        return (
            f"{percent(self.low, 0)} to {percent(self.high, 0)} sure: {count(self.samples, 'sample')}, "
            f"{percent(self.accuracy)} right at a mean confidence of {percent(self.confidence)}"
        )


def _bins(calibration: Mapping[str, Any]) -> list[Bin]:
    """Return the bins that hold samples."""
    found = []
    for each in map(mapping, items(calibration.get("bins"))):
        low, high, samples, right = (as_number(each.get(key)) for key in ("low", "high", "count", "accuracy"))
        if low is not None and high is not None and samples and right is not None:
            sure = as_number(each.get("confidence")) or (low + high) / 2
            found.append(Bin(low, high, samples, sure, right))
    return found


def _panel(detail: Detail) -> Html:
    ece = as_number(detail.calibration.get("ece"))
    temperature = as_number(detail.calibration.get("temperature"))
    words = [f"expected calibration error {percent(ece)}"] if ece is not None else []
    words += [f"temperature {temperature:.3g}"] if temperature is not None else []
    return tag(
        "figure",
        tag("figcaption", tag("b", detail.head), f": {', '.join(words)}" if words else None),
        *(draw_alone(make(detail.words, _bins(detail.calibration))) for make in (reliability_chart, samples_chart)),
        note("Bars: accuracy; short lines: mean confidence; below: samples."),
    )


def reliability_chart(name: str, bins: list[Bin]) -> Chart:
    """Return accuracy against confidence, with the diagonal on which confidence is earned."""
    bars = tuple(Point(0.0, each.accuracy, tip=each.told, span=(each.low, each.high)) for each in bins)
    expected = [Trace(((each.low, each.confidence), (each.high, each.confidence)), "expected") for each in bins]
    return Chart(
        f"Reliability diagram of {name}",
        SHARE,
        share_scale(values=(0.0, 1.0), about=5),
        (Series("", bars),),
        traces=(*expected, Trace(((0.0, 0.0), (1.0, 1.0)), "diagonal")),
        height=290.0,
    )


def samples_chart(name: str, bins: list[Bin]) -> Chart:
    """Return how many samples there are of each confidence."""
    bars = tuple(Point(0.0, each.samples, tip=each.told, span=(each.low, each.high), kind="counts") for each in bins)
    y = Scale("samples", about=2, whole=True)
    return Chart(f"Samples by confidence of {name}", SHARE, y, (Series("", bars),), height=50.0)


def _errors(details: list[Detail]) -> Html:
    known = [(as_number(detail.calibration.get("ece")), detail) for detail in details]
    rows = [
        Row(Cell(detail.words, kind="name"), (bar_cell(ece), number_cell(ece, percent(ece))))
        for ece, detail in sorted(known, key=lambda each: 2.0 if each[0] is None else each[0])
    ]
    table = Table("Expected calibration error by head, least first", (), tuple(rows), scrolls=False)
    return tag(
        "div",
        tag("h3", "Expected calibration error"),
        table.html(),
        note(
            "Mean distance between confidence and accuracy, weighted by samples; less is better. A temperature "
            "fitted on held-out samples changes it without changing a single prediction."
        ),
    )
