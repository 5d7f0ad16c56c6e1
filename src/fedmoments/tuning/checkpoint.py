"""The file from which an interrupted run goes on: parameters, what optimiser and engine keep, and the points so far."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError, reading
from fedmoments.files import pack_tensors, read_tensors, write_whole
from fedmoments.tuning.engine import Arrays

__all__ = ["Checkpoint"]

_KIND = "tuning checkpoint"
_GROUPS = ("arrays", "best", "optimiser", "engine")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stands after a round.

    Parameters
    ----------
    arrays, best
        Parameters now, and those of the best validation so far (none where there is no validation).
    optimiser, engine
        Their states.
    notes
        Round, points, best round and the like, JSON-able.
    basis
        Whatever else the run depends on (plan, start, data): a file of another basis is refused.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint({"w": np.ones(2)}, notes={"round": 3}, basis="x").save(Path(folder, "c.safetensors"))
    ...     saved = Checkpoint.load(Path(folder, "c.safetensors"), basis="x")
    >>> saved.notes["round"], saved.arrays
    (3, {'w': array([1., 1.])})
    """

    arrays: Arrays
    best: Arrays = field(default_factory=dict)
    optimiser: Arrays = field(default_factory=dict)
    engine: Arrays = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    basis: str = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; it appears whole or not at all, in place of an older one."""
        tensors = {f"{group}/{name}": array for group in _GROUPS for name, array in getattr(self, group).items()}
        write_whole(path, pack_tensors(_KIND, tensors, {"basis": self.basis, "notes": dict(self.notes)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, basis: str) -> "Checkpoint | None":
        """Read the file; None where there is none yet."""
        if not Path(path).exists():
            return None
        tensors, header = read_tensors(path, _KIND)
        if header.get("basis") != basis:
            raise InputError(
                f"{path} is the checkpoint of another run (another plan, start, split or data): give another folder, "
                "or delete it to begin anew"
            )
        groups: dict[str, Arrays] = {group: {} for group in _GROUPS}
        with reading(f"{path} is no checkpoint"):
            for name, array in tensors.items():
                group, _, rest = name.partition("/")
                groups[group][rest] = array
            return cls(**groups, notes=header["notes"], basis=basis)
