"""What nodes reply in a tuning, read without believing any of it: bounded, typed, signed, and checked before use.

A client chooses what it sends. Nothing of it is run, nothing of it is larger than what was expected, and whatever is
wrong with it costs this client its part of the round, never the round.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flwr.app import RecordDict

from fedmoments.errors import FedMomentsError, InputError
from fedmoments.federation.flower.messages import read_content
from fedmoments.federation.flower.replies import MOST_DECLINED, MOST_NAME, MOST_SENTENCE, cleaned
from fedmoments.federation.flower.tuning_task import Task, greeting_bytes, signed_bytes
from fedmoments.tuning.engine import AVERAGED, Arrays, Score, Update, message_size, unpack_parameters
from fedmoments.wire import PublicKey

__all__ = [
    "Asked",
    "Greeting",
    "Numbers",
    "is_missing_start",
    "read_greeting",
    "read_score",
    "read_sums",
    "read_update",
]

T = TypeVar("T")

#: What a message with an update may have beyond the parameters: names, samples, steps, loss.
ROOM = 2**14


@dataclass(frozen=True)
class Numbers:
    """How many samples a client trains on, and on how many it tests parameters meanwhile."""

    train: int
    validation: int


@dataclass(frozen=True)
class Greeting:
    """A reply to ``query.greet``: clients with their numbers, and those that do not take part, with the reason."""

    clients: dict[str, Numbers]
    declined: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked of a client in a round.

    Parameters
    ----------
    client, key, numbers
        Who, with which identity key, and with how many samples.
    round_number
        Which round.
    arrays
        The parameters that it was sent: those that come back have the same names, shapes and types.
    first
        Whether it was asked for its gradient alone, in the first of two exchanges.
    """

    client: str
    key: PublicKey
    numbers: Numbers
    round_number: int
    arrays: Arrays
    first: bool = False


def is_missing_start(content: RecordDict) -> bool:
    """Say whether a node replied that it does not have the start."""
    try:
        fields, _ = read_content(content, most_bytes=2**40)
    except Exception:
        return False
    return fields.get("missing") == "start"


def read_greeting(content: RecordDict, task: Task, keys: Mapping[str, PublicKey]) -> Greeting:
    """Read who takes part.

    Parameters
    ----------
    content
        Of the reply.
    task
        What was requested.
    keys
        Identity keys of all who may take part; others, and signatures that are not theirs, are refused, each by
        itself.

    Raises
    ------
    InputError
        When the reply is not a valid greeting.
    """
    fields, _ = _read(lambda: read_content(content, most_bytes=0), "its greeting")
    listed, refusals = fields.get("clients"), fields.get("declined")
    if not isinstance(listed, list) or not isinstance(refusals, list) or len(listed) > len(keys):
        raise InputError(f"its greeting is invalid: it must list at most {len(keys)} clients, and who declined")
    clients: dict[str, Numbers] = {}
    declined = _read(lambda: [_declined(entry) for entry in refusals[:MOST_DECLINED]], "its greeting")
    for entry in listed:
        try:
            client, numbers = _greeted(entry, task, keys)
        except InputError as error:
            name = cleaned(entry.get("client", ""), MOST_NAME) if isinstance(entry, dict) else ""
            declined.append({"client": name, "why": f"refused by the server: {error}"})
            continue
        clients[client] = numbers
    return Greeting(clients, tuple(declined))


def _greeted(entry: Any, task: Task, keys: Mapping[str, PublicKey]) -> tuple[str, Numbers]:
    client = entry.get("client") if isinstance(entry, dict) else None
    if not isinstance(client, str) or client not in keys:
        raise InputError("nobody of that name is enrolled in this federation, or it was revoked")
    train: Any = entry.get("train")
    validation: Any = entry.get("validation")
    if not (_is_count(train) and _is_count(validation)):
        raise InputError(f"the numbers of samples of client {client} must be whole and 0 or more")
    _require_signed(entry.get("signature"), "greeting", task, keys[client], greeting_bytes(client, train, validation))
    return client, Numbers(train, validation)


def _declined(entry: Any) -> dict[str, str]:
    return {"client": cleaned(entry["client"], MOST_NAME), "why": cleaned(entry["why"], MOST_SENTENCE)}


