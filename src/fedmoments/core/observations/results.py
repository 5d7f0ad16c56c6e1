"""Many observations: as a data frame, as a table of two keys, as LaTeX, and method against method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.notebook import html_table
from fedmoments.core.observations.observation import (
    ACCURACY,
    Interval,
    McNemar,
    Observation,
    Scalar,
    differences,
    is_share,
    matching,
    mcnemar,
    sorted_values,
    student_interval,
)
from fedmoments.core.observations.plotting import plot
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["DISCORDANT", "Comparison", "Pivot", "Results"]

#: The quantity of test samples on which a method is right and another one (``against``) is wrong.
DISCORDANT = "only right"


@dataclass(frozen=True)
class Comparison:
    """One method against another at one place.

    Parameters
    ----------
    place
        The setting.
    first, second
        Names of the methods.
    differences
        First minus second, of every seed that both have.
    interval
        Student's interval of the mean difference (95 %); None for fewer than two seeds.
    samples
        For every seed, the exact test on test samples of which one alone is right; none where these were not kept.

    Examples
    --------
    >>> sure = Comparison({}, "fedcof", "fedncm", (0.1, 0.12), student_interval([0.1, 0.12]), ())
    >>> round(sure.mean, 3), sure.is_clear
    (0.11, False)
    """

    place: Mapping[str, Scalar]
    first: str
    second: str
    differences: tuple[float, ...]
    interval: Interval | None
    samples: tuple[McNemar, ...]

    @property
    def mean(self) -> float | None:
        """Mean difference, or None where no seed has both."""
        return sum(self.differences) / len(self.differences) if self.differences else None

    @property
    def is_clear(self) -> bool:
        """Whether the interval over seeds leaves 0 out."""
        return self.interval is not None and self.interval.is_clear


@dataclass(frozen=True)
class Pivot:
    """A table of two keys.

    Parameters
    ----------
    rows, columns
        Names of the keys.
    row_values, column_values
        Their values, in order.
    cells
        (row value, column value) -> observation; absent where nothing was measured.
    """

    rows: str
    columns: str
    row_values: tuple[Scalar, ...]
    column_values: tuple[Scalar, ...]
    cells: Mapping[tuple[Scalar, Scalar], Observation]

    def text(self, row: Scalar, column: Scalar, digits: int = 2, plus_minus: str = " ± ") -> str:
        """Return mean and standard deviation over seeds, shares in per cent; a dash where nothing was measured."""
        cell = self.cells.get((row, column))
        return "–" if cell is None else _text(cell, digits, plus_minus)

    def _repr_html_(self) -> str:
        rows = [[row, *(self.text(row, column) for column in self.column_values)] for row in self.row_values]
        return html_table(f"{self.rows} by {self.columns}", [self.rows, *map(str, self.column_values)], rows)

    def to_latex(self, digits: int = 2) -> str:
        r"""Return the table in LaTeX, for the package booktabs.

        Examples
        --------
        >>> one = Observation({"head": "gh_lda", "clients": 10}, (0.9, 0.92), seeds=(0, 1))
        >>> print(Results((one,)).pivot("head", "clients").to_latex())
        \begin{tabular}{lr}
        \toprule
        head & 10 \\
        \midrule
        gh\_lda & $91.00 \pm 1.41$ \\
        \bottomrule
        \end{tabular}
        """
        lines = [r"\begin{tabular}{l" + "r" * len(self.column_values) + "}", r"\toprule"]
        lines.append(" & ".join(map(_escaped, (self.rows, *self.column_values))) + r" \\")
        lines.append(r"\midrule")
        for row in self.row_values:
            texts = [self.text(row, column, digits, r" \pm ") for column in self.column_values]
            cells = ["--" if text == "–" else f"${text}$" for text in texts]
            lines.append(" & ".join([_escaped(row), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


@dataclass(frozen=True, repr=False)
class Results:
    """Observations, in the order in which they were made.

    Examples
    --------
    >>> made = [Observation({"head": head, "clients": 10}, values, seeds=(0, 1, 2))
    ...         for head, values in (("fedcof", (0.9, 0.92, 0.91)), ("fedncm", (0.8, 0.83, 0.81)))]
    >>> results = Results(tuple(made))
    >>> [comparison] = results.compare("fedcof", "fedncm")
    >>> round(comparison.mean, 3), comparison.is_clear
    (0.097, True)
    >>> results.pivot("head", "clients").text("fedcof", 10)
    '91.00 ± 1.00'
    """

    observations: tuple[Observation, ...]

    def at(self, **where: Any) -> Results:
        """Return those at a place; ``quantity`` chooses the quantity, the accuracy by default."""
        return Results(tuple(matching(self.observations, where)))

    def to_frame(self) -> Any:
        """Return a pandas data frame: a line for every value, with its place, quantity, unit, seed and reason."""
        pandas = require("pandas", "A data frame of results", "tables")
        return pandas.DataFrame(list(_lines(self.observations)))

    def pivot(self, rows: str, columns: str, **where: Any) -> Pivot:
        """Return a table of two keys, one quantity at one place.

        Raises
        ------
        InputError
            When several observations stand in one cell: say where, as ``split="iid"``.
        """
        here = [each for each in matching(self.observations, where) if rows in each.where and columns in each.where]
        cells: dict[tuple[Scalar, Scalar], Observation] = {}
        for each in here:
            key = (each.where[rows], each.where[columns])
            if key in cells:
                other = [name for name in each.where if each.where[name] != cells[key].where.get(name)]
                raise InputError(
                    f"{rows} {key[0]} and {columns} {key[1]} have several observations, which differ in "
                    f"{', '.join(other) or 'nothing'}: say which, as pivot({rows!r}, {columns!r}, NAME=VALUE)"
                )
            cells[key] = each
        return Pivot(rows, columns, tuple(sorted_values(here, rows)), tuple(sorted_values(here, columns)), cells)

    def plot(self, x: str = "head", *, axes: Any = None, **where: Any) -> Any:
        """Draw means over seeds with their standard deviations, one line a head; return matplotlib's axes.

        Parameters
        ----------
        x
            Key of a place that runs along the axis: ``head``, ``clients``, ``split`` …
        axes
            Drawn into; new ones by default.
        **where
            A place, and the ``quantity``, which is the accuracy by default.
        """
        return plot(matching(self.observations, where), x, axes)

    def __repr__(self) -> str:
        heads = ", ".join(
            dict.fromkeys(
                str(observation.where["head"]) for observation in self.observations if "head" in observation.where
            )
        )
        return f"Results({len(self.observations)} observations{f' of {heads}' if heads else ''})"

    def _repr_html_(self) -> str:
        here = matching(self.observations, {})
        keys = [
            key for key in dict.fromkeys(key for observation in here for key in observation.where) if _tells(here, key)
        ]
        rows = [[*(observation.where.get(key, "") for key in keys), _text(observation)] for observation in here]
        return html_table("Results", [*keys, "accuracy"], rows)

    def compare(self, first: str, second: str, **where: Any) -> tuple[Comparison, ...]:
        """Return one method against another, wherever both were measured.

        Parameters
        ----------
        first, second
            Names of heads or baselines.
        **where
            A place, and the ``quantity``, which is the accuracy by default.
        """
        ours, theirs = (matching(self.observations, {**where, "head": name}) for name in (first, second))
        compared = []
        for one in ours:
            other = next((candidate for candidate in theirs if candidate.place == one.place), None)
            if other is None:
                continue
            apart = tuple(differences(one.values, one.seeds, other.values, other.seeds))
            samples = self._samples(one, first, second) if one.quantity == ACCURACY else ()
            compared.append(Comparison(one.place, first, second, apart, student_interval(apart), samples))
        return tuple(compared)

    def _samples(self, one: Observation, first: str, second: str) -> tuple[McNemar, ...]:
        """Return the test on discordant samples of every seed that has them."""
        pairs = ((first, second), (second, first))
        counts = []
        for head, against in pairs:
            place = {**one.place, "head": head, "against": against, "quantity": DISCORDANT}
            counts.append(next(iter(matching(self.observations, place)), None))
        mine, theirs = counts
        if mine is None or theirs is None:
            return ()
        values = zip(mine.values, theirs.values, strict=True)
        return tuple(mcnemar(int(a), int(b)) for a, b in values if a is not None and b is not None)


def _text(cell: Observation, digits: int = 2, plus_minus: str = " ± ") -> str:
    if cell.mean is None:
        return "–"
    factor = 100.0 if is_share({"quantity": cell.quantity}) else 1.0
    spread = "" if cell.spread is None else f"{plus_minus}{factor * cell.spread:.{digits}f}"
    return f"{factor * cell.mean:.{digits}f}{spread}"


def _tells(observations: Sequence[Observation], key: str) -> bool:
    """Say whether a key differs between observations, or is the method's name."""
    return key == "head" or len({observation.where.get(key) for observation in observations}) > 1


def _lines(observations: Iterable[Observation]) -> Iterable[dict[str, Any]]:
    for observation in observations:
        seeds: Sequence[int | None] = observation.seeds or [None] * len(observation.values)
        for seed, value in zip(seeds, observation.values, strict=True):
            about = {"quantity": observation.quantity, "unit": observation.unit, "seed": seed, "value": value}
            yield {**observation.where, **about, "reason": observation.reason if value is None else None}


def _escaped(value: Any) -> str:
    """Return a value as LaTeX prints it."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
    return "".join(special.get(mark, mark) for mark in str(value))
