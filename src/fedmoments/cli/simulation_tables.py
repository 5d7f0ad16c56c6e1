"""The tables and notes that a simulation prints."""

from typing import Any

from fedmoments.cli.output import fits_width, plural, print_line, print_table, readable_bytes, readable_seconds

__all__ = ["show_outcome"]

#: Hexadecimal digits of a digest that are printed; results.json has all 64.
DIGITS = 16
FIGURES = ("accuracy %", "up / client", "up, total", "fit")
#: Time of all clients of a baseline together, apart from the server's.
CLIENTS_WORK = "clients' work"


def show_outcome(outcome: Any, protections: int) -> None:
    """Print all tables of a simulation; ``protections`` is how many ways of protecting it compares."""
    document = outcome.document
    _show_problems(document["data"]["problems"])
    _show_result(outcome.simulation)
    _show_rounds(document["rounds"])
    if document.get("budget_curve"):
        _show_budget_curve(document["budget_curve"])
    _show_digests(document["details"], outcome.simulation)
    _show_card(document["privacy"], plain=not protections, several=protections > 1)


def _show_digests(details: list[dict[str, Any]], result: Any) -> None:
    """Print what the classifiers of a deployed federation can be compared with, and why some cannot."""
    known = [detail for detail in details if detail["digest"]]
    if known:
        _show_known(known, result)
    for reason in dict.fromkeys(detail["digest_reason"] for detail in details if not detail["digest"]):
        heads = ", ".join(detail["head"] for detail in details if detail["digest_reason"] == reason)
        print_line(f"note: no digest of {heads}: {reason}")


def _show_known(details: list[dict[str, Any]], result: Any) -> None:
    which = [f"seed {details[0]['seed']}", _varied(result.rows[0].setting, _swept(result))]
    print_line(f"\nas a federation would fit them, {', '.join(filter(None, which))}")
    rows: dict[str, list[list[str]]] = {}
    for detail in details:
        digests = [detail["digest"][:DIGITS], detail["statistics_digest"][:DIGITS]]
        rows.setdefault(detail["measured"], []).append([detail["head"], *digests])
    for measured, mine in rows.items():
        print_line(f"each client sends {measured}")
        print_table(["head", "classifier", "statistics"], mine)


def _show_card(card: dict[str, Any], *, plain: bool, several: bool = False) -> None:
    """Print the privacy card of the first setting; one line of it where nothing protects."""
    if plain:
        exposed = card["exposed"]
        if exposed and exposed["single"]:
            print_line(
                f"note: {exposed['single']:,} of {exposed['cells']:,} class means are over one sample, which they show "
                "exactly: clients in the field withhold such classes (--min-count 5)"
            )
        return
    print_line(f"\nprivacy{' of the first setting' if several else ''}: {card['mode']}")
    print_table(["what", "how"], [[str(name), str(value)] for name, value in (*card["facts"], *card["sees"])])
    for sentence in card["not_promised"]:
        print_line(f"not promised: {sentence}")


def _show_rounds(curves: list[dict[str, Any]]) -> None:
    """Print accuracy once a quarter, half, three quarters and all of the clients were seen, mean over seeds."""
    columns = {f"{share:.0%} seen": share for share in (0.25, 0.5, 0.75, 1.0)}
    groups: dict[tuple[int, bool], dict[str, list[dict[str, Any]]]] = {}  # how clients are drawn -> head -> curves
    for curve in curves:
        group = groups.setdefault((curve["per_round"], curve["replacement"]), {})
        group.setdefault(curve["head"], []).append(curve)
    for (per_round, replacement), heads in groups.items():
        drawn = f"{plural(per_round, 'client')} a round, {'with' if replacement else 'without'} replacement"
        print_line(f"\naccuracy %, {drawn}")
        rows = [
            [head, *(_mean([_at(curve, share) for curve in mine]) for share in columns.values())]
            for head, mine in heads.items()
        ]
        print_table(["head", *columns], rows, right=[*columns])


