"""What each side of a federation decides for itself, read from a TOML file on its own machine.

Nothing here travels: a server cannot choose what a client reads, measures or keeps back.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fedmoments.data.split import client_name
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.federation.policy import ClientPolicy
from fedmoments.jobs.config import JobConfig
from fedmoments.jobs.settings import from_values, read_toml, to_toml, with_values
from fedmoments.privacy.robust.filtering import FILTERS
from fedmoments.simulation.run import choose_heads

__all__ = ["ClientSettings", "ServerSettings", "absolute_data", "client_name", "parse_partitions"]


def parse_partitions(text: str) -> tuple[int, ...]:
    """Return numbers that were typed as ``0-3,7``.

    Examples
    --------
    >>> parse_partitions("0-3,7")
    (0, 1, 2, 3, 7)
    """
    numbers: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise InputError(f"partitions are typed as 0-3,7, but '{text}' arrived")
        first, last = int(match[1]), int(match[2] or match[1])
        numbers += range(first, last + 1)
    if not numbers or len(set(numbers)) != len(numbers):
        raise InputError(f"partitions must be numbers, each once, but '{text}' arrived")
    return tuple(numbers)


def absolute_data(text: str, base: Path) -> str:
    """Return data as a person typed them, with a path that means the same from every folder.

    Examples
    --------
    >>> place = Path("/srv")
    >>> absolute_data("digits", place), absolute_data("hf:mnist", place), absolute_data("npz:a.npz", place)
    ('digits', 'hf:mnist', 'npz:/srv/a.npz')
    """
    kind, colon, rest = text.partition(":")
    if colon and kind != "hf":
        return f"{kind}:{base / Path(rest).expanduser()}"
    path = base / Path(text).expanduser()
    return text if colon or not path.exists() else str(path)


@dataclass(frozen=True)
class ClientSettings:
    """A client's own settings.

    Parameters
    ----------
    folder
        Where its contributions, receipts and its record of what left are kept; empty keeps nothing on disk, which is
        for simulations only.
    name
        Its id, for a client with data of its own.
    keys
        Folder that holds ``NAME.identity``, the key that signs what it sends.
    key_seed
        For simulations only: keys are derived from this text.
    federation
        Id of the federation whose terms this client read; it answers no other. Empty answers all within its policy.
    data, text, image, label, client, domain, test, domains, test_share, strict, seed
        Its samples, as in :class:`fedmoments.jobs.JobConfig`; a test part is what broadcast heads are evaluated on.
    split, clients, partitions
        For trials only: the node plays these parts of a data set that is split over so many clients; a client with a
        name plays one.
    runtime, device, threads, batch_size, readers, cache
        How it encodes, and where it keeps features.
    evaluate
        Whether broadcast heads are evaluated here.
    policy
        What may leave, as in :class:`fedmoments.federation.policy.ClientPolicy`.
    """

    folder: str = ""
    name: str = ""
    keys: str = ""
    key_seed: str = ""
    federation: str = ""
    data: str = "digits"
    text: str | None = None
    image: str | None = None
    label: str | None = None
    client: str | None = None
    domain: str | None = None
    test: str | None = None
    domains: bool | None = None
    test_share: float | None = None
    strict: bool = False
    seed: int = 0
    split: str = ""
    clients: int | None = None
    partitions: tuple[int, ...] = ()
    runtime: str = "torch"
    device: str = "cpu"
    threads: int | None = None
    batch_size: int | None = None
    readers: int = 2
    cache: str | None = None
    evaluate: bool = True
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ClientPolicy.from_dict(self.policy)
        if not self.name and not self.split:
            raise InputError("a client needs a name (or, in a trial, a split of whose clients it plays some)")
        if self.name and self.split and len(self.partitions) != 1:
            raise InputError(
                f"the client '{self.name}' can play one part of the split '{self.split}', not {len(self.partitions)}: "
                "leave the name out to play several"
            )
        if bool(self.keys) == bool(self.key_seed):
            raise InputError("a client signs what it sends: give the folder of its keys (or, to simulate, a key_seed)")

    @property
    def own_policy(self) -> ClientPolicy:
        """What may leave."""
        return ClientPolicy.from_dict(self.policy)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ClientSettings":
        """Read a client's settings file; paths in it are relative to its folder."""
        values = read_toml(path)
        return from_values(cls, values, str(path)).placed(Path(path).resolve().parent)

    def placed(self, base: Path) -> "ClientSettings":
        """Return the settings with relative paths made absolute."""
        places = {key: str(base / getattr(self, key)) for key in ("folder", "keys", "cache") if getattr(self, key)}
        for name in ("data", "test"):
            if getattr(self, name):
                places[name] = absolute_data(getattr(self, name), base)
        return with_values(self, places, "the settings")

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return to_toml({k: v for k, v in plain.items() if v not in (None, "", [], {})})

    def job(self, encoder: str, options: Mapping[str, Any]) -> JobConfig:
        """Return the job that encodes this client's samples."""
        taken = ["data", "text", "image", "label", "client", "domain", "test", "domains", "test_share", "strict"]
        taken += ["seed", "runtime", "device", "threads", "batch_size", "readers"]
        return JobConfig(**{key: getattr(self, key) for key in taken}, encoder=encoder, **options)


