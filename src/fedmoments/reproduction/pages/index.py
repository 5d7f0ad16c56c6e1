"""One page and one Markdown file of several reproduced tables and figures, and of each claim over all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.report.formats import count
from fedmoments.report.markup import Html, breakable, join, tag
from fedmoments.report.plain import mapping
from fedmoments.reproduction.overview import claims_by_data, data_label, folder_of
from fedmoments.reproduction.pages.answer import answer, claim_counts, claim_figures, is_ours, verdict_counts
from fedmoments.reproduction.pages.markdown import markdown_table, plain_words
from fedmoments.reproduction.pages.page import verdict_class
from fedmoments.reproduction.pages.shell import shell
from fedmoments.reproduction.pages.sides import sides_markdown, sides_section
from fedmoments.reproduction.pages.words import CLAIM_MARKS, MARKS

__all__ = ["claims_by_id", "index_summary", "render_index"]

Documents = Sequence[Mapping[str, Any]]


def claims_by_id(documents: Documents) -> dict[str, list[dict[str, Any]]]:
    """Return each claim with all experiments that bear on it, and what they found on each data set.

    Returns
    -------
    dict
        Id -> rows of :func:`~fedmoments.reproduction.overview.claims_by_data`; ids in the order in which they are met.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in claims_by_data(documents):
        found.setdefault(row["id"], []).append(row)
    return found


