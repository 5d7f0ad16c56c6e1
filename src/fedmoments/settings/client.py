"""What a client decides for itself. Nothing here travels: a server cannot choose what it reads or withholds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fedmoments.errors import InputError
from fedmoments.settings.files import FromFile
from fedmoments.settings.option import option
from fedmoments.settings.policy import PolicyRules
from fedmoments.settings.samples import ByFile, Running, SampleSource

__all__ = ["ClientSettings", "parse_partitions"]

_federation = partial(option, group="Federation")


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


@dataclass(frozen=True)
class ClientSettings(Running, ByFile, SampleSource, FromFile):
    """A client's own settings; a test part of its samples is what broadcast heads are evaluated on.

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
    accepted
        Digest of amended terms that this client read; empty: it takes part under the first ones.
    split, clients, partitions
        For trials only: the node plays these parts of a data set that is split over so many clients; a client with a
        name plays one.
    evaluate
        Whether broadcast heads are evaluated here.
    workers, cluster
        Whether tables are measured one by one (:mod:`fedmoments.federation.lake`), and by whom; then nothing is held
        out for tests, but there may be a second file of them (``test``).
    also
        Data that were added since the client began.
    memory
        Folder with what it remembers of its samples (:mod:`fedmoments.federation.own_memory`); ``folder`` by default.
    classes
        Own name of a class -> the federation's; two may have the same. Names that are equal need no entry.
    ignore_unknown
        Whether samples of classes that the federation does not have are left out; otherwise nothing is sent.
    policy
        What may leave: rules of :class:`~fedmoments.settings.policy.PolicyRules`.
    """

    paths: ClassVar[tuple[str, ...]] = ("folder", "keys", "cache", "memory")
    sources: ClassVar[tuple[str, ...]] = ("data", "test", "also")

    folder: str = _federation(
        "", "Where contributions, receipts and the record are kept; ./NAME by default.", metavar="FOLDER"
    )
    name: str = ""
    keys: str = option("", "Folder with this client's keys.", metavar="FOLDER", common=2)
    key_seed: str = ""
    federation: str = ""
    accepted: str = ""
    split: str = ""
    clients: int | None = None
    partitions: tuple[int, ...] = ()
    evaluate: bool = _federation(True, "Test heads on this client's data.")
    also: tuple[str, ...] = ()
    memory: str = ""
    classes: Mapping[str, Any] = option(
        {},
        "Map your name of a class to the federation's; may be repeated.",
        "--alias",
        kind="pairs",
        metavar="OWN=AGREED",
        group="Data",
    )
    ignore_unknown: bool = option(False, "Leave out classes that the federation does not have.", group="Data")
    policy: Mapping[str, Any] = option({}, "What may be sent.", group="Privacy")

    @property
    def files(self) -> list[Path]:
        """Files and folders that its samples may be in, whether they exist or not."""
        texts = [text for text in (self.data, self.test, *self.also) if text]
        return [Path(part).expanduser() for text in texts for part in (text, text.partition(":")[2]) if part]

    def __post_init__(self) -> None:
        PolicyRules.from_dict(self.policy)
        for own, agreed in self.classes.items():
            if not isinstance(agreed, str) or not agreed:
                raise InputError(f"[classes] names the federation's class for each own one, but {own!r} has {agreed!r}")
        self._check_parts()
        self._check_by_file()
        if bool(self.keys) == bool(self.key_seed):
            raise InputError("a client signs what it sends: give the folder of its keys (or, to simulate, a key_seed)")

    @property
    def by_file(self) -> bool:
        """Whether its tables are measured one by one instead of in memory."""
        return self.workers is not None or self.cluster is not None

    def _check_by_file(self) -> None:
        """Refuse what asks for all samples at once where files are measured one by one."""
        if not self.by_file:
            return
        asked = {
            "also": self.also, "split": self.split, "table": self.table, "test_share": self.test_share,
            "a policy that allows tuning": self.policy.get("tuning", "none") != "none",
        }  # fmt: skip
        if wrong := [what for what, given in asked.items() if given]:
            raise InputError(
                f"files are measured one by one (workers, cluster), which {wrong[0]} does not allow: leave it out, or "
                "measure in memory without them"
            )

    def _check_parts(self) -> None:
        """Refuse a name or more data where parts of a split are played that cannot have them."""
        if not self.name and not self.split:
            raise InputError("a client needs a name (or, in a trial, a split of whose clients it plays some)")
        if self.name and self.split and len(self.partitions) != 1:
            raise InputError(
                f"the client '{self.name}' can play one part of the split '{self.split}', not {len(self.partitions)}: "
                "leave the name out to play several"
            )
        if self.also and self.split:
            raise InputError("data are added to a client's own, not to parts of a split that a trial deals out")
