"""A chart as data: two scales, series of points, and what they are compared with. :mod:`.plot` draws it.

Values are in the units of their axes, never pixels: one chart is drawn for laptops, for phones and as a file. Series
differ in colour, dash and marker: seven colours, each with a dash and a marker of its own; the next seven series have
the same colours with other dashes, and so on. Baselines are grey with hollow squares, and differ in their dashes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedmoments.pages.formats import THIN, bytes_

__all__ = [
    "ACCURACY",
    "COLOURS",
    "DASHES",
    "Band",
    "Chart",
    "Point",
    "Rule",
    "Scale",
    "Series",
    "Style",
    "Symbol",
    "Tick",
    "Trace",
    "bytes_scale",
    "share_scale",
]

#: Colours with a dash each in the style sheet, and dashes besides those.
COLOURS, DASHES = 7, 3
#: Shapes of markers, by number; others are circles.
Shape = Literal["circle", "square", "diamond", "up", "down"]
SHAPES: tuple[Shape, ...] = ("circle", "square", "diamond", "up", "down")
#: A value and its words on an axis.
Tick = tuple[float, str]
#: Title of an axis of accuracies.
ACCURACY = f"accuracy,{THIN}%"


@dataclass(frozen=True)
class Scale:
    """An axis, before it is known how long it is.

    Parameters
    ----------
    title
        Beside it.
    kind
        ``words`` has one place, 0, 1, …, for every tick.
    words
        A value as its tick says it.
    values
        What it must hold besides the points.
    bounds
        What it never leaves.
    ticks
        Preferred ticks: round numbers replace them where their words would touch. An empty tuple draws none.
    about
        How many round ticks there are, about.
    whole
        Whether ticks are whole numbers.
    exact
        Whether it ends at its lowest and highest value, not at round ones.
    beyond
        Factors by which a logarithmic scale reaches beyond its values.
    """

    title: str = ""
    kind: Literal["linear", "log", "words"] = "linear"
    words: Callable[[float], str] = "{:,g}".format
    values: tuple[float, ...] = ()
    bounds: tuple[float, float] | None = None
    ticks: tuple[Tick, ...] | None = None
    about: int = 6
    whole: bool = False
    exact: bool = False
    beyond: tuple[float, float] = (0.7, 1.45)


def share_scale(title: str = ACCURACY, *, values: tuple[float, ...] = (), about: int = 6) -> Scale:
    """Return a scale of shares of one, in percent.

    Examples
    --------
    >>> share_scale().words(0.5)
    '50'
    """
    return Scale(title, words=lambda share: f"{share * 100:g}", values=values, bounds=(0.0, 1.0), about=about)


def bytes_scale(
    title: str,
    *,
    values: tuple[float, ...] = (),
    beyond: tuple[float, float] = (0.7, 1.45),
    unit: Callable[..., str] = bytes_,
) -> Scale:
    """Return a logarithmic scale of bytes, or of another unit.

    Examples
    --------
    >>> bytes_scale("bytes").words(3000.0).replace(THIN, " ")
    '3 kB'
    """
    return Scale(title, "log", lambda size: unit(size).replace(f".0{THIN}", THIN), values, beyond=beyond)


@dataclass(frozen=True)
class Symbol:
    """What stands at a point: a shape, its radius in pixels, and whether it is a dot with a rim (or a plain marker)."""

    shape: Shape = "circle"
    size: float = 3.2
    dot: bool = False


@dataclass(frozen=True)
class Point:
    """A place, the interval about it, and what is told of it.

    Parameters
    ----------
    x, y
        Its place.
    low, high
        Of the interval about y, if there is one.
    tip
        Told when it is pointed at or focused.
    label
        Words beside it, or above a bar that is broad enough.
    weight
        The higher, the more its label matters.
    span
        Left and right end of a bar; it is not a bar without.
    joined
        Whether a line leads to it from the point before.
    symbol
        Another one than its series has.
    kind
        Classes in the style sheet.
    head
        Whose rows of tables light up with it.
    focus
        Whether it can be reached by the keyboard.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    tip: str = ""
    label: str = ""
    weight: float = 0.0
    span: tuple[float, float] | None = None
    joined: bool = True
    symbol: Symbol | None = None
    kind: str = ""
    head: str | None = None
    focus: bool = False

    @property
    def ends(self) -> list[float]:
        """What a vertical axis must hold of it."""
        return [end for end in (self.y, self.low, self.high) if end is not None]


