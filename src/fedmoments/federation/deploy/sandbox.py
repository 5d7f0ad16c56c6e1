"""Keeping files from a process: it gives up the right to open them, for itself and for all that it starts.

Linux's Landlock needs no privileges, cannot be undone, and holds for root as well; a process behind it can neither
trace nor read the memory of one that is not. Elsewhere nothing is hidden, and :func:`hide` says so.

Run by path, with the standard library only, it hides files and becomes a command:
``python -I -S sandbox.py HIDDEN ... -- COMMAND ...``.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

__all__ = ["available", "hide", "main", "wrapped"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the numbers of Landlock's system calls, the same on every architecture
_PATH_BENEATH, _VERSION, _NO_NEW_PRIVILEGES = 1, 1, 38
#: Rights over files by the version of Landlock that knows them: the first bits up to the last that it has.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
#: Rights that a file can have, not only a folder: execute, write, read, truncate, device control.
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def available() -> int:
    """Return the version of Landlock that the system has; 0 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def wrapped(command: Iterable[str | os.PathLike[str]], hidden: Iterable[Path]) -> list[str | os.PathLike[str]]:
    """Return a command behind this file: it runs without a way to some files and folders.

    Examples
    --------
    >>> import subprocess, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     secret = Path(folder, "secret")
    ...     _ = secret.write_text("seen")
    ...     outcome = subprocess.run(wrapped(["/bin/cat", secret], [secret]), capture_output=True)
    >>> outcome.stdout == (b"" if available() else b"seen")
    True
    """
    return [sys.executable, "-I", "-S", __file__, *map(os.fspath, hidden), "--", *command]


def hide(paths: Iterable[Path]) -> bool:
    """Give up every right to some files and folders, and all below; return whether this system can do that.

    All that is there now stays open, but for folders on the way to what is hidden: in these themselves no file can be
    made and nothing be listed from now on. A second name of a hidden file (a hard link, a mount) is not hidden.

    Parameters
    ----------
    paths
        What to hide; those that do not exist cannot be opened later either.
    """
    version = available()
    hidden = {Path(os.path.realpath(path)) for path in paths}
    if not version or not hidden:
        return bool(version)
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _RIGHTS[min(version, 5)]) - 1
    ruleset = _Ruleset(handled)
    descriptor = libc.syscall(
        _CREATE, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), ctypes.c_uint32(0)
    )
    _require(descriptor >= 0)
    try:
        _allow_beside(libc, descriptor, Path("/"), hidden, handled)
        _require(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0)
        _require(libc.syscall(_RESTRICT, ctypes.c_int(descriptor), ctypes.c_uint32(0)) == 0)
    finally:
        os.close(descriptor)
    return True


def _allow_beside(libc: ctypes.CDLL, ruleset: int, folder: Path, hidden: set[Path], rights: int) -> None:
    """Allow everything in a folder that is not hidden and not on the way to what is."""
    on_the_way = {parent for path in hidden for parent in path.parents}
    try:
        entries = list(os.scandir(folder))
    except OSError:  # what cannot be listed cannot be opened by a name that is not known: it stays closed
        return
    for entry in entries:
        path = Path(entry.path)
        if path in hidden or entry.is_symlink():  # where a link leads is judged by itself
            continue
        if path in on_the_way:
            _allow_beside(libc, ruleset, path, hidden, rights)
        else:
            _allow(libc, ruleset, path, rights)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it is gone, or was never ours
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = _Beneath(rights if is_folder else rights & _OF_FILES, descriptor)
        code = libc.syscall(
            _ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
        )
        _require(code == 0)
    finally:
        os.close(descriptor)


def _require(done: bool) -> None:  # noqa: FBT001
    if not done:
        number = ctypes.get_errno()
        raise OSError(number, f"files cannot be kept from this process: {os.strerror(number)}")


def main(arguments: list[str]) -> NoReturn:
    """Hide files, and become the command."""
    at = arguments.index("--")
    hide(map(Path, arguments[:at]))
    os.execv(arguments[at + 1], arguments[at + 1 :])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
