"""One page and one Markdown file of several reproduced tables and figures, and of each claim over all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.pages.formats import count, plain_words, sentences
from fedmoments.pages.plain import mapping
from fedmoments.pages.shell import Page, Top
from fedmoments.study.papers.overview import claims_by_data, data_label, folder_of
from fedmoments.study.papers.pages.answer import claim_counts, claim_figures, is_ours, verdict_counts
from fedmoments.study.papers.pages.markdown import markdown_table
from fedmoments.study.papers.pages.page import BRAND, STYLES
from fedmoments.study.papers.pages.sides import sides_markdown
from fedmoments.study.papers.pages.words import CLAIM_MARKS, MARKS

__all__ = ["INDEX", "Documents", "claim_verdict", "claims_by_id", "counts_words", "index_summary", "render_index"]

Documents = Sequence[Mapping[str, Any]]
#: The page of several documents.
INDEX: Page[Documents] = Page(
    BRAND, "fedmoments.study.papers.pages.index_sections", "fedmoments.index_sections", STYLES
)


def claims_by_id(documents: Documents) -> dict[str, list[dict[str, Any]]]:
    """Return each claim with all experiments that bear on it, and what they found on each data set.

    Returns
    -------
    dict
        Id -> rows of :func:`~fedmoments.study.papers.overview.claims_by_data`; ids in the order in which they are met.
    """
    rows_by_id: dict[str, list[dict[str, Any]]] = {}
    for row in claims_by_data(documents):
        rows_by_id.setdefault(row["id"], []).append(row)
    return rows_by_id


def claim_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what all tested experiments say of a claim together, on all data."""
    verdicts = {str(claim.get("verdict")) for row in rows for _, claim in row["found"].values()}
    decided = verdicts - {"not tested", "did not train", "unclear"}
    if not decided:
        return "unclear" if "unclear" in verdicts else "not tested"
    return decided.pop() if len(decided) == 1 else "in part"


def counts_words(counts: Mapping[str, int], marks: Mapping[str, str]) -> str:
    """Return how many there are of each verdict."""
    return ", ".join(f"{marks.get(name, '')} {number} {name}".strip() for name, number in counts.items()) or "–"


def _title(documents: Documents) -> str:
    names = {str(mapping(document.get("experiment")).get("name")) for document in documents}
    return f"{count(len(names), 'table or figure', 'tables and figures')} of the papers, reproduced"


def _answer(documents: Documents) -> str:
    verdicts = [claim_verdict(rows) for rows in claims_by_id(documents).values()]
    held = verdicts.count("holds")
    claims = f"{held} of {count(len(verdicts), 'claim')} {'holds' if held == 1 else 'hold'} everywhere tested."
    return sentences(_free(documents), claims if verdicts else "")


def _free(documents: Documents) -> str:
    """Return how many numbers that need no data agree with the papers'."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(verdict_counts(document) if document.get("mode") == "computed" else {})
    wrong = counts["misprint"]
    derived, odd = counts["as derived"], counts["unexplained"]
    some = f", {derived} with its formulas worked out" if derived else ""
    some += f", {odd} {'is' if odd == 1 else 'are'} near a number that no formula explains" if odd else ""
    some += f", {wrong} {'is a misprint' if wrong == 1 else 'are misprints'}" if wrong else ""
    numbers = (
        f"Of {count(counts.total(), 'number')} that need no data, {counts['agrees']} agree with the paper’s{some}."
    )
    return numbers if counts.total() else ""


def render_index(documents: Documents) -> str:
    """Return a page that links to those of the experiments, which lie in folders beside it.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> 'href="no-data/fedcof-table1/report.html"' in render_index([{"experiment": experiment, "mode": "computed"}])
    True
    """
    version = next((str(document["version"]) for document in documents if document.get("version")), "")
    top = Top("fedmoments: papers, reproduced", _title(documents), _answer(documents))
    return INDEX.render(documents, top, version=version)


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
        experiment = mapping(document.get("experiment"))
        name = str(experiment.get("name", ""))
        link = f"[{plain_words(name)}]({folder_of(document)}/summary.md)"
        title = f"{experiment.get('source')}: {experiment.get('title')}"
        numbers = counts_words(verdict_counts(document), MARKS)
        claims = counts_words(claim_counts(document), CLAIM_MARKS)
        rows.append([link, *map(plain_words, (data_label(document), title, numbers, claims))])
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
            text = "" if claim is None else f"{CLAIM_MARKS.get(str(claim['verdict']), '')} {claim_figures(claim)}"
            cells.append(plain_words("–" if claim is not None and claim["verdict"] == "not tested" else text))
        text = f"{'ours: ' if is_ours(row) else ''}{row['text']}"
        table.append([plain_words(text), plain_words(row["experiment"]), *cells])
    heads = ["what the paper says", "where", *map(plain_words, labels)]
    return markdown_table(heads, table) if rows else ""
