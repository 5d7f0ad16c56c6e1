"""Results as the page needs them: rows as they were measured, and what tells their settings apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedmoments.core.observations import Row, Setting
from fedmoments.errors import InputError
from fedmoments.pages.budget_reading import BudgetCurves, read_budget_curves
from fedmoments.pages.details import Detail, read_details
from fedmoments.pages.formats import clients_words, count, split_words
from fedmoments.pages.plain import as_number, mapping
from fedmoments.pages.tuning_reading import Tuning, read_tuning

__all__ = [
    "PAYLOAD",
    "SWEPT",
    "Results",
    "is_drawn",
    "methods_of",
    "place_of",
    "read_results",
    "setting_spelled",
    "setting_word",
]

#: The format of results that this release draws.
FORMAT = 1


def setting_word(setting: Setting, key: str) -> str:
    """Return the value of one part of a setting, as one says it."""
    value = getattr(setting, key)
    if value is None:
        words = {"clients": "as in the data", "shrinkage": "each head’s own", "projection": "full"}
        words |= {"budget": "none", "epsilon": "∞", "privacy": "none"}
        return words.get(key, "–")
    if key == "epsilon":
        return f"{value:g}"
    return split_words(value) if key == "split" else str(value)


def setting_spelled(setting: Setting, key: str) -> str:
    """Return one part of a setting with its name.

    Examples
    --------
    >>> setting = Setting(100, "dirichlet:0.1", 2, "0.5", 64, "means/2")
    >>> [setting_spelled(setting, key) for key in SWEPT]
    ['100 clients', 'Dirichlet 0.1', '2 means per client', 'shrinkage 0.5', '64 dimensions', 'budget means/2',
     'ε = ∞', 'protection none']
    """
    value, word = getattr(setting, key), setting_word(setting, key)
    if key == "clients" and value is not None:
        return count(value, "client")
    if key == "means_per_client":
        return f"{count(value, 'mean')} per client"
    if key == "projection":
        return "all dimensions" if value is None else count(value, "dimension")
    if key == "budget" and value is None:
        return "no budget"
    if key == "epsilon":
        return f"ε = {word}"
    return word if key == "split" else f"{SWEPT[key]} {word}"


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


#: Parts of a setting that change what is sent and nothing else: what they buy is seen in one figure.
PAYLOAD = ("projection", "budget")
#: Parts of a setting, and their names on the page.
SWEPT = {
    "clients": "clients",
    "split": "split",
    "means_per_client": "means per client",
    "shrinkage": "shrinkage",
    "projection": "projection",
    "budget": "budget",
    "epsilon": "ε",
    "privacy": "protection",
}


@dataclass(frozen=True)
class Results:
    """All of it: ``raw`` for what is shown as it is, rows and settings for what is computed with."""

    raw: Mapping[str, Any]
    rows: tuple[Row, ...] = ()

    @property
    def data(self) -> Mapping[str, Any]:
        """What was measured on."""
        return mapping(self.raw.get("data"))

    @property
    def is_federation(self) -> bool:
        """Whether these are the results of a federation that ran: one upload for all heads, once."""
        return bool(mapping(self.raw.get("federation")))

    @property
    def n_classes(self) -> int:
        """Number of classes, 0 if unknown."""
        return int(as_number(self.data.get("classes")) or 0)

    @property
    def dim(self) -> float | None:
        """Dimension of the features, None if unknown."""
        return as_number(self.data.get("dim"))

    @property
    def seeds(self) -> int:
        """Number of seeds, 1 if unknown."""
        return int(as_number(self.raw.get("seeds")) or 1)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting once."""
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    @cached_property
    def swept(self) -> tuple[str, ...]:
        """Parts of a setting that take several values."""
        return tuple(key for key in SWEPT if len({getattr(setting, key) for setting in self.settings}) > 1)

    def rows_of(self, setting: Setting) -> tuple[Row, ...]:
        """Return the rows of a setting."""
        return tuple(row for row in self.rows if row.setting == setting)

    def rivals_of(self, setting: Setting) -> tuple[Row, ...]:
        """Return the rows of a setting under any budget: heads without one compete with those that have several."""
        wanted = replace(setting, budget=None)
        return tuple(row for row in self.rows if replace(row.setting, budget=None) == wanted)

    @cached_property
    def groups(self) -> dict[Setting, tuple[Row, ...]]:
        """Rows of settings that differ in projection and budget alone: what bytes buy is seen among them."""
        found: dict[Setting, list[Row]] = {}
        for row in self.rows:
            found.setdefault(self.group_of(row.setting), []).append(row)
        return {setting: tuple(rows) for setting, rows in found.items()}

    @staticmethod
    def group_of(setting: Setting) -> Setting:
        """Return a setting without what it spends: the key of its group."""
        return replace(setting, projection=None, budget=None)

    def label(self, row: Row) -> str:
        """Return a row's name, with its dimensions where those are swept."""
        swept = "projection" in self.swept and row.setting.projection is not None
        return f"{self.name(row)} {row.setting.projection}" if swept else self.name(row)

    def name(self, row: Row) -> str:
        """Return a row's head, with its budget where those are swept and change what it sends."""
        said = "budget" in self.swept and row.setting.budget is not None and not self._idle(row)
        return f"{row.head} {row.setting.budget}" if said else row.head

    def _idle(self, row: Row) -> bool:
        """Whether a head sends the same under several budgets."""
        same = [
            other
            for other in self.rows
            if (other.head, replace(other.setting, budget=None)) == (row.head, replace(row.setting, budget=None))
        ]
        return len(same) > 1 and len({other.up_bytes_per_client for other in same}) == 1

    @cached_property
    def main_setting(self) -> Setting:
        """The setting that the page answers for: the first of those in which most heads could be fitted."""
        fitted = {s: sum(row.accuracy is not None for row in self.rows_of(s)) for s in self.settings}
        return max(fitted, key=lambda s: fitted[s], default=Setting())

    @cached_property
    def details(self) -> tuple[Detail, ...]:
        """What single heads got wrong, and how sure they were."""
        settings = {row.detail: row.setting for row in self.rows if row.detail is not None}
        return read_details(self.raw.get("details"), lambda n: self.setting_words(settings[n]) if n in settings else "")

    @cached_property
    def budget(self) -> BudgetCurves:
        """Accuracy against bytes under budgets, without curves if none was swept."""
        return read_budget_curves(self.raw)

    @cached_property
    def tuning(self) -> Tuning:
        """Runs of tuning, none if nothing was tuned."""
        return read_tuning(self.raw)

    def class_name(self, label: int) -> str:
        """Return the name of a class, its number if it has none."""
        names = self.data.get("class_names") or ()
        return str(names[label]) if 0 <= label < len(names) else f"class {label}"

    def setting_words(self, setting: Setting) -> str:
        """Return what tells a setting from the others."""
        return ", ".join(setting_spelled(setting, key) for key in self.swept)

    def rival_words(self, setting: Setting) -> str:
        """Return what tells a setting from the others, whatever its budget."""
        return ", ".join(setting_spelled(setting, key) for key in self.swept if key != "budget")

    def group_words(self, setting: Setting) -> str:
        """Return what tells a setting from the others, whatever its projection and its budget."""
        return ", ".join(setting_spelled(setting, key) for key in self.swept if key not in PAYLOAD)

    def clients_of(self, setting: Setting) -> int | None:
        """Return how many clients there are, or else how many sent something; None if neither is known."""
        return setting.clients or next((row.outcomes[0].clients for row in self.rows_of(setting)), None) or None

    def clients_words(self, setting: Setting) -> str:
        """Return how many clients there are and how they were split."""
        return clients_words(self.clients_of(setting), setting.split, "the clients in the data")


def read_results(document: Mapping[str, Any]) -> Results:
    """Return a document that was read back from results.json, for drawing.

    Raises
    ------
    InputError
        When there is no list of rows, or the format is another one.
    FileFormatError
        When a row lacks something, or holds what does not belong there.

    Examples
    --------
    >>> read_results({"rows": [{"head": "fedncm", "accuracy": 0.5}]})
    Traceback (most recent call last):
    fedmoments.errors.FileFormatError: results.json holds a row without 'seeds', which its figures are of: ...
    """
    if not isinstance(mapping(document).get("rows"), list | tuple):
        raise InputError(
            "a report needs the results of a simulation, a mapping with the list 'rows' (as in results.json); a "
            f"{type(document).__name__} without it arrived"
        )
    number = document.get("format")
    if number not in (None, FORMAT):
        raise InputError(
            f"these results are of format {number!r}, but this release draws format {FORMAT}: run it again"
        )
    return Results(document, tuple(Row.from_dict(row, "results.json") for row in document["rows"]))
