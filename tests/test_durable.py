"""The durable file: nothing is acknowledged that is not on the disk, and nobody but its owner reads it."""

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedmoments.durable import DurableFile, Kind, erase_deleted, part_of, put_in_place
from fedmoments.errors import FileFormatError, LedgerError

SOURCES = Path(__file__).parents[1] / "src" / "fedmoments"
NOTES = Kind("notebook", 0x6E6F7465, "CREATE TABLE notes (text TEXT NOT NULL);", 1, remedy="take another")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: mode(path) for path in folder.iterdir()}


def note(file: DurableFile, text: str) -> None:
    with file.writing(f"{text!r} was not noted") as connection:
        connection.execute("INSERT INTO notes VALUES (?)", (text,))


def noted(file: DurableFile) -> list[str]:
    return [text for (text,) in file.rows("SELECT text FROM notes ORDER BY rowid")]


class Failing(sqlite3.Connection):
    """A connection whose commits fail as on a disk whose fsync fails: written to the log, never confirmed."""

    fails = False

    def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
        cursor = super().execute(query, *values)
        if query == "COMMIT" and Failing.fails:
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DurableFile]:
    file = DurableFile.at(tmp_path / "notes.db", NOTES)
    yield file
    file.close()


def test_sqlite_is_imported_in_one_place() -> None:
    importing = [path for path in SOURCES.rglob("*.py") if "import sqlite3" in path.read_text()]
    assert importing == [SOURCES / "durable" / "file.py"]


# ------------------------------------------------------------------------------------------------ modes


@pytest.fixture
def wide_open() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("wide_open")
def test_a_file_its_log_and_its_folder_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deeper"
    file = DurableFile.at(folder / "notes.db", NOTES)
    note(file, "a")
    assert modes(folder) == {"notes.db": 0o600, "notes.db-wal": 0o600, "notes.db-shm": 0o600}
    assert [mode(tmp_path / "new"), mode(folder)] == [0o700, 0o700]
    with part_of(tmp_path / "copy") as part:
        assert mode(part) == 0o600
        file.copy_to(part)
        put_in_place(part, tmp_path / "copy")
    assert mode(tmp_path / "copy") == 0o600
    file.close()


@pytest.mark.usefixtures("wide_open")
def test_no_byte_is_written_to_a_file_that_others_can_read(tmp_path: Path) -> None:
    with DurableFile.making(tmp_path / "notes.db", NOTES) as connection:
        connection.execute("INSERT INTO notes VALUES ('secret')")
        assert set(modes(tmp_path).values()) == {0o600}
    assert modes(tmp_path) == {"notes.db": 0o600}


@pytest.mark.usefixtures("wide_open")
def test_a_mode_that_is_too_wide_is_narrowed(tmp_path: Path, file: DurableFile) -> None:
    note(file, "a")
    for path in tmp_path.iterdir():
        path.chmod(0o666)
    with closing(DurableFile(tmp_path / "notes.db", NOTES)) as other:
        assert noted(other) == ["a"]
        assert set(modes(tmp_path).values()) == {0o600}


def test_a_mode_that_cannot_be_narrowed_is_refused(
    tmp_path: Path, file: DurableFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.db"
    path.chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(LedgerError, match=r"others may use the notebook .*mode 0644.*let its owner run 'chmod 600"):
        DurableFile(path, NOTES)


# ------------------------------------------------------------------------------------------------ commits


def test_commits_are_forced_to_the_disk(file: DurableFile) -> None:
    names = ("journal_mode", "synchronous", "secure_delete", "foreign_keys", "trusted_schema", "cell_size_check")
    values = [file.rows(f"PRAGMA {name}")[0][0] for name in names]
    assert values == ["wal", 2, 1, 1, 0, 1]


def test_a_commit_that_was_not_confirmed_is_copied_into_the_file_before_anybody_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, factory=Failing, **more))
    path = tmp_path / "notes.db"
    keeper = DurableFile.at(path, NOTES)  # so that closing the other's connection does not fold the log into the file
    with closing(DurableFile(path, NOTES)) as file:
        note(file, "a")
        Failing.fails = True
        with pytest.raises(LedgerError, match=r"'b' was not noted, for the notebook .*disk I/O error.*half there"):
            note(file, "b")
        Failing.fails = False
        assert file._connection is None  # nothing that it remembers is trusted
        with file.reading(settled=False) as connection:  # may look at what stands in the log ...
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (2,)
        before = path.read_bytes()
        assert noted(file) == ["a", "b"]  # ... but relies on what is in the file
        assert path.read_bytes() != before
        note(file, "c")
    keeper.close()
    alone = tmp_path / "without its log.db"
    shutil.copyfile(path, alone)
    with closing(DurableFile(alone, NOTES)) as file:
        assert noted(file) == ["a", "b", "c"]


