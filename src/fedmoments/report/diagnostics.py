"""Do the assumptions of Gaussian heads hold? What deserves a second look, figures, and every class."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.report.diagnostic_charts import fisher_figures, holders_figure, tail_figure
from fedmoments.report.formats import count, list_of, percent, shorten, split_words
from fedmoments.report.markup import Html, Node, breakable, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results
from fedmoments.report.table import sortable

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
    who = f"With {count(clients, 'client')}" if clients else "In these statistics"
    who += f" ({split_words(found['split'])})" if clients and found.get("split") else ""
    return join([who, ", do the assumptions of Gaussian heads hold?"])


def diagnosis_answer(results: Results) -> Html:
    """Return the answer in a few sentences."""
    found = mapping(results.raw.get("diagnostics"))
    parts = [_shape(found), _directions(found), _means(found)]
    number = len(items(found.get("cautions")))
    look = f"{count(number, 'thing deserves', 'things deserve')} a second look." if number else None
    return join([part for part in (*parts, look) if part], " ")


def diagnostics_section(results: Results) -> Html | None:
    """Return the section, or None when nothing was diagnosed."""
    found = mapping(results.raw.get("diagnostics"))
    if found.get("reason"):
        return tag("p", f"Not diagnosed: {found['reason']}.", class_="note")
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
    charts += [chart for chart in (held, table) if chart is not None]
    return join(
        [
            None if is_diagnosis(results) else tag("p", diagnosis_answer(results), class_="lead"),
            _cautions(results, items(found.get("cautions"))),
            tag("div", *(tag("div", chart, class_="facet") for chart in charts), class_="facets") if charts else None,
            _left_out(shapes),
            _unknown(items(found.get("unknown")), found.get("measure")),
            _all_classes(results, mapping(found.get("classes"))),
        ]
    )


# ---------------------------------------------------------------------------------------------- in a sentence


def _shape(found: Mapping[str, Any]) -> Html | None:
    shapes = mapping(found.get("gaussianity"))
    skew, kurt = mapping(shapes.get("skewness")), mapping(shapes.get("kurtosis"))
    medians = as_number(kurt.get("median")), as_number(skew.get("median"))
    means = as_number(skew.get("mean")), as_number(kurt.get("mean"))
    if medians[0] is None or medians[1] is None or means[0] is None or means[1] is None:
        return None
    near = medians[0] <= NEAR[0] and medians[1] <= NEAR[1]
    far = medians[0] > FAR[0] or medians[1] > FAR[1]
    word = "close to Gaussian" if near else "far from Gaussian" if far else "moderately far from Gaussian"
    by_chance = as_number(skew.get("by_chance")), as_number(kurt.get("by_chance"))
    chance = ""
    if by_chance[0] is not None and by_chance[1] is not None:
        chance = f" (Gaussian samples would show {by_chance[0]:.2g} and {by_chance[1]:.2g})"
    figures = f": mean |skewness| {means[0]:.3g}, mean |excess kurtosis| {means[1]:.3g}{chance}."
    return join(["Inside a class, coordinates are ", tag("strong", word), figures])


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


def _cautions(results: Results, cautions: Sequence[Any]) -> Html:
    rows = [_caution(results, mapping(each)) for each in cautions]
    if not rows:
        return tag("p", "Nothing that was looked at gives a reason to worry.", class_="note")
    heads = tag("tr", *(tag("th", title, scope="col") for title in ("Worth a second look", "What to do")))
    caption = "What deserves a second look, and what to do about it"
    made = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", heads),
        tag("tbody", *rows),
        class_="list cautions",
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _caution(results: Results, caution: Mapping[str, Any]) -> Html:
    kind = str(caution.get("kind") or "")
    labels = [as_number(label) for label in items(caution.get("classes"))]
    figures = [as_number(figure) for figure in items(caution.get("figures"))]
    others = [as_number(label) for label in items(caution.get("partners"))]
    words = []
    for place, label in enumerate(labels[:MOST_NAMED]):
        if label is None:
            continue
        name = results.class_name(int(label))
        other = others[place] if place < len(others) else None
        name += f" and {results.class_name(int(other))}" if other is not None else ""
        figure = _figure(kind, figures[place] if place < len(figures) else None)
        words.append(f"{name} ({figure})" if figure else name)
    more = len(labels) - len(words)
    listed = list_of([*words, f"{more:,} more"] if more > 0 else words, MOST_NAMED + 1)
    named = tag("div", breakable(listed), class_="minor", dir="auto") if words else None
    return tag(
        "tr",
        tag("th", str(caution.get("what") or ""), named, scope="row", class_="name"),
        tag("td", _unbroken(str(caution.get("advice") or ""))),
    )


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
    return _short(value) if kind in ("heavy-tails", "near-duplicates") else count(value)


def _bias(value: float) -> str:
    if value >= 1.0:
        return f"{1 + value:,.3g} times"
    sign = "" if abs(value) < 0.005 else "+" if value > 0 else "−"
    return f"{sign}{percent(abs(value), 0)}"


def _spectra(spectra: Mapping[str, Any]) -> Html | None:
    rows = []
    for name, spectrum in spectra.items():
        for key in ("before", "after"):
            one = mapping(mapping(spectrum).get(key))
            rank = as_number(one.get("rank"))
            if rank is None:
                continue
            condition = as_number(one.get("condition"))
            shown = [_power(condition) if condition is not None else "singular", count(rank)]
            shown += [_short(as_number(one.get(figure))) for figure in ("effective_rank", "participation")]
            words = join([SOURCES.get(name, name), tag("span", f" {key} shrinkage", class_="minor")])
            rows.append(tag("tr", tag("th", words, scope="row"), *(tag("td", word, class_="number") for word in shown)))
    if not rows:
        return None
    titles = ("covariance", "condition", "rank", "effective", "tr²/tr(Σ²)")
    heads = [tag("th", title, scope="col", class_="number" if place else None) for place, title in enumerate(titles)]
    caption = "Conditioning of the pooled covariances"
    made = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        class_="list",
    )
    note = "Condition: largest over smallest eigenvalue. Effective rank: the exponential of the eigenvalues’ entropy."
    region = tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return join([tag("h3", "Pooled covariance"), region, tag("p", note, class_="note")])


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
    return tag("p", f"Left out of skewness and kurtosis: {list_of(words)}.", class_="note")


def _unknown(unknown: Sequence[Any], command: Any) -> Html | None:
    shown = [
        tag("li", f"{each.get('what')}: {each.get('why')}")
        for each in map(mapping, unknown)
        if each.get("what") and each.get("why")
    ]
    if not shown:
        return None
    words = tag("p", "To know everything, let every client run ", tag("code", str(command)), class_="note")
    return tag(
        "div", tag("h3", "Not known"), tag("ul", *shown, class_="plain"), words if command else None, class_="below"
    )


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
    titles = [("Class", False), *((title, True) for key, title in COLUMNS if key in columns)]
    titles += [("Nearest class", False)] if nearest else []
    rows = []
    for label in range(min(number, MOST_LISTED)):
        cells: list[Node] = [tag("th", shorten(results.class_name(label), MOST_LETTERS), scope="row", dir="auto")]
        for key, column in columns.items():
            value = as_number(column[label]) if label < len(column) else None
            shown = "–" if value is None else _bias(value) if key == "bias" else _short(value)
            cells.append(tag("td", shown, data_value="" if value is None else f"{value:.6g}", class_="number"))
        if nearest:
            other = as_number(nearest[label]) if label < len(nearest) else None
            name = "–" if other is None else shorten(results.class_name(int(other)), MOST_LETTERS)
            cells.append(tag("td", name, class_="minor nowrap", dir="auto"))
        rows.append(tag("tr", *cells))
    words = (
        f"All {count(number)} classes"
        if number <= MOST_LISTED
        else f"The first {MOST_LISTED} of {count(number)} classes"
    )
    note = (
        "Means: of clients that hold the class (K_c); single: those of one sample. |skewness| and |excess kurtosis|: "
        "medians over dimensions. Bias: trace of the free covariance against the exact one. Distance to the nearest "
        "class: in units of the spread inside classes, the noise of the means taken off."
    )
    return tag(
        "details",
        tag("summary", words),
        sortable("Diagnostics of every class", titles, rows),
        tag("p", note, class_="note"),
    )


def _short(value: float | None) -> str:
    """Return a figure with three digits, whole from a thousand on."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _power(value: float) -> str:
    """Return a condition number: powers of ten where it is large."""
    return f"{value:,.0f}" if value < 1e7 else f"{value:.1e}".replace("e+", "e").replace("e0", "e")
