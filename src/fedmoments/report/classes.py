"""Per-class accuracy, worst first, and the confusion pairs that hurt most."""

import numpy as np

from fedmoments.report.answer import first_detail
from fedmoments.report.axes import svg
from fedmoments.report.choosing import chooser, panels
from fedmoments.report.details import Detail
from fedmoments.report.formats import count, percent
from fedmoments.report.markup import Html, Node, breakable, join, tag
from fedmoments.report.reading import Results
from fedmoments.report.table import bar

__all__ = ["classes_section"]

#: Classes and pairs in view, classes in the list that unfolds, and classes that a whole matrix is shown for.
MOST_WORST, MOST_PAIRS, MOST_LISTED, MOST_MATRIX = 10, 10, 120, 12


def classes_section(results: Results) -> Html | None:
    """Return the section, or None when no head has a confusion table."""
    details = [detail for detail in results.details if detail.table is not None]
    if not details:
        return None
    chosen = first_detail(results, details)
    options = [(detail.key, detail.words) for detail in details]
    return join(
        [
            chooser("head", "Head", options, chosen),
            panels("head", [(detail.key, _panel(results, detail)) for detail in details], chosen),
        ]
    )


def _panel(results: Results, detail: Detail) -> Html:
    known = np.flatnonzero(~np.isnan(detail.accuracies))
    order = known[np.argsort(detail.accuracies[known], kind="stable")].tolist()
    pairs = detail.confusions(MOST_PAIRS)
    wrong = int(detail.tested.sum() - sum(np.diagonal(detail.table).tolist())) if detail.table is not None else 0
    shown = order[: min(MOST_WORST, len(order))]
    return join(
        [
            tag("p", _summary(detail, order, wrong), class_="lead"),
            _strip(detail, order),
            tag(
                "div",
                tag(
                    "div",
                    tag("h3", "Worst classes" if len(order) > len(shown) else "Classes, worst first"),
                    _class_list(results, detail, shown),
                ),
                tag("div", tag("h3", "Confusions that hurt most"), _pair_list(results, detail, pairs, wrong)),
                class_="columns",
            ),
            _matrix(results, detail),
            _all(results, detail, order) if len(order) > len(shown) else None,
        ]
    )


def _summary(detail: Detail, order: list[int], wrong: int) -> Html:
    total = int(detail.tested.sum())
    seed = f" (seed {detail.seed})" if detail.seed is not None else ""
    if not order:
        return join([tag("b", detail.head), ": no class was tested."])
    perfect = int((detail.accuracies[order] == 1).sum())
    worst, best = (percent(float(detail.accuracies[order[end]])) for end in (0, -1))
    words = (
        f"{seed} gets {count(wrong)} of {count(total, 'test sample')} wrong; classes range from {worst} to {best}, "
        f"half of them at {percent(float(np.median(detail.accuracies[order])))} or better"
    )
    return join([tag("b", detail.head), words, f", and {count(perfect)} without an error." if perfect else "."])


def _strip(detail: Detail, order: list[int]) -> Html | None:
    """Return all classes at a glance: a histogram of their accuracies."""
    if len(order) < 12:
        return None
    counts, _ = np.histogram(detail.accuracies[order], bins=20, range=(0.0, 1.0))
    width, height, top = 348.0, 74.0, 14.0
    step = width / 20
    tallest = max(int(counts.max()), 1)
    drawn: list[Node] = []
    for i, number in enumerate(counts.tolist()):
        size = number / tallest * (height - top - 22)
        drawn.append(
            tag(
                "g",
                tag("title", f"{count(number, 'class', 'classes')} between {i * 5} and {i * 5 + 5} %"),
                tag("rect", x=i * step + 1, y=height - 20 - size, width=step - 2, height=size, class_="margin"),
                tag(
                    "text",
                    str(number) if number else "",
                    x=(i + 0.5) * step,
                    y=height - 24 - size,
                    text_anchor="middle",
                    class_="tiny",
                ),
                class_="point",
            )
        )
    drawn.append(tag("line", x1=0.0, x2=width, y1=height - 20, y2=height - 20, class_="axis"))
    drawn += [
        tag(
            "text",
            f"{share}",
            x=share / 100 * width,
            y=height - 5,
            class_="tick",
            text_anchor={0: "start", 100: "end"}.get(share, "middle"),
        )
        for share in (0, 25, 50, 75, 100)
    ]
    title = f"How many classes have which accuracy, {detail.words}"
    return tag("figure", svg(width, height, title, *drawn), tag("figcaption", "classes by accuracy, %"), class_="strip")


