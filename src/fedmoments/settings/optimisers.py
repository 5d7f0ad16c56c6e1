"""Which optimisers of the server there are: their names are checked here, what they do is written in the tuning wing.

They are built in (the ``OPTIMISERS`` of every file of ``fedmoments.tuning.optimisers``), of installed packages (entry
points of the group ``fedmoments.optimisers``), or registered at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.registry import Registry, scan

__all__ = ["LOCAL_RULES", "OPTIMISERS", "Optimiser", "register_optimiser"]

Given = TypeVar("Given")

#: What clients add to their gradients: see ``fedmoments.tuning.local_rules``.
LOCAL_RULES = ("plain", "scaffold", "feddyn", "mimelite", "mime")
#: Rules by which a client remembers something from one of its rounds to the next.
_REMEMBERING = ("scaffold", "feddyn")


@dataclass(frozen=True)
class Optimiser:
    """An entry of the registry: how the server merges what clients send.

    Parameters
    ----------
    name
        What users type.
    make
        Called with the plan and n_k by client; returns a ``fedmoments.tuning.optimisers.ServerOptimiser``.
    server_lr
        Its own step of the server, where the plan has none.
    proximal
        Whether clients are held near what they were sent, by the plan's μ.
    controlled
        Whether the server sends arrays beside the parameters, and clients send as many back.
    local
        What clients add to their gradients, one of :data:`LOCAL_RULES`; by default ``scaffold`` where ``controlled``.
    """

    name: str
    make: Callable[[Any, Any], Any]
    server_lr: float = 1.0
    proximal: bool = False
    controlled: bool = False
    local: str = ""

    def __post_init__(self) -> None:
        if not self.local:
            object.__setattr__(self, "local", "scaffold" if self.controlled else "plain")
        if self.local not in LOCAL_RULES:
            raise UnknownNameError("rule of a client's steps", self.local, LOCAL_RULES)

    @property
    def remembers(self) -> bool:
        """Whether clients keep something from one of their rounds to the next."""
        return self.local in _REMEMBERING

    @property
    def asks_first(self) -> bool:
        """Whether a round has two exchanges: clients tell their gradients before any of them makes a step."""
        return self.local == "mime"

    @property
    def priced_as(self) -> str:
        """The method of :mod:`fedmoments.core.costs` that sends as much."""
        return "scaffold" if self.controlled else "fedavg"


def _accept(given: Any, name: str | None) -> Optimiser:
    if isinstance(given, Optimiser):
        return given
    if not callable(given):
        raise InputError("it must be an Optimiser, or make a ServerOptimiser of a plan and the clients' samples")
    own = name or getattr(given, "name", None) or given.__name__.lower()
    return Optimiser(str(own), given, controlled=bool(getattr(given, "controlled", False)))


OPTIMISERS: Registry[Optimiser] = Registry(
    "optimiser",
    group="fedmoments.optimisers",
    accept=_accept,
    built_in=scan("fedmoments.tuning.optimisers", "OPTIMISERS"),
    order=None,
)


def register_optimiser(optimiser: Given, name: str | None = None) -> Given:
    """Make an optimiser of the server known by name in this process; also a class decorator.

    Parameters
    ----------
    optimiser
        An :class:`Optimiser`, or a class (or function) that makes one of ``(plan, samples)``.
    name
        What users type; its own name by default.

    Examples
    --------
    >>> from fedmoments.tuning.optimisers import Scaffold
    >>> _ = register_optimiser(Optimiser("mine", Scaffold, controlled=True))
    >>> OPTIMISERS["mine"].priced_as
    'scaffold'
    >>> OPTIMISERS.remove("mine")
    """
    OPTIMISERS.register(optimiser, name)
    return optimiser
