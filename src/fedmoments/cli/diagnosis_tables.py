"""What ``fedmoments diagnose`` prints: one small table for each question, then what deserves a second look."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from fedmoments.cli.output import plural, print_line, print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedmoments.core.diagnostics import (
        Caution,
        Diagnostics,
        FisherCurve,
        Gaussianity,
        Spectrum,
        Unknown,
    )
    from fedmoments.core.observations import Report
    from fedmoments.core.observations.parts import Data

__all__ = ["show_diagnosis"]

#: Classes that are named with a caution.
MOST_NAMED = 4


def show_diagnosis(report: "Report") -> None:
    """Print the diagnosis of a report for people."""
    about, data = report.diagnosis, report.data
    if about is None or about.diagnostics is None:
        return
    diagnostics = about.diagnostics
    classes = plural(len(diagnostics.holdings.counts), "class")
    tested = f", {data.test:,} test samples" if data.test else ""
    print_line(f"{data.name}: {diagnostics.n_samples:,} samples, d = {data.dim}, {classes}{tested}")
    where = [plural(about.clients or 0, "client")]
    where += [f"split {about.split}", f"seed {about.seed}"] if about.split else []
    where += [f"projected to {diagnostics.dim} dimensions"] if about.projection else []
    print_line(f"{', '.join(where)}: {diagnostics.measured}")
    _show_shapes(diagnostics.gaussianity)
    _show_spectra(diagnostics.spectra)
    _show_curves({name: curve for name, curve in diagnostics.curves.items() if curve.directions})
    _show_holdings(diagnostics)
    _show_cautions(diagnostics.cautions, data)
    _show_unknown(diagnostics.unknown, about.measure)


def _show_shapes(shapes: "Gaussianity | None") -> None:
    if shapes is None or not shapes.coordinates:
        return
    print_line("\nhow far from Gaussian, over classes and dimensions")
    columns = ["mean", "median", "90 %", "if Gaussian"]
    rows = [
        [f"|{name}|", *(f"{value:.2f}" for value in (tail.mean, tail.median, tail.p90, tail.by_chance))]
        for name, tail in (("skewness", shapes.skewness), ("excess kurtosis", shapes.kurtosis))
    ]
    print_table(["", *columns], rows, right=columns)
    left_out = [
        f"{number:,} {what}"
        for number, what in (
            (shapes.constant, "that do not vary"),
            (shapes.lost, "that lost their digits"),
            (shapes.too_few, "classes of fewer than four samples"),
        )
        if number
    ]
    if left_out:
        print_line(f"of {shapes.coordinates:,} coordinates; left out: {', '.join(left_out)}")


def _show_spectra(spectra: Mapping[str, "Spectrum"]) -> None:
    rows = []
    for name, spectrum in spectra.items():
        for when in ("before", "after"):
            one = getattr(spectrum, when)
            condition = "singular" if one.condition is None else _large(one.condition)
            ranks = [f"{one.rank:,}", f"{one.effective_rank:.1f}", f"{one.participation:.1f}"]
            rows.append([name, f"{when} {spectrum.shrinkage} shrinkage", condition, *ranks])
    if rows:
        print_line("\npooled covariance")
        columns = ["condition", "rank", "effective rank", "tr²/tr(Σ²)"]
        print_table(["source", "", *columns], rows, right=columns)


def _show_curves(curves: Mapping[str, "FisherCurve"]) -> None:
    if not curves:
        return
    tested = any(curve.accuracy for curve in curves.values())
    print_line(f"\nFisher directions: share of the energy{', and accuracy of LDA' if tested else ''}")
    series = _series(curves)
    sizes = sorted({k for shares in series.values() for k in shares})
    rows = [[str(k), *(_percent(shares.get(k)) for shares in series.values())] for k in sizes]
    print_table(["k", *series], rows, right=["k", *series])
    for name, curve in curves.items():
        print_line(f"{name}: {plural(curve.enough, 'direction')} keep 99.5 % of the energy{_full_accuracy(curve)}")


def _series(curves: Mapping[str, "FisherCurve"]) -> dict[str, dict[int, float]]:
    """Return column -> number of directions -> share."""
    series = {}
    for name, curve in curves.items():
        series[f"energy, {name}"] = dict(zip(curve.directions, curve.energy, strict=True))
        if curve.accuracy:
            series[f"LDA, {name}"] = dict(zip(curve.directions, curve.accuracy, strict=False))
    return series


def _full_accuracy(curve: "FisherCurve") -> str:
    priors = ", with balanced priors" if curve.priors == "balanced" else ""
    accuracy = curve.full_accuracy
    return "" if accuracy is None else f"; LDA in all dimensions{priors}: {_percent(accuracy)}"


def _large(number: float) -> str:
    return f"{number:,.0f}" if number < 1e9 else f"{number:.2g}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _show_holdings(diagnostics: "Diagnostics") -> None:
    held = diagnostics.holdings
    here = held.counts[held.present]
    print_line(f"\nsamples of a class: {_range(here)}, the largest {held.imbalance:.1f} times the smallest")
    if held.held_by is not None:
        single = f"{held.single_share:.0%} of {held.rows:,} are of one sample"
        print_line(f"means of a class (K_c): {_range(held.held_by[held.present])}; {single}")
    if diagnostics.bias is not None and diagnostics.bias.overall == diagnostics.bias.overall:  # not NaN
        bias = diagnostics.bias.overall
        size = f"{1 + bias:,.3g} times as large" if bias >= 1 else f"{bias:+.1%}"
        print_line(f"free covariance against the exact one, by the trace: {size}")
        print_line(f"shift of client means beyond label skew: F = {diagnostics.bias.shift:.3g} (1: none)")


def _range(values: "NDArray[np.int64]") -> str:
    if values.min() == values.max():
        return f"{values.min():,} each"
    return f"{values.min():,} to {values.max():,}, median {median(values.tolist()):,g}"


def _show_cautions(cautions: Sequence["Caution"], data: "Data") -> None:
    if not cautions:
        print_line("\nno check found a problem")
        return
    print_line(f"\n{plural(len(cautions), 'warning')}")
    for caution in cautions:
        print_line(f"- {caution.what}{_named(caution, data)}")
        print_line(f"  {caution.advice}")


def _named(caution: "Caution", data: "Data") -> str:
    shown = []
    for place, label in enumerate(caution.classes[:MOST_NAMED]):
        other = f" and {data.class_name(caution.partners[place])}" if caution.partners else ""
        shown.append(f"{data.class_name(label)}{other}")
    more = len(caution.classes) - len(shown)
    return f" ({', '.join(shown)}{f' and {more:,} more' if more else ''})" if shown else ""


def _show_unknown(unknown: Sequence["Unknown"], command: str | None) -> None:
    if not unknown:
        return
    print_line("\nnot known from these statistics")
    for gap in unknown:
        print_line(f"- {gap.what}: {gap.why}")
    if command:
        print_line(f"for the missing figures, let every client run: {command}")