def _class_list(results: Results, detail: Detail, labels: list[int]) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", breakable(results.class_name(label)), scope="row", dir="auto", class_="name"),
            tag("td", bar(float(detail.accuracies[label])), class_="bars"),
            tag("td", percent(float(detail.accuracies[label]), 0), class_="number"),
            tag("td", count(int(detail.tested[label])), class_="number minor"),
        )
        for label in labels
    ]
    return _list(f"Accuracy of classes, {detail.words}", ("class", "", "accuracy", "tested"), rows)


def _list(caption: str, columns: tuple[str, ...], rows: list[Html]) -> Html:
    heads = [tag("th", title, scope="col", class_="number" if place else None) for place, title in enumerate(columns)]
    return tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        class_="list",
    )


def _pair_list(results: Results, detail: Detail, pairs: list[tuple[int, int, int]], wrong: int) -> Html:
    if not pairs:
        return tag("p", "Every test sample was classified correctly.", class_="note")
    rows = [
        tag(
            "tr",
            tag(
                "th",
                tag("span", breakable(results.class_name(true)), dir="auto"),
                " ",
                tag("span", "taken for ", class_="minor nowrap"),
                tag("span", breakable(results.class_name(found)), dir="auto"),
                scope="row",
                class_="name",
            ),
            tag("td", tag("b", count(number)), class_="number"),
            tag("td", percent(number / max(int(detail.tested[true]), 1), 0), class_="number minor"),
        )
        for true, found, number in pairs
    ]
    share = sum(number for _, _, number in pairs) / max(wrong, 1)
    return join(
        [
            _list(f"Confusions, {detail.words}", ("pair", "samples", "of its class"), rows),
            tag("p", f"Together {percent(share, 0)} of all errors.", class_="note"),
        ]
    )


def _matrix(results: Results, detail: Detail) -> Html | None:
    """Return the whole confusion matrix when it is small."""
    if detail.table is None or len(detail.table) > MOST_MATRIX:
        return None
    names = [results.class_name(label) for label in range(len(detail.table))]
    head = tag(
        "tr", tag("td", "true ↓ predicted →", class_="minor"), *(tag("th", tag("span", n), scope="col") for n in names)
    )
    rows = []
    for label, counts in enumerate(detail.table.tolist()):
        shares = [number / max(int(detail.tested[label]), 1) for number in counts]
        cells = [
            tag(
                "td",
                count(number) if number else "·",
                style=f"--share:{share if label == found else min(3 * share, 1.0):.3f}",
                class_="right" if label == found else "wrong",
            )
            for found, (number, share) in enumerate(zip(counts, shares, strict=True))
        ]
        rows.append(tag("tr", tag("th", names[label], scope="row", dir="auto"), *cells))
    caption = f"Confusion matrix, {detail.words}"
    made = tag(
        "table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", *rows), class_="matrix"
    )
    region = tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", tag("h3", "Confusion matrix"), region, class_="below")


def _all(results: Results, detail: Detail, order: list[int]) -> Html:
    listed = order[:MOST_LISTED]
    words = f"All {count(len(order))} classes" if len(listed) == len(order) else f"The {len(listed)} worst classes"
    return tag("details", tag("summary", words), tag("div", _class_list(results, detail, listed), class_="flow"))
