"""Whether confidence is earned: the reliability diagram of every head, and its expected calibration error."""

from dataclasses import replace

from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import Bin, HeadDetail
from fedmoments.pages.answer import first_panel
from fedmoments.pages.blocks import note
from fedmoments.pages.chart import Chart, Point, Scale, Series, Trace, share_scale
from fedmoments.pages.figure import draw_alone
from fedmoments.pages.formats import THIN, count, percent
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import Panel, chooser, panels, panels_of
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Row, Table, bar_cell, number_cell

__all__ = ["calibration_section", "reliability_chart", "samples_chart"]

#: From unsure to sure.
SHARE = replace(share_scale(f"confidence,{THIN}%", values=(0.0, 1.0), about=5), exact=True)


@section("calibration", "Are probabilities calibrated?", place=140)
def calibration_section(report: Report) -> Html | None:
    """Return the section, or None when no head was calibrated."""
    shown = [panel for panel in panels_of(report) if _bins(panel.detail)]
    if not shown:
        return None
    chosen = first_panel(report, shown)
    options = [(panel.key, panel.words) for panel in shown]
    return join(
        [
            tag(
                "p",
                "Of the samples predicted with 80 % confidence, 80 % should be right. Bars above the diagonal: too "
                "little confidence; below: too much.",
                class_="lead",
            ),
            chooser("head", "Head", options, chosen),
            tag(
                "div",
                tag("div", panels("head", [(panel.key, _panel(panel)) for panel in shown], chosen)),
                _errors(shown),
                class_="columns",
            ),
        ]
    )


def _bins(detail: HeadDetail) -> list[Bin]:
    """Return the bins that hold samples."""
    bins = detail.calibration.bins if detail.calibration else ()
    return [one for one in bins if one.count and one.accuracy is not None]


def _confidence(one: Bin) -> float:
    return one.confidence or (one.low + one.high) / 2


def _tip(one: Bin) -> str:
    return (
        f"{percent(one.low, 0)} to {percent(one.high, 0)} sure: {count(one.count, 'sample')}, "
        f"{percent(one.accuracy)} right at a mean confidence of {percent(_confidence(one))}"
    )


def _panel(panel: Panel) -> Html:
    detail, bins = panel.detail, _bins(panel.detail)
    ece, temperature = _error(detail), detail.calibration.temperature if detail.calibration else None
    words = [f"expected calibration error {percent(ece)}"] if ece is not None else []
    words += [f"temperature {temperature:.3g}"] if temperature is not None else []
    return tag(
        "figure",
        tag("figcaption", tag("b", detail.head), f": {', '.join(words)}" if words else None),
        *(draw_alone(make(panel.words, bins)) for make in (reliability_chart, samples_chart)),
        note("Bars: accuracy; short lines: mean confidence; below: samples."),
    )


def _error(detail: HeadDetail) -> float | None:
    return detail.calibration.ece if detail.calibration else None


def reliability_chart(name: str, bins: list[Bin]) -> Chart:
    """Return accuracy against confidence, with the diagonal on which confidence is earned."""
    bars = tuple(Point(0.0, one.accuracy or 0.0, tip=_tip(one), span=(one.low, one.high)) for one in bins)
    expected = [Trace(((one.low, _confidence(one)), (one.high, _confidence(one))), "expected") for one in bins]
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
    bars = tuple(Point(0.0, one.count, tip=_tip(one), span=(one.low, one.high), kind="counts") for one in bins)
    y = Scale("samples", about=2, whole=True)
    return Chart(f"Samples by confidence of {name}", SHARE, y, (Series("", bars),), height=50.0)


def _errors(shown: list[Panel]) -> Html:
    known = [(_error(panel.detail), panel) for panel in shown]
    rows = [
        Row(Cell(panel.words, kind="name"), (bar_cell(ece), number_cell(ece, percent(ece))))
        for ece, panel in sorted(known, key=lambda pair: 2.0 if pair[0] is None else pair[0])
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
