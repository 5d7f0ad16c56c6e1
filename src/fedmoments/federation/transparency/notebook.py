"""A witness's notebook: the heads of a server's log that it was shown, and whether they are of one history.

Plain text, a JSON object a line, append-only: a head, and the proof that the head of size ``first``, noted before,
begins it. Two heads of one size with two roots, both signed, prove that a server showed two histories. Heads that no
proof joins prove nothing yet: the server must be able to join them. Terms with added classes have lines of their own
(:mod:`fedmoments.federation.transparency.amended`).
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from fedmoments.durable.locks import locked_file, read_at, write_at
from fedmoments.errors import FileFormatError, LedgerError, PolicyError
from fedmoments.federation.terms import Terms
from fedmoments.federation.transparency.amended import apart, line_of, terms_of
from fedmoments.federation.transparency.heads import LogHead, hashes_from

__all__ = ["Findings", "Notebook", "Noted", "compare"]

#: Larger notebooks are not read: a thousand heads have less than a megabyte.
MOST_BYTES = 2**28


@dataclass(frozen=True)
class Noted:
    """A head, and how it follows from one that was noted before.

    Parameters
    ----------
    head
        Its signature is right.
    first
        Size of the former head; 0 where there was none.
    proof
        That the former one begins it.
    """

    head: LogHead
    first: int = 0
    proof: tuple[bytes, ...] = ()

    def to_line(self) -> bytes:
        """Return a line of a notebook."""
        line = {"head": asdict(self.head), "first": self.first, "proof": [value.hex() for value in self.proof]}
        return json.dumps(line).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Noted":
        """Read a line; the head must be signed by the key that it names."""
        try:
            value = json.loads(line)
            first, head = value["first"], LogHead.from_dict(value["head"])
            proof = tuple(hashes_from(value["proof"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileFormatError(f"this is not a line of a witness's notebook: {type(error).__name__}") from error
        if type(first) is not int or not 0 <= first <= head.size or not head.is_signed:
            raise FileFormatError("a line of a witness's notebook holds a head that its key did not sign")
        return cls(head, first, proof)


class Notebook:
    """A file of heads, readable by its owner alone.

    Parameters
    ----------
    path
        Made with the first head.

    Examples
    --------
    >>> Notebook(Path("no such file")).noted()
    []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def noted(self) -> list[Noted]:
        """Return all heads; a last line that a kill cut off was not noted.

        Raises
        ------
        FileFormatError
            When the file is something else.
        """
        lines = [line for line in self._lines() if not line.startswith(b'{"terms":')]
        try:
            return [Noted.from_line(line) for line in lines]
        except FileFormatError as error:
            raise FileFormatError(f"{self.path}: {error}") from error

    def amended(self) -> list[Terms]:
        """Return all terms with added classes, each with the server's signatures.

        Raises
        ------
        FileFormatError
            When the file is something else.
        """
        try:
            return [terms for terms in map(terms_of, self._lines()) if terms is not None]
        except FileFormatError as error:
            raise FileFormatError(f"{self.path}: {error}") from error

    def _lines(self) -> list[bytes]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise FileFormatError(f"{self.path} has more than {MOST_BYTES} bytes: it is not a witness's notebook")
        return [line for line in data.split(b"\n")[:-1] if line]

    def latest(self, federation: str) -> LogHead | None:
        """Return the longest head of a federation."""
        heads = [noted.head for noted in self.noted() if noted.head.federation == federation]
        return max(heads, key=lambda head: (head.size, head.counter), default=None)

    def follow(self, head: LogHead, proof: list[bytes], key: str | None = None) -> bool:
        """Note a head that a server shows now, if it goes on from the one that was noted last.

        Parameters
        ----------
        head, proof
            What it shows, and its proof that the former head begins it; empty if it has none.
        key
            The server's, as the terms name it; without one, that of the first head is believed, and only that.

        Returns
        -------
        bool
            Whether the key was believed for the first time.

        Raises
        ------
        LedgerError
            When it is not signed by that key, or shows another history.
        """
        former = self.latest(head.federation)
        trusted = key or (former.key if former else head.key)
        if head.key != trusted or not head.is_signed:
            source = " by the terms" if key else ", as noted at first"
            raise LedgerError(
                f"the head of the server's log is signed by {head.key[:16]}…, but its key is {trusted[:16]}…{source}: "
                "somebody else speaks for the server; ask its operator"
            )
        if former is not None:
            _require_later(former, head, proof)
            if (former.size, former.counter) == (head.size, head.counter):
                return False
        self.add([Noted(head, former.size if former else 0, tuple(proof))])
        return former is None and not key

    def follow_terms(self, terms: Terms, accepted: str = "") -> None:
        """Note terms with added classes, and refuse them if they part from what was shown before.

        Parameters
        ----------
        terms
            What the server shows; noted in any case, as a proof.
        accepted
            Digest of the stage that is known to be the right one: other noted terms must follow from it to count.

        Raises
        ------
        PolicyError
            When the server signed two amendments that part.
        """
        if not terms.amended:
            return
        known: list[Terms] = []
        for former in self.amended():
            right = not accepted or accepted in {stage.digest for stage in former.stages}
            known += [former] if right and not apart([*known, former]) else []
        self.add_lines([line_of(terms)])
        if apart([*known, terms]):
            raise PolicyError(
                f"the server of '{terms.name}' signed two amendments of its terms of which neither follows from the "
                f"other, {known[-1].digest[:16]}… and {terms.digest[:16]}…: it tells parties two stories. Both are in "
                "this client's notebook of heads: compare with other parties ('fedmoments witness')"
            )

    def add(self, new: Iterable[Noted]) -> int:
        """Note heads that are not there yet, forced to the disk; return how many."""
        return self.add_lines(noted.to_line() for noted in new)

    def add_lines(self, new: Iterable[bytes]) -> int:
        """Note lines that are not there yet, forced to the disk; return how many."""
        with locked_file(self.path) as descriptor:
            known = {line + b"\n" for line in self._lines()}
            lines = list(dict.fromkeys(line for line in new if line not in known))
            data = read_at(descriptor, os.fstat(descriptor).st_size, 0)
            end = data.rfind(b"\n") + 1
            os.ftruncate(descriptor, end)
            write_at(descriptor, b"".join(lines), end)
            os.fsync(descriptor)
        return len(lines)