def test_after_a_failure_nothing_is_relied_upon_while_another_process_keeps_the_log(
    tmp_path: Path, file: DurableFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmoments.durable.file.BUSY_SECONDS", 0.1)
    note(file, "a")
    with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM notes").fetchall()
        note(file, "b")
        with pytest.raises(LedgerError, match="no such table"), file.writing() as connection:
            connection.execute("SELECT * FROM other")
        with pytest.raises(LedgerError, match=r"'c' was not noted.*not on the disk yet"):
            note(file, "c")
        with pytest.raises(LedgerError, match="not on the disk yet"):
            noted(file)
        with file.reading(settled=False) as connection:
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (2,)
    note(file, "c")
    assert noted(file) == ["a", "b", "c"]


def test_a_transaction_inside_another_ends_with_it(file: DurableFile) -> None:
    states = [file.is_writing]
    with file.writing():
        note(file, "a")
        states.append(file.is_writing)
        assert noted(file) == ["a"]
    assert [*states, file.is_writing] == [False, True, False]

    def fail() -> None:
        with file.writing():
            note(file, "b")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert noted(file) == ["a"]


def test_a_failure_that_is_overlooked_undoes_all(file: DurableFile) -> None:
    def fail() -> None:
        with file.writing():
            note(file, "a")
            with pytest.raises(LedgerError, match="NOT NULL"), file.writing() as connection:
                connection.execute("INSERT INTO notes VALUES (NULL)")
            with pytest.raises(LedgerError, match="nothing of this batch is kept"):
                note(file, "b")

    with pytest.raises(LedgerError, match="nothing of this batch is kept"):
        fail()
    assert noted(file) == []
    note(file, "c")
    assert noted(file) == ["c"]


def test_what_others_raise_inside_is_not_blamed_on_the_file(file: DurableFile) -> None:
    def fail() -> None:
        with file.writing():
            note(file, "a")
            Path("/no/such/file").read_bytes()

    with pytest.raises(FileNotFoundError):
        fail()
    assert noted(file) == []


def test_threads_share_a_file(file: DurableFile) -> None:
    def work() -> None:
        for _ in range(20):
            note(file, "x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(noted(file)) == 80


def test_in_memory_a_failure_loses_nothing() -> None:
    file = DurableFile(None, NOTES)
    note(file, "a")
    with pytest.raises(LedgerError, match="the notebook cannot be used"), file.writing() as connection:
        connection.execute("INSERT INTO notes VALUES (NULL)")
    assert noted(file) == ["a"]
    file.close()
    with pytest.raises(LedgerError, match="the notebook was closed: open it again"):
        noted(file)


def test_deleted_bytes_are_in_none_of_the_files(tmp_path: Path, file: DurableFile) -> None:
    note(file, "a secret that is long enough")
    with file.writing() as connection:
        connection.execute("DELETE FROM notes")
    file.erase_log()
    assert b"a secret that is long enough" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ what is opened


def test_many_processes_make_one_file(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.test_durable import *\n"
        "file = DurableFile.at(sys.argv[1], NOTES)\n"
        "for number in range(5): note(file, 'x')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a" / "notes.db")]
    root = Path(__file__).parents[1]
    processes = [subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE) for _ in range(4)]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert errors == [b""] * 4
    with closing(DurableFile(tmp_path / "a" / "notes.db", NOTES)) as file:
        assert len(noted(file)) == 20
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes.db"]


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path, file: DurableFile) -> None:
    path = tmp_path / "notes.db"
    with pytest.raises(LedgerError, match="there is no notebook at"):
        DurableFile(tmp_path / "nothing", NOTES)
    with pytest.raises(FileFormatError, match="is an SQLite file, but no diary"):
        DurableFile(path, Kind("diary", 8, NOTES.schema))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version=5")
    with pytest.raises(FileFormatError, match="tables of version 5, but this release opens version 1"):
        DurableFile(path, NOTES)


