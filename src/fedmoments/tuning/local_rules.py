"""What an optimiser changes of a client's steps: the terms beside its raw gradients, what it keeps and what it sends.

With raw gradients g of the mean loss of a batch (L2 penalty included), w₀ what the server sent, c what it sent beside
it, and c_k what the client kept from its last round (0 at first), a step of :mod:`fedmoments.tuning.engine` follows

    weight·g + μ·(w − w₀) + added,

| rule | weight | μ | added | kept as c_k | sent beside w |
|---|---|---|---|---|---|
| plain | 1 | plan's with FedProx | – | – | – |
| scaffold | 1 | 0 | c − c_k | mean of g over the round | its change |
| feddyn | 1 | α | −c_k | c_k − α·(w − w₀) | – |
| mimelite | 1 − β | 0 | β·c | – | g of all samples at w₀ |
| mime | 1 − β | 0 | c − (1 − β)·g₀ | – | – |

g₀ is the gradient of the same batch at w₀. Mime's clients tell g of all samples at w₀ before, in another exchange.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.settings.plan import TuningPlan

__all__ = ["LocalRule"]

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LocalRule:
    """The terms of one optimiser, for arrays of any shape.

    Parameters
    ----------
    name
        One of :data:`~fedmoments.settings.optimisers.LOCAL_RULES`.
    weight
        Of raw gradients in a step.
    momentum
        β of MimeLite and Mime.
    alpha
        α of FedDyn.

    Examples
    --------
    >>> rule = LocalRule.of(TuningPlan(optimiser="mimelite", server_momentum=0.75))
    >>> rule.weight, rule.added(np.ones(2), None), rule.measures
    (0.25, array([0.75, 0.75]), 'first')
    """

    name: str
    weight: float = 1.0
    momentum: float = 0.0
    alpha: float = 0.0

    @classmethod
    def of(cls, plan: TuningPlan) -> "LocalRule":
        """Return the rule of a plan."""
        beta = plan.server_momentum if plan.local_rule in {"mimelite", "mime"} else 0.0
        return cls(plan.local_rule, 1.0 - beta, beta, plan.alpha)

    @property
    def measures(self) -> str:
        """Which gradient of a round is wanted: the ``mean`` of all steps, the ``first`` (all samples at w₀), none."""
        return {"scaffold": "mean", "mimelite": "first"}.get(self.name, "")

    @property
    def anchored(self) -> bool:
        """Whether every step subtracts the gradient of its batch at w₀."""
        return self.name == "mime"

    def added(self, server: Floats | None, own: Floats | None) -> Floats | None:
        """Return what is added to every step; ``own`` may stand for several clients, in the first axis."""
        if self.name == "scaffold" and server is not None and own is not None:
            return np.asarray(server - own)
        if self.name == "feddyn" and own is not None:
            return np.asarray(-own)
        if self.name == "mimelite" and server is not None:
            return np.asarray(self.momentum * server, server.dtype)
        return server if self.anchored else None

    def kept(self, own: Floats | None, gradient: Floats | None, moved: Floats) -> Floats | None:
        """Return what the client keeps after a round in which its parameters moved; None where it keeps nothing."""
        if self.name == "scaffold" and gradient is not None:
            return gradient.copy()
        if self.name == "feddyn" and own is not None:
            return np.asarray(own - self.alpha * moved, moved.dtype)
        return None

    def sent(self, own: Floats | None, gradient: Floats | None) -> Floats | None:
        """Return what the client sends beside its parameters; None where it sends nothing."""
        if gradient is None:
            return None
        return gradient - own if self.name == "scaffold" and own is not None else gradient.copy()