def _verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what all tested experiments say of a claim together, on all data."""
    found = {str(claim.get("verdict")) for row in rows for _, claim in row["found"].values()}
    told = found - {"not tested", "unclear"}
    if not told:
        return "unclear" if "unclear" in found else "not tested"
    return told.pop() if len(told) == 1 else "in part"


def _counts(counts: Mapping[str, int], marks: Mapping[str, str]) -> str:
    return ", ".join(f"{marks.get(name, '')} {number} {name}".strip() for name, number in counts.items()) or "–"


def _lines(counts: str) -> Html:
    return join(counts.split(", "), "<br>")


def _title(documents: Documents) -> str:
    names = {str(mapping(document.get("experiment")).get("name")) for document in documents}
    return f"{count(len(names), 'table or figure', 'tables and figures')} of the papers, reproduced"


def _answer(documents: Documents) -> str:
    verdicts = [_verdict(rows) for rows in claims_by_id(documents).values()]
    free = [verdict_counts(each) for each in documents if each.get("mode") == "computed"]
    agreed, wrong = (sum(each.get(name, 0) for each in free) for name in ("agrees", "misprint"))
    total = sum(sum(each.values()) for each in free)
    words = []
    if total:
        some = f", {wrong} are misprints" if wrong > 1 else ", 1 is a misprint" if wrong else ""
        words.append(f"Of {count(total, 'number')} that need no data, {agreed} agree with the paper’s{some}.")
    if verdicts:
        held = verdicts.count("holds")
        words.append(f"{held} of {count(len(verdicts), 'claim')} {'holds' if held == 1 else 'hold'} everywhere tested.")
    return " ".join(words)


def render_index(documents: Documents) -> str:
    """Return a page that links to those of the experiments, which lie in folders beside it.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> 'href="no-data/fedcof-table1/report.html"' in render_index([{"experiment": experiment, "mode": "computed"}])
    True
    """
    top = [tag("h1", _title(documents)), tag("p", _answer(documents), class_="answer")]
    sections = [
        ("experiments", "Experiments", "Tables and figures", _experiments(documents)),
        ("claims", "Claims", "Every claim, over all of them", _claims(documents)),
        ("sides", "Side by side", "Tables on all data, and the paper's range", sides_section(documents)),
    ]
    version = next((str(each["version"]) for each in documents if each.get("version")), "")
    return shell("fedmoments: papers, reproduced", top, sections, version=version)


def _experiments(documents: Documents) -> Html:
    heads = ("", "data", "what", "numbers", "claims")
    rows = []
    for document in documents:
        told = mapping(document.get("experiment"))
        name = str(told.get("name", ""))
        link = tag("a", breakable(name), href=f"{folder_of(document)}/report.html")
        about = [tag("b", f"{told.get('source')}: {told.get('title')}"), tag("br"), answer(document)]
        numbers, claims = verdict_counts(document), claim_counts(document)
        rows.append(
            tag(
                "tr",
                tag("th", link, scope="row"),
                tag("td", breakable(data_label(document))),
                tag("td", *about, class_="wordy"),
                tag("td", _lines(_counts(numbers, MARKS)), class_="count"),
                tag("td", _lines(_counts(claims, CLAIM_MARKS)), class_="count"),
            )
        )
    head = tag("tr", *(tag("th", word, scope="col") for word in heads))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="runs")
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Table, which may scroll")


def _claims(documents: Documents) -> Html | None:
    shown = []
    for name, rows in claims_by_id(documents).items():
        verdict = _verdict(rows)
        sign = tag("span", CLAIM_MARKS.get(verdict, ""), class_="sign", aria_hidden="true")
        texts = dict.fromkeys(row["text"] for row in rows)
        told = [tag("div", tag("p", text), _found(rows, text)) for text in texts]
        word = tag("span", sign, verdict, class_="word")
        about = tag("div", *told, tag("p", name, class_="id"))
        shown.append(tag("li", word, about, class_=verdict_class(verdict)))
    return join([tag("ul", *shown, class_="claims")]) if shown else None


def _found(rows: Sequence[Mapping[str, Any]], text: str) -> Html:
    """Return what was found of one wording of a claim, experiment by experiment and data by data."""
    listed = []
    for row in rows:
        if row["text"] != text:
            continue
        for label, (document, claim) in row["found"].items():
            mark = CLAIM_MARKS.get(str(claim.get("verdict")), "")
            link = tag("a", row["experiment"], href=f"{folder_of(document)}/report.html#claims")
            where = "" if document.get("mode") == "computed" else f" on {label}"
            listed.append(tag("li", f"{mark} {claim.get('verdict')}: ", claim_figures(claim), " – ", link, where))
    return tag("ul", *listed, class_="plain")


def index_summary(documents: Documents) -> str:
    """Return the same as a fragment of Markdown.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> print(index_summary([{"experiment": experiment, "mode": "computed"}]).splitlines()[0])
    # 1 table or figure of the papers, reproduced
    """
    rows = []
    for document in documents:
        told = mapping(document.get("experiment"))
        name = str(told.get("name", ""))
        link = f"[{plain_words(name)}]({folder_of(document)}/summary.md)"
        words = f"{told.get('source')}: {told.get('title')}"
        numbers, claims = _counts(verdict_counts(document), MARKS), _counts(claim_counts(document), CLAIM_MARKS)
        rows.append([link, *map(plain_words, (data_label(document), words, numbers, claims))])
    parts = [
        f"# {_title(documents)}",
        plain_words(_answer(documents)),
        markdown_table(["", "data", "what", "numbers", "claims"], rows),
        claims_matrix(documents),
        sides_markdown(documents),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def claims_matrix(documents: Documents) -> str:
    """Return all claims with a column for each data set, as a table of Markdown; nothing where there is no claim.

    Examples
    --------
    >>> claim = {"id": "a", "text": "A", "verdict": "holds", "pairs": []}
    >>> print(claims_matrix([{"data": None, "experiment": {"name": "fedcof/prop3"}, "claims": [claim]}]))
    | what the paper says | where | no data |
    | --- | --- | --- |
    | A | fedcof/prop3 | ✓ – |
    """
    rows = claims_by_data(documents)
    labels = list(dict.fromkeys(label for row in rows for label in row["found"]))
    table = []
    for row in rows:
        cells = []
        for label in labels:
            _, claim = row["found"].get(label, (None, None))
            words = "" if claim is None else f"{CLAIM_MARKS.get(str(claim['verdict']), '')} {claim_figures(claim)}"
            cells.append(plain_words("–" if claim is not None and claim["verdict"] == "not tested" else words))
        words = f"{'ours: ' if is_ours(row) else ''}{row['text']}"
        table.append([plain_words(words), plain_words(row["experiment"]), *cells])
    heads = ["what the paper says", "where", *map(plain_words, labels)]
    return markdown_table(heads, table) if rows else ""
