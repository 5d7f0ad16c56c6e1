"""What is trained, by whom, and how: every number that a run of tuning depends on, checked."""

import math
from dataclasses import dataclass, fields
from typing import Any

from fedmoments.errors import InputError, UnknownNameError

__all__ = ["BATCHNORMS", "OPTIMISERS", "STAGES", "TuningPlan"]

#: What is trained: the head alone; encoder and head; the encoder alone, under a frozen head.
STAGES = ("lp", "ft", "feat")
#: How the server merges what clients send.
OPTIMISERS = ("fedavg", "fedavgm", "fedadam", "fedprox", "scaffold")
#: Running means and variances of batch normalisation: as they came, or learnt by clients and averaged.
BATCHNORMS = ("frozen", "averaged")

_SERVER_LR = {"fedadam": 0.01}

# What numbers may be: the least of whole ones; lowest and highest of others, and how that is said.
_WHOLE = {
    "rounds": 0,
    "batch_size": 0,
    "epochs": 1,
    "check_every": 1,
    "patience": 1,
    "test_every": 1,
    "seed": 0,
}
_ABOVE_0, _BELOW_1 = math.ulp(0.0), math.nextafter(1.0, 0.0)
_NUMBERS = {
    "fraction": (_ABOVE_0, 1.0, "above 0 and at most 1"),
    "momentum": (0.0, _BELOW_1, "from 0 to below 1"),
    "server_momentum": (0.0, _BELOW_1, "from 0 to below 1"),
    "beta_1": (0.0, _BELOW_1, "from 0 to below 1"),
    "beta_2": (0.0, _BELOW_1, "from 0 to below 1"),
    "validation": (0.0, 0.9, "from 0 to 0.9"),
    "lr": (0.0, math.inf, "0 or more"),
    "weight_decay": (0.0, math.inf, "0 or more"),
    "mu": (0.0, math.inf, "0 or more"),
    "tau": (_ABOVE_0, math.inf, "above 0"),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class TuningPlan:
    """Everything that a run of tuning depends on besides its data and its start.

    Parameters
    ----------
    stage
        ``lp`` (head only), ``ft`` (everything) or ``feat`` (encoder only, the head frozen).
    optimiser
        One of :data:`OPTIMISERS`.
    rounds
        T, at most.
    fraction
        Share of the clients that take part in a round, in (0, 1]; at least one does.
    replacement
        Whether a round draws from all clients whoever was drawn before. If not, every client is drawn once before
        any is drawn again. Within a round clients are distinct either way.
    lr, momentum, weight_decay
        Of a client's SGD: step, momentum (forgotten after the round) and L2 penalty, as torch's SGD has them.
    batch_size
        Samples in a client's batch; 0 takes all of them at once.
    epochs
        E, passes over a client's samples in a round.
    server_lr
        Of the server's step; None stands for 0.01 with FedAdam, and 1 otherwise.
    server_momentum
        Of FedAvgM.
    beta_1, beta_2, tau
        Of FedAdam: decay of the two averages, and what is added to the root.
    mu
        Of FedProx: weight of ½‖w − w_global‖² in a client's loss.
    temperature
        T of softmax(scores/T) in the loss; ``auto`` chooses it on a grid by training cross-entropy; None stands for
        0.1 where a head's columns have unit length, and 1 otherwise. A random start, whose scores say nothing that a
        temperature could be chosen by, has 1 in both cases.
    batchnorm
        ``frozen``: normalisation uses the encoder's own running means and variances, which stay; ``averaged``:
        clients normalise by their batches, and the running values that result are averaged like parameters.
    validation
        Share of each client's samples that is not trained on but tells when to stop; 0 trains on all of them.
    check_every, patience
        Every so many rounds all clients test the model on their validation share; after so many tests in a row
        without a better one, tuning stops. The best model of these tests is the result.
    test_every
        Every so many rounds the model is tested (in simulations); the start and the last round always are.
    seed
        Draws clients, batches, validation shares and the random start.

    Examples
    --------
    >>> plan = TuningPlan(optimiser="fedadam", rounds=3, fraction=0.3)
    >>> plan.server_step, plan.per_round(100), plan.method
    (0.01, 30, 'fedadam-lp')
    """

    stage: str = "lp"
    optimiser: str = "fedavg"
    rounds: int = 200
    fraction: float = 1.0
    replacement: bool = False
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    server_lr: float | None = None
    server_momentum: float = 0.9
    beta_1: float = 0.9
    beta_2: float = 0.999
    tau: float = 1e-3
    mu: float = 0.01
    temperature: float | str | None = None
    batchnorm: str = "frozen"
    validation: float = 0.0
    check_every: int = 5
    patience: int = 5
    test_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("stage", STAGES), ("optimiser", OPTIMISERS), ("batchnorm", BATCHNORMS)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, str(getattr(self, name)), known)
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"{name} must be a whole number of {least} or more, not {value!r}")
        for name, (low, high, words) in _NUMBERS.items():
            value = getattr(self, name)
            if not _is_number(value) or not (low <= value <= high and math.isfinite(value)):
                raise InputError(f"{name} must be {words}, not {value!r}")
        if type(self.replacement) is not bool:
            raise InputError(f"replacement must be true or false, not {self.replacement!r}")
        if self.server_lr is not None and not (_is_number(self.server_lr) and 0 < self.server_lr < math.inf):
            raise InputError(f"server_lr must be above 0, not {self.server_lr!r}")
        self._check_temperature()

    def _check_temperature(self) -> None:
        given = self.temperature
        if given is None or given == "auto":
            return
        if isinstance(given, str) or not (_is_number(given) and 0 < given < math.inf):
            raise InputError(f"temperature must be a number above 0, or 'auto', not {given!r}")

    @property
    def server_step(self) -> float:
        """The server's learning rate."""
        return _SERVER_LR.get(self.optimiser, 1.0) if self.server_lr is None else self.server_lr

    @property
    def proximal(self) -> float:
        """μ of the proximal term in a client's loss: 0 but for FedProx."""
        return self.mu if self.optimiser == "fedprox" else 0.0

    @property
    def controlled(self) -> bool:
        """Whether clients keep control variates: SCAFFOLD."""
        return self.optimiser == "scaffold"

    @property
    def method(self) -> str:
        """Name under which :mod:`fedmoments.federation.costs` prices it."""
        return self.optimiser + {"lp": "-lp", "ft": "", "feat": "-feat"}[self.stage]

    def per_round(self, n_clients: int) -> int:
        """Return κ, the clients of a round: the share of all, rounded, at least one."""
        return max(1, round(self.fraction * n_clients))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
