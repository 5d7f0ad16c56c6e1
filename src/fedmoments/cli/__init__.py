"""The command ``fedmoments``: files in, files out; tables for people, ``--json`` for machines.

Exit codes: 0 done, 1 a federation's run or check failed, 2 refused (one sentence on stderr says why), 130 interrupted.
"""

import sys
from importlib import import_module

from fedmoments.errors import MissingExtraError

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of ``fedmoments`` and ``python -m fedmoments``."""
    try:
        for package in ("click", "rich"):
            _require(package)
        from fedmoments.cli.app import app

        app(prog_name="fedmoments")
    except MissingExtraError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _require(package: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        raise MissingExtraError("The command line", package, "cli") from error
