"""What was sent through a SuperLink is not in its database once it has stopped."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.serving import erase_messages


def test_deleted_messages_are_cut_out_of_the_database(tmp_path: Path) -> None:
    database, secret = tmp_path / "state.db", os.urandom(64)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for command in ("PRAGMA journal_mode=WAL", "PRAGMA secure_delete=OFF", "CREATE TABLE objects (content BLOB)"):
            connection.execute(command)
        connection.execute("INSERT INTO objects VALUES ('kept'), (?)", (bytes(20_000) + secret,))
        connection.execute("DELETE FROM objects WHERE content != 'kept'")
        everything = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
        assert secret in everything
    erase_messages(database)
    assert secret not in b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT content FROM objects").fetchall() == [("kept",)]


def test_a_database_that_cannot_be_rewritten_is_named(tmp_path: Path) -> None:
    erase_messages(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "state.db").write_bytes(b"no database" * 100)
    with pytest.raises(DeploymentError, match=r"may still be in .*state\.db .*delete it"):
        erase_messages(tmp_path / "state.db")
