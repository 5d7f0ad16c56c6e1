"""Which code produced a result: what was measured by other code is measured again.

Our own sources are hashed as a whole: a head passes through statistics, linear algebra and maps, and a list of what it
passes through would be wrong one day. Of somebody else's head, map or optimiser all sources of its package are hashed,
with the version of its distribution; of a module in no package, its own, and those of what it uses beside it.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any

import fedmoments

__all__ = ["code_of", "package_code"]


_OURS = fedmoments.__name__


@cache
def package_code() -> str:
    """Return the SHA-256 of our version, those of numpy and scipy, and of all our sources.

    Examples
    --------
    >>> len(package_code())
    64
    """
    import numpy
    import scipy

    sha = hashlib.sha256(repr((fedmoments.__version__, numpy.__version__, scipy.__version__)).encode())
    _add_sources(sha, Path(fedmoments.__file__).parent)
    return sha.hexdigest()


def code_of(*kinds: Callable[..., Any]) -> str:
    """Return what the results of classes or functions depend on: the digest of their packages' sources.

    Parameters
    ----------
    kinds
        The class of a head, a map, an encoder …, whose bases count, too, or a function. Of what is ours nothing is
        added to :func:`package_code`.

    Examples
    --------
    >>> from fedmoments.core.heads.nearest_mean import NearestMean
    >>> code_of(NearestMean) == package_code()
    True
    """
    theirs = [digest for kind in kinds for digest in _others(kind)]
    return hashlib.sha256("".join([package_code(), *theirs]).encode()).hexdigest() if theirs else package_code()


@cache
def _others(kind: Callable[..., Any]) -> tuple[str, ...]:
    """Return the digests of the sources that are not ours, each once; a class is read when it is first asked for."""
    modules = dict.fromkeys(str(base.__module__) for base in getattr(kind, "__mro__", (kind,)))
    return tuple(_digest(name) for name in modules if _is_foreign(name))


def _is_foreign(module: str) -> bool:
    top = module.partition(".")[0]
    return top != _OURS and top not in sys.stdlib_module_names


def _digest(module: str) -> str:
    """Return the digest of a module's package, or of the module where it is in none; one of a kind without a file."""
    top = module.partition(".")[0]
    loaded, package = sys.modules.get(module), sys.modules.get(top)
    file = getattr(loaded, "__file__", None)
    if file is None:  # typed into an interpreter: nobody knows whether it will be the same next time
        return token_hex(32)
    sha = hashlib.sha256(repr((module, _versions(top))).encode())
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    for folder in folders:
        _add_sources(sha, folder)
    if not folders:
        for path in sorted(_beside(module, Path(file).parent)):
            sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def _beside(module: str, folder: Path) -> set[Path]:
    """Return the files of a module and of what it reaches in its folder: modules, and where functions come from."""
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        loaded = sys.modules.get(name)
        path = Path(getattr(loaded, "__file__", None) or "")
        if name in files or path.parent != folder:
            continue
        files[name] = path
        for held in list(vars(loaded).values()):
            waiting.append(held.__name__ if isinstance(held, ModuleType) else str(getattr(held, "__module__", "")))
    return set(files.values())


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: list(several) for name, several in packages_distributions().items()}


def _versions(top: str) -> list[str]:
    return sorted({f"{name} {version(name)}" for name in _distributions().get(top, ())})


def _add_sources(sha: "hashlib._Hash", folder: Path) -> None:
    for path in _sources(folder):
        sha.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")


def _sources(folder: Path) -> Iterable[Path]:
    return sorted(folder.rglob("*.py"))
