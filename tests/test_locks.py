"""Locks that hold on every system; and a system without ``fcntl``, played by a process that cannot import it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fedmoments.durable.locks import lock, locked_file, read_at, write_at

#: What Windows lacks is taken away, and ``msvcrt`` is played by record locks on the byte that is requested.
WITHOUT = """
import os, sys, types, errno, signal, subprocess, logging, tempfile, asyncio, multiprocessing
import concurrent.futures.process
import click, numpy, scipy.linalg, rich.console, sklearn.base
import fcntl as real
played = types.ModuleType("msvcrt")
played.LK_NBLCK = 2
def locking(descriptor, mode, size):
    assert (mode, size) == (2, 1)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size  # nobody reads there
    real.lockf(descriptor, real.LOCK_EX | real.LOCK_NB, size, os.lseek(descriptor, 0, os.SEEK_CUR))
played.locking = locking
sys.modules["fcntl"], sys.modules["msvcrt"] = None, played
for name in ("O_CLOEXEC", "fchmod", "pread", "pwrite"):
    delattr(os, name)
del signal.SIGHUP
"""


def without_fcntl(code: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def test_a_second_process_waits_or_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a") as one, (tmp_path / "lock").open("a") as other:
        lock(one)
        with pytest.raises(BlockingIOError):
            lock(other, wait=False)
    with (tmp_path / "lock").open("a") as one:
        lock(one, wait=False)


def test_a_locked_file_is_private_and_read_and_written_at_places(tmp_path: Path) -> None:
    with locked_file(tmp_path / "book") as descriptor:
        assert write_at(descriptor, b"hello world", 0) == 11
        assert write_at(descriptor, b"W", 6) == 1
        assert read_at(descriptor, 5, 6) == b"World"
    assert (tmp_path / "book").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "rooms",
    [
        "federation, federation.store.journal, federation.transparency.notebook, federation.outbox",
        "federation.deploy.serving, federation.deploy.guard",
        "study.simulation, study.jobs, samples.encoders.cache, privacy, sklearn, cli",
    ],
)
def test_everything_is_imported_without_fcntl(rooms: str) -> None:
    names = [f"fedmoments.{room.strip()}" for room in rooms.split(",")]
    done = without_fcntl(f"import importlib\nfor name in {names!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_files_are_locked_without_fcntl(tmp_path: Path) -> None:
    done = without_fcntl(
        f"""
        import time
        from fedmoments.durable.locks import lock, locked_file, read_at, write_at
        path = {str(tmp_path / "book")!r}
        child = None
        with locked_file(path) as descriptor:
            write_at(descriptor, b"0", 0)
            child = os.fork()
            if child == 0:  # record locks are not inherited: the child is another process
                with open(path, "r+") as other:
                    try:
                        lock(other, wait=False)
                    except BlockingIOError:
                        os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with locked_file(path) as descriptor:
            assert read_at(descriptor, 9, 0) == b"0"
        """
    )
    assert done.returncode == 0, done.stderr