def _at(curve: dict[str, Any], share: float) -> float | None:
    """Return the accuracy after the first round in which this share of the clients was seen."""
    reached = (point for point in curve["points"] if point["seen"] >= share * curve["clients"])
    first: dict[str, Any] = next(reached, {"accuracy": None})
    accuracy: float | None = first["accuracy"]
    return accuracy


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):.2f}" if known else "not yet"


def _show_budget_curve(curve: dict[str, Any]) -> None:
    """Print accuracy against bytes, one column a budget, and every other head's own point."""
    budgets = dict.fromkeys(point["budget"] for series in curve["curves"] for point in series["points"])
    columns = [*filter(None, budgets), *(["as published"] if None in budgets else [])]
    rows = []
    for series in curve["curves"]:
        points = {point["budget"] or "as published": point for point in series["points"]}
        rows.append(
            [series["head"], *(f"{100 * points[word]['accuracy']:.1f}" if word in points else "" for word in columns)]
        )
    print_line(
        f"\naccuracy %, by bytes a client: means is {readable_bytes(curve['means'])}, FedNCM's payload, gram is "
        f"{readable_bytes(curve['gram'])}, Fed3R's; heads without a sketch are projected at random to fit"
    )
    print_table(["head", *columns], rows, right=columns)


def _show_problems(problems: list[dict[str, str]], most: int = 5) -> None:
    """Print what could not be used, by name."""
    if not problems:
        return
    print_line(f"{plural(len(problems), 'problem')}:")
    for problem in problems[:most]:
        print_line(f"  {problem['where']}: {problem['why']}")
    if len(problems) > most:
        print_line(f"  … and {len(problems) - most} more, all in results.json")


def _show_result(result: Any) -> None:
    """Print a result as a table: what all rows share above it, why heads could not be fitted below it."""
    data = result.data
    print_line(
        f"{data['name']}: {data['train']:,} training and {data['test']:,} test samples, d = {data['dim']}, "
        f"{plural(data['classes'], 'class')}; {plural(result.seeds, 'seed')}"
    )
    swept = _swept(result)
    setting = result.rows[0].setting
    print_line(_fixed(setting, swept if setting.projection else [*swept, "projection"]))
    for sentence in dict.fromkeys(note for report in result.splits for note in [report["why"], *report["notes"]]):
        if sentence:
            print_line(f"note: {sentence}")
    print_line()
    figures = _columns(result)
    columns = ["head", *swept, *figures]
    rows = [
        [_name(row), *(_setting(row.setting, row)[name] for name in swept), *_figures(row)[: len(figures)]]
        for row in result.rows
    ]
    if fits_width(columns, rows):
        print_table(columns, rows, right=[*figures, "clients", "means", "projection", "ε"])
    else:
        _show_sections(result, swept)
    _show_reasons(result)
    _show_notes(result, swept)
    print_line(f"{result.seconds:.1f} s in all; {_units(result)}")


def _units(result: Any) -> str:
    """Return what the sizes and the spread in the table mean."""
    masked = any(row.setting.protection.agreed.mode.masks for row in result.rows)
    parts = ["8 bytes a masked number" if masked else "4 bytes a number"]
    if any("sketch" in row.sends for row in result.rows):
        parts.append("scatter sketches and their means as they are coded")
    if result.seeds > 1:
        parts.append("± is the standard deviation over seeds")
    return ", ".join(parts)


def _show_sections(result: Any, swept: list[str]) -> None:
    """Print one table a setting: for a terminal that is too narrow for the settings as columns."""
    for setting in dict.fromkeys(row.setting for row in result.rows):
        print_line(_varied(setting, swept))
        figures = _columns(result)
        rows = [[_name(row), *_figures(row)[: len(figures)]] for row in result.rows if row.setting == setting]
        print_table(["head", *figures], rows, right=figures)
        print_line()


def _columns(result: Any) -> list[str]:
    """Return the figures to show: the time of clients' own work only where a baseline has one."""
    return [*FIGURES, CLIENTS_WORK] if any(row.baseline for row in result.rows) else [*FIGURES]


