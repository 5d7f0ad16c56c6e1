"""A Merkle tree over the entries of a log, as in RFC 9162, section 2.1: short proofs of what a log holds.

MTH of one leaf is SHA-256(0x00 ‖ leaf); of n leaves it is SHA-256(0x01 ‖ MTH(first k) ‖ MTH(the rest)), with k the
largest power of two below n. The proof that leaf i is among n leaves, and the proof that a tree of m leaves is the
beginning of one of n, have at most ⌈log₂ n⌉ + 1 hashes; whoever holds the roots checks them alone.
"""

import hashlib
from collections.abc import Callable, Sequence

__all__ = [
    "Subtree",
    "consistency_proof",
    "inclusion_proof",
    "is_consistent",
    "is_included",
    "leaf_hash",
    "node_hash",
    "root_of",
]

#: (level, place) -> hash of the complete subtree over the leaves [place · 2**level, (place + 1) · 2**level).
Subtree = Callable[[int, int], bytes]

#: Root of the tree without leaves.
EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf.

    Examples
    --------
    >>> leaf_hash(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over two subtrees; that of a leaf can never equal it.

    Examples
    --------
    >>> node_hash(leaf_hash(b"a"), leaf_hash(b"b")) == node_hash(leaf_hash(b"b"), leaf_hash(b"a"))
    False
    """
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(subtree: Subtree, size: int) -> bytes:
    """Return the root over the first ``size`` leaves.

    Examples
    --------
    >>> leaves = [leaf_hash(b"a"), leaf_hash(b"b")]
    >>> root_of(lambda level, place: leaves[place] if level == 0 else node_hash(*leaves), 2) == node_hash(*leaves)
    True
    """
    return _range_root(subtree, 0, size) if size else EMPTY


def inclusion_proof(subtree: Subtree, place: int, size: int) -> list[bytes]:
    """Return the hashes that lead from leaf ``place`` (from 0) to the root over ``size`` leaves: PATH(m, D_n).

    Examples
    --------
    >>> leaves = [leaf_hash(b"a"), leaf_hash(b"b")]
    >>> inclusion_proof(lambda level, place: leaves[place], 0, 2) == [leaves[1]]
    True
    """
    start, stop, others = 0, size, []
    while stop - start > 1:
        middle = start + _split(stop - start)
        if place < middle:
            others.append(_range_root(subtree, middle, stop))
            stop = middle
        else:
            others.append(_range_root(subtree, start, middle))
            start = middle
    return others[::-1]


def consistency_proof(subtree: Subtree, first: int, second: int) -> list[bytes]:
    """Return the hashes that show that the tree of ``first`` leaves begins that of ``second``: PROOF(m, D_n).

    Examples
    --------
    >>> leaves = [leaf_hash(b"a"), leaf_hash(b"b")]
    >>> consistency_proof(lambda level, place: leaves[place], 1, 2) == [leaves[1]]
    True
    """
    if not 0 < first < second:
        return []
    start, stop, others, is_whole = 0, second, [], True
    while first != stop:
        middle = start + _split(stop - start)
        if first <= middle:
            others.append(_range_root(subtree, middle, stop))
            stop = middle
        else:
            others.append(_range_root(subtree, start, middle))
            start, is_whole = middle, False
    if not is_whole:
        others.append(_range_root(subtree, start, stop))
    return others[::-1]


def is_included(leaf: bytes, place: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Say whether a proof leads from a leaf's hash to a root: RFC 9162, 2.1.3.2.

    Examples
    --------
    >>> left, right = leaf_hash(b"a"), leaf_hash(b"b")
    >>> [is_included(left, place, 2, [right], node_hash(left, right)) for place in (0, 1)]
    [True, False]
    """
    if not 0 <= place < size:
        return False
    own, last, computed = place, size - 1, leaf
    for other in proof:
        if last == 0:
            return False
        if own & 1 or own == last:
            computed = node_hash(other, computed)
            while own and not own & 1:
                own, last = own >> 1, last >> 1
        else:
            computed = node_hash(computed, other)
        own, last = own >> 1, last >> 1
    return last == 0 and computed == root


def is_consistent(first: int, second: int, first_root: bytes, second_root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that one tree begins another: RFC 9162, 2.1.4.2. The empty tree begins every tree.

    Examples
    --------
    >>> left, right = leaf_hash(b"a"), leaf_hash(b"b")
    >>> [is_consistent(1, 2, first_root, node_hash(left, right), [right]) for first_root in (left, right)]
    [True, False]
    """
    if first in (second, 0):
        return not proof and first <= second and (first == 0 or first_root == second_root)
    if not 0 < first < second:
        return False
    path = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    roots = _followed(first, second, path) if path else None
    return roots == (first_root, second_root)


def _followed(first: int, second: int, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return the roots of both trees that a path leads to; None if it is too short or too long."""
    own, last = first - 1, second - 1
    while own & 1:
        own, last = own >> 1, last >> 1
    before = after = path[0]
    for other in path[1:]:
        if last == 0:
            return None
        if own & 1 or own == last:
            before, after = node_hash(other, before), node_hash(other, after)
            while own and not own & 1:
                own, last = own >> 1, last >> 1
        else:
            after = node_hash(after, other)
        own, last = own >> 1, last >> 1
    return (before, after) if last == 0 else None


def _split(size: int) -> int:
    """Return the largest power of two below a size above 1."""
    return 1 << (size - 1).bit_length() - 1


def _range_root(subtree: Subtree, start: int, stop: int) -> bytes:
    """Return the root over the leaves [start, stop), which a tree of this kind cuts off by itself."""
    size = stop - start
    if size & (size - 1) == 0:
        return subtree(size.bit_length() - 1, start // size)
    middle = start + _split(size)
    return node_hash(_range_root(subtree, start, middle), _range_root(subtree, middle, stop))
