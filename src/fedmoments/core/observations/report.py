"""Everything that a run found: what ``results.json`` holds, and what tables, frames and pages are made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.core.gaussian import CovarianceBias
from fedmoments.core.notebook import html_table, interval
from fedmoments.core.observations.budget import BudgetCurves
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.observations.federated import Examination, FederationEvents, PrivacyCard
from fedmoments.core.observations.observation import Observation
from fedmoments.core.observations.parts import (
    Data,
    Diagnosis,
    HeadDetail,
    Holders,
    RoundCurve,
    SplitReport,
    round_observations,
)
from fedmoments.core.observations.personal import Personal
from fedmoments.core.observations.results import DISCORDANT, Results
from fedmoments.core.observations.rows import BYTES_PER_NUMBER, Row, plain_moments
from fedmoments.core.observations.tuning import Tuning
from fedmoments.errors import InputError, reading
from fedmoments.files import write_whole
from fedmoments.settings.setting import SWEPT, Setting

__all__ = ["FORMAT", "Report", "Written", "read_report"]

#: The format of results that this release reads.
FORMAT = 2
#: Parts that a document always has; others are left out where there is nothing in them.
_ALWAYS = ("format", "version", "rows")


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What a simulation, a tuning, a diagnosis or a federation found; every part may be missing, or null in a file.

    Parameters
    ----------
    rows
        One for every setting and method.
    data, seeds, splits
        What was measured on, how many seeds every row has, and the sizes of every split.
    details, holders, bias, diagnosis, privacy, robust
        A closer look at the first setting and seed: heads, who holds what, the bias of the free covariance, whether
        assumptions hold, who learns what, and whom the server left out.
    rounds, budget_curve, tuning, personal
        Accuracy round by round, by bytes, while heads are tuned, and of clients' own classifiers.
    federation
        What happened in a federation that ran.
    config, command, version, created
        What was run.
    seconds, timings
        How long it took, and which part of it how long.
    bytes_per_number
        That bytes are counted with.

    Examples
    --------
    >>> report = Report(data=Data("toy"), seconds=0.5)
    >>> Report.from_dict(report.to_dict()).data.name, sorted(report.to_dict())
    ('toy', ['data', 'format', 'rows', 'seconds', 'version'])
    """

    rows: tuple[Row, ...] = ()
    data: Data = field(default_factory=Data)
    seeds: int = 1
    splits: tuple[SplitReport, ...] = ()
    details: tuple[HeadDetail, ...] = ()
    holders: Holders | None = None
    bias: CovarianceBias | None = None
    diagnosis: Diagnosis | None = None
    privacy: PrivacyCard | None = None
    robust: Examination | None = None
    rounds: tuple[RoundCurve, ...] = ()
    budget_curve: BudgetCurves | None = None
    tuning: Tuning | None = None
    personal: Personal | None = None
    federation: FederationEvents | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    version: str = fedmoments.__version__
    created: str = ""
    seconds: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    bytes_per_number: int = BYTES_PER_NUMBER
    format: int = FORMAT

    # ---------------------------------------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any]:
        """Return everything ready for JSON; parts with nothing in them are left out."""
        empty = Report()
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        kept = {name: part for name, part in parts.items() if name in _ALWAYS or part != getattr(empty, name)}
        return dict(to_plain(kept))

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write everything as a JSON file, which appears whole or not at all."""
        write_whole(path, f"{self.to_json()}\n".encode())

    @classmethod
    def from_dict(cls, plain: Any, whose: str = "results.json") -> Report:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            When there is no list of rows, or the format is another one.
        FileFormatError
            When a part lacks something, or holds what does not belong there.

        Examples
        --------
        >>> Report.from_dict({"rows": [{"head": "fedncm", "accuracy": 0.5}]})
        Traceback (most recent call last):
        fedmoments.errors.FileFormatError: results.json holds a row without 'seeds', which its figures are of: ...
        """
        if not isinstance(plain, Mapping) or not isinstance(plain.get("rows"), list | tuple):
            raise InputError(
                "a report needs the results of a run, a mapping with the list 'rows' (as in results.json); a "
                f"{type(plain).__name__} without it arrived"
            )
        number = plain.get("format")
        if number not in (None, FORMAT):
            raise InputError(
                f"these results are of format {number!r}, but this release reads format {FORMAT}: run it again"
            )
        return from_plain(cls, {name: part for name, part in plain.items() if part is not None}, whose)

    # ---------------------------------------------------------------------------------------------- observations

    @cached_property
    def results(self) -> Results:
        """Every observation: of the table, of pairs of methods, of rounds, budgets, tuning and personal heads."""
        return Results((*self._of_rows(), *self._of_pairs(), *self._of_curves()))

    def _of_rows(self) -> Iterator[Observation]:
        for row in self.rows:
            yield from row.observations

    def _of_pairs(self) -> Iterator[Observation]:
        """Yield for every pair of methods in a setting the test samples that one alone is right on."""
        for one, other in permutations(self.rows, 2):
            if replace(one.setting, budget=None) == replace(other.setting, budget=None):
                where = {"head": one.head, "against": other.head, **one.setting.to_dict()}
                seeds = tuple(outcome.seed for outcome in one.outcomes)
                yield Observation(where, one.only_right(other), DISCORDANT, None, seeds, "samples")

    def _of_curves(self) -> Iterator[Observation]:
        place = self.rows[0].setting.to_dict() if self.rows else {}
        yield from round_observations(self.rounds, place)
        for part in (self.budget_curve, self.tuning, *(self.personal.rows if self.personal else ())):
            yield from part.observations if part else ()

    # ---------------------------------------------------------------------------------------------- the table

    def __repr__(self) -> str:
        heads = dict.fromkeys(row.head for row in self.rows)
        shown = f"{', '.join(heads)} in {len(self.settings)} settings, {self.seeds} seeds" if heads else "no head"
        return f"Report({shown}{f', on {self.data.name}' if self.data.name else ''})"

    def _repr_html_(self) -> str:
        measured = [(row.accuracy, row.accuracy_std or 0.0) for row in self.rows if row.accuracy is not None]
        if not measured:
            return self.results._repr_html_()
        lowest, highest = min(mean - std for mean, std in measured), max(mean + std for mean, std in measured)
        lines = []
        for row in self.rows:
            place = [getattr(row.setting, key) for key in self.swept]
            costs = [f"{row.up_bytes_per_client:,.0f}", plain_moments(row.sends)]
            lines.append([row.head, *place, *_accuracy_cells(row, lowest, highest), *costs])
        columns = ["head", *self.swept, "accuracy", f"{lowest:.0%} to {highest:.0%}", "bytes per client"]
        return html_table("Accuracy, mean ± standard deviation over seeds", [*columns, "each client sends"], lines)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting of the table once."""
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
        """Rows of settings that differ in what they send alone: what bytes buy is seen among them."""
        groups: dict[Setting, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(self.group_of(row.setting), []).append(row)
        return {setting: tuple(rows) for setting, rows in groups.items()}

    @staticmethod
    def group_of(setting: Setting) -> Setting:
        """Return a setting without what it spends: the key of its group."""
        spent: dict[str, Any] = {key: None for key, part in SWEPT.items() if part.payload}
        return replace(setting, **spent)

    @cached_property
    def main_setting(self) -> Setting:
        """The setting that a page answers for: the first of those in which most heads could be fitted."""
        fitted = {s: sum(row.accuracy is not None for row in self.rows_of(s)) for s in self.settings}
        return max(fitted, key=lambda s: fitted[s], default=Setting())

    def clients_of(self, setting: Setting) -> int | None:
        """Return how many clients there are, or else how many sent something; None if neither is known."""
        return setting.clients or next((row.outcomes[0].clients for row in self.rows_of(setting)), None) or None


@dataclass(frozen=True, eq=False)
class Written:
    """What a job found, and the files that were written of it: none without a folder."""

    report: Report
    files: list[Path]

    @property
    def results(self) -> Results:
        """Every observation: of the table, of pairs of methods, of rounds, budgets, tuning and personal heads."""
        return self.report.results

    @property
    def document(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return self.report.to_dict()


def read_report(path: str | os.PathLike[str]) -> Report:
    """Read ``results.json``, ``federation.json`` or ``diagnostics.json``, as a run left it.

    Raises
    ------
    FileFormatError
        When the file is not JSON, or holds what does not belong there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Report(data=Data("toy")).write(Path(folder, "results.json"))
    ...     read_report(Path(folder, "results.json")).data.name
    'toy'
    """
    with reading(f"{path} is not JSON of ours"):
        return Report.from_dict(json.loads(Path(path).read_bytes()), str(path))


def _accuracy_cells(row: Row, lowest: float, highest: float) -> tuple[Any, Any]:
    """Return the accuracy of a row as text, and as a mark on a scale."""
    mean, std = row.accuracy, row.accuracy_std
    if mean is None:
        return "–", ""
    return f"{mean:.2%}" + (f" ± {100 * std:.2f}" if std is not None else ""), interval(
        mean, std or 0.0, lowest, highest
    )