def _name(row: Any) -> str:
    return f"{row.head} (baseline)" if row.baseline else str(row.head)


def _figures(row: Any) -> list[str]:
    sizes = [readable_bytes(row.up_bytes_per_client), readable_bytes(row.up_bytes_total)]
    return [_accuracy(row), *sizes, readable_seconds(row.fit_seconds), readable_seconds(row.client_seconds)]


def _show_reasons(result: Any) -> None:
    reasons: dict[tuple[str, str], int] = {}
    for row in result.rows:
        for outcome in row.outcomes:
            if outcome.reason:
                reasons[row.head, outcome.reason] = reasons.get((row.head, outcome.reason), 0) + 1
    for (head, reason), times in reasons.items():
        print_line(f"note: {head} could not be fitted ({plural(times, 'time')}): {reason}")


def _show_notes(result: Any, swept: list[str]) -> None:
    """Print what was fitted in a lesser way than asked for, each sentence once, and what heads chose."""
    for head, note in dict.fromkeys((row.head, note) for row in result.rows for note in row.notes):
        print_line(f"note: {head}: {note}")
    for head, (setting, choice) in _choices(result).items():
        where = _varied(setting, swept) if swept else ""
        print_line(f"note: {head} {choice}{f' ({where})' if where else ''}")


def _choices(result: Any) -> dict[str, tuple[Any, str]]:
    """Return what heads chose for themselves, in the first setting and on the first seed."""
    choices: dict[str, tuple[Any, str]] = {}
    for row in result.rows:
        if row.choice:
            choices.setdefault(row.head, (row.setting, row.choice))
    return choices


def _accuracy(row: Any) -> str:
    if row.accuracy is None:
        return "not fitted"
    spread = "" if row.accuracy_std is None else f" ± {100 * row.accuracy_std:.2f}"
    missing = len(row.outcomes) - len(row.accuracies)
    return f"{100 * row.accuracy:.2f}{spread}" + (f" ({missing} not fitted)" if missing else "")


def _setting(setting: Any, row: Any = None) -> dict[str, str]:
    """Return a setting as texts; what does not concern a row's head is a dash."""
    shrinks = row is None or ("shrinkage" in row.hyper and not row.baseline)
    several = row is None or "client_means" in row.sends
    return {
        "clients": "" if setting.clients is None else f"{setting.clients:,}",
        "split": setting.split,
        "means": str(setting.means_per_client) if several else "–",
        "projection": "full" if setting.projection is None else str(setting.projection),
        "budget": setting.budget or "–",
        "shrinkage": (setting.shrinkage or "") if shrinks else "–",
        "ε": setting.protection.agreed.mode.noise.label,
        "protection": setting.privacy or "none",
    }


def _fixed(setting: Any, swept: list[str]) -> str:
    """Return what all rows share, as one line."""
    texts = {
        "clients": "clients as the data say" if setting.clients is None else plural(setting.clients, "client"),
        "split": f"split {setting.split}",
        "means": f"{plural(setting.means_per_client, 'mean')} a client and class",
        "projection": f"projected to {plural(setting.projection, 'dimension')}"
        if setting.projection
        else "all dimensions",
        "budget": f"budget {setting.budget}" if setting.budget else "",
        "shrinkage": f"shrinkage {setting.shrinkage}" if setting.shrinkage else "each head's own shrinkage",
        "ε": setting.protection.agreed.mode.noise.text,
        "protection": setting.privacy or "",
    }
    return ", ".join(text for name, text in texts.items() if text and name not in swept)


def _varied(setting: Any, swept: list[str]) -> str:
    """Return what of a setting differs between rows, as one line."""
    return _fixed(setting, [name for name in _setting(setting) if name not in swept])


def _swept(result: Any) -> list[str]:
    """Return the settings that differ between rows."""
    settings = [_setting(row.setting) for row in result.rows]
    return [name for name in settings[0] if len({setting[name] for setting in settings}) > 1]
