"""What nodes reply, read without believing any of it: bounded, typed, and cleaned before it reaches log or report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict

from fedmoments.errors import FedMomentsError, InputError
from fedmoments.federation.flower.messages import read_content
from fedmoments.wire import unpack_bundle

__all__ = ["Contributed", "cleaned", "read_contributed"]

#: Reasons for declining that one reply may hold; further ones are only counted.
MOST_DECLINED = 20
#: Clients with a receipt that one reply may name.
MOST_HELD = 1000
#: Characters of a name and of a sentence that are kept.
MOST_NAME, MOST_SENTENCE = 64, 500
#: What a bundle may have beyond its contributions: their lengths.
FRAMING = 2**20


@dataclass(frozen=True)
class Contributed:
    """A reply to ``query.contribute``.

    Parameters
    ----------
    items
        Contributions, unchecked bytes.
    declined
        Clients that the node withheld, with the reason, at most `MOST_DECLINED`.
    n_declined
        How many it withheld in all.
    last
        The last client in the bundle.
    more
        Whether others wait.
    seen
        Size of the last head of the log that the node saw; 0 for none.
    held
        Clients that say they hold a receipt, as many as a reply may name.
    """

    items: list[bytes]
    declined: tuple[Mapping[str, str], ...]
    n_declined: int
    last: str
    more: bool
    seen: int = 0
    held: tuple[str, ...] = ()


def read_contributed(content: RecordDict, *, most_bytes: int, most_items: int) -> Contributed:
    """Read a reply with contributions.

    Raises
    ------
    InputError
        When it is anything else, or too large, whatever it is that a node sent.
    """
    try:
        fields, bundle = read_content(content, most_bytes=most_bytes + FRAMING)
        items = [bytes(item) for item in unpack_bundle(bundle, max_bytes=most_bytes + FRAMING, max_items=most_items)]
        clients, refusals = _list(fields["clients"]), _list(fields["declined"])
        declined = tuple(
            {"client": cleaned(entry["client"], MOST_NAME), "why": cleaned(entry["why"], MOST_SENTENCE)}
            for entry in refusals[:MOST_DECLINED]
        )
        last = cleaned(clients[-1], MOST_NAME) if clients else ""
        held = tuple(cleaned(name, MOST_NAME) for name in _list(fields.get("held", []))[:MOST_HELD])
        seen = int(fields.get("seen", 0))
        return Contributed(items, declined, len(refusals), last, fields["more"] is True, seen, held)
    except FedMomentsError as error:
        raise InputError(f"its reply is invalid: {cleaned(error, MOST_SENTENCE)}") from error
    except Exception as error:  # a node chooses what it sends: nothing of it may end the round
        raise InputError(f"its reply is invalid ({type(error).__name__})") from error


def cleaned(value: object, most: int) -> str:
    r"""Return a text that any log, file or terminal can hold.

    Examples
    --------
    >>> cleaned("a\ud800\nb", 10), cleaned("x" * 99, 4)
    ('a? b', 'xxxx')
    """
    text = str(value)[:most].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else " " for character in text)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError("a list was expected")
    return value
