"""The tables and notes that a simulation prints."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from fedmoments.cli.output import (
    fits_width,
    plural,
    print_line,
    print_problems,
    print_table,
    readable_bytes,
    readable_seconds,
)
from fedmoments.core.observations import plain_moments
from fedmoments.pages.answer import answer_text
from fedmoments.settings.setting import SWEPT

if TYPE_CHECKING:
    from fedmoments.core.observations import Report, Row
    from fedmoments.core.observations.budget import BudgetCurves
    from fedmoments.core.observations.federated import PrivacyCard
    from fedmoments.core.observations.parts import HeadDetail, RoundAccuracy, RoundCurve

__all__ = ["show_report"]

#: Hexadecimal digits of a digest that are printed; results.json has all 64.
DIGITS = 16
FIGURES = ("accuracy", "bytes per client", "time to fit")
#: What a head's upload holds, where the terminal is wide enough.
SENDS = "each client sends, once"
#: Time of all clients of a baseline together, apart from the server's.
CLIENTS_WORK = "clients' time"
#: The column of a budget curve in which methods stand as published.
PUBLISHED = "as published"
#: Shares of the clients after which accuracy is shown.
SEEN = (0.25, 0.5, 0.75, 1.0)


def show_report(report: "Report", protections: int, *, verbose: bool) -> None:
    """Print the tables of a simulation: digests on request, a privacy card where there are ``protections``."""
    print_problems(report.data.problems, "all in results.json")
    for sentence in report.data.notes:
        print_line(f"note: {sentence}")
    _show_rows(report)
    _show_rounds(report.rounds)
    if report.budget_curve is not None:
        _show_budget_curve(report.budget_curve)
    if verbose:
        _show_digests(report)
    if report.privacy is not None:
        _show_card(report.privacy, plain=not protections, several=protections > 1)


def _show_digests(report: "Report") -> None:
    """Print what the classifiers of a deployed federation can be compared with, and why some cannot."""
    known = [detail for detail in report.details if detail.digest]
    if known:
        _show_known(known, report)
    lacking = [detail for detail in report.details if not detail.digest]
    for reason in dict.fromkeys(detail.digest_reason for detail in lacking):
        heads = ", ".join(detail.head for detail in lacking if detail.digest_reason == reason)
        print_line(f"note: no digest of {heads}: {reason}")


def _show_known(details: Sequence["HeadDetail"], report: "Report") -> None:
    which = [f"seed {details[0].seed}", report.rows[0].setting.spelled(report.swept)]
    print_line(f"\ndigests that a real federation of the same clients reproduces, {', '.join(filter(None, which))}")
    rows: dict[str | None, list[list[str]]] = {}
    for detail in details:
        digests = [str(digest)[:DIGITS] for digest in (detail.digest, detail.statistics_digest)]
        rows.setdefault(detail.measured, []).append([detail.head, *digests])
    for measured, mine in rows.items():
        print_line(f"if each client sends {measured}:")
        print_table(["head", "classifier", "statistics"], mine)


def _show_card(card: "PrivacyCard", *, plain: bool, several: bool = False) -> None:
    """Print the privacy card of the first setting; one line of it where nothing protects."""
    if plain:
        exposed = card.exposed
        if exposed and exposed["single"]:
            print_line(
                f"note: {exposed['single']:,} of {exposed['cells']:,} class means are of one sample, which they "
                "reveal exactly; real clients withhold such classes (--min-count 5)"
            )
        return
    print_line(f"\nprivacy{' of the first setting' if several else ''}: {card.mode}")
    print_table(["what", "how"], [*card.facts, *card.sees])
    for sentence in card.not_promised:
        print_line(f"not promised: {sentence}")


def _show_rounds(curves: Sequence["RoundCurve"]) -> None:
    """Print accuracies of the rounds in which a quarter, half, three quarters and all clients first were seen.

    Columns say the share that was seen by then, mean over seeds: 30 of 100 clients a round pass a quarter with 30 %.
    """
    groups: dict[tuple[int, bool], dict[str, list[RoundCurve]]] = {}  # how clients are drawn -> head -> curves
    for curve in curves:
        groups.setdefault((curve.per_round, curve.replacement), {}).setdefault(curve.head, []).append(curve)
    for (per_round, replacement), heads in groups.items():
        drawn = f"{plural(per_round, 'client')} per round, {'with' if replacement else 'without'} replacement"
        print_line(f"\naccuracy in per cent, {drawn}")
        every = [curve for mine in heads.values() for curve in mine]
        columns = {_seen(every, share): share for share in SEEN}
        rows = [[head, *(_accuracy_at(mine, share) for share in columns.values())] for head, mine in heads.items()]
        print_table(["head", *columns], rows, right=[*columns])


def _at(curve: "RoundCurve", share: float) -> "RoundAccuracy | None":
    """Return the first round after which this share of the clients was seen."""
    return next((point for point in curve.points if point.seen >= share * curve.clients), None)


def _seen(curves: Sequence["RoundCurve"], share: float) -> str:
    """Return the share of the clients that had been seen in that round, mean over curves."""
    shares = [point.seen / curve.clients for curve in curves if (point := _at(curve, share)) is not None]
    return f"{sum(shares) / len(shares):.0%} seen" if shares else f"{share:.0%} never seen"


def _accuracy_at(curves: Sequence["RoundCurve"], share: float) -> str:
    points = [_at(curve, share) for curve in curves]
    return _mean([None if point is None else point.accuracy for point in points])


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.2f}" if known else "not yet"


def _show_budget_curve(curves: "BudgetCurves") -> None:
    """Print accuracy against bytes, one column a budget, and every other head's own point."""
    columns = [*curves.budgets, *([PUBLISHED] if any(point.budget is None for point in curves.points) else [])]
    rows = []
    for curve in curves.curves:
        accuracies = {point.budget or PUBLISHED: f"{100 * point.accuracy:.1f}" for point in curve.points}
        rows.append([curve.head, *(accuracies.get(column, "") for column in columns)])
    print_line(
        f"\naccuracy in per cent, by bytes per client: means is {readable_bytes(curves.means or 0)}, FedNCM's payload, "
        f"gram is {readable_bytes(curves.gram or 0)}, Fed3R's; heads without a sketch are projected at random to fit"
    )
    print_table(["head", *columns], rows, right=columns)


