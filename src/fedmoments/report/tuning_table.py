"""Tables of tuning: what every start reached and when, what it cost, and what refits and probes found afterwards."""

from collections.abc import Mapping

from fedmoments.report.formats import THIN, bytes_, count, flops_, percent, shorten
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.reading import Results
from fedmoments.report.table import accuracy_cell, sortable
from fedmoments.report.tuning_axes import optimiser_name
from fedmoments.report.tuning_reading import Figure, Run, Tuning

__all__ = ["starts_section"]

#: Letters of a start, which may be the path of a file.
MOST_LETTERS = 28


def starts_section(results: Results) -> Html | None:
    """Return the tables, or None when nothing was tuned."""
    tuning = results.tuning
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


def _row(run: Run, *cells: Node) -> Html:
    title = run.start if len(run.start) > MOST_LETTERS else None
    names = [
        tag("th", shorten(run.start, MOST_LETTERS), scope="row", title=title),
        tag("td", optimiser_name(run.optimiser), class_="nowrap"),
    ]
    return tag("tr", *names, *cells, data_head=run.start)


def _number(value: float | None, words: str) -> Html:
    return tag("td", words, data_value="" if value is None else f"{value:.9g}", class_="number")


def _accuracy(figure: Figure | None) -> Html:
    spread = f" ± {figure.deviation * 100:.1f}" if figure and figure.deviation is not None else ""
    mean = figure.mean if figure else None
    return _number(mean, f"{percent(mean)}{spread}")


# ---------------------------------------------------------------------------------------------- what was reached


def _reached(tuning: Tuning) -> Html:
    compared = any(run.reached for run in tuning.runs)
    columns = [
        ("Start", False),
        ("Optimiser", False),
        ("Before", True),
        (f"At the end{THIN}", True),
        ("Highest (round)", True),
    ]
    columns += [("Rounds to target", True), ("Bytes to target", True)] if compared else []
    order = sorted(tuning.runs, key=lambda run: run.end.mean if run.end else -1.0, reverse=True)
    rows = []
    for run in order:
        end = run.end
        cells: list[Node] = [
            _accuracy(run.first),
            accuracy_cell(end.mean, end.deviation) if end else _number(None, "not tested"),
            _highest(run),
        ]
        rows.append(_row(run, *cells, *(_when(run) if compared else ())))
    note = "Highest: on test samples, at the round given; only who has test samples could choose it. "
    note += "± is one standard deviation over seeds. " if tuning.seeds > 1 else ""
    if any(curve.best_round is not None for run in tuning.runs for curve in run.curves):
        note += "The end is the round that the validation share chose. "
    targets = [(name, target) for name in tuning.optimisers if (target := tuning.target(name)) is not None]
    if compared and targets:
        ends = ", ".join(f"{percent(target)} with {optimiser_name(name)}" for name, target in targets)
        note += (
            f"Target: where the random start ends, {ends}. Each seed is compared with its own; rounds and bytes are "
        )
        note += "means of the seeds that get there."
    caption = "Accuracy of every start and optimiser"
    caption += ", and when it reaches what a random start reaches" if compared else ""
    return join([sortable(caption, columns, rows, sorted_by=3), tag("p", note, class_="note")])


def _highest(run: Run) -> Html:
    if run.highest is None or run.highest_round is None:
        return _number(None, "–")
    low, high = run.highest_round.low, run.highest_round.high
    when = f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
    words = join([percent(run.highest.mean), tag("span", f" ({when})", class_="spread")])
    return tag("td", words, data_value=f"{run.highest.mean:.9g}", class_="number")


def _when(run: Run) -> list[Html]:
    """Return rounds and bytes until the random start's end."""
    reached = run.reached
    if reached is None or reached.target is None:
        return [_number(None, "–"), _number(None, "–")]
    if not reached.hit or reached.rounds is None:
        return [tag("td", tag("span", "never", class_="failed"), data_value="", class_="number"), _number(None, "–")]
    rounds = f"{reached.rounds:,.1f}".removesuffix(".0")
    some = None
    if reached.seeds is not None and reached.hit < reached.seeds:
        some = tag("span", f" ({reached.hit} of {count(reached.seeds, 'seed')})", class_="spread")
    first = tag("td", rounds, some, data_value=f"{reached.rounds:.9g}", class_="number")
    return [first, _number(reached.bytes, bytes_(reached.bytes))]


# ---------------------------------------------------------------------------------------------- what it cost


def _costs(tuning: Tuning) -> Html:
    compute = any(run.spent("flops") is not None for run in tuning.runs)
    columns = [("Start", False), ("Optimiser", False), ("Rounds", True), ("Up", True), ("Down", True)]
    columns += [("Against formula", True), *([("Compute", True)] if compute else [])]
    columns += [("Learning rate", True), ("Temperature", True)]
    rows = []
    for run in tuning.runs:
        rates = {f"{value:g}" for curve in run.curves if isinstance(value := curve.plan.get("lr"), (int, float))}
        heats = {curve.temperature for curve in run.curves if curve.temperature is not None}
        ratio = _ratio(run)
        cells: list[Node] = [
            _number(run.rounds.mean if run.rounds else None, _range(run.rounds)),
            *(_number(run.spent(way), bytes_(run.spent(way))) for way in ("up", "down")),
            _number(ratio, _against(ratio)),
            _number(run.spent("flops"), flops_(run.spent("flops"))) if compute else None,
            tag("td", " · ".join(sorted(rates)) or "–", class_="number"),
            tag("td", " · ".join(f"{heat:g}" for heat in sorted(heats)) or "–", class_="number"),
        ]
        rows.append(_row(run, *cells))
    note = "Of all clients and rounds together, from the upload of the head that a run starts from; mean over seeds. "
    note += "Against formula: bytes measured, compared with those that the formula gives."
    caption = "Bytes, operations and settings of every run"
    return join([sortable(caption, columns, rows), tag("p", note, class_="note")])


def _range(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    return f"{figure.low:,.0f}" if figure.low == figure.high else f"{figure.low:,.0f}–{figure.high:,.0f}"


def _ratio(run: Run) -> float | None:
    """Return bytes measured over bytes by formula, less one."""
    measured, formula = run.spent("bytes"), run.spent("formula")
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
    heads = list(dict.fromkeys(name for run in tuning.runs for curve in run.curves for name in curve.refit))
    probed = any(curve.before is not None or curve.after is not None for run in tuning.runs for curve in run.curves)
    if not heads and not probed:
        return None
    columns = [("Start", False), ("Optimiser", False), ("Tuned", True)]
    columns += [(f"{head}, refitted", True) for head in heads]
    columns += [("Probe before", True), ("Probe after", True)] if probed else []
    rows = []
    for run in tuning.runs:
        figures = [Figure.of(_refit(curve.refit, head) for curve in run.curves) for head in heads]
        if probed:
            figures += [Figure.of(curve.before for curve in run.curves), Figure.of(curve.after for curve in run.curves)]
        if any(figures):
            rows.append(_row(run, _accuracy(run.end), *(_accuracy(figure) for figure in figures)))
    note = "Refitted: heads in closed form on features of the tuned model. "
    note += "Probe: ridge on features before and after, which tells what tuning did to the encoder." if probed else ""
    return join([sortable("Refits and probes", columns, rows), tag("p", note.strip(), class_="note")])


def _refit(refit: Mapping[str, float], head: str) -> float | None:
    return refit.get(head)
