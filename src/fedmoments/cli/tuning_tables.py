"""What ``fedmoments tune`` prints: what was run, and one table of every start and optimiser."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.cli.output import plural, print_line, print_table, readable_bytes, readable_seconds
from fedmoments.pages.plain import as_number, mapping
from fedmoments.pages.tuning_chart import optimiser_name
from fedmoments.pages.tuning_reading import Curve, Figure, Run, Tuning, read_tuning

__all__ = ["show_tuning"]

STAGES = {
    "lp": "linear probing (head only)",
    "ft": "fine-tuning (encoder and head)",
    "feat": "training the encoder (the head frozen)",
}
#: Number that data have -> how it is shown.
DATA = {"train": "{:,.0f} training samples", "test": "{:,.0f} test samples", "dim": "d = {:.0f}"}
FIGURES = ("start %", "end %", "highest in round")
COMPARED = ("rounds to random's end", "bytes to it")
SPENT = "bytes in all"
UP_AND_DOWN = "bytes are up and down, of all clients, the head's own upload included"
#: One-shot heads that nothing starts from and that are named.
MOST_HEADS = 8
#: Runs that diverged and are listed.
MOST_RUNS = 5


def show_tuning(document: Mapping[str, Any]) -> None:
    """Print a document of tuning for people.

    Parameters
    ----------
    document
        What ``results.json`` holds: ``data`` and ``tuning``.

    Examples
    --------
    >>> points = [{"round": t, "accuracy": 0.5 + t / 8, "up": 1000.0 * t, "down": 0.0} for t in range(3)]
    >>> curve = {"start": "fedncm", "optimiser": "fedavg", "seed": 0, "points": points}
    >>> show_tuning({"tuning": {"stage": "lp", "clients": 2, "curves": [curve]}})
    linear probing (head only); 2 clients
    <BLANKLINE>
    start   optimiser  start %  end %  highest in round  bytes in all
    fedncm  FedAvg       50.00  75.00                 2        2.0 kB
    """
    tuning = read_tuning(document)
    for line in (_data(mapping(document.get("data"))), _setting(tuning)):
        if line:
            print_line(line)
    print_line()
    if not tuning.runs:
        print_line("nothing was tuned")
        return
    compared = any(run.reached for run in tuning.runs)
    figures = [*FIGURES, *(COMPARED if compared else ()), SPENT]
    rows = []
    for run in tuning.runs:
        accuracies = [_percent(run.first), _percent(run.end), _best_round(run)]
        ends = [*(_reached(run) if compared else ()), _spent(run)]
        rows.append([run.start, optimiser_name(run.optimiser), *accuracies, *ends])
    print_table(["start", "optimiser", *figures], rows, right=figures)
    _show_notes(document, tuning)


def _data(data: Mapping[str, Any]) -> str:
    """Return what was tuned on, as far as it is known."""
    facts = [text.format(number) for name, text in DATA.items() if (number := as_number(data.get(name)))]
    if classes := as_number(data.get("classes")):
        facts.append(plural(int(classes), "class"))
    return ": ".join(filter(None, (str(data.get("name") or ""), ", ".join(facts))))


def _setting(tuning: Tuning) -> str:
    about = tuning.about
    stage, clients = str(about.get("stage") or "tuning"), as_number(about.get("clients"))
    where = [plural(int(clients), "client") if clients else "", f"split {about['split']}" if about.get("split") else ""]
    parts = [
        STAGES.get(stage, stage),
        ", ".join(filter(None, where)),
        _rounds(about, clients),
        f"batch normalisation {about['batchnorm']}" if about.get("batchnorm") else "",
        plural(tuning.seeds, "seed") if tuning.seeds > 1 else "",
    ]
    return "; ".join(filter(None, parts))


def _rounds(about: Mapping[str, Any], clients: float | None) -> str:
    per_round, rounds = as_number(about.get("per_round")), as_number(about.get("rounds"))
    parts = [f"{per_round:,.0f} a round"] if per_round else []
    if per_round and clients and per_round < clients and isinstance(about.get("replacement"), bool):
        parts += ["with replacement" if about["replacement"] else "without replacement"]
    parts += [f"at most {plural(int(rounds), 'round')}"] if rounds else []
    return ", ".join(parts)


def _percent(figure: Figure | None) -> str:
    if figure is None:
        return "not tested"
    spread = "" if figure.deviation is None else f" ± {100 * figure.deviation:.2f}"
    return f"{100 * figure.mean:.2f}{spread}"


def _best_round(run: Run) -> str:
    """Return the round that validation chose, or else that of the highest test accuracy; a range over seeds."""
    chosen = Figure.of(None if curve.best_round is None else float(curve.best_round) for curve in run.curves)
    figure = chosen or run.highest_round
    if figure is None:
        return "–"
    return f"{figure.low:,.0f}" if figure.low == figure.high else f"{figure.low:,.0f}–{figure.high:,.0f}"


def _reached(run: Run) -> tuple[str, str]:
    reached = run.reached
    if reached is None or reached.target is None:
        return "–", "–"
    if not reached.hit or reached.rounds is None:
        return "never", "–"
    some = ""
    if reached.seeds is not None and reached.hit < reached.seeds:
        some = f" ({reached.hit} of {plural(reached.seeds, 'seed')})"
    spent = "–" if reached.bytes is None else readable_bytes(reached.bytes)
    return f"{reached.rounds:,.1f}".removesuffix(".0") + some, spent


def _spent(run: Run) -> str:
    spent = run.spent("bytes")
    return "–" if spent is None else readable_bytes(spent)


def _show_refits(tuning: Tuning) -> None:
    """Print heads that were fitted anew on what was tuned, one line a run."""
    for run in tuning.runs:
        names = list(dict.fromkeys(name for curve in run.curves for name in curve.refit))
        figures = [f"{name} {_percent(Figure.of(c.refit.get(name) for c in run.curves))}" for name in names]
        before = Figure.of(curve.before for curve in run.curves)
        was = f" (fed3r before tuning: {_percent(before)})" if before else ""
        if figures:
            run_name = f"{run.start}, {optimiser_name(run.optimiser)}"
            print_line(f"refitted after {run_name}, accuracy %: {', '.join(figures)}{was}")


def _show_notes(document: Mapping[str, Any], tuning: Tuning) -> None:
    _show_heads(tuning)
    _show_refits(tuning)
    _show_fallen(tuning)
    _show_stopped([curve for run in tuning.runs for curve in run.curves])
    seconds = as_number(document.get("seconds"))
    parts = [f"{readable_seconds(seconds)} in all", UP_AND_DOWN] if seconds is not None else []
    parts += ["± is the standard deviation over seeds"] if tuning.seeds > 1 else []
    if parts:
        print_line("; ".join(parts))


def _show_heads(tuning: Tuning) -> None:
    heads = [head for head in tuning.heads if head.name not in tuning.starts]
    if heads:
        figures = [f"{head.name} {_percent(head.accuracy)}" for head in heads[:MOST_HEADS]]
        more = f" and {len(heads) - MOST_HEADS} more" if len(heads) > MOST_HEADS else ""
        print_line(f"one-shot heads besides, accuracy %: {', '.join(figures)}{more}")


def _show_fallen(tuning: Tuning) -> None:
    fallen = [run for run in tuning.runs if run.first and run.end and run.end.mean < run.first.mean]
    if fallen:
        names = ", ".join(f"{run.start} with {optimiser_name(run.optimiser)}" for run in fallen[:MOST_RUNS])
        print_line(f"note: {names} ended below the start: a smaller learning rate may help (--for START.lr=…)")


def _show_stopped(curves: Sequence[Curve]) -> None:
    stopped = [curve for curve in curves if curve.stopped]
    for curve in [curve for curve in stopped if str(curve.stopped).startswith("diverged")][:MOST_RUNS]:
        print_line(f"note: {curve.start}, {optimiser_name(curve.optimiser)}, seed {curve.seed} {curve.stopped}")
    parts = [f"{plural(len(stopped), 'run')} stopped early"] if stopped else []
    parts += ["the end is the round that validation chose"] if any(c.best_round is not None for c in curves) else []
    if parts:
        print_line(f"note: {'; '.join(parts)}")
