"""Tables of tuning: what every start reached and when, what it cost, and what refits and probes found afterwards."""

from collections.abc import Iterable, Sequence
from itertools import chain

from fedmoments.core.observations import Observation, Report
from fedmoments.core.observations.tuning import Tuning, TuningRun
from fedmoments.pages.blocks import note
from fedmoments.pages.formats import THIN, bytes_, count, flops_, percent, sentences, shorten
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, number_cell, share_cell, sortable
from fedmoments.pages.tuning_chart import optimiser_name

__all__ = ["starts_section"]

#: Letters of a start, which may be the path of a file.
MOST_LETTERS = 28
NAMES = (Column("Start"), Column("Optimiser"))
UNKNOWN = number_cell(None, "–")


@section("starts", "Every start and optimiser", place=90, of="tuning")
def starts_section(_: Report, tuning: Tuning) -> Html | None:
    """Return the tables, or None when nothing was tuned."""
    if not tuning.runs:
        return None
    after = _after(tuning)
    return join(
        [
            _reached(tuning),
            tag("div", tag("h3", "What it cost"), _costs(tuning), class_="below"),
            tag("div", tag("h3", "After tuning"), after, class_="below") if after else None,
        ]
    )


def _row(run: TuningRun, cells: Iterable[Cell]) -> Row:
    name = (
        tag("span", shorten(run.start, MOST_LETTERS), title=run.start) if len(run.start) > MOST_LETTERS else run.start
    )
    return Row(Cell(name), (Cell(optimiser_name(run.optimiser), kind="nowrap"), *cells), run.start)


def _numbers(*titles: str) -> list[Column]:
    return [Column(title, number=True) for title in titles]


def _accuracy(accuracy: Observation) -> Cell:
    if accuracy.mean is None:
        return UNKNOWN
    spread = f" ± {accuracy.spread * 100:.1f}" if accuracy.spread is not None else ""
    return number_cell(accuracy.mean, f"{percent(accuracy.mean)}{spread}")


# ---------------------------------------------------------------------------------------------- what was reached


def _reached(tuning: Tuning) -> Html:
    compared = any(run.reached for run in tuning.runs)
    columns = [*NAMES, *_numbers("Before", f"At the end{THIN}", "Highest (round)")]
    columns += _numbers("Rounds to target", "Bytes to target") if compared else []
    order = sorted(tuning.runs, key=lambda run: -1.0 if run.end.mean is None else run.end.mean, reverse=True)
    rows = [
        _row(run, [_accuracy(run.first), _end(run), _highest(run), *(_when(run) if compared else ())]) for run in order
    ]
    caption = "Accuracy of every start and optimiser"
    caption += ", and when it reaches what a random start reaches" if compared else ""
    return join([sortable(caption, columns, rows, sorted_by=3), note(_reached_note(tuning, compared=compared))])


def _reached_note(tuning: Tuning, *, compared: bool) -> str:
    said = ["Highest: on test samples, at the round given; it can only be chosen with test samples."]
    said += ["± is one standard deviation over seeds."] if tuning.seeds > 1 else []
    if any(curve.best_round is not None for run in tuning.runs for curve in run.curves):
        said.append("The end is the round that the validation share chose.")
    targets = [(name, target) for name in tuning.optimisers if (target := tuning.target(name)) is not None]
    if compared and targets:
        ends = ", ".join(f"{percent(target)} with {optimiser_name(name)}" for name, target in targets)
        said.append(f"Target: where the random start ends, {ends}.")
        said.append("Each seed is compared with its own; rounds and bytes are means of the seeds that get there.")
    return " ".join(said)


def _end(run: TuningRun) -> Cell:
    return share_cell(run.end.mean, run.end.spread) if run.end.known else number_cell(None, "not tested")


def _highest(run: TuningRun) -> Cell:
    if not run.highest.known:
        return UNKNOWN
    when = tag("span", f" ({_range(run.highest_round)})", class_="spread")
    return number_cell(run.highest.mean, join([percent(run.highest.mean), when]))


