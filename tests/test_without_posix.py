"""Commands on files do their work where the calls that only POSIX has are missing, as on Windows.

What cannot be seen here: drive letters, open files that cannot be deleted, and other code pages.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from fedmoments.samples.splits.split import client_name

pytestmark = pytest.mark.long

WITHOUT = """
import asyncio, concurrent.futures.process, multiprocessing.connection, os, signal, socket, sqlite3, subprocess, sys
import types, uuid
import click, cryptography.x509, numpy, safetensors.numpy, scipy.linalg, scipy.optimize, scipy.sparse, scipy.stats
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
played = types.ModuleType("msvcrt")
played.LK_NBLCK, played.locking = 2, lambda descriptor, mode, size: None
sys.modules["msvcrt"] = played
GONE = {
    os: "fork getuid geteuid getgid getegid killpg setsid getpgid O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK fchmod "
        "fchown chown pread pwrite posix_fallocate posix_fadvise sched_getaffinity mkfifo sysconf getpgrp statvfs "
        "uname nice getloadavg set_blocking",
    signal: "SIGHUP SIGKILL SIGCHLD SIGUSR1 SIGUSR2 SIGALRM SIGPIPE SIGQUIT pthread_sigmask setitimer alarm sigwait",
    socket: "AF_UNIX",
}
for module, names in GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
from fedmoments.cli import main
main()
"""

#: In order: each goes on with the files of those before.
COMMANDS = """
measure ann.npz --head gh-lda -o ann.stats
measure bob.npz --head gh-lda -o bob.stats
merge ann.stats bob.stats -o both.stats
fit both.stats --head gh-lda -o head.safetensors
evaluate head.safetensors ann.npz
predict head.safetensors ann.npz
export head.safetensors --to sklearn --out exported
simulate ann.npz --clients 4 --heads fedcof --seeds 1 --out study
federate --data ann.npz --local 2 --clients 4 --engine memory --heads gh-lda --min-count 1 --out trial
keys server keys --host localhost
keys client keys --name ann
server create fed.ledger --name t --data ann.npz --heads fedcof
server enrol fed.ledger keys/ann.card
server invite fed.ledger bob --server localhost:9092 --keys keys
client ann --keys keys --data ann.npz --terms fed.ledger.terms.json --plan
server amend fed.ledger --classes owl
ledger verify fed.ledger
ledger snapshot fed.ledger copy.db
ledger verify trial/federation/ledger.db
leave trial/federation/ledger.db FIRST
status trial/federation/ledger.db
"""


def test_commands_on_files_need_no_posix(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("ann", "bob"):
        y = np.arange(120) % 3
        X = (rng.normal(size=(120, 8)) + 4.0 * np.eye(3, 8)[y]).astype(np.float32)
        classes = np.array(["cat", "dog", "emu"])
        np.savez(tmp_path / f"{name}.npz", x_train=X, y_train=y, x_test=X[:30], y_test=y[:30], classes=classes)
    for command in COMMANDS.replace("FIRST", client_name(0, 4)).strip().splitlines():
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr[-1500:]}"
