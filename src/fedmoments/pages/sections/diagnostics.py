"""Do the assumptions of Gaussian heads hold? What deserves a second look, figures, and every class."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.diagnostics import Caution, Conditioning, Diagnostics, Gaussianity, Spectrum, Unknown
from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import Diagnosis
from fedmoments.pages.blocks import bullets, fold, note, titled
from fedmoments.pages.diagnostic_charts import fisher_figures, holders_figure, tail_figure
from fedmoments.pages.figure import facets
from fedmoments.pages.formats import clients_words, count, list_of, percent, shorten, three_digits
from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.shell import Opening, section
from fedmoments.pages.table import Cell, Column, Row, Table, number_cell, sortable

__all__ = ["diagnosis_answer", "diagnosis_question", "diagnostics_section"]

#: Classes named with a caution, and classes in the list that unfolds.
MOST_NAMED, MOST_LISTED = 4, 200
#: Letters of a class name in that list.
MOST_LETTERS = 28
#: Median |excess kurtosis| and |skewness| up to which coordinates count as near to, and as not far from, a Gaussian's.
NEAR, FAR = (1.0, 0.5), (3.0, 1.5)

#: Place of the median among the figures of a class: mean, median and 90 %.
MEDIAN = 1
SOURCES = {"exact": "exact (gram)", "free": "free (client means)"}


def diagnosis_question(_: Report, about: Diagnosis) -> Html:
    """Return the question that a page of diagnostics alone answers."""
    who = f"With {clients_words(about.clients, about.split)}" if about.clients else "In these statistics"
    return join([who, ", do the assumptions of Gaussian heads hold?"])


def diagnosis_answer(_: Report, about: Diagnosis) -> Html:
    """Return the answer in a few sentences."""
    diagnostics = about.diagnostics
    if diagnostics is None:
        return join(["Nothing was diagnosed."])
    number = len(diagnostics.cautions)
    look = f"{count(number, 'thing deserves', 'things deserve')} a second look." if number else None
    parts = (_shape(diagnostics.gaussianity), _directions(diagnostics), _means(diagnostics), look)
    return join([part for part in parts if part], " ")


#: What a page of this section alone says.
ALONE = Opening(diagnosis_question, diagnosis_answer, "what one upload teaches")


@section("diagnostics", "Do the assumptions hold?", place=150, short="Assumptions", of="diagnosis", opens=ALONE)
def diagnostics_section(report: Report, diagnosis: Diagnosis) -> Html | None:
    """Return what was diagnosed, or why nothing was."""
    diagnostics = diagnosis.diagnostics
    if diagnostics is None:
        return note(f"Not diagnosed: {diagnosis.reason}.")
    charts = _charts(diagnostics)
    return join(
        [
            tag("p", diagnosis_answer(report, diagnosis), class_="lead") if report.rows else None,
            _cautions(report, diagnostics.cautions),
            facets(charts) if charts else None,
            _left_out(diagnostics.gaussianity),
            _unknown(diagnostics.unknown, diagnosis.measure),
            _all_classes(report, diagnostics),
        ]
    )


def _charts(diagnostics: Diagnostics) -> list[Html]:
    shapes, held_by = diagnostics.gaussianity, diagnostics.holdings.held_by
    charts: list[Html | None] = [*fisher_figures(diagnostics.curves)]
    if shapes is not None:
        charts += [tail_figure(shapes.skewness, "|skewness|"), tail_figure(shapes.kurtosis, "|excess kurtosis|")]
    charts += [None if held_by is None else holders_figure(held_by), _spectra(diagnostics.spectra)]
    return [chart for chart in charts if chart is not None]


# ---------------------------------------------------------------------------------------------- in a sentence


def _shape(shapes: Gaussianity | None) -> Html | None:
    if shapes is None or not shapes.coordinates:
        return None
    skew, kurt = shapes.skewness, shapes.kurtosis
    word = _distance(kurt.median, skew.median)
    figures = f": mean |skewness| {skew.mean:.3g}, mean |excess kurtosis| {kurt.mean:.3g}"
    figures += f" (Gaussian samples would show {skew.by_chance:.2g} and {kurt.by_chance:.2g})."
    return join(["Inside a class, coordinates are ", tag("strong", word), figures])


def _distance(kurtosis: float, skewness: float) -> str:
    """Return how far coordinates are from a Gaussian's, by their medians."""
    if kurtosis <= NEAR[0] and skewness <= NEAR[1]:
        return "close to Gaussian"
    return "far from Gaussian" if kurtosis > FAR[0] or skewness > FAR[1] else "moderately far from Gaussian"


