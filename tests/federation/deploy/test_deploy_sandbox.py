"""What is hidden from a process cannot be opened by it, by any name, nor by what it starts; all else stays usable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmoments.federation.deploy import sandbox
from fedmoments.federation.deploy.nodes import _all_but

pytestmark = pytest.mark.skipif(not sandbox.available(), reason="this system has no Landlock")


def run(code: str, *hidden: Path) -> str:
    command = sandbox.wrapped([sys.executable, "-c", code], hidden)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def party(tmp_path: Path) -> Path:
    """Keys, a folder of its own, and a link that leads around both."""
    (tmp_path / "keys").mkdir()
    for name in ("clinic.identity", "clinic.node", "ca.crt"):
        (tmp_path / "keys" / name).write_text(f"the {name}")
    (tmp_path / "own").mkdir()
    (tmp_path / "way-round").symlink_to(tmp_path / "keys")
    return tmp_path


_OPEN = """
import subprocess
for how in ({path!r}, {link!r}, {dotted!r}):
    try:
        print("read", open(how).read())
    except PermissionError:
        print("kept")
print("kept" if subprocess.run(["cat", {path!r}], capture_output=True).returncode else "read")
try:
    import os, shutil
    os.rename({path!r}, {own!r})
    print("moved")
except OSError:
    print("kept")
try:
    os.link({path!r}, {own!r})
    print("linked")
except OSError:
    print("kept")
"""


@pytest.mark.parametrize("hidden", ["keys", "keys/clinic.identity"])
def test_what_is_hidden_cannot_be_opened_by_any_name(party: Path, hidden: str) -> None:
    names = {
        "path": "keys/clinic.identity",
        "link": "way-round/clinic.identity",
        "dotted": "own/../keys/clinic.identity",
    }
    code = _OPEN.format(**{key: str(party / name) for key, name in names.items()}, own=str(party / "own" / "mine"))
    assert run(code, party / hidden).split() == ["kept"] * 6
    assert (party / "keys" / "clinic.identity").exists()


def test_what_is_not_hidden_stays_usable(party: Path) -> None:
    own = party / "own"
    code = f"""
import os, sqlite3, tempfile
print(open({str(party / "keys" / "clinic.node")!r}).read())
open({str(own / "a")!r}, "w").write("1")
os.replace({str(own / "a")!r}, {str(own / "b")!r})
file = sqlite3.connect({str(own / "c.db")!r})
file.execute("PRAGMA journal_mode=WAL")
file.execute("CREATE TABLE t (x)")
file.commit()
print(sorted(os.listdir({str(own)!r}))[:2])
"""
    assert run(code, party / "keys" / "clinic.identity") == "the clinic.node\n['b', 'c.db']"


def test_a_process_behind_it_reads_no_memory_of_one_that_is_not(party: Path) -> None:
    code = f"""
import ctypes
try:
    open("/proc/{os.getpid()}/mem", "rb")
    print("read")
except PermissionError:
    print("kept")
print("kept" if ctypes.CDLL(None).ptrace(16, {os.getpid()}, 0, 0) else "traced")  # PTRACE_ATTACH
"""
    assert run(code, party / "keys").split() == ["kept"] * 2


def test_it_cannot_be_undone_from_inside(party: Path) -> None:
    code = f"""
from fedmoments.federation.deploy.sandbox import hide
from pathlib import Path
hide([Path({str(party / "own")!r})])
for name in ("keys/clinic.identity", "own"):
    try:
        open(Path({str(party)!r}, name)).read()
        print("read")
    except OSError:
        print("kept")
"""
    assert run(code, party / "keys").split() == ["kept"] * 2


def test_flowers_process_keeps_its_own_key_and_no_other(party: Path) -> None:
    keys = party / "keys"
    kept = {keys / "clinic.node", keys / "ca.crt"}
    assert _all_but(keys, kept) == [keys / "clinic.identity"]
    assert _all_but(party / "own", kept) == [party / "own"]
    assert _all_but(keys / "clinic.node", kept) == []
