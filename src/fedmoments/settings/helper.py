"""What the helper of secure sums decides for itself."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fedmoments.errors import InputError
from fedmoments.settings.files import FromFile
from fedmoments.settings.option import option

__all__ = ["HelperSettings"]

_federation = partial(option, group="Federation")


@dataclass(frozen=True)
class HelperSettings(FromFile):
    """The helper's own settings.

    Parameters
    ----------
    folder
        Where its memory and its record are kept. Never restore the memory from a backup, and never delete it while the
        key is in use: what it forgot could be asked for again.
    key
        File of its private key, ``NAME.helper``.
    federation
        Id of the federation whose terms its operator read; it answers no other.
    minimum
        Fewest reports that a sum may be over, whatever the terms say; the larger of both counts.
    members
        Files (``NAME.card``) of the clients that its operator knows to be real; reports of others are refused.
    anybody
        Whether to do without them: then nobody's signature is checked, and a leader that makes up clients can see the
        numbers of one that is real. For trials.
    """

    paths: ClassVar[tuple[str, ...]] = ("folder", "key", "members")

    folder: str = _federation(
        "", "Permanent folder for the record of opened sums; ./NAME by default.", metavar="FOLDER"
    )
    key: str = ""
    federation: str = ""
    minimum: int = _federation(3, "Open no sum over fewer clients, even if the terms allow it.", metavar="N", least=2)
    members: tuple[str, ...] = option(
        (),
        "Card of a client that you trust to be real; may be repeated. Others are refused.",
        "--member",
        metavar="CARD",
        kind="files",
        common=3,
    )
    anybody: bool = _federation(
        False,
        "For trials, instead of cards: a server that invents clients can then see a real client's values.",
        "--anybody",
    )

    def __post_init__(self) -> None:
        if not self.folder or not self.key or not self.federation:
            raise InputError("a helper needs a folder, the file of its key, and the id of its federation")
        if self.minimum < 2:
            raise InputError(f"minimum of a helper must be 2 or more, not {self.minimum}: a sum of one hides nothing")
        if bool(self.members) == self.anybody:
            raise InputError(
                "a helper must know which clients are real, or a leader that makes up clients can see the numbers "
                "of one that is: give their cards (members, --member), or, for a trial, say that anybody will do "
                "(--anybody)"
            )
