"""What the server of a tuning decides, read from a TOML file on its own machine."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.heads import presets
from fedmoments.jobs.settings import from_values, read_toml, to_toml, with_values
from fedmoments.simulation.run import choose_heads
from fedmoments.tuning import TuningPlan

__all__ = ["RANDOM", "TuningSettings", "read_plan"]

#: The start that is no head.
RANDOM = "random"

_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


def read_plan(table: Mapping[str, Any], whose: str) -> TuningPlan:
    """Return the plan that a table holds; what is not in it has its default.

    Parameters
    ----------
    table
        By field of :class:`~fedmoments.tuning.TuningPlan`, as TOML or JSON gives them.
    whose
        Where it came from, for messages.

    Raises
    ------
    InputError
        When a field is unknown, of another type, or out of range.

    Examples
    --------
    >>> read_plan({"stage": "lp", "rounds": 3}, "the server").rounds
    3
    >>> read_plan({"epochs": "many"}, "the server")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the plan of the server: 'epochs' must be of type int; 'many' arrived
    """
    if not isinstance(table, Mapping):
        raise InputError(f"the plan of {whose} must be a table, not {table!r}")
    known = {each.name: str(getattr(each.type, "__name__", each.type)) for each in fields(TuningPlan)}
    for name, value in table.items():
        if name not in known:
            raise UnknownNameError(f"field of the plan of {whose}", str(name), known)
        allowed = [kind for word in known[name].split(" | ") for kind in _KINDS.get(word, ())]
        absent = value is None and "None" in known[name]
        if not absent and (not isinstance(value, tuple(allowed)) or (isinstance(value, bool) and bool not in allowed)):
            raise InputError(f"the plan of {whose}: '{name}' must be of type {known[name]}; {value!r} arrived")
    return TuningPlan(**table)


@dataclass(frozen=True)
class TuningSettings:
    """The server's settings of a tuning.

    Parameters
    ----------
    ledger
        File of the durable ledger, which holds the terms, who is enrolled, and what the start is fitted from.
    out
        Folder for the checkpoint and the results; a run that was stopped goes on from it.
    plan
        What is trained and how, as in :class:`~fedmoments.tuning.TuningPlan`. Unless it says otherwise, clients are
        asked to test the start and the last round only.
    start
        A head that is fitted from the ledger, ``random``, or the path of a saved classifier.
    hyper
        Hyper-parameters of the start's head.
    nodes, wait
        Nodes to wait for before the first round, and for how many seconds.
    minimum
        Updates that a round must bring; with fewer it fails, and the run with it.
    deadline, ttl
        Seconds after which a round is closed, and for which a message lives; the first must be less than the second.
    poll
        Seconds between two looks for replies when none came.
    evaluate
        Whether clients are asked to test on their test parts.
    max_client_samples
        Clients that say they have more samples than this to train on, which are their weight, take no part; 0: any
        number.

    Examples
    --------
    >>> TuningSettings("trial.ledger", "out", {"rounds": 3, "fraction": 0.5}).tuning_plan.rounds
    3
    """

    #: Key under which a run is told of the file.
    config_key: ClassVar[str] = "tuning-config"

    ledger: str
    out: str
    plan: Mapping[str, Any] = field(default_factory=dict)
    start: str = "fedcof"
    hyper: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 1
    wait: float = 120.0
    minimum: int = 1
    deadline: float = 600.0
    ttl: float = 900.0
    poll: float = 0.5
    evaluate: bool = True
    max_client_samples: int = 0

    def __post_init__(self) -> None:
        if not self.out:
            raise InputError("tuning needs a folder for its results (out): a run that is stopped goes on from there")
        self.tuning_plan  # noqa: B018 - checks it
        if self.start in presets():
            choose_heads([self.start], {self.start: self.hyper})
        elif self.hyper:
            raise InputError(f"hyper-parameters are for a start that is a head, not for '{self.start}'")
        if not 0 < self.deadline < self.ttl:
            raise InputError(
                f"a round must close before its messages die: deadline is {self.deadline} s, ttl is {self.ttl} s"
            )
        for name in ("nodes", "minimum"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.max_client_samples < 0:
            raise InputError(
                f"max_client_samples must be 1 or more, or 0 for any number, not {self.max_client_samples}"
            )
        if self.wait < 0 or self.poll <= 0:
            raise InputError("wait must be 0 or more, and poll above 0")

    @property
    def tuning_plan(self) -> TuningPlan:
        """The plan, checked."""
        plan = read_plan(self.plan, "these settings")
        table = {"test_every": max(plan.rounds, 1), **self.plan}
        return read_plan(table, "these settings")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TuningSettings":
        """Read a settings file; paths in it are relative to its folder."""
        settings = from_values(cls, read_toml(path), str(path))
        base = Path(path).resolve().parent
        places = {key: str(base / getattr(settings, key)) for key in ("ledger", "out")}
        if settings.start != RANDOM and settings.start not in presets():
            places["start"] = str(base / Path(settings.start).expanduser())
        return with_values(settings, places, str(path))

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        plain = asdict(self)
        plain["plan"] = {name: value for name, value in plain["plan"].items() if value is not None}
        return to_toml({name: value for name, value in plain.items() if value not in ("", {})})
