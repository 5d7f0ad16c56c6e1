"""Do the assumptions of Gaussian heads hold? What deserves a second look, figures, and every class."""

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from fedmoments.pages.blocks import bullets, fold, note, titled
from fedmoments.pages.diagnostic_charts import fisher_figures, holders_figure, tail_figure
from fedmoments.pages.figure import facets
from fedmoments.pages.formats import clients_words, count, list_of, percent, shorten, three_digits
from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import Opening, section
from fedmoments.pages.table import Cell, Column, Row, Table, number_cell, sortable

__all__ = ["diagnosis_answer", "diagnosis_question", "diagnostics_section", "is_diagnosis"]

#: Classes named with a caution, and classes in the list that unfolds.
MOST_NAMED, MOST_LISTED = 4, 200
#: Letters of a class name in that list.
MOST_LETTERS = 28
#: Median |excess kurtosis| and |skewness| up to which coordinates count as near to, and as not far from, a Gaussian's.
NEAR, FAR = (1.0, 0.5), (3.0, 1.5)

SOURCES = {"exact": "exact (gram)", "free": "free (client means)"}


def is_diagnosis(results: Results) -> bool:
    """Return whether these are diagnostics alone: no head was fitted."""
    return not results.rows and bool(mapping(results.raw.get("diagnostics")))


def diagnosis_question(results: Results) -> Html:
    """Return the question that a page of diagnostics alone answers."""
    found = mapping(results.raw.get("diagnostics"))
    clients = as_number(found.get("clients"))
    who = f"With {clients_words(clients, found.get('split'))}" if clients else "In these statistics"
    return join([who, ", do the assumptions of Gaussian heads hold?"])


def diagnosis_answer(results: Results) -> Html:
    """Return the answer in a few sentences."""
    found = mapping(results.raw.get("diagnostics"))
    parts = [_shape(found), _directions(found), _means(found)]
    number = len(items(found.get("cautions")))
    look = f"{count(number, 'thing deserves', 'things deserve')} a second look." if number else None
    return join([part for part in (*parts, look) if part], " ")


#: What a page of this section alone says.
ALONE = Opening(is_diagnosis, diagnosis_question, diagnosis_answer, "what one upload teaches")


@section("diagnostics", "Do the assumptions hold?", place=150, short="Assumptions", opens=ALONE)
def diagnostics_section(results: Results) -> Html | None:
    """Return the section, or None when nothing was diagnosed."""
    found = mapping(results.raw.get("diagnostics"))
    if found.get("reason"):
        return note(f"Not diagnosed: {found['reason']}.")
    if not found:
        return None
    shapes = mapping(found.get("gaussianity"))
    charts = fisher_figures(mapping(found.get("fisher")))
    charts += [
        chart
        for key, title in (("skewness", "|skewness|"), ("kurtosis", "|excess kurtosis|"))
        if (chart := tail_figure(mapping(shapes.get(key)), title)) is not None
    ]
    held = holders_figure(items(mapping(found.get("classes")).get("held_by")))
    table = _spectra(mapping(found.get("spectra")))
    charts += [each for each in (held, table) if each is not None]
    return join(
        [
            None if is_diagnosis(results) else tag("p", diagnosis_answer(results), class_="lead"),
            _cautions(results, items(found.get("cautions"))),
            facets(charts) if charts else None,
            _left_out(shapes),
            _unknown(items(found.get("unknown")), found.get("measure")),
            _all_classes(results, mapping(found.get("classes"))),
        ]
    )


# ---------------------------------------------------------------------------------------------- in a sentence


def _shape(found: Mapping[str, Any]) -> Html | None:
    shapes = mapping(found.get("gaussianity"))
    skew, kurt = (_known(mapping(shapes.get(key)), "median", "mean") for key in ("skewness", "kurtosis"))
    if skew is None or kurt is None:
        return None
    word = _distance(kurt[0], skew[0])
    chance = [_known(mapping(shapes.get(key)), "by_chance") for key in ("skewness", "kurtosis")]
    by_chance = " and ".join(f"{each[0]:.2g}" for each in chance if each)
    figures = f": mean |skewness| {skew[1]:.3g}, mean |excess kurtosis| {kurt[1]:.3g}"
    figures += f" (Gaussian samples would show {by_chance})." if all(chance) else "."
    return join(["Inside a class, coordinates are ", tag("strong", word), figures])