def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match="but no notebook"):
        DurableFile.at(path, NOTES)
    assert (path.read_bytes(), modes(tmp_path)) == (before, {"other.db": 0o644})


def test_older_tables_are_brought_up(tmp_path: Path, file: DurableFile) -> None:
    note(file, "a")
    newer = Kind(
        "notebook",
        NOTES.number,
        f"{NOTES.schema}\nCREATE TABLE more (x);\nCREATE TABLE most (x);",
        3,
        {1: "CREATE TABLE more (x);\n", 2: "CREATE TABLE most (x);\n"},
    )
    for _ in range(2):
        with closing(DurableFile(tmp_path / "notes.db", newer)) as brought:
            assert noted(brought) == ["a"]
            assert brought.rows("SELECT count(*) FROM more, most") == [(0,)]


def test_a_file_that_another_program_damaged_is_refused_or_says_so(tmp_path: Path, file: DurableFile) -> None:
    path = tmp_path / "notes.db"
    for number in range(500):
        note(file, f"{number:0200d}")
    assert file.damage() == []
    file.close()
    sound = path.read_bytes()
    path.write_bytes(sound[:20000] + bytes(8192) + sound[28192:])
    with closing(DurableFile(path, NOTES)) as damaged:
        assert damaged.damage()
        with pytest.raises(FileFormatError, match=r"or is damaged .*: take another"):
            noted(damaged)
    path.write_bytes(b"\0" * len(sound))
    with pytest.raises(FileFormatError, match=r"is no notebook, or is damaged .*: take another"):
        DurableFile(path, NOTES)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="but no notebook"):
        DurableFile(path, NOTES)
    path.write_bytes(sound)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE notes")
    with pytest.raises(FileFormatError, match="is damaged, for it lacks notes: take another"):
        DurableFile(path, NOTES)


def test_a_disk_that_is_read_only_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk that is read-only takes the right to mount one")
    try:
        with closing(DurableFile.at(folder / "notes.db", NOTES)) as file:
            note(file, "a")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(LedgerError, match=r"the notebook .*notes.db cannot be used"):
            note(DurableFile(folder / "notes.db", NOTES), "b")
        with pytest.raises(LedgerError, match=r"cannot be written .*Read-only"):
            DurableFile.at(folder / "other.db", NOTES)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_copy_that_cannot_be_written_is_not_blamed_on_the_file(tmp_path: Path, file: DurableFile) -> None:
    note(file, "a")
    copy = tmp_path / "copy"
    with pytest.raises(LedgerError, match=r"copy cannot be written"), part_of(copy) as part:
        file.copy_to(part / "below")
    assert not copy.exists()
    assert noted(file) == ["a"]


def test_nothing_is_put_in_place_over_another_file_or_without_its_log(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with part_of(target) as part:
        part.with_name(f"{part.name}-wal").write_bytes(b"not folded")
        with pytest.raises(OSError, match="could not be folded"):
            put_in_place(part, target)
    target.write_bytes(b"precious")
    with part_of(target) as part, pytest.raises(LedgerError, match="exists and is not overwritten"):
        put_in_place(part, target)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"target": b"precious"}


def test_a_file_of_another_program_that_cannot_be_rewritten_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match="cannot be rewritten"):
        erase_deleted(tmp_path / "state.db")