def _show_rows(report: "Report") -> None:
    """Print the table: what all rows share above it, why heads could not be fitted below it."""
    data = report.data
    print_line(
        f"{data.name}: {data.train:,} training and {data.test:,} test samples, d = {data.dim}, "
        f"{plural(data.classes, 'class')}; {plural(report.seeds, 'seed')}"
    )
    print_line(_shared(report))
    _show_split_notes(report)
    if len(report.rows) > 1:
        print_line(f"\n{answer_text(report)}")
    print_line()
    _show_figures(report)
    _show_reasons(report.rows)
    _show_notes(report)
    print_line(f"\n{report.seconds or 0.0:.1f} s; {_units(report)}")


def _show_figures(report: "Report") -> None:
    """Print a line a row, with what is sent where there is room; in sections where even less does not fit."""
    parts, figures = [SWEPT[key] for key in report.swept], _columns(report)
    columns = ["head", *(part.name for part in parts), *figures]
    rows = [[_name(row), *_setting(row, report.swept), *_figures(row)[: len(figures)]] for row in report.rows]
    wider = [[*cells, plain_moments(row.sends)] for cells, row in zip(rows, report.rows, strict=True)]
    if fits_width([*columns, SENDS], wider):
        columns, rows = [*columns, SENDS], wider
    if fits_width(columns, rows):
        print_table(columns, rows, right=[*figures, *(part.name for part in parts if part.number)])
    else:
        _show_sections(report)


def _show_split_notes(report: "Report") -> None:
    for sentence in dict.fromkeys(note for split in report.splits for note in (split.why, *split.notes)):
        if sentence:
            print_line(f"note: {sentence}")


def _units(report: "Report") -> str:
    """Return what the sizes and the spread in the table mean."""
    masked = report.privacy is not None and report.privacy.agreed.get("secure", "none") != "none"
    parts = ["8 bytes per masked number" if masked else "4 bytes per number"]
    if any("sketch" in row.sends for row in report.rows):
        parts.append("sketches count as they are coded")
    if report.seeds > 1:
        parts.append("± is the standard deviation over seeds")
    return ", ".join(parts)


def _show_sections(report: "Report") -> None:
    """Print one table a setting: for a terminal that is too narrow for the settings as columns."""
    for setting in report.settings:
        print_line(setting.spelled(report.swept))
        figures = _columns(report)
        rows = [[_name(row), *_figures(row)[: len(figures)]] for row in report.rows_of(setting)]
        print_table(["head", *figures], rows, right=figures)
        print_line()


def _columns(report: "Report") -> list[str]:
    """Return the figures to show: the time of clients' own work only where a baseline has one."""
    return [*FIGURES, CLIENTS_WORK] if any(row.baseline for row in report.rows) else [*FIGURES]


def _name(row: "Row") -> str:
    return f"{row.head} (baseline)" if row.baseline else row.head


def _figures(row: "Row") -> list[str]:
    times = [readable_seconds(row.fit_seconds), readable_seconds(row.client_seconds)]
    return [_accuracy(row), readable_bytes(row.up_bytes_per_client), *times]


def _show_reasons(rows: Sequence["Row"]) -> None:
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        for outcome in row.outcomes:
            if outcome.reason:
                reasons[row.head, outcome.reason] = reasons.get((row.head, outcome.reason), 0) + 1
    for (head, reason), times in reasons.items():
        print_line(f"note: {head} could not be fitted ({plural(times, 'time')}): {reason}")


def _show_notes(report: "Report") -> None:
    """Print what was fitted in a lesser way than asked for, each sentence once, and what heads chose."""
    for head, note in dict.fromkeys((row.head, note) for row in report.rows for note in row.notes):
        print_line(f"note: {head}: {note}")
    choices: dict[str, Row] = {}
    for row in report.rows:
        if row.choice:
            choices.setdefault(row.head, row)
    for head, row in choices.items():
        where = row.setting.spelled(report.swept)
        print_line(f"note: {head} {row.choice}{f' ({where})' if where else ''}")


def _accuracy(row: "Row") -> str:
    if row.accuracy is None:
        return "not fitted"
    spread = "" if row.accuracy_std is None else f" ± {100 * row.accuracy_std:.2f}"
    missing = len(row.outcomes) - len(row.accuracies)
    return f"{100 * row.accuracy:.2f}{spread} %" + (f" ({missing} not fitted)" if missing else "")


def _setting(row: "Row", swept: Sequence[str]) -> list[str]:
    """Return what is swept of a row's setting, as it is typed; what does not concern its head is a dash."""
    values = {key: getattr(row.setting, key) for key in swept}
    return [
        "–" if not SWEPT[key].concerns(row) else SWEPT[key].none if value is None else f"{value}"
        for key, value in values.items()
    ]


def _shared(report: "Report") -> str:
    """Return what all rows share, as one line: what a protection does only where there is one."""
    setting = report.rows[0].setting
    quiet = {"budget", "epsilon", "privacy", "projection"}
    shown = [key for key in SWEPT if getattr(setting, key) is not None or key not in quiet]
    return setting.spelled([key for key in shown if key not in report.swept])