def _directions(diagnostics: Diagnostics) -> Html | None:
    for name, curve in diagnostics.curves.items():
        if not curve.directions:
            continue
        last, share = curve.directions[-1], f"{percent(0.995)} of the energy"
        words = f"{count(curve.enough)} of {count(last, 'Fisher direction')} keep {share}"
        if curve.enough == last > 1:
            words = f"All {count(last)} Fisher directions are needed for {share}"
        priors = " with balanced priors" if curve.priors == "balanced" else ""
        full = curve.full_accuracy
        words += f"; LDA on the {name} covariance{priors} reaches {percent(full)}." if full is not None else "."
        return join([words])
    return None


def _means(diagnostics: Diagnostics) -> Html | None:
    held = diagnostics.holdings
    if held.held_by is None:
        return None
    here = held.held_by[held.present]
    least, most, single = int(here.min()), int(here.max()), held.single_share
    several = count(least) if least == most else f"{count(least)} to {count(most)}"
    end = f"; {percent(single, 0)} of them are of one sample." if single else "."
    return join([f"Each class is known by {several} client mean{'' if most == 1 else 's'}{end}"])


# ---------------------------------------------------------------------------------------------- tables


def _cautions(report: Report, cautions: Sequence[Caution]) -> Html | None:
    rows = tuple(_caution(report, caution) for caution in cautions)
    if not rows:
        return note("No check found a problem.")
    caption = "What deserves a second look, and what to do about it"
    return Table(caption, (Column("Worth a second look"), Column("What to do")), rows, "list cautions").html()


def _caution(report: Report, caution: Caution) -> Row:
    names = _named(report, caution)
    more = len(caution.classes) - len(names)
    listed = list_of([*names, f"{more:,} more"] if more > 0 else names, MOST_NAMED + 1)
    under = tag("div", breakable(listed), class_="minor", dir="auto") if names else None
    return Row(Cell(join([caution.what, under]), kind="name"), (Cell(_unbroken(caution.advice)),))


def _named(report: Report, caution: Caution) -> list[str]:
    """Return the first classes that a caution is about, each with its partner and what was measured of it."""
    names = []
    for place, label in enumerate(caution.classes[:MOST_NAMED]):
        name = report.data.class_name(label)
        name += f" and {report.data.class_name(caution.partners[place])}" if place < len(caution.partners) else ""
        words = _figure(caution.kind, caution.figures[place] if place < len(caution.figures) else None)
        names.append(f"{name} ({words})" if words else name)
    return names


def _unbroken(words: str) -> Html:
    """Return a sentence whose options (--project) are not broken at their hyphens."""
    parts = re.split(r"(--[\w-]+)", words)
    return join(tag("span", part, class_="nowrap") if part.startswith("--") else part for part in parts)


def _figure(kind: str, value: float | None) -> str:
    """Return what was measured of a class, in the unit of its kind."""
    if value is None or kind == "empty-class":
        return ""
    if kind == "feature-shift":
        return _bias(value)
    return three_digits(value) if kind in ("heavy-tails", "near-duplicates") else count(value)


def _bias(value: float) -> str:
    if value >= 1.0:
        return f"{1 + value:,.3g} times"
    sign = "" if abs(value) < 0.005 else "+" if value > 0 else "−"
    return f"{sign}{percent(abs(value), 0)}"


def _spectra(spectra: Mapping[str, Spectrum]) -> Html | None:
    rows = [
        _spectrum(name, when, getattr(spectrum, when))
        for name, spectrum in spectra.items()
        for when in ("before", "after")
    ]
    if not rows:
        return None
    titles = ("covariance", "condition", "rank", "effective", "tr²/tr(Σ²)")
    columns = tuple(Column(title, number=place > 0) for place, title in enumerate(titles))
    said = "Condition: largest over smallest eigenvalue. Effective rank: the exponential of the eigenvalues’ entropy."
    table = Table("Conditioning of the pooled covariances", columns, tuple(rows))
    return titled("Pooled covariance", table.html(), note(said))


