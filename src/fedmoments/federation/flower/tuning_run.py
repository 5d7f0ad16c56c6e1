"""The folder of a tuning: what it began from, so that a server that was stopped goes on with the very same.

===========================  ======================================================================================
``run.json``                 id of the run, plan, start, temperature, and the clients with their numbers of samples
``start.safetensors``        the classifier that it starts from
``checkpoint.safetensors``   where it stands, after every round
``tuned.safetensors``        the classifier that it ends with
``encoder.safetensors``      the encoder that it ends with, in stages ``ft`` and ``feat``
``tuning.json``              plan, points, failures and digests
``report.html``              a page to look at
===========================  ======================================================================================
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.flower.tuning_replies import Numbers
from fedmoments.files import write_whole
from fedmoments.settings.server import TuningSettings
from fedmoments.tuning import TuningPlan

__all__ = ["Begun", "RunFolder"]

FORMAT = 1


@dataclass(frozen=True)
class Begun:
    """What a run was begun with.

    Parameters
    ----------
    run
        Its id.
    federation
        Id of the terms.
    plan
        Without the number of rounds, which may grow.
    start, hyper
        As the settings named it.
    start_bytes
        Of the classifier.
    temperature
        T; None while it is not chosen.
    clients
        The clients of the run.
    temperatures
        Where T was chosen: total cross-entropy by temperature.
    """

    run: str
    federation: str
    plan: Mapping[str, Any]
    start: str
    hyper: Mapping[str, Any]
    start_bytes: bytes = field(repr=False)
    temperature: float | None = None
    clients: Mapping[str, Numbers] = field(default_factory=dict)
    temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def start_digest(self) -> str:
        """SHA-256 of the classifier's bytes."""
        return sha256(self.start_bytes).hexdigest()

    @property
    def basis(self) -> str:
        """All that the rounds depend on besides the plan."""
        numbers = {client: [counts.train, counts.validation] for client, counts in self.clients.items()}
        return json.dumps([self.run, self.federation, self.start_digest, self.temperature, numbers], sort_keys=True)


class RunFolder:
    """The folder of one tuning.

    Parameters
    ----------
    settings
        Name the folder, and what the run is.
    """

    def __init__(self, settings: TuningSettings) -> None:
        self.path, self._settings = Path(settings.out), settings

    @property
    def checkpoint(self) -> Path:
        """The file that the rounds are gone on from."""
        return self.path / "checkpoint.safetensors"

    def load(self, federation: str) -> Begun | None:
        """Return what the run was begun with; None where the folder holds none.

        Raises
        ------
        InputError
            When it holds a run of another federation, plan or start.
        """
        path = self.path / "run.json"
        if not path.exists():
            return None
        try:
            document = json.loads(path.read_text("utf-8"))
            clients = {client: Numbers(**numbers) for client, numbers in document.pop("clients").items()}
            digest, form = document.pop("start_digest"), document.pop("format")
            begun = Begun(**document, clients=clients, start_bytes=(self.path / "start.safetensors").read_bytes())
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise FileFormatError(f"{path} is not valid ({error}): delete {self.path} to start over") from error
        if form != FORMAT or begun.start_digest != digest:
            raise FileFormatError(f"{self.path} was changed, or written by another version: delete it to start over")
        wanted = self.fresh(federation, b"").plan
        given = {"federation": federation, "start": self._settings.start, "hyper": dict(self._settings.hyper)}
        given["plan"] = {**wanted, **({} if "test_every" in self._settings.plan else _kept(begun.plan))}
        for name, value in given.items():
            if getattr(begun, name) != value:
                raise InputError(
                    f"{self.path} holds a run with another {name} ({_difference(getattr(begun, name), value)}): give "
                    "another folder, or delete it to start over"
                )
        return begun

    def fresh(self, federation: str, start: bytes) -> Begun:
        """Return the beginning of a new run."""
        settings = self._settings
        plan = {name: value for name, value in settings.tuning_plan.to_dict().items() if name != "rounds"}
        run = secrets.token_hex(16)
        return Begun(run, federation, plan, settings.start, dict(settings.hyper), start)

    def plan(self, begun: Begun) -> TuningPlan:
        """Return the plan of a run, with as many rounds as are requested now."""
        return replace(self._settings.tuning_plan, **_kept(begun.plan))

    def keep(self, begun: Begun) -> None:
        """Write down what a run begins with, before its first round."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "start.safetensors", begun.start_bytes)
        fields = {name: value for name, value in vars(begun).items() if name not in ("start_bytes", "clients")}
        clients = {client: asdict(numbers) for client, numbers in begun.clients.items()}
        document = {"format": FORMAT, **fields, "start_digest": begun.start_digest, "clients": clients}
        self.write_json("run.json", document)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the folder; it appears whole or not at all."""
        text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1)
        write_whole(self.path / name, (text + "\n").encode())


def _kept(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a begun plan stays whatever the number of rounds is now."""
    return {"test_every": plan["test_every"]} if "test_every" in plan else {}


def _difference(before: Any, now: Any) -> str:
    """Return what differs, field by field where there are fields."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return f"{before!r}, not {now!r}"
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name)!r}, not {now.get(name)!r}" for name in names)
