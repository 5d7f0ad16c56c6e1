"""What is trained, by whom, and how: every number that a run of tuning depends on, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.option import option

__all__ = ["AUTO", "BATCHNORMS", "RANDOM", "STAGES", "TuningPlan"]

#: A rate that follows from the features.
AUTO = "auto"
#: Rate where none is given and none can follow.
_PLAIN_RATE = 0.01
#: The start that is not a head.
RANDOM = "random"
#: What is trained: the head alone; encoder and head; the encoder alone, under a frozen head.
STAGES = ("lp", "ft", "feat")
_SUFFIXES = {"lp": "-lp", "ft": "", "feat": "-feat"}
#: Running means and variances of batch normalisation: as they came, or learnt by clients and averaged.
BATCHNORMS = ("frozen", "averaged")
#: What may be done to images before a client trains on them.
AUGMENTATIONS = ("flip", "crop")

#: Parts of an encoder that are trained in its place.
ADAPTERS = ("lora", "prompt")

_number = partial(option, group="Tuning")

# What numbers may be: the least of whole ones; lowest and highest of others, and the wording of an error.
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
    "weight_decay": (0.0, math.inf, "0 or more"),
    "mu": (0.0, math.inf, "0 or more"),
    "alpha": (0.0, math.inf, "0 or more"),
    "tau": (_ABOVE_0, math.inf, "above 0"),
}


def _is_positive(value: Any, *, or_zero: bool = False) -> bool:
    return _is_number(value) and (0 < value < math.inf or (or_zero and value == 0))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rate(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


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
        Of a client's SGD: step, momentum (forgotten after the round) and L2 penalty, as torch's SGD has them. The step
        ``auto`` follows from the features in stage ``lp`` (see ``fedmoments.tuning.rates``), and is 0.01 otherwise;
        several numbers with commas between are tried on a validation share.
    batch_size
        Samples in a client's batch; 0 takes all of them at once.
    epochs
        E, passes over a client's samples in a round.
    server_lr
        Of the server's step; None stands for 0.01 with FedAdam and FedYogi, and 1 otherwise; several as in ``lr``.
    server_momentum
        Of FedAvgM, and of the clients of MimeLite and Mime.
    beta_1, beta_2, tau
        Of FedAdam and FedYogi: decay of the two averages, and what is added to the root.
    mu
        Of FedProx: weight of ½‖w − w_global‖² in a client's loss.
    alpha
        Of FedDyn: weight of its moving penalty; 0 is FedAvg.
    temperature
        T of softmax(scores/T) in the loss; ``auto`` chooses it on a grid by training cross-entropy; None stands for
        that where the rate follows from the features, too; otherwise for 0.1 where a head's columns have unit length,
        and 1 elsewhere. A random start, whose scores say nothing that a
        temperature could be chosen by, has 1, or the size of the features, in both cases.
    adapter
        ``none`` trains the encoder as a whole in ``ft`` and ``feat``; ``lora:8`` trains and sends changes of rank 8 of
        its linear layers, ``prompt:8`` eight tokens beside the patches of an image, and leaves the rest as it is.
    augment
        ``none``, or what is done to images before each step of ``ft`` and ``feat``: ``flip`` mirrors half of them,
        ``crop`` takes a random part, ``flip,crop`` does both.
    dropout
        Whether dropout and stochastic depth are on in the steps of ``ft`` and ``feat``, with the encoder's own shares.
    batchnorm
        ``frozen``: normalisation uses the encoder's own running means and variances, which stay; ``averaged``:
        clients normalise by their batches, and the running values that result are averaged like parameters.
    feature_scale
        For which size of features all rates and penalties of stage ``lp`` are meant; ``lr = "auto"`` measures it. None
        takes parameters as they are.
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

    stage: str = _number("lp", "Train the head (lp), everything (ft) or the encoder alone (feat).", metavar="STAGE")
    optimiser: str = _number(
        "fedavg", "fedavg, fedavgm, fedadam, fedyogi, fedprox, feddyn, scaffold, mimelite or mime.", metavar="NAME"
    )
    rounds: int = _number(200, "Maximum number of rounds.", metavar="N", common=6)
    fraction: float = _number(1.0, "Share of the clients that train per round.", metavar="SHARE")
    replacement: bool = _number(False, "Draw each round's clients independently of earlier rounds.")
    lr: float | str = _number(
        AUTO,
        "Step size of a client's SGD; auto derives it from the features, several are compared on a validation share.",
        metavar="STEP,…",
        kind="numbers or auto",
        shown="auto, but 0.01 in ft, feat and deployments",
        common=6,
    )
    momentum: float = _number(0.0, "Momentum of a client's SGD.", metavar="M")
    weight_decay: float = _number(0.0, "L2 penalty of a client's SGD.", metavar="W")
    batch_size: int = _number(32, "Samples per client batch, 0 for all at once.", "--local-batch", metavar="N")
    epochs: int = _number(1, "Passes over a client's samples per round.", metavar="E")
    server_lr: float | str | None = _number(
        None,
        "Step size of the server, or several to compare.",
        metavar="STEP,…",
        kind="numbers or auto",
        shown="0.01 with fedadam and fedyogi, otherwise 1",
    )
    server_momentum: float = _number(0.9, "Momentum of fedavgm, mimelite and mime.", metavar="M")
    beta_1: float = _number(0.9, "Decay of the running mean in fedadam and fedyogi.", metavar="B")
    beta_2: float = _number(0.999, "Decay of the running mean square in fedadam and fedyogi.", metavar="B")
    tau: float = _number(1e-3, "Constant that fedadam and fedyogi add to the root.", metavar="T")
    mu: float = _number(0.01, "Weight of fedprox's penalty.", metavar="MU")
    alpha: float = _number(0.01, "Weight of feddyn's penalty.", metavar="A")
    temperature: float | str | None = _number(
        None,
        "T of softmax(scores/T); auto chooses it by training cross-entropy.",
        metavar="T|auto",
        kind="number or auto",
        shown="chosen where lr is; else 0.1 for normalised heads, 1 for others",
    )
    adapter: str = _number(
        "none",
        "Train only low-rank changes of the encoder's linear layers, lora:RANK, or visual prompts, prompt:NUMBER.",
        metavar="none|lora:RANK|prompt:N",
    )
    augment: str = _number(
        "none", "Change images at random before each step: flip, crop, or flip,crop.", metavar="none|flip,crop"
    )
    dropout: bool = _number(False, "Apply the encoder's own dropout while training ft and feat.")
    batchnorm: str = _number(
        "frozen", "Running values of batch normalisation: frozen, or averaged.", metavar="frozen|averaged"
    )
    feature_scale: float | None = _number(
        None, "Feature norm for which learning rates of lp are meant.", metavar="SIZE", shown="measured with --lr auto"
    )
    validation: float = _number(0.0, "Share of each client's samples held out to decide when to stop.", metavar="SHARE")
    check_every: int = _number(5, "Rounds between two validations.", metavar="N")
    patience: int = _number(5, "Validations without improvement after which training stops.", metavar="N")
    test_every: int = _number(1, "Rounds between two tests.", metavar="N")
    seed: int = _number(0, "Seed for clients, batches, validation shares and a random start.", metavar="N")

    def __post_init__(self) -> None:
        OPTIMISERS.find(str(self.optimiser))
        for name, known in (("stage", STAGES), ("batchnorm", BATCHNORMS)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, str(getattr(self, name)), known)
        self._check_numbers()
        self.adapter_part, self.augmentations  # noqa: B018 - checks them
        for name in ("replacement", "dropout"):
            if type(getattr(self, name)) is not bool:
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}")
        self._check_rates()
        self._check_temperature()

    def _check_numbers(self) -> None:
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"{name} must be a whole number of {least} or more, not {value!r}")
        for name, (low, high, allowed) in _NUMBERS.items():
            value = getattr(self, name)
            if not _is_number(value) or not (low <= value <= high and math.isfinite(value)):
                raise InputError(f"{name} must be {allowed}, not {value!r}")

    def _check_rates(self) -> None:
        if not all(rate == AUTO or _is_positive(rate, or_zero=True) for rate in self.grid("lr")):
            raise InputError(f"lr must be 0 or more, 'auto', or several such with commas between, not {self.lr!r}")
        if not all(rate is None or _is_positive(rate) for rate in self.grid("server_lr")):
            raise InputError(f"server_lr must be above 0, or several such, not {self.server_lr!r}")
        self._check_scale(self.feature_scale)

    def _check_scale(self, scale: Any) -> None:
        if scale is not None and not (_is_positive(scale) and self.stage == "lp"):
            raise InputError(f"feature_scale must be above 0, and is for stage 'lp' alone, not {scale!r}")

    def grid(self, name: str) -> tuple[Any, ...]:
        """Return the rates that are to be tried: of ``lr`` or ``server_lr``; one where there is nothing to choose.

        Examples
        --------
        >>> TuningPlan(lr="0.1, auto").grid("lr"), TuningPlan().grid("server_lr")
        ((0.1, 'auto'), (None,))
        """
        given = getattr(self, name)
        if not isinstance(given, str):
            return (given,)
        return tuple(dict.fromkeys(_rate(part.strip()) for part in given.split(",")))

    @property
    def has_grid(self) -> bool:
        """Whether a rate is still to be chosen among several."""
        return len(self.grid("lr")) * len(self.grid("server_lr")) > 1

    @property
    def augmentations(self) -> frozenset[str]:
        """What is done to images before each step.

        Examples
        --------
        >>> sorted(TuningPlan(stage="ft", augment="flip,crop").augmentations), TuningPlan().augmentations
        (['crop', 'flip'], frozenset())
        """
        if self.augment == "none":
            return frozenset()
        for word in str(self.augment).split(","):
            if word not in AUGMENTATIONS:
                raise UnknownNameError("augmentation", word, ("none", *AUGMENTATIONS))
        if self.stage == "lp":
            raise InputError("features of stage 'lp' are computed once, so images cannot change: take 'ft' or 'feat'")
        return frozenset(self.augment.split(","))

    @property
    def adapter_part(self) -> tuple[str, int]:
        """Which part of the encoder is trained: ``lora`` and a rank, ``prompt`` and a number, or all of it.

        Examples
        --------
        >>> TuningPlan(stage="ft", adapter="lora:8").adapter_part, TuningPlan().adapter_part
        (('lora', 8), ('none', 0))
        """
        if self.adapter == "none":
            return "none", 0
        kind, _, size = str(self.adapter).partition(":")
        if kind not in ADAPTERS or not size.isdecimal() or int(size) < 1:
            raise InputError(
                "adapter must be none, lora:RANK such as lora:8, or prompt:NUMBER such as prompt:8, not "
                f"{self.adapter!r}"
            )
        if self.stage == "lp":
            raise InputError("adapters are of the encoder, which stage 'lp' does not train: take 'ft' or 'feat'")
        return kind, int(size)

    @property
    def adapts(self) -> bool:
        """Whether a part of the encoder is trained and sent, and the rest stays."""
        return self.adapter != "none"

    @property
    def step(self) -> float:
        """The client's learning rate: a number; 0.01 where none was given and none was measured."""
        return float(self.lr) if _is_number(self.lr) else _PLAIN_RATE

    def _check_temperature(self) -> None:
        given = self.temperature
        if given is None or given == "auto":
            return
        if not _is_positive(given):
            raise InputError(f"temperature must be a number above 0, or 'auto', not {given!r}")

    @property
    def server_step(self) -> float:
        """The server's learning rate."""
        given = self.server_lr
        return float(given) if isinstance(given, int | float) else OPTIMISERS[self.optimiser].server_lr

    @property
    def proximal(self) -> float:
        """μ of the proximal term in a client's loss: FedProx's μ, FedDyn's α, 0 otherwise."""
        if self.local_rule == "feddyn":
            return self.alpha
        return self.mu if OPTIMISERS[self.optimiser].proximal else 0.0

    @property
    def local_rule(self) -> str:
        """What clients add to their gradients: see ``fedmoments.tuning.local_rules``."""
        return OPTIMISERS[self.optimiser].local

    @property
    def remembers(self) -> bool:
        """Whether clients keep something from one of their rounds to the next: SCAFFOLD, FedDyn."""
        return OPTIMISERS[self.optimiser].remembers

    @property
    def controlled(self) -> bool:
        """Whether arrays travel beside the parameters, both ways: SCAFFOLD, MimeLite."""
        return OPTIMISERS[self.optimiser].controlled

    @property
    def asks_first(self) -> bool:
        """Whether clients tell their gradients in an exchange of its own before a round's steps: Mime."""
        return OPTIMISERS[self.optimiser].asks_first

    @property
    def method(self) -> str:
        """Optimiser and stage in one word."""
        return self.optimiser + _SUFFIXES[self.stage]

    @property
    def priced_as(self) -> str:
        """Name under which :mod:`fedmoments.core.costs` prices it."""
        known = OPTIMISERS.is_built_in(self.optimiser)
        return (self.optimiser if known else OPTIMISERS[self.optimiser].priced_as) + _SUFFIXES[self.stage]

    def per_round(self, n_clients: int) -> int:
        """Return κ, the clients of a round: the share of all, rounded, at least one."""
        return max(1, round(self.fraction * n_clients))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
