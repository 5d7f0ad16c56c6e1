"""What every optimiser of the server can do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fedmoments.errors import InputError
from fedmoments.tuning.engine import Arrays, Update

__all__ = ["ServerOptimiser", "require_updates"]


class ServerOptimiser(ABC):
    """Turns what clients send after a round into the parameters of the next.

    Arrays whose names begin with ``averaged/`` are averaged by n_k and not optimised: a momentum or an adaptive step
    could make a running variance negative.
    """

    name: str

    def control(self, arrays: Arrays) -> Arrays | None:  # noqa: ARG002 - only SCAFFOLD sends some
        """Return the control variates that are sent beside the parameters; None where there are none."""
        return None

    @abstractmethod
    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        """Return the parameters after a round.

        Parameters
        ----------
        round_number
            From 1.
        arrays
            The parameters that were sent.
        updates
            What clients sent, at least one.
        """

    @abstractmethod
    def state(self) -> Arrays:
        """Return what must be kept from round to round."""

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Go on from a state."""


def require_updates(arrays: Arrays, updates: Sequence[Update]) -> None:
    """Refuse a round without updates, and updates that do not have the arrays that were sent."""
    if not updates:
        raise InputError("no client sent an update in this round: there is nothing to average")
    for update in updates:
        if set(update.arrays) != set(arrays):
            odd = sorted(set(update.arrays) ^ set(arrays))[0]
            raise InputError(f"client {update.client} sent other arrays than it was sent: they differ in '{odd}'")
        if update.samples < 1:
            raise InputError(f"client {update.client} trained on {update.samples} samples: it has no weight")