def _when(run: TuningRun) -> list[Cell]:
    """Return rounds and bytes until the random start's end."""
    reached = run.reached
    if reached is None:
        return [UNKNOWN, UNKNOWN]
    if not reached.hit or reached.rounds is None:
        return [number_cell(None, tag("span", "never", class_="failed")), UNKNOWN]
    some = None
    if reached.hit < reached.seeds:
        some = tag("span", f" ({reached.hit} of {count(reached.seeds, 'seed')})", class_="spread")
    rounds = join([f"{reached.rounds:,.1f}".removesuffix(".0"), some])
    return [number_cell(reached.rounds, rounds), number_cell(reached.bytes, bytes_(reached.bytes))]


def _range(rounds: Observation) -> str:
    return f"{rounds.low:,.0f}" if rounds.low == rounds.high else f"{rounds.low:,.0f}–{rounds.high:,.0f}"


# ---------------------------------------------------------------------------------------------- what it cost


def _costs(tuning: Tuning) -> Html:
    compute = any(run.spent("flops").known for run in tuning.runs)
    columns = [*NAMES, *_numbers("Rounds", "Up", "Down", "Against formula")]
    columns += _numbers(*(["Compute"] if compute else []), "Learning rate", "Temperature")
    rows = [_row(run, _spent(run, compute=compute)) for run in tuning.runs]
    said = "Of all clients and rounds together, from the upload of the head that a run starts from; mean over seeds. "
    said += "Against formula: bytes measured, compared with those that the formula gives."
    return join([sortable("Bytes, operations and settings of every run", columns, rows), note(said)])


def _spent(run: TuningRun, *, compute: bool) -> list[Cell]:
    ratio, flops = _ratio(run), run.spent("flops").mean
    both_ways = [run.spent(way).mean for way in ("up", "down")]
    return [
        number_cell(run.rounds.mean, _range(run.rounds)),
        *(number_cell(size, bytes_(size)) for size in both_ways),
        number_cell(ratio, _against(ratio)),
        *([number_cell(flops, flops_(flops))] if compute else []),
        _several(curve.plan.step for curve in run.curves),
        _several(curve.temperature for curve in run.curves),
    ]


def _several(numbers: Iterable[float | None]) -> Cell:
    known = sorted({number for number in numbers if number is not None})
    return Cell(" · ".join(f"{number:g}" for number in known) or "–", kind="number")


def _ratio(run: TuningRun) -> float | None:
    """Return bytes measured over bytes by formula, less one."""
    measured, formula = run.spent("total_bytes").mean, run.spent("formula_bytes").mean
    return measured / formula - 1 if measured is not None and formula else None


def _against(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    if abs(ratio) < 5e-13:
        return "equal"
    size = f"{abs(ratio) * 100:.2f}{THIN}%" if abs(ratio) >= 5e-5 else f"<{THIN}0.01{THIN}%"
    return f"{'+' if ratio > 0 else '−'}{size}"


# ---------------------------------------------------------------------------------------------- refits and probes


def _after(tuning: Tuning) -> Html | None:
    """Return accuracies of heads refitted on tuned features, and of the probe before and after."""
    heads = list(dict.fromkeys(chain.from_iterable(run.refits for run in tuning.runs)))
    probed = any(curve.probe is not None for run in tuning.runs for curve in run.curves)
    titles = [f"{head}, refitted" for head in heads] + (["Probe before", "Probe after"] if probed else [])
    if not titles:
        return None
    rows = _refitted(tuning, heads, ("before", "after") if probed else ())
    probe = "Probe: ridge on features before and after, which shows what tuning did to the encoder." * probed
    said = sentences("Refitted: heads in closed form on features of the tuned model.", probe)
    return join([sortable("Refits and probes", [*NAMES, *_numbers("Tuned", *titles)], rows), note(said)])


def _refitted(tuning: Tuning, heads: Sequence[str], whens: Sequence[str]) -> list[Row]:
    """Return a row for every run that has a refit or a probe."""
    refits = [(run, [*map(run.refitted, heads), *map(run.probed, whens)]) for run in tuning.runs]
    known = [(run, accuracies) for run, accuracies in refits if any(accuracy.known for accuracy in accuracies)]
    return [_row(run, map(_accuracy, [run.end, *accuracies])) for run, accuracies in known]
