"""Rows and settings of a report in words: what tells them from one another.

Panels of which one is shown: a drop-down list chooses, here and in every section that has the same panels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedmoments.core.observations import Report, Row, Setting
from fedmoments.core.observations.parts import HeadDetail
from fedmoments.pages.formats import clients_words, count
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.settings.setting import SWEPT

__all__ = [
    "PAYLOAD",
    "Panel",
    "chooser",
    "group_words",
    "is_drawn",
    "label_of",
    "methods_of",
    "name_of",
    "panels",
    "panels_of",
    "parties_words",
    "place_of",
    "rival_words",
    "setting_words",
]


def chooser(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> Html | None:
    """Return a drop-down list of (key, words), or None when there is nothing to choose."""
    if len(options) < 2:
        return None
    return tag(
        "label",
        tag("span", label),
        tag(
            "select",
            *(tag("option", words, value=key, selected=key == chosen) for key, words in options),
            data_chooser=name,
        ),
        class_="chooser",
    )


def panels(name: str, contents: Sequence[tuple[str, Node]], chosen: str) -> Html:
    """Return all panels, each under its key; all but the chosen one are hidden."""
    return join(
        tag("div", content, class_="panel", data_panel=name, data_key=key, hidden=key != chosen)
        for key, content in contents
    )


#: Parts of a setting that change what is sent and nothing else: what they buy is seen in one figure.
PAYLOAD = tuple(key for key, part in SWEPT.items() if part.payload)


def is_drawn(row: Row) -> bool:
    """Say whether a row has both coordinates of accuracy against bytes."""
    return row.accuracy is not None and row.up_bytes_per_client > 0


def place_of(row: Row) -> tuple[float, float]:
    """Return bytes per client and accuracy of a row that is drawn."""
    return row.up_bytes_per_client, row.accuracy or 0.0


def methods_of(rows: Sequence[Row]) -> str:
    """Return how many different heads and baselines rows have, in words."""
    heads = len({row.head for row in rows if not row.baseline})
    baselines = len({row.head for row in rows if row.baseline})
    return count(heads, "head") + (f" and {count(baselines, 'baseline')}" if baselines else "")


def label_of(report: Report, row: Row) -> str:
    """Return a row's name, with its dimensions where those are swept."""
    named = "projection" in report.swept and row.setting.projection is not None
    return f"{name_of(report, row)} {row.setting.projection}" if named else name_of(report, row)


def name_of(report: Report, row: Row) -> str:
    """Return a row's head, with its budget where those are swept and change what it sends."""
    named = "budget" in report.swept and row.setting.budget is not None and not _is_idle(report, row)
    return f"{row.head} {row.setting.budget}" if named else row.head


def _is_idle(report: Report, row: Row) -> bool:
    """Say whether a head sends the same under several budgets."""
    wanted = (row.head, replace(row.setting, budget=None))
    same = [other for other in report.rows if (other.head, replace(other.setting, budget=None)) == wanted]
    return len(same) > 1 and len({other.up_bytes_per_client for other in same}) == 1


def setting_words(report: Report, setting: Setting) -> str:
    """Return what tells a setting from the others."""
    return setting.spelled(report.swept)


def rival_words(report: Report, setting: Setting) -> str:
    """Return what tells a setting from the others, whatever its budget."""
    return setting.spelled([key for key in report.swept if key != "budget"])


def group_words(report: Report, setting: Setting) -> str:
    """Return what tells a setting from the others, whatever it spends."""
    return setting.spelled([key for key in report.swept if key not in PAYLOAD])


def parties_words(report: Report, setting: Setting) -> str:
    """Return how many clients there are and how they were split."""
    return clients_words(report.clients_of(setting), setting.split, "the clients in the data")


@dataclass(frozen=True, eq=False)
class Panel:
    """A detail under the key by which a page shows it, and the words by which it is chosen."""

    key: str
    words: str
    detail: HeadDetail


def panels_of(report: Report) -> list[Panel]:
    """Return a panel for every detail; seeds tell those apart that have the same words."""
    settings = {row.detail: row.setting for row in report.rows if row.detail is not None}
    panels = []
    for number, detail in enumerate(report.details):
        where = setting_words(report, settings[number]) if number in settings else ""
        panels.append(Panel(f"d{number}", f"{detail.head} – {where}" if where else detail.head, detail))
    if len({panel.words for panel in panels}) == len(panels):
        return panels
    return [replace(panel, words=f"{panel.words}, seed {panel.detail.seed}") for panel in panels]