def _spectrum(name: str, when: str, one: Conditioning) -> Row:
    shown = [_power(one.condition) if one.condition is not None else "singular", count(one.rank)]
    shown += [three_digits(one.effective_rank), three_digits(one.participation)]
    words = join([SOURCES.get(name, name), tag("span", f" {when} shrinkage", class_="minor")])
    return Row(Cell(words), tuple(Cell(word, kind="number") for word in shown))


def _left_out(shapes: Gaussianity | None) -> Html | None:
    if shapes is None:
        return None
    parts = [
        (shapes.constant, "coordinate of a class does not vary", "coordinates of a class do not vary"),
        (shapes.lost, "lost its digits in the sums", "lost their digits in the sums"),
        (shapes.too_few, "class has fewer than four samples", "classes have fewer than four samples"),
    ]
    words = [count(number, one, several) for number, one, several in parts if number]
    if not words:
        return None
    return note(f"Left out of skewness and kurtosis: {list_of(words)}.")


def _unknown(unknown: Sequence[Unknown], command: str | None) -> Html | None:
    if not unknown:
        return None
    shown = bullets([f"{gap.what}: {gap.why}" for gap in unknown])
    words = note("For the missing figures, let every client run ", tag("code", command)) if command else None
    return tag("div", tag("h3", "Not known"), shown, words, class_="below")


def _columns(diagnostics: Diagnostics) -> dict[str, NDArray[np.float64]]:
    """Return what is known of every class: title -> (C,)."""
    held, shapes, bias, near = (
        getattr(diagnostics, part) for part in ("holdings", "gaussianity", "bias", "neighbours")
    )
    columns = {
        "Samples": held.counts,
        "Means": held.held_by,
        "Single": held.singles,
        "|skewness|": None if shapes is None else shapes.skewness.by_class[:, MEDIAN],
        "|kurtosis|": None if shapes is None else shapes.kurtosis.by_class[:, MEDIAN],
        "Bias": None if bias is None else bias.relative,
        "Distance": None if near is None else near.distance,
    }
    return {title: np.asarray(column, np.float64) for title, column in columns.items() if column is not None}


def _all_classes(report: Report, diagnostics: Diagnostics) -> Html:
    columns, number = _columns(diagnostics), len(diagnostics.holdings.counts)
    nearest = None if diagnostics.neighbours is None else diagnostics.neighbours.nearest
    titles = [Column("Class"), *(Column(title, number=True) for title in columns)]
    titles += [Column("Nearest class")] if nearest is not None else []
    rows = [_class(report, columns, nearest, label) for label in range(min(number, MOST_LISTED))]
    words = f"The first {MOST_LISTED} of {count(number)} classes"
    said = (
        "Means: of clients that hold the class (K_c); single: those of one sample. |skewness| and |excess kurtosis|: "
        "medians over dimensions. Bias: trace of the free covariance against the exact one. Distance to the nearest "
        "class: in units of the spread inside classes, the noise of the means taken off."
    )
    return fold(
        words if number > MOST_LISTED else f"All {count(number)} classes",
        sortable("Diagnostics of every class", titles, rows),
        note(said),
    )


def _class(
    report: Report, columns: Mapping[str, NDArray[np.float64]], nearest: NDArray[np.int64] | None, label: int
) -> Row:
    cells = []
    for title, column in columns.items():
        value = float(column[label]) if math.isfinite(column[label]) else None
        words = _bias(value) if title == "Bias" and value is not None else three_digits(value)
        cells.append(number_cell(value, words))
    if nearest is not None:
        other = int(nearest[label])
        name = "–" if other < 0 else shorten(report.data.class_name(other), MOST_LETTERS)
        cells.append(Cell(name, kind="minor nowrap", dir="auto"))
    return Row(Cell(shorten(report.data.class_name(label), MOST_LETTERS), dir="auto"), tuple(cells))


def _power(value: float) -> str:
    """Return a condition number: powers of ten where it is large."""
    return f"{value:,.0f}" if value < 1e7 else f"{value:.1e}".replace("e+", "e").replace("e0", "e")
