"""Where fedmoments keeps what it can make again: below FEDMOMENTS_CACHE, or the platform's cache folder."""

import os
import sys
from pathlib import Path

__all__ = ["cache_folder", "cache_root"]


def cache_folder(kind: str, root: str | os.PathLike[str] | None = None) -> Path:
    r"""Return the folder for one kind of cached file; it need not exist yet.

    Parameters
    ----------
    kind
        A subfolder, for instance ``"onnx"``.
    root
        The folder to use in place of the environment variable ``FEDMOMENTS_CACHE``, which in turn is used in place of
        ``~/.cache/fedmoments`` (Linux), ``~/Library/Caches/fedmoments`` (macOS), ``%LOCALAPPDATA%\fedmoments``.

    Examples
    --------
    >>> cache_folder("onnx", "/var/cache").as_posix()
    '/var/cache/onnx'
    """
    return cache_root(root) / kind


def cache_root(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of all caches: the one that was given, ``$FEDMOMENTS_CACHE``, or the platform's.

    Examples
    --------
    >>> cache_root("/var/cache").as_posix()
    '/var/cache'
    """
    chosen = given or os.environ.get("FEDMOMENTS_CACHE")
    return Path(chosen).expanduser() if chosen else _platform_folder() / "fedmoments"


def _platform_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
