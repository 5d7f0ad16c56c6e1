"""What a table or figure of a paper is: settings, the paper's numbers, tolerance, misprints, claims. Read from TOML."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from fedmoments.core.observations import ACCURACY
from fedmoments.errors import FileFormatError, InputError, UnknownNameError
from fedmoments.settings.files import parse_toml, with_values

__all__ = ["NEEDS", "RELATIONS", "Block", "Claim", "Experiment", "Figure", "Line", "Misprint", "read_experiment"]

#: What an experiment may need, from the least to the most.
NEEDS = ("nothing", "features", "domains", "text", "images")
#: What a claim may say of the left side and the right side.
RELATIONS = ("above", "below", "at least", "at most", "equal")
_FORMS = ("lines", "bars")
_SCALES = ("linear", "log", "words")


@dataclass(frozen=True)
class Line:
    """A row or a column of a table: its name, and the place that its cells have in common."""

    name: str
    where: Mapping[str, Any] = field(default_factory=dict)


#: Where numbers come from that ours are compared with -> the verdict on one that is within the tolerance.
ORIGINS: Mapping[str, str] = {"printed": "agrees", "formula": "as derived", "unexplained": "unexplained"}


@dataclass(frozen=True)
class Block:
    """The paper's numbers for one of its data sets (or one of its settings), in our rows and columns.

    Parameters
    ----------
    name
        ``CIFAR-100, SqueezeNet``.
    values
        (rows, columns), in the units of the paper (accuracies in percent); nan where the paper prints none.
    spreads
        The paper's standard deviations, in the same form, or none.
    settings
        What this part of the table was run with, besides the settings of the experiment.
    tolerance
        Of this block, where it is another one than the experiment's.
    """

    name: str
    values: tuple[tuple[float, ...], ...]
    spreads: tuple[tuple[float, ...], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float | None = None


@dataclass(frozen=True)
class Misprint:
    """A number that the paper has wrong: where, what is printed, what is right, and how one can tell."""

    block: str
    row: str
    column: str
    printed: float
    right: float
    why: str


@dataclass(frozen=True)
class Claim:
    """What a paper says of its numbers: one place compared with another, in every setting that both have.

    Parameters
    ----------
    id
        The same in all experiments that bear on one claim.
    text
        In words.
    left, right
        Places. What else they have (clients, split, …) must be equal in a pair.
    relation
        ``above`` and ``below`` by more than the margin, ``at least`` and ``at most`` up to the margin, ``equal`` within
        the margin.
    margin
        In the quantity's own units: accuracies are shares, so that 0.01 is one point.
    value
        Compared with, instead of another place.
    """

    id: str
    text: str
    left: Mapping[str, Any]
    right: Mapping[str, Any] = field(default_factory=dict)
    relation: str = "above"
    margin: float = 0.0
    value: float | None = None


@dataclass(frozen=True)
class Figure:
    """A drawing of the measurements, in the paper's form.

    Parameters
    ----------
    title
        Under the drawing.
    x
        Key along the horizontal axis.
    series
        Keys that tell lines (or bars of a group) apart.
    panel
        Key that has a panel of its own for every value, or none.
    quantity
        Along the vertical axis.
    where
        What all points have in common.
    form
        ``lines`` or ``bars``.
    scale
        Of the horizontal axis: ``linear``, ``log`` or ``words``.
    x_title, y_title
        Of the axes; the key and the quantity by default.
    """

    title: str
    x: str
    series: tuple[str, ...] = ()
    panel: str | None = None
    quantity: str = ACCURACY
    where: Mapping[str, Any] = field(default_factory=dict)
    form: str = "lines"
    scale: str = "linear"
    x_title: str | None = None
    y_title: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Parameters
    ----------
    name
        ``fedcof/table3``: paper and place in it.
    title
        What it shows.
    source
        ``Table 3``, as the paper calls it.
    about
        What is done, in a sentence or two.
    needs
        One of :data:`NEEDS`.
    engine
        What runs it (:mod:`fedmoments.study.papers.engines`).
    settings
        For the engine.
    seeds
        How many the paper ran, or 1 where nothing is drawn.
    rows, columns
        Of the table; none for a figure alone.
    reference
        Name of the row that gains are taken over, for data that stand in for the paper's.
    units
        Of the paper's numbers by column: ``percent`` (accuracies; ours are shares), or a word that is printed as it is.
    tolerance
        Largest difference from the paper's number that counts as agreement, in the paper's units.
    paper
        The paper's numbers.
    misprints
        Which of them are wrong.
    origin
        Where the paper's numbers come from, one of :data:`ORIGINS`: they are printed, worked out by us from a formula
        or a law that it prints, or printed and reached by no formula of it.
    claims, figures, notes
        What the paper says; what is drawn; what a reader must know about our version.
    long
        Takes minutes to hours: networks are trained.
    """

    name: str
    title: str
    source: str
    about: str
    needs: str
    engine: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1
    rows: tuple[Line, ...] = ()
    columns: tuple[Line, ...] = ()
    reference: str | None = None
    units: str = "percent"
    tolerance: float = 0.05
    paper: tuple[Block, ...] = ()
    misprints: tuple[Misprint, ...] = ()
    origin: str = "printed"
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    long: bool = False

    @property
    def is_free(self) -> bool:
        """Whether it needs no data: every block is then computed with its own settings, and must agree exactly."""
        return self.needs == "nothing"

    def block(self, name: str) -> Block:
        """Return a block by name."""
        for block in self.paper:
            if block.name == name:
                return block
        raise UnknownNameError(f"part of {self.name}", name, [block.name for block in self.paper])


