"""What rounds cost: bytes both ways, as messages have them and by formula, and FLOPs (METHODS: costs of rounds)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmoments.core.costs import client_flops, iterative_cost
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import Arrays, Update, message_size

__all__ = ["Bill", "Prices"]

#: Bytes of what a client says of its validation share: samples, right ones and loss.
SCORE_BYTES = 24


@dataclass(frozen=True)
class Bill:
    """Bytes and FLOPs over all clients and rounds so far.

    Parameters
    ----------
    up, down
        Bytes of messages from and to clients.
    up_formula, down_formula
        The same by formula: four bytes a parameter, SCAFFOLD twice; neither validation, temperatures nor what is sent
        once are in it.
    flops
        Of all clients together while they train; None where the encoder's are not known. Forward passes over
        validation shares, and those that choose a temperature, have no formula in the papers and are left out.

    Examples
    --------
    >>> (Bill(10, 20, 8, 16, 5.0) + Bill(1, 2, 1, 2, 5.0)).total
    33
    """

    up: int = 0
    down: int = 0
    up_formula: float = 0.0
    down_formula: float = 0.0
    flops: float | None = 0.0

    @property
    def total(self) -> int:
        """Bytes both ways."""
        return self.up + self.down

    def __add__(self, other: "Bill") -> "Bill":
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        return Bill(
            self.up + other.up,
            self.down + other.down,
            self.up_formula + other.up_formula,
            self.down_formula + other.down_formula,
            flops,
        )


@dataclass(frozen=True)
class Prices:
    """What a round is charged by.

    Parameters
    ----------
    dim, classes
        k and C of the head that is trained.
    encoder_parameters
        b, trained and sent in ``ft`` and ``feat``; 0 in ``lp``.
    encoder_flops
        F_φ of one sample's forward pass; None where it is not known, 0 to charge the head alone.
    start
        What the start has cost before any tuning: the head's own upload and its clients' work.
    opening
        What is spent once tuning begins, before its first round: choosing a temperature.
    frozen
        Bytes of what a client needs once and is never trained: the base of a head that is not linear, the head of
        stage ``feat``. Charged when a client is first asked.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = {"head/weights": np.zeros((4, 2), np.float32), "head/bias": np.zeros(2, np.float32)}
    >>> prices = Prices(4, 2, encoder_flops=100.0)
    >>> bill = prices.of_round(TuningPlan(), {"a": 5}, arrays, None, [Update("a", 5, 1, 0.1, arrays)])
    >>> bill.up_formula, bill.down_formula, bill.flops, bill.up > 40
    (40, 40, 620.0, True)
    """

    dim: int
    classes: int
    encoder_parameters: int = 0
    encoder_flops: float | None = None
    start: Bill = Bill()
    opening: Bill = Bill()
    frozen: int = 0

    def of_round(
        self,
        plan: TuningPlan,
        asked: Mapping[str, int],
        arrays: Arrays,
        control: Arrays | None,
        updates: Sequence[Update],
    ) -> Bill:
        """Return the cost of a round.

        Parameters
        ----------
        plan
            Optimiser, stage and epochs.
        asked
            Clients that were sent the parameters, and their n_k.
        arrays, control
            What was sent.
        updates
            What came back. Where no messages travel, one each way is made and measured, and stands for all.
        """
        formula = iterative_cost(
            plan.priced_as,
            d=self.dim,
            classes=self.classes,
            encoder_parameters=self.encoder_parameters,
            sampled=1,
            rounds=1,
            bias=True,
        )
        first = updates[0]
        header = {"client": first.client, "samples": first.samples, "steps": first.steps, "loss": first.loss}
        sent = first.down or message_size(arrays, control, round=1)
        came = 0 if first.up else message_size(first.arrays, first.control, round=1, **header)
        return Bill(
            up=sum(update.up or came for update in updates),
            down=len(asked) * sent,
            up_formula=len(updates) * formula.up_bytes,
            down_formula=len(asked) * formula.down_bytes,
            flops=None if self.encoder_flops is None else sum(self._flops(plan, u.samples) for u in updates),
        )

    def of_asking(self, asked: int, arrays: Arrays, updates: Sequence[Update]) -> Bill:
        """Return the messages of a round's first exchange, gradients for parameters: its formula is the round's."""
        sent = updates[0].down or message_size(arrays, None, round=1)
        came = 0 if updates[0].up else message_size({}, updates[0].control, round=1)
        up = sum(update.up or came for update in updates)
        return Bill(up=up, down=asked * sent, flops=None if self.encoder_flops is None else 0.0)

    def of_check(self, clients: int, arrays: Arrays) -> Bill:
        """Return the cost of testing on all clients' validation shares: everybody is sent the parameters."""
        flops = None if self.encoder_flops is None else 0.0
        return Bill(up=clients * SCORE_BYTES, down=clients * message_size(arrays, None, round=1), flops=flops)

    def of_meeting(self, newcomers: int) -> Bill:
        """Return the cost of asking clients for the first time."""
        return Bill(down=newcomers * self.frozen, flops=None if self.encoder_flops is None else 0.0)

    def _flops(self, plan: TuningPlan, samples: int) -> float:
        return client_flops(
            plan.priced_as,
            samples=samples,
            encoder_flops=self.encoder_flops or 0.0,
            d=self.dim,
            classes=self.classes,
            epochs=_passes(plan),
        )


def _passes(plan: TuningPlan) -> int:
    """Return how often a client passes over its samples: MimeLite once more, Mime twice a step and once more."""
    return {"mimelite": plan.epochs + 1, "mime": 2 * plan.epochs + 1}.get(plan.local_rule, plan.epochs)
