"""What the leader asks of the helper: the masks of some reports, added up, at some coordinates.

A request has one form only: reports ascend by id, blocks ascend and neither touch nor overlap. So the same question has
the same bytes and the same digest, by which the helper recognises one that it answered before. As bytes::

    magic 8 │ format 4 │ lengths of federation, fingerprint 2 + 2 │ round 8 │ reports 4 │ blocks 4 │ federation │
    fingerprint │ blocks (start 8, stop 8) … │ envelopes 360 …
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from fedmoments.errors import InputError, RefusedError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES, ID_BYTES
from fedmoments.privacy.secure.stream import MOST_WORDS, Block
from fedmoments.wire import Reason

__all__ = ["MOST_REQUEST_BYTES", "SumRequest", "joined"]

MAGIC = b"FEDMASKS"
FORMAT = 1
#: Cap on the bytes of a request, checked before anything is parsed: half a million reports.
MOST_REQUEST_BYTES = 200_000_000

_HEAD = struct.Struct("<8sIHHQII")
_BLOCK = struct.Struct("<QQ")
#: Where a report's id stands in its envelope.
_ID_AT = slice(168, 168 + ID_BYTES)


@dataclass(frozen=True)
class SumRequest:
    """A batch of reports, and the coordinates to unmask.

    Parameters
    ----------
    context
        Of all of its reports.
    reports
        Pairs of a report's id (32 hexadecimal digits) and its envelope (360 bytes, ``Report.sealed``), in any order.
    blocks
        Pairs (start, stop) of coordinates, in any order; blocks that touch are joined.

    Raises
    ------
    InputError
        When a block is empty, negative, too far or overlaps another, or when an id is not that of its envelope.

    Examples
    --------
    >>> SumRequest(Context("ab" * 32, 0, "cd" * 32), [], [(5, 9), (0, 5), (12, 13)]).blocks
    ((0, 9), (12, 13))
    """

    context: Context
    reports: Sequence[tuple[str, bytes]]
    blocks: Sequence[Block]

    def __post_init__(self) -> None:
        for name, sealed in self.reports:
            if len(sealed) != ENVELOPE_BYTES or sealed[_ID_AT].hex() != name:
                raise InputError(
                    f"report {name[:40]!r} must come with its own envelope of {ENVELOPE_BYTES} bytes, but one of "
                    f"{len(sealed)} bytes arrived: pass Report.id and Report.sealed of the same report"
                )
        object.__setattr__(self, "reports", tuple(sorted((name, bytes(sealed)) for name, sealed in self.reports)))
        object.__setattr__(self, "blocks", joined(self.blocks))

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the reports, ascending."""
        return tuple(name for name, _ in self.reports)

    @property
    def size(self) -> int:
        """Numbers of the answer: the lengths of all blocks together."""
        return sum(stop - start for start, stop in self.blocks)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of :meth:`to_bytes`, (32,)."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the request as bytes; equal requests give equal bytes."""
        names = [text.encode("utf-8") for text in (self.context.federation, self.context.fingerprint)]
        head = _HEAD.pack(
            MAGIC, FORMAT, *map(len, names), self.context.round, len(self.reports), len(self.blocks)
        )  # fmt: skip
        blocks = b"".join(_BLOCK.pack(*block) for block in self.blocks)
        return b"".join((head, *names, blocks, *(sealed for _, sealed in self.reports)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "SumRequest":
        """Read what :meth:`to_bytes` wrote, and nothing else.

        Raises
        ------
        RefusedError
            When it is too long, cut, or of another form.

        Examples
        --------
        >>> request = SumRequest(Context("ab" * 32, 0, "cd" * 32), [], [(0, 5)])
        >>> SumRequest.from_bytes(request.to_bytes()) == request
        True
        >>> SumRequest.from_bytes(request.to_bytes()[:-1])
        Traceback (most recent call last):
        fedmoments.errors.RefusedError: truncated: this request of a sum should have 176 bytes, but 175 arrived: ...
        """
        magic, form, *lengths, number, n_reports, n_blocks = _head(data)
        if magic != MAGIC or form != FORMAT:
            raise RefusedError(
                Reason.FORMAT_VERSION if magic == MAGIC else Reason.NOT_A_CONTRIBUTION,
                f"a request of a sum begins with {MAGIC!r} and version {FORMAT}, but {magic!r} and {form} arrived: let "
                "both servers use the same release of fedmoments",
            )
        lengths += [n_blocks * _BLOCK.size, n_reports * ENVELOPE_BYTES]
        federation, fingerprint, blocks, sealed = _parts(data, lengths)
        envelopes = [sealed[at : at + ENVELOPE_BYTES] for at in range(0, len(sealed), ENVELOPE_BYTES)]
        try:
            request = cls(
                Context(federation.decode("utf-8"), number, fingerprint.decode("utf-8")),
                [(envelope[_ID_AT].hex(), envelope) for envelope in envelopes],
                list(_BLOCK.iter_unpack(blocks)),
            )
        except (UnicodeDecodeError, InputError) as error:
            raise RefusedError(Reason.BODY, f"a request of a sum is malformed: {error}") from error
        if request.to_bytes() != data:
            raise RefusedError(
                Reason.BODY, "reports and blocks of a request must ascend, as SumRequest.to_bytes() writes them"
            )
        return request


def _parts(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Return what follows the head, cut into parts of these lengths; nothing may be missing or left over."""
    ends = list(accumulate(lengths, initial=_HEAD.size))
    if ends[-1] != len(data):
        raise RefusedError(
            Reason.TRUNCATED if len(data) < ends[-1] else Reason.TRAILING,
            f"this request of a sum should have {ends[-1]} bytes, but {len(data)} arrived: send it again",
        )
    return [data[start:stop] for start, stop in pairwise(ends)]


def joined(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return blocks in ascending order, those that touch made one.

    Examples
    --------
    >>> joined([(4, 6), (0, 4)])
    ((0, 6),)
    >>> joined([(0, 4), (3, 6)])
    Traceback (most recent call last):
    fedmoments.errors.InputError: blocks of coordinates must not overlap, but (0, 4) and (3, 6) do: ...
    """
    merged: list[Block] = []
    for start, stop in sorted((int(start), int(stop)) for start, stop in blocks):
        if not 0 <= start < stop <= MOST_WORDS:
            raise InputError(
                f"a block of coordinates must lie between 0 and {MOST_WORDS} and not be empty, but ({start}, {stop}) "
                "arrived"
            )
        if merged and start < merged[-1][1]:
            raise InputError(
                f"blocks of coordinates must not overlap, but {merged[-1]} and ({start}, {stop}) do: ask for every "
                "coordinate once"
            )
        if merged and start == merged[-1][1]:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def _head(data: bytes) -> tuple[bytes, int, int, int, int, int, int]:
    if not _HEAD.size <= len(data) <= MOST_REQUEST_BYTES:
        raise RefusedError(
            Reason.TRUNCATED if len(data) < _HEAD.size else Reason.OVERSIZED,
            f"a request of a sum has from {_HEAD.size} to {MOST_REQUEST_BYTES} bytes, but {len(data)} arrived and none "
            "was parsed: ask for a smaller batch",
        )
    magic, form, federation, fingerprint, number, reports, blocks = _HEAD.unpack_from(data)
    return magic, form, federation, fingerprint, number, reports, blocks
