"""Many contributions in one message: what a node that serves several partitions sends.

========  =====  ====================================================
offset    bytes  what
========  =====  ====================================================
0         8      magic ``FEDMBNDL``
8         8      number of items k, u64 little-endian
16        8·k    length of each item, u64 little-endian
16 + 8·k  …      the items, one behind the other, and nothing else
========  =====  ====================================================

A bundle is not signed: its items are.
"""

import struct
from collections.abc import Sequence

from fedmoments.errors import RefusedError
from fedmoments.wire.header import Buffer
from fedmoments.wire.reason import Reason

__all__ = ["BUNDLE_MAGIC", "pack_bundle", "unpack_bundle"]

BUNDLE_MAGIC = b"FEDMBNDL"
_FIXED = 16


def pack_bundle(items: Sequence[Buffer]) -> bytes:
    """Return one message that holds all items, in order.

    Examples
    --------
    >>> bundle = pack_bundle([b"first", b"second"])
    >>> [bytes(item) for item in unpack_bundle(bundle, max_bytes=100, max_items=2)]
    [b'first', b'second']
    """
    lengths = struct.pack(f"<{len(items)}Q", *(len(item) for item in items))
    return b"".join((BUNDLE_MAGIC, len(items).to_bytes(8, "little"), lengths, *items))


def unpack_bundle(data: Buffer, *, max_bytes: int, max_items: int) -> list[memoryview]:
    """Return the items of a bundle, as views of it: nothing is copied, nothing is looked into.

    Parameters
    ----------
    data
        What arrived.
    max_bytes, max_items
        Caps on the whole and on the number of items, checked before anything is parsed.

    Raises
    ------
    RefusedError
        When it is too large, no bundle, or not exactly as long as it announces. No item of it is returned then.

    Examples
    --------
    >>> unpack_bundle(pack_bundle([b"x"]) + b"!", max_bytes=100, max_items=2)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: trailing-bytes: a bundle announces 25 bytes, but 26 arrived: send it again
    """
    view = memoryview(data).cast("B")
    if len(view) > max_bytes:
        raise RefusedError(
            Reason.OVERSIZED,
            f"a bundle may have {max_bytes} bytes, but {len(view)} arrived and none was parsed: send fewer at once",
        )
    if len(view) < _FIXED:
        raise RefusedError(
            Reason.TRUNCATED, f"a bundle has {_FIXED} bytes or more, but {len(view)} arrived: send it again"
        )
    if view[:8] != BUNDLE_MAGIC:
        raise RefusedError(
            Reason.NOT_A_CONTRIBUTION,
            f"a bundle begins with {BUNDLE_MAGIC!r}, but what arrived begins with {bytes(view[:8])!r}: "
            "make it with pack_bundle()",
        )
    count = int.from_bytes(view[8:_FIXED], "little")
    if count > max_items:
        raise RefusedError(
            Reason.OVERSIZED, f"a bundle may have {max_items} items, but announces {count}: send fewer at once"
        )
    start = _FIXED + 8 * count
    lengths = struct.unpack(f"<{count}Q", view[_FIXED:start]) if len(view) >= start else ()
    announced = start + sum(lengths)
    if len(view) != announced:
        reason = Reason.TRUNCATED if len(view) < announced else Reason.TRAILING
        raise RefusedError(reason, f"a bundle announces {announced} bytes, but {len(view)} arrived: send it again")
    items = []
    for length in lengths:
        items.append(view[start : start + length])
        start += length
    return items