@dataclass(frozen=True)
class ServerSettings:
    """The server's own settings.

    Parameters
    ----------
    ledger
        File of the durable ledger, which also holds the terms and who is enrolled.
    out
        Folder for classifiers, results and report; empty writes none.
    heads, hyper
        Heads that are fitted, and their hyper-parameters by head.
    quorum
        Clients that the ledger must hold before anything is fitted.
    nodes, wait
        Nodes to wait for before the first round, and for how many seconds.
    rounds, per_round, seed
        Rounds of collection, how many nodes are asked in each (0: all that are not done), and what draws them.
    deadline, ttl
        Seconds after which a round is closed, and for which a message lives; the first must be less than the second.
    poll
        Seconds between two looks for replies when none came.
    bundle_bytes
        Most bytes that a node may send in one reply.
    fit_each_round
        Whether heads are fitted after every round, not only at the end.
    evaluate
        Whether heads are broadcast and evaluated by the clients on data of theirs.
    again
        Whether to ask for contributions that were acknowledged before: after an older ledger was restored.
    robust
        ``mad``: clients whose means lie far from the others' are left out of what is fitted; empty: nobody is.
    max_client_samples
        Clients that say they have more samples than this are left out of what is fitted; 0: any number.
    """

    #: Key under which a run is told of the file.
    config_key: ClassVar[str] = "server-config"

    ledger: str
    out: str = ""
    heads: tuple[str, ...] = ("fedcof",)
    hyper: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quorum: int = 1
    nodes: int = 1
    wait: float = 120.0
    rounds: int = 1
    per_round: int = 0
    seed: int = 0
    deadline: float = 600.0
    ttl: float = 900.0
    poll: float = 0.5
    bundle_bytes: int = 2**26
    fit_each_round: bool = False
    evaluate: bool = True
    again: bool = False
    robust: str = ""
    max_client_samples: int = 0

    def __post_init__(self) -> None:
        choose_heads(self.heads, self.hyper)
        if self.robust not in ("", *FILTERS):
            raise UnknownNameError("robust filter", self.robust, FILTERS)
        if self.max_client_samples < 0:
            raise InputError(
                f"max_client_samples must be 1 or more, or 0 for any number, not {self.max_client_samples}"
            )
        if not 0 < self.deadline < self.ttl:
            raise InputError(
                f"a round must close before its messages die: deadline is {self.deadline} s, ttl is {self.ttl} s"
            )
        for name in ("quorum", "nodes", "rounds", "bundle_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.per_round < 0 or self.wait < 0 or self.poll <= 0:
            raise InputError("per_round and wait must be 0 or more, and poll above 0")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ServerSettings":
        """Read a server's settings file; paths in it are relative to its folder."""
        settings = from_values(cls, read_toml(path), str(path))
        base = Path(path).resolve().parent
        places = {key: str(base / getattr(settings, key)) for key in ("ledger", "out") if getattr(settings, key)}
        return with_values(settings, places, str(path))

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return to_toml({k: v for k, v in plain.items() if v not in ("", {})})
