"""Which kind of file, of which version: how tables are made, and upgraded from an older version."""

from pathlib import Path
from typing import Any

from fedmoments.durable.kind import Kind
from fedmoments.errors import FileFormatError

__all__ = ["brought_up", "check_kind", "is_current", "make_tables", "upgrade"]


def make_tables(connection: Any, kind: Kind) -> None:
    """Make the tables of a new file."""
    connection.executescript(kind.schema)
    connection.execute(f"PRAGMA application_id={kind.number}")
    connection.execute(f"PRAGMA user_version={kind.version}")


def check_kind(connection: Any, kind: Kind, name: str, path: Path | None) -> None:
    """Refuse a file of another kind, or of a version that is not known."""
    number, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if number != kind.number:
        raise FileFormatError(
            f"{path} is an SQLite file, but no {kind.name} (number {number:#x}, not {kind.number:#x}): choose "
            "another file"
        )
    if version != kind.version and version not in kind.upgrades:
        raise FileFormatError(
            f"{name} has tables of version {version}, but this release opens version {kind.version}: open it "
            "with the release that wrote it"
        )


def is_current(connection: Any, kind: Kind) -> bool:
    """Say whether the tables are of this version."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == kind.version)


def upgrade(connection: Any, kind: Kind, version: int) -> None:
    """Bring the tables of a version up to the next one, inside a transaction."""
    step = kind.upgrades[version]
    if callable(step):
        step(connection)
    else:
        for statement in filter(str.strip, step.split(";\n")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={version + 1}")


def brought_up(connection: Any, copy: Any, kind: Kind) -> Any:
    """Return a copy in memory of a file of an older version that cannot be upgraded where it lies."""
    connection.backup(copy)
    while not is_current(copy, kind):
        copy.execute("BEGIN")
        upgrade(copy, kind, copy.execute("PRAGMA user_version").fetchone()[0])
        copy.execute("COMMIT")
    return copy