def read_update(content: RecordDict, task: Task, asked: Asked) -> Update:
    """Read a client's parameters after its part of a round.

    Raises
    ------
    InputError
        When they are not what was requested: names, shapes, types, numbers that are not finite, another number of
        samples than the client said at first, a signature that is not its own.
    """
    plan, client = task.plan, asked.client
    optimised = {name: array for name, array in asked.arrays.items() if not name.startswith(AVERAGED)}
    controlled = asked.first if plan.asks_first else plan.controlled
    expected = {} if asked.first else asked.arrays
    most = message_size(expected, optimised if controlled else None) + ROOM
    fields, data = _read(lambda: read_content(content, most_bytes=most), f"the update of client {client}")
    if "declined" in fields:
        raise InputError(f"client {client} declined: {cleaned(fields['declined'], MOST_SENTENCE)}")
    _require_signed(fields.get("signature"), "update", task, asked.key, data)
    arrays, control, header = _read(
        lambda: unpack_parameters(data, f"client {client}"), f"the update of client {client}"
    )
    _require_same(arrays, expected, f"parameters of client {client}")
    _require_control(control, optimised if controlled else None, client)
    n = asked.numbers.train
    steps = 0 if asked.first else plan.epochs * math.ceil(n / (plan.batch_size or n))
    _require_header(header, {"client": client, "round": asked.round_number, "samples": n, "steps": steps})
    return Update(client, n, steps, _loss(header.get("loss"), f"client {client}"), arrays, control)


def _require_control(control: Arrays | None, expected: Arrays | None, client: str) -> None:
    if (control is None) != (expected is None):
        raise InputError(f"client {client} sent {'no ' if control is None else ''}control variates")
    if control is not None and expected is not None:
        _require_same(control, expected, f"control variates of client {client}")


def _require_header(header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if header.get(name) != value or isinstance(header.get(name), bool):
            raise InputError(
                f"client {expected['client']} sent an update with {name} {cleaned(header.get(name), MOST_NAME)}, but "
                f"{value} was expected: samples must be as many as it said at first"
            )


def read_score(content: RecordDict, *, most: int | None) -> Score:
    """Read sums over a node's samples.

    Parameters
    ----------
    content
        Of the reply.
    most
        How many samples it must be over, where none at all is allowed too; None: any number.
    """
    fields, _ = _read(lambda: read_content(content, most_bytes=0), "its score")
    samples: Any = fields.get("samples")
    correct: Any = fields.get("correct")
    if not (_is_count(samples) and _is_count(correct) and correct <= samples and samples <= 2**40):
        raise InputError("its score is invalid: samples and right ones must be whole numbers, 0 ≤ right ≤ samples")
    if most is not None and samples not in (0, most):
        raise InputError(f"its score is over {samples} samples, but its clients said at first that they had {most}")
    return Score(samples, correct, _loss(fields.get("loss"), "a node", infinite=True))


def read_sums(content: RecordDict, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Read n sums of the cross-entropy, (n,), 0 or more."""
    fields, _ = _read(lambda: read_content(content, most_bytes=0), "its sums")
    listed = fields.get("sums")
    if not isinstance(listed, list) or len(listed) != n:
        raise InputError(f"its sums make no sense: {n} were requested")
    return np.array([_loss(loss, "a node") for loss in listed])


def _read(make: Callable[[], T], what: str) -> T:
    """Return what a function reads; whatever goes wrong there is the node's doing."""
    try:
        return make()
    except FedMomentsError as error:
        raise InputError(f"{what} is invalid: {cleaned(error, MOST_SENTENCE)}") from error
    except Exception as error:  # a node chooses what it sends: nothing of it may end the round
        raise InputError(f"{what} is invalid ({type(error).__name__})") from error


def _require_signed(signature: Any, what: str, task: Task, key: PublicKey, payload: bytes) -> None:
    try:
        raw = bytes.fromhex(signature)
    except (TypeError, ValueError):
        raw = b""
    if not key.verify(raw, signed_bytes(what, task, payload)):
        raise InputError(f"the {what} is not signed with the identity key that its client was enrolled with")


def _require_same(arrays: Arrays, expected: Arrays, what: str) -> None:
    """Refuse arrays of other names, shapes or types, and numbers that are not finite."""
    if set(arrays) != set(expected):
        other = sorted(set(arrays) ^ set(expected))
        raise InputError(
            f"{what} must be {len(expected)} arrays, but {cleaned(other[0], MOST_NAME)} is on one side only"
        )
    for name, array in expected.items():
        given = arrays[name]
        if given.shape != array.shape or given.dtype != array.dtype:
            raise InputError(
                f"{what}: '{name}' must be {array.dtype} of shape {array.shape}, but {given.dtype} of shape "
                f"{given.shape} arrived"
            )
        if not np.isfinite(given).all():
            raise InputError(f"{what}: '{name}' holds NaN or infinity; a smaller learning rate may help")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _loss(value: Any, whose: str, *, infinite: bool = False) -> float:
    number = isinstance(value, float) or (isinstance(value, int) and _is_count(value))  # others are beyond a float
    if not number or not value >= 0 or (math.isinf(value) and not infinite):
        raise InputError(f"the loss of {whose} must be a number of 0 or more, but {cleaned(value, MOST_NAME)} arrived")
    return float(value)