def _require_later(former: LogHead, head: LogHead, proof: list[bytes]) -> None:
    if head.counter < former.counter:
        raise LedgerError(
            f"the server's counter went back from {former.counter} to {head.counter}: an older ledger took the place "
            "of the newer one, and may hold who left and forget what was spent; ask its operator"
        )
    if head.size < former.size or not former.begins(head, proof):
        raise LedgerError(
            f"the server shows a log of {head.size} entries that does not begin with the {former.size} it showed on "
            f"{former.time}: it was rewritten, restored from a snapshot, or is shown differently to others. Compare "
            "with other parties ('fedmoments witness'); if its operator told you of a restore, begin a new notebook"
        )


@dataclass(frozen=True)
class Findings:
    """What heads of one federation that one key signed say of whoever has that key: its server, or somebody else.

    Parameters
    ----------
    federation, key
        Its id, and the key.
    heads
        How many different heads.
    forks
        Pairs of heads that cannot both be of one log.
    unjoined
        Sizes of heads that nothing joins to the longest one: the server must prove them.
    """

    federation: str
    key: str
    heads: int
    forks: tuple[tuple[LogHead, LogHead], ...]
    unjoined: tuple[int, ...]


def compare(notes: Iterable[Noted]) -> list[Findings]:
    """Return what heads from several notebooks say, a finding for each federation and key.

    Anybody can sign a head with a key of their own: only heads of one key can prove that its owner told two stories.

    Examples
    --------
    >>> compare([])
    []
    """
    grouped: dict[tuple[str, str], list[Noted]] = {}
    for noted in notes:
        grouped.setdefault((noted.head.federation, noted.head.key), []).append(noted)
    return [_compare(*whose, group) for whose, group in sorted(grouped.items())]


def _compare(federation: str, key: str, notes: list[Noted]) -> Findings:
    heads = sorted({noted.head for noted in notes}, key=lambda head: (head.size, head.counter, head.root))
    by_size: dict[int, LogHead] = {}
    forks: list[tuple[LogHead, LogHead]] = []
    for head in heads:
        other = by_size.setdefault(head.size, head)
        if other.root != head.root:
            forks.append((other, head))
    forks += [(one, two) for one, two in pairwise(heads) if one.counter > two.counter]
    return Findings(federation, key, len(heads), tuple(forks), _apart(by_size, notes, heads[-1].size))


def _apart(by_size: dict[int, LogHead], notes: list[Noted], longest: int) -> tuple[int, ...]:
    """Return the sizes of heads that no chain of proofs joins with the longest one."""
    joined: dict[int, int] = {size: size for size in by_size}

    def group_of(size: int) -> int:
        while joined[size] != size:
            size = joined[size]
        return size

    for noted in notes:
        former = by_size.get(noted.first)
        if former is not None and former.begins(noted.head, noted.proof):
            joined[group_of(noted.first)] = group_of(noted.head.size)
    return tuple(size for size in sorted(by_size) if group_of(size) != group_of(longest))
