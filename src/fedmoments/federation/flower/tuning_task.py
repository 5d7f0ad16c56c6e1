"""What every message of a tuning says: whose terms, which run, what is trained, from where; and what is signed.

A client signs its number of samples and every update with its identity key, over the bytes

    "fedmoments tuning" ‖ what ‖ id of the terms ‖ id of the run ‖ payload,

so that no other node can speak in its name, and nothing can be replayed in another run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fedmoments.core.classifier import Classifier, load_bytes
from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import InputError
from fedmoments.federation.terms import Terms
from fedmoments.settings.server import read_plan
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.start import Start, start_from

__all__ = ["Task", "greeting_bytes", "signed_bytes"]

#: Temperature while none is chosen yet.
_ANY = 1.0


@dataclass(frozen=True)
class Task:
    """A tuning, as all messages of it describe it.

    Parameters
    ----------
    terms
        Of the federation.
    plan
        What is trained and how.
    run
        Id of the run, 32 hexadecimal digits: the same after an interruption, another for every new run.
    start_name
        For notes.
    start_digest
        SHA-256 of the bytes of the classifier that is started from.
    temperature
        T of the loss.
    """

    terms: Terms
    plan: TuningPlan
    run: str
    start_name: str
    start_digest: str
    temperature: float = _ANY

    def fields(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        start = {"name": self.start_name, "digest": self.start_digest, "temperature": self.temperature}
        return {"terms": self.terms.to_json(), "plan": self.plan.to_dict(), "run": self.run, "start": start}

    def asked(self, client: str, round_number: int, last: int, data: bytes) -> str:
        """Return the digest of all that a client's update follows from: the same again asks for nothing new.

        Parameters
        ----------
        client, round_number, last
            Who is asked, for which round, and which of its updates was taken in last.
        data
            Parameters that came along.
        """
        plan = {name: value for name, value in self.plan.to_dict().items() if name != "rounds"}  # may grow
        fields = [self.terms.id, self.run, plan, self.start_digest, self.temperature, client, round_number, last]
        return sha256(json.dumps(fields, sort_keys=True).encode() + b"\n" + data).hexdigest()

    @classmethod
    def read(cls, fields: Mapping[str, Any], terms: Terms) -> "Task":
        """Read what :meth:`fields` returned, at a client, which believes none of it.

        Raises
        ------
        InputError
            When a part is missing or is not what it must be.
        """
        start = fields.get("start")
        if not isinstance(start, Mapping) or not re.fullmatch("[0-9a-f]{32}", str(fields.get("run"))):
            raise InputError("a message of tuning must name its run, 32 hexadecimal digits, and its start")
        temperature = start.get("temperature")
        if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not temperature > 0:
            raise InputError(f"the temperature of a tuning must be a number above 0, not {temperature!r}")
        plan = read_plan(fields.get("plan", {}), "the server")
        name, digest = str(start.get("name"))[:200], str(start.get("digest"))
        return cls(terms, plan, str(fields["run"]), name, digest, float(temperature))

    def start(self, data: bytes) -> Start:
        """Return the start that the bytes of its classifier hold.

        Raises
        ------
        InputError
            When they are of another classifier than the task names, or it has other classes than the terms.
        """
        if sha256(data).hexdigest() != self.start_digest:
            raise InputError(f"the classifier that came is not the start '{self.start_name}' of this tuning")
        classifier: Classifier = load_bytes(data)
        if classifier.class_names != self.terms.classes:
            raise InputError(f"the start '{self.start_name}' of this tuning has other classes than the terms")
        return start_from(classifier, self.start_name, self.temperature)


def signed_bytes(what: str, task: Task, payload: bytes) -> bytes:
    """Return what a client signs.

    Parameters
    ----------
    what
        ``greeting`` or ``update``.
    task
        Names terms and run.
    payload
        The message.
    """
    return "\n".join(["fedmoments tuning", what, task.terms.id, task.run, ""]).encode() + payload


def greeting_bytes(client: str, train: int, validation: int) -> bytes:
    """Return the payload of a greeting: who, and how many samples it trains and validates on.

    Examples
    --------
    >>> greeting_bytes("clinic", 90, 10)
    b'{"client":"clinic","train":90,"validation":10}'
    """
    return canonical_json({"client": client, "train": train, "validation": validation}).encode()