def read_experiment(name: str, text: str) -> Experiment:
    """Read the file of an experiment, or say what is wrong with it.

    Parameters
    ----------
    name
        ``fedcof/table3``.
    text
        TOML.

    Examples
    --------
    >>> text = '''
    ... title = "Communication"
    ... source = "Table 1"
    ... about = "Numbers that a client sends."
    ... needs = "nothing"
    ... engine = "communication"
    ... units = "floats"
    ... rows = [{ name = "FedNCM", where = { method = "fedncm" } }]
    ... columns = [{ name = "dCK", where = { quantity = "floats" } }]
    ... [[paper]]
    ... name = "d = 512, C = 10, K = 2"
    ... values = [[10240]]
    ... '''
    >>> read_experiment("fedcof/table1", text).paper[0].values
    ((10240.0,),)
    """
    whose = f"the file of {name}"
    plain = parse_toml(text, whose)
    several: dict[str, Any] = {
        "rows": (Line, plain.pop("rows", [])),
        "columns": (Line, plain.pop("columns", [])),
        "paper": (Block, [_numbers(table, whose) for table in plain.pop("paper", [])]),
        "misprints": (Misprint, plain.pop("misprints", [])),
        "claims": (Claim, plain.pop("claims", [])),
        "figures": (Figure, plain.pop("figures", [])),
    }
    grids = {"values": _grid, "spreads": _grid}
    parts: dict[str, Any] = {}
    for key, (cls, tables) in several.items():
        members = []
        for table in tables:
            given = {inner: grids[inner](value) for inner, value in table.items() if inner in grids}
            rest = {inner: value for inner, value in table.items() if inner not in grids}
            members.append(_made(cls, rest, given, f"{whose}, [[{key}]]"))
        parts[key] = tuple(members)
    known = {"name", *parts}
    experiment = _made(
        Experiment, {key: value for key, value in plain.items() if key not in known}, {"name": name}, whose
    )
    experiment = Experiment(**{**vars(experiment), **parts})
    _check(experiment, whose)
    return experiment


def _made(cls: Any, values: Mapping[str, Any], given: Mapping[str, Any], whose: str) -> Any:
    """Return a dataclass of values that are checked and of others that were checked already."""
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    checked = with_values(cls(**{name: given.get(name) for name in needed}), values, whose)
    missing = [name for name in needed if name not in {**values, **given}]
    if missing:
        raise FileFormatError(f"{whose} lacks {', '.join(missing)}")
    return cls(**{**vars(checked), **given})


def _numbers(table: Any, whose: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping) or "values" not in table:
        raise FileFormatError(f"{whose}: every [[paper]] has a name and values, in rows and columns")
    return table


def _grid(rows: Any) -> tuple[tuple[float, ...], ...]:
    """Return numbers in rows and columns."""
    if not isinstance(rows, Sequence) or not all(map(_is_row, rows)):
        raise FileFormatError(f"numbers of a paper come as rows of columns, such as [[41.5, 5.9]], not as {rows!r}")
    return tuple(tuple(map(float, row)) for row in rows)


def _is_row(values: Any) -> bool:
    return isinstance(values, Sequence) and all(type(value) in (int, float) for value in values)


def _check(experiment: Experiment, whose: str) -> None:
    """Refuse what could not be shown or compared."""
    if experiment.needs not in NEEDS:
        raise UnknownNameError(f"need of {experiment.name}", experiment.needs, NEEDS)
    if experiment.origin not in ORIGINS:
        raise UnknownNameError(f"origin of the numbers of {experiment.name}", experiment.origin, ORIGINS)
    _check_table(experiment, whose)
    for misprint in experiment.misprints:
        _check_misprint(experiment, misprint, whose)
    for claim in experiment.claims:
        if claim.relation not in RELATIONS:
            raise UnknownNameError("relation of a claim", claim.relation, RELATIONS)
        if (claim.value is None) == (not claim.right):
            raise FileFormatError(f"{whose}: the claim '{claim.id}' has a right side or a value, not both and not none")
    for figure in experiment.figures:
        if figure.form not in _FORMS or figure.scale not in _SCALES:
            raise InputError(f"{whose}: figures are {' or '.join(_FORMS)} on a scale of {', '.join(_SCALES)}")


def _check_table(experiment: Experiment, whose: str) -> None:
    for block in experiment.paper:
        _check_shape(block, (len(experiment.rows), len(experiment.columns)), whose)
    rows = [line.name for line in experiment.rows]
    columns, blocks = [line.name for line in experiment.columns], [block.name for block in experiment.paper]
    for names in (rows, columns, blocks):
        if len(set(names)) < len(names):
            raise FileFormatError(f"{whose}: two of {', '.join(names)} have the same name")
    if experiment.reference is not None and experiment.reference not in rows:
        raise UnknownNameError(f"row of {experiment.name}", experiment.reference, rows)


def _check_shape(block: Block, shape: tuple[int, int], whose: str) -> None:
    for grid in (block.values, block.spreads):
        if grid and (len(grid), *{len(row) for row in grid}) != shape:
            raise FileFormatError(f"{whose}: '{block.name}' must have {shape[0]} rows of {shape[1]} numbers")


def _check_misprint(experiment: Experiment, misprint: Misprint, whose: str) -> None:
    rows, columns = [line.name for line in experiment.rows], [line.name for line in experiment.columns]
    block = experiment.block(misprint.block)
    if misprint.row not in rows or misprint.column not in columns:
        raise FileFormatError(f"{whose}: a misprint is at {misprint.row} / {misprint.column}, which is not a cell")
    printed = block.values[rows.index(misprint.row)][columns.index(misprint.column)]
    if not math.isclose(printed, misprint.printed):
        raise FileFormatError(f"{whose}: a misprint says {misprint.printed} is printed, but the block has {printed}")
