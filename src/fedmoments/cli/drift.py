"""``fedmoments ledger drift``: how far class means of new contributions lie from those of old ones."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fedmoments.cli.generate import command, typed
from fedmoments.cli.ledger import FEDERATE, LEDGER, Ledger, open_ledger
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["drift"]

EXAMPLE = example(FEDERATE, f"fedmoments ledger drift {LEDGER} --since 30d")


@command("drift", EXAMPLE)
def drift(
    ledger: Ledger,
    *,
    since: Annotated[
        str, typed(help="A date and time (ISO 8601), or a number of days before now: 30d.", metavar="WHEN")
    ] = "30d",
    json: Json = False,
) -> None:
    """Compare contributions since a given date with older ones, class by class.

    The distance of the means is in units of the spread within classes. A ratio of about 1 is chance; far above 1 is
    drift: then fit with --half-life, or ask parties for new data.
    """
    from fedmoments.federation.ageing import drift_since

    when = moment_of(since)
    with open_ledger(ledger) as store:
        try:
            drifts = drift_since(store, when)
        except NotEnoughDataError as error:
            print_json({"since": when.isoformat(), "classes": []}) if json else print_line(str(error))
            return
    if json:
        print_json({"since": when.isoformat(), "classes": [asdict(drifted) for drifted in drifts]})
        return
    columns = ["class", "before", "since", "distance", "ratio"]
    rows = [[d.name, f"{d.before:,}", f"{d.since:,}", f"{d.distance:.3f}", f"{d.ratio:.1f}"] for d in drifts]
    print_table(columns, rows, right=columns[1:])
    print_line(f"since {when.isoformat(timespec='seconds')}; distances in units of the spread within classes")


def moment_of(text: str) -> datetime:
    """Return the moment that was typed.

    Examples
    --------
    >>> moment_of("2030-05-01").isoformat()
    '2030-05-01T00:00:00+00:00'
    """
    try:
        if text.endswith("d"):
            return datetime.now(UTC) - timedelta(days=float(text[:-1]))
        read = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InputError(f"--since takes a date and time (2030-05-01), or days (30d), but '{text}' arrived") from error
    return read if read.tzinfo else read.replace(tzinfo=UTC)
