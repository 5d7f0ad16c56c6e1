"""Files and folders that people name: whether they are there, or can be made."""

from pathlib import Path

from fedmoments.errors import InputError

__all__ = ["existing_file", "results_folder", "writable_place"]


def existing_file(path: Path) -> Path:
    """Return the path of a file that is there and can be opened, or say what is wrong with it."""
    if path.is_dir():
        raise InputError(f"{path} is a directory, but a file is needed")
    if not path.exists():
        raise InputError(f"{path} does not exist")
    with path.open("rb"):
        return path


def writable_place(path: Path) -> Path:
    """Return the path of a file that can be made there, or say before any work is done why not."""
    if path.is_dir():
        raise InputError(f"{path} is a directory, but the name of a file to write was requested")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {path.parent}")
    return path


def results_folder(path: Path | None) -> None:
    """Refuse, before any work is done, a folder for results that is neither there nor can be made."""
    if path is None:
        return
    above = next(place for place in (path, *path.parents) if place.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be the folder of the results: {above} is a file")
