"""What commands have in common: options, examples, files that must be there."""

import shlex
import sys
from typing import Annotated, Any

from fedmoments.cli.generate import typed
from fedmoments.cli.output import SHOWN

__all__ = ["OF_CREWS", "OF_SIMULATIONS", "Everybody", "Fresh", "Hyper", "Json", "Track", "example", "typed_command"]

Json = Annotated[bool, typed("--json", help="Print one JSON document on stdout, and nothing else.", group="Output")]
Everybody = Annotated[bool, typed("--all", help=f"List all clients, not the first {SHOWN}.")]
Hyper = Annotated[
    dict[str, dict[str, Any]],
    typed(
        "--set",
        help="A hyper-parameter of a head; may be repeated.",
        metavar="HEAD.NAME=VALUE",
        kind="hyper",
        group="Heads",
    ),
]
Verbose = Annotated[
    bool,
    typed("--verbose", "-v", help="Also print digests and rounds; the report always has them.", group="Output"),
]
Fresh = Annotated[bool, typed("--fresh", help="Discard what earlier runs measured, and measure again.", group="Output")]
Track = Annotated[
    tuple[str, ...],
    typed(
        "--track",
        help="Log results during the run: mlflow, tensorboard, or NAME:PLACE (a folder or a tracking URI). "
        "mlflow uses MLFLOW_TRACKING_URI or ./mlruns, tensorboard the folder of --out.",
        metavar="NAME,…",
        group="Output",
    ),
]
#: Settings of a study that only a simulation has.
OF_SIMULATIONS = (
    "shrinkages", "means_per_client", "projections", "feature_map", "budgets", "budget_curve", "participation",
    "privacy",
)  # fmt: skip
#: Settings of a study that say who works, and in which numbers.
OF_CREWS = ("jobs", "cluster", "precision")


def typed_command() -> str:
    """Return the command line as it was typed, for reports."""
    return shlex.join(["fedmoments", *sys.argv[1:]])


def example(*lines: str) -> str:
    """Return the end of a command's help: lines that work as they stand, once ``fedmoments demo`` has run.

    Examples
    --------
    >>> print(example("fedmoments heads").replace(chr(8), "(unwrapped)"))
    (unwrapped)
    Example, after 'fedmoments demo':
      fedmoments heads
    """
    return "\n".join(["\b", "Example, after 'fedmoments demo':", *(f"  {line}" for line in lines)])
