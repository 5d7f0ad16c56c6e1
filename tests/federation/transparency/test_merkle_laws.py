"""The Merkle tree of RFC 9162 against a naive referee that is written from its definitions."""

import hashlib
from collections.abc import Sequence

import pytest

from fedmoments.federation.transparency.merkle import (
    Subtree,
    consistency_proof,
    inclusion_proof,
    is_consistent,
    is_included,
    leaf_hash,
    root_of,
)

#: The leaves and roots of the test vectors that implementations of certificate transparency share.
VECTOR = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
VECTOR.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """MTH as the RFC defines it."""
    if len(leaves) <= 1:
        return hashlib.sha256(b"\x00" + leaves[0] if leaves else b"").digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def reader(leaves: Sequence[bytes]) -> Subtree:
    return lambda level, place: naive_root(leaves[place << level : (place + 1) << level])


def leaves_of(size: int) -> list[bytes]:
    return [f"entry {number}".encode() for number in range(size)]


@pytest.mark.parametrize(("size", "root"), ROOTS.items())
def test_roots_are_those_of_the_known_vectors(size: int, root: str) -> None:
    assert naive_root(VECTOR[:size]).hex() == root
    assert root_of(reader(VECTOR[:size]), size).hex() == root


def test_every_leaf_is_proved_in_every_tree_and_no_other() -> None:
    for size in range(1, 34):
        leaves = leaves_of(size)
        root = root_of(reader(leaves), size)
        assert root == naive_root(leaves)
        for place in range(size):
            proof = inclusion_proof(reader(leaves), place, size)
            assert is_included(leaf_hash(leaves[place]), place, size, proof, root)
            assert not is_included(leaf_hash(b"another"), place, size, proof, root)
            assert not is_included(leaf_hash(leaves[place]), place, size, [*proof, root], root)
            assert not is_included(leaf_hash(leaves[place]), place ^ 1, size, proof, root) or size == 1
            for cut in range(len(proof)):
                changed = [*proof[:cut], hashlib.sha256(proof[cut]).digest(), *proof[cut + 1 :]]
                assert not is_included(leaf_hash(leaves[place]), place, size, changed, root)
                assert not is_included(leaf_hash(leaves[place]), place, size, proof[:cut], root)


def test_a_tree_is_proved_to_begin_every_later_one_and_no_fork() -> None:
    for second in range(1, 26):
        leaves = leaves_of(second)
        later = naive_root(leaves)
        for first in range(1, second + 1):
            proof = consistency_proof(reader(leaves), first, second)
            earlier = naive_root(leaves[:first])
            assert is_consistent(first, second, earlier, later, proof)
            forked = naive_root([*leaves[: first - 1], b"another"])
            assert not is_consistent(first, second, forked, later, proof)
            assert not is_consistent(first, second, earlier, forked, proof)
            assert not is_consistent(second + 1, first, earlier, later, proof)
            assert not is_consistent(first, second, earlier, later, [*proof, later])
            for cut in range(len(proof)):
                assert not is_consistent(first, second, earlier, later, proof[:cut])


def test_the_empty_log_begins_every_log() -> None:
    assert root_of(reader([]), 0) == hashlib.sha256(b"").digest()
    assert is_consistent(0, 5, b"", naive_root(leaves_of(5)), [])
    assert not is_consistent(0, 5, b"", naive_root(leaves_of(5)), [b"x"])
