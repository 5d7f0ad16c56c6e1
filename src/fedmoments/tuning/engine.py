"""What runs on clients' data: the seam between the rounds and whatever trains.

There are three engines: features in one process (:mod:`fedmoments.tuning.probing`), a torch network in one process
(``tuning.network``), and the nodes of a deployment (``federation.flower``). All train by the same
rule. With raw gradients g of the mean loss of a batch (L2 penalty included), global parameters w₀, and what an
optimiser adds (:mod:`fedmoments.tuning.local_rules`; c − c_k with SCAFFOLD's control variates), a local step is

    step = g + μ·(w − w₀) + added,    velocity = momentum·velocity + step,    w = w − lr·velocity,

from velocity 0 in every round. With SCAFFOLD, c_k then becomes the mean of the raw gradients g of the round (which is
the paper's option II, c_k − c + (w₀ − w)/(steps·lr), where there is no momentum), and the client sends its change.

Parameters as bytes: what travels between server and clients in a round, and what rounds are charged for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.settings.plan import TuningPlan

__all__ = [
    "AVERAGED",
    "Arrays",
    "DivergedError",
    "Engine",
    "Score",
    "Update",
    "message_size",
    "pack_parameters",
    "require_finite",
    "require_request",
    "unpack_parameters",
]


#: Parameters by name, float32 (or float64, where exactness is tested).
Arrays = dict[str, NDArray[np.floating[Any]]]

#: Names of arrays that are averaged but not optimised begin with this: running values of batch normalisation.
AVERAGED = "averaged/"


class DivergedError(InputError):
    """A client's parameters grew beyond all numbers: the learning rate is too high."""


@dataclass(frozen=True)
class Score:
    """Sums over samples: additive, so that clients' scores add up.

    Examples
    --------
    >>> (Score(10, 8, 5.0) + Score(10, 6, 7.0)).accuracy
    0.7
    """

    samples: int
    correct: int
    loss: float

    def __add__(self, other: "Score") -> "Score":
        return Score(self.samples + other.samples, self.correct + other.correct, self.loss + other.loss)

    @property
    def accuracy(self) -> float:
        """Share of samples that are right; NaN without any."""
        return self.correct / self.samples if self.samples else float("nan")

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy; NaN without samples."""
        return self.loss / self.samples if self.samples else float("nan")


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends after its part of a round.

    Parameters
    ----------
    client
        Its name.
    samples
        n_k, the samples that it trained on: its weight.
    steps
        Local steps that it made.
    loss
        Mean over its steps of the loss before each step.
    arrays
        All parameters that were sent to it, after its steps; none where it was asked for its gradient alone.
    control
        What it sends beside them, of the names that are optimised: the change of its control variates with SCAFFOLD,
        its gradient with MimeLite and in the first exchange of Mime; None otherwise.
    up, down
        Bytes of the message that it sent and of that which it was sent; 0 in one process, where none travel.
    """

    client: str
    samples: int
    steps: int
    loss: float
    arrays: Arrays
    control: Arrays | None = None
    up: int = 0
    down: int = 0


def require_finite(
    arrays: Iterable[NDArray[Any]], what: str, client: str, round_number: int, rate: tuple[float, float] | None = None
) -> None:
    """Raise DivergedError unless all are finite; ``rate`` is the learning rate with the temperature that it is for."""
    if all(np.isfinite(array).all() for array in arrays):
        return
    because = "" if rate is None else f": a learning rate of {rate[0]:g} is too high for the temperature {rate[1]:g}"
    raise DivergedError(f"in round {round_number} the {what} of client '{client}' grew beyond all numbers{because}")


def require_request(plan: TuningPlan, known: Collection[str], control: Arrays | None, clients: Sequence[str]) -> None:
    """Refuse a round that no engine can run: unknown or repeated clients, control variates too many or missing.

    Examples
    --------
    >>> require_request(TuningPlan(), ["clinic"], None, ["clinic"])

    The first exchange of a round of Mime comes without any: clients answer with their gradients.

    >>> require_request(TuningPlan(optimiser="mime"), ["clinic"], None, ["clinic"])
    """
    for client in clients:
        if client not in known:
            raise UnknownNameError("client with samples to train on", client, known)
    if len(set(clients)) < len(clients):
        raise InputError(
            f"every client trains once in a round, but {len(clients)} names arrived that are not all different"
        )
    if plan.controlled != (control is not None) and not (plan.asks_first and control is None):
        must, came = ("must", "none") if plan.controlled else ("must not", "some")
        raise InputError(
            f"a round of '{plan.optimiser}' {must} come with the server's control variates, but {came} arrived"
        )


class Engine(Protocol):
    """Whatever trains on clients' data."""

    @property
    def clients(self) -> Sequence[str]:
        """Names of all clients that have samples to train on, in a fixed order."""

    @property
    def samples(self) -> Mapping[str, int]:
        """n_k of every client: samples to train on."""

    def train(
        self, round_number: int, arrays: Arrays, control: Arrays | None, clients: Sequence[str]
    ) -> Sequence[Update]:
        """Let some clients train from the given parameters; return what arrived, in the order of the names.

        A plan that asks first is called without ``control`` for gradients at the parameters, and with it for steps.
        """

    def validate(self, arrays: Arrays) -> Score:
        """Return sums over the validation shares of all clients."""

    def test(self, arrays: Arrays) -> Score | None:
        """Return sums over a test set, where the server has one."""

    def state(self) -> Arrays:
        """Return what the engine must remember from round to round (clients' control variates, in process)."""

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""


_KIND = "parameters"
_PARTS = ("parameters", "control")


def pack_parameters(arrays: Arrays, control: Arrays | None = None, **header: Any) -> bytes:
    """Return parameters, control variates (SCAFFOLD) and header fields as checked bytes.

    Examples
    --------
    >>> import numpy as np
    >>> data = pack_parameters({"head/bias": np.zeros(3, np.float32)}, round=2)
    >>> arrays, control, header = unpack_parameters(data, "the server")
    >>> arrays["head/bias"].shape, control, header["round"]
    ((3,), None, 2)
    """
    parts = dict(zip(_PARTS, (arrays, control or {}), strict=True))
    tensors = {f"{part}/{name}": array for part, named in parts.items() for name, array in named.items()}
    return pack_tensors(_KIND, tensors, {**header, "controlled": control is not None})


def unpack_parameters(data: bytes, whose: str) -> tuple[Arrays, Arrays | None, dict[str, Any]]:
    """Read what :func:`pack_parameters` made; anything else is refused, and nothing in it is run."""
    tensors, header = unpack_tensors(data, _KIND, whose)
    parts: dict[str, Arrays] = {part: {} for part in _PARTS}
    for name, array in tensors.items():
        part, slash, rest = name.partition("/")
        if part not in parts or not slash or array.dtype.kind != "f":
            raise InputError(f"{whose} sent '{name}' of type {array.dtype}, which is not a parameter")
        parts[part][rest] = array
    controlled = header.get("controlled") is True
    return parts["parameters"], parts["control"] if controlled else None, dict(header)


def message_size(arrays: Arrays, control: Arrays | None = None, **header: Any) -> int:
    """Return the bytes of a message, by making it.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = {"head/weights": np.zeros((384, 77), np.float32)}
    >>> message_size(arrays) - 4 * 384 * 77 < 1000
    True
    """
    return len(pack_parameters(arrays, control, **header))
