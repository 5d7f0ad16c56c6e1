"""What was sent through a SuperLink, and who was there, is not in its database once it has stopped."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.serving import erase_messages, forget_presence


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


def opened(database: Path) -> Any:
    """Open a SuperLink's state as the Flower that is installed does."""
    objects = ObjectStoreFactory(str(database))
    return LinkStateFactory(str(database), NoOpFederationManager(), objects).state()


@pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's own, of its migrations
def test_a_superlink_that_starts_takes_nobody_for_connected(tmp_path: Path) -> None:
    """A node that left without a goodbye is not counted by the next server, and may join; one that lives comes back."""
    database = tmp_path / "state.db"
    state = opened(database)
    gone, lives = (state.create_node("owner", "name", key, 30.0) for key in (b"gone", b"lives"))
    assert state.activate_node(gone, 30.0)
    assert state.activate_node(lives, 30.0)
    forget_presence(database)
    later = opened(database)
    assert [node.status for node in later.get_node_info()] == ["offline", "offline"]
    assert later.acknowledge_node_heartbeat(lives, 30.0)
    assert later.activate_node(gone, 30.0), "its key would be refused for a minute"
    assert [node.status for node in later.get_node_info()] == ["online", "online"]


def test_a_database_without_tables_or_of_another_flower(tmp_path: Path) -> None:
    forget_presence(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        forget_presence(tmp_path / "state.db")  # of a SuperLink that was killed before it made any
        connection.execute("CREATE TABLE node (number INTEGER)")
    with pytest.raises(DeploymentError, match=r"who was connected .*install flwr>=.* delete the folder"):
        forget_presence(tmp_path / "state.db")