def _distance(kurtosis: float, skewness: float) -> str:
    """Return how far coordinates are from a Gaussian's, by their medians."""
    if kurtosis <= NEAR[0] and skewness <= NEAR[1]:
        return "close to Gaussian"
    return "far from Gaussian" if kurtosis > FAR[0] or skewness > FAR[1] else "moderately far from Gaussian"


def _known(found: Mapping[str, Any], *keys: str) -> list[float] | None:
    """Return the numbers of some keys, or None when one of them is none."""
    numbers = [number for key in keys if (number := as_number(found.get(key))) is not None]
    return numbers if len(numbers) == len(keys) else None


def _directions(found: Mapping[str, Any]) -> Html | None:
    for name, curve in mapping(found.get("fisher")).items():
        sizes, enough = items(mapping(curve).get("directions")), as_number(mapping(curve).get("enough"))
        last = as_number(sizes[-1]) if sizes else None
        if last is None or enough is None:
            continue
        full = as_number(mapping(curve).get("full_accuracy"))
        share = f"{percent(0.995)} of the energy"
        words = f"{count(enough)} of {count(last, 'Fisher direction')} keep {share}"
        if enough == last > 1:
            words = f"All {count(last)} Fisher directions are needed for {share}"
        priors = " with balanced priors" if mapping(curve).get("priors") == "balanced" else ""
        words += f"; LDA on the {name} covariance{priors} reaches {percent(full)}." if full is not None else "."
        return join([words])
    return None


def _means(found: Mapping[str, Any]) -> Html | None:
    held = mapping(mapping(found.get("holdings")).get("held_by"))
    least, most = as_number(held.get("least")), as_number(held.get("most"))
    if least is None or most is None:
        return None
    several = count(least) if least == most else f"{count(least)} to {count(most)}"
    single = as_number(mapping(found.get("holdings")).get("single_share"))
    end = f"; {percent(single, 0)} of them are of one sample." if single else "."
    return join([f"Each class is known by {several} client mean{'' if most == 1 else 's'}{end}"])


# ---------------------------------------------------------------------------------------------- tables


def _cautions(results: Results, cautions: Sequence[Any]) -> Html | None:
    rows = tuple(_caution(results, mapping(each)) for each in cautions)
    if not rows:
        return note("Nothing that was looked at gives a reason to worry.")
    caption = "What deserves a second look, and what to do about it"
    return Table(caption, (Column("Worth a second look"), Column("What to do")), rows, "list cautions").html()


def _caution(results: Results, caution: Mapping[str, Any]) -> Row:
    names = _named(results, caution)
    more = len(items(caution.get("classes"))) - len(names)
    listed = list_of([*names, f"{more:,} more"] if more > 0 else names, MOST_NAMED + 1)
    under = tag("div", breakable(listed), class_="minor", dir="auto") if names else None
    what, advice = (str(caution.get(key) or "") for key in ("what", "advice"))
    return Row(Cell(join([what, under]), kind="name"), (Cell(_unbroken(advice)),))


def _named(results: Results, caution: Mapping[str, Any]) -> list[str]:
    """Return the first classes that a caution is about, each with its partner and what was measured of it."""
    labels, figures, partners = (
        [as_number(each) for each in items(caution.get(key))] for key in ("classes", "figures", "partners")
    )
    names = []
    for label, figure, partner in zip_longest(labels[:MOST_NAMED], figures[:MOST_NAMED], partners[:MOST_NAMED]):
        if label is not None:
            name = results.class_name(int(label))
            name += f" and {results.class_name(int(partner))}" if partner is not None else ""
            words = _figure(str(caution.get("kind") or ""), figure)
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


