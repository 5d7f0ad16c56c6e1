"""Optional packages, imported where they are needed, with a kind word when they are absent."""

import importlib
from importlib.util import find_spec
from typing import Any

from fedmoments.errors import MissingExtraError

__all__ = ["is_installed", "require"]


def require(module: str, what: str, extra: str, package: str | None = None) -> Any:
    """Import a module that an extra brings.

    Parameters
    ----------
    module
        Its name, for instance ``"torch.nn"``.
    what
        Who needs it, for the message.
    extra
        The extra of fedmoments that brings it.
    package
        The package's name, where it is not that of its top-level module.

    Raises
    ------
    MissingExtraError
        When its package is not installed. A package that is there but does not import raises what it raises.

    Examples
    --------
    >>> require("json", "The example", "torch").loads("1")
    1
    >>> require("no_such_package", "The example", "torch")
    Traceback (most recent call last):
    fedmoments.errors.MissingExtraError: The example needs the package 'no_such_package', which is not installed: ...
    """
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise
        raise MissingExtraError(what, package or top, extra) from error


def is_installed(module: str) -> bool:
    """Say whether a top-level package is there, without importing it.

    Examples
    --------
    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    try:
        return find_spec(module) is not None
    except ValueError:  # in sys.modules, but without a spec: made by hand, or hidden by None
        return False