@dataclass(frozen=True)
class Style:
    """How a series looks: the number of its colour, of its dash, and its kind in the style sheet.

    Examples
    --------
    >>> Style.numbered(1).classes, Style.numbered(8).classes, Style.numbered(0, baseline=True).classes
    ('s1', 's1 d1', 's0 baseline')
    """

    colour: int
    dash: int = 0
    kind: Literal["", "baseline", "ours", "other"] = ""
    shape: int = 0

    @classmethod
    def numbered(cls, number: int, *, baseline: bool = False) -> "Style":
        """Return the style of a series by its number among all of them, or among all baselines."""
        if baseline:
            place = number % (COLOURS + DASHES)
            dash = place - COLOURS + 1 if place >= COLOURS else 0
            return cls(0 if dash else place, dash, "baseline", 1)
        again = number // COLOURS
        return cls(number % COLOURS, again % (DASHES + 1), "", (number + again) % COLOURS)

    @property
    def classes(self) -> str:
        """Classes of the series."""
        return f"s{self.colour}{f' d{self.dash}' if self.dash else ''} {self.kind}".rstrip()

    @property
    def label(self) -> str:
        """Classes of its name."""
        colour = "quiet" if self.kind == "baseline" else f"t{self.colour}"
        return f"label {colour}{' ours' if self.kind == 'ours' else ''}"

    @property
    def symbol(self) -> Symbol:
        """What stands at its points."""
        return Symbol(SHAPES[self.shape] if self.shape < len(SHAPES) else "circle")


@dataclass(frozen=True)
class Series:
    """Points of one look.

    Parameters
    ----------
    name
        At its end or in the legend; empty where it has none.
    points
        From left to right.
    style
        None draws points as they are, in the colours of their kinds.
    line
        Whether a line joins them.
    spread
        How intervals are drawn; ``auto`` takes bars, and a band where points are many.
    markers
        Whether points have a symbol.
    """

    name: str
    points: tuple[Point, ...]
    style: Style | None = None
    line: bool = True
    spread: Literal["auto", "band", "bars", "none"] = "auto"
    markers: bool = True

    @property
    def has_bars(self) -> bool:
        """Whether its points are bars."""
        return any(point.span for point in self.points)


@dataclass(frozen=True)
class Rule:
    """An upright line through the plot, with words above it."""

    x: float
    words: tuple[str, ...] = ()
    style: str = "payload"


@dataclass(frozen=True)
class Trace:
    """A line through places; infinite coordinates are the edges of the plot."""

    places: tuple[tuple[float, float], ...]
    style: str


@dataclass(frozen=True)
class Band:
    """A stretch of the vertical axis, grey behind all series, and what it means: words above the plot."""

    low: float
    high: float
    words: str = ""


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Parameters
    ----------
    title
        Read to those who cannot see it.
    x, y
        Its scales.
    series
        Drawn in order, the last on top.
    rules, traces, bands
        What series are compared with.
    height
        Of the plot in pixels, without what stands about it.
    named
        Whether names of series are shown: at the ends of lines, or in a legend where they do not fit.
    heading
        Above it in a file of several charts.
    """

    title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    traces: tuple[Trace, ...] = ()
    bands: tuple[Band, ...] = ()
    height: float = 270.0
    named: bool = True
    heading: str = ""

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of all series."""
        return tuple(point for series in self.series for point in series.points)

    @property
    def has_bars(self) -> bool:
        """Whether it shows bars."""
        return any(series.has_bars for series in self.series)