def _spectra(spectra: Mapping[str, Any]) -> Html | None:
    known = [
        (name, key, mapping(mapping(spectrum).get(key)))
        for name, spectrum in spectra.items()
        for key in ("before", "after")
    ]
    rows = [_spectrum(*each) for each in known if as_number(each[2].get("rank")) is not None]
    if not rows:
        return None
    titles = ("covariance", "condition", "rank", "effective", "tr²/tr(Σ²)")
    columns = tuple(Column(title, number=place > 0) for place, title in enumerate(titles))
    said = "Condition: largest over smallest eigenvalue. Effective rank: the exponential of the eigenvalues’ entropy."
    table = Table("Conditioning of the pooled covariances", columns, tuple(rows))
    return titled("Pooled covariance", table.html(), note(said))


def _spectrum(name: str, key: str, spectrum: Mapping[str, Any]) -> Row:
    condition = as_number(spectrum.get("condition"))
    shown = [_power(condition) if condition is not None else "singular", count(as_number(spectrum.get("rank")))]
    shown += [three_digits(as_number(spectrum.get(figure))) for figure in ("effective_rank", "participation")]
    words = join([SOURCES.get(name, name), tag("span", f" {key} shrinkage", class_="minor")])
    return Row(Cell(words), tuple(Cell(word, kind="number") for word in shown))


def _left_out(shapes: Mapping[str, Any]) -> Html | None:
    parts = [
        (
            as_number(shapes.get("constant")),
            "coordinate of a class does not vary",
            "coordinates of a class do not vary",
        ),
        (as_number(shapes.get("lost")), "lost its digits in the sums", "lost their digits in the sums"),
        (as_number(shapes.get("too_few")), "class has fewer than four samples", "classes have fewer than four samples"),
    ]
    words = [count(number, one, several) for number, one, several in parts if number]
    if not words:
        return None
    return note(f"Left out of skewness and kurtosis: {list_of(words)}.")


def _unknown(unknown: Sequence[Any], command: Any) -> Html | None:
    known = [each for each in map(mapping, unknown) if each.get("what") and each.get("why")]
    if not known:
        return None
    shown = bullets([f"{each['what']}: {each['why']}" for each in known])
    words = note("To know everything, let every client run ", tag("code", str(command))) if command else None
    return tag("div", tag("h3", "Not known"), shown, words, class_="below")


#: Columns of the table of classes: key, title.
COLUMNS = (
    ("samples", "Samples"),
    ("held_by", "Means"),
    ("singles", "Single"),
    ("skewness_median", "|skewness|"),
    ("kurtosis_median", "|kurtosis|"),
    ("bias", "Bias"),
    ("distance", "Distance"),
)


def _all_classes(results: Results, classes: Mapping[str, Any]) -> Html | None:
    columns = {key: items(classes.get(key)) for key, _ in COLUMNS if items(classes.get(key))}
    number = max((len(column) for column in columns.values()), default=0)
    if not number:
        return None
    nearest = items(classes.get("nearest"))
    titles = [Column("Class"), *(Column(title, number=True) for key, title in COLUMNS if key in columns)]
    titles += [Column("Nearest class")] if nearest else []
    rows = [_class(results, columns, nearest, label) for label in range(min(number, MOST_LISTED))]
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


def _class(results: Results, columns: Mapping[str, Sequence[Any]], nearest: Sequence[Any], label: int) -> Row:
    cells = []
    for key, column in columns.items():
        value = as_number(column[label]) if label < len(column) else None
        words = _bias(value) if key == "bias" and value is not None else three_digits(value)
        cells.append(number_cell(value, words))
    if nearest:
        other = as_number(nearest[label]) if label < len(nearest) else None
        name = "–" if other is None else shorten(results.class_name(int(other)), MOST_LETTERS)
        cells.append(Cell(name, kind="minor nowrap", dir="auto"))
    return Row(Cell(shorten(results.class_name(label), MOST_LETTERS), dir="auto"), tuple(cells))


def _power(value: float) -> str:
    """Return a condition number: powers of ten where it is large."""
    return f"{value:,.0f}" if value < 1e7 else f"{value:.1e}".replace("e+", "e").replace("e0", "e")
