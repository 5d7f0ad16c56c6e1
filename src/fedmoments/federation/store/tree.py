"""The Merkle tree over the log, kept as it grows: one row for each complete subtree, so that proofs read few rows."""

from fedmoments.durable import Connection
from fedmoments.errors import LedgerError
from fedmoments.federation.transparency.merkle import Subtree, leaf_hash, node_hash

__all__ = ["grow", "leaf_of", "subtree_of", "tree_problems"]


def leaf_of(entry_hash: str) -> bytes:
    """Return the leaf of a log's entry: that of its hash in digits, which binds all it says and all before it.

    Examples
    --------
    >>> leaf_of("ab" * 32) == leaf_hash(b"ab" * 32)
    True
    """
    return leaf_hash(entry_hash.encode())


def grow(connection: Connection, seq: int, entry_hash: str) -> None:
    """Add the entry of number ``seq`` (from 1) to the tree, inside the transaction that writes it."""
    level, place, value = 0, seq - 1, leaf_of(entry_hash)
    connection.execute("INSERT INTO tree VALUES (?, ?, ?)", (level, place, value))
    while place & 1:
        value = node_hash(subtree_of(connection)(level, place - 1), value)
        level, place = level + 1, place >> 1
        connection.execute("INSERT INTO tree VALUES (?, ?, ?)", (level, place, value))


def subtree_of(connection: Connection) -> Subtree:
    """Return what reads the hash of a complete subtree, for proofs."""

    def read(level: int, place: int) -> bytes:
        query = "SELECT hash FROM tree WHERE level = ? AND place = ?"
        row = connection.execute(query, (level, place)).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise LedgerError("the tree over the log is damaged, and proves nothing: run verify, restore a snapshot")
        return bytes(row[0])

    return read


def tree_problems(connection: Connection, hashes: list[str]) -> list[str]:
    """Return what is wrong with the stored tree over entries of these hashes."""
    wanted: dict[tuple[int, int], bytes] = {}
    row, level = [leaf_of(value) for value in hashes], 0
    while row:
        wanted.update({(level, place): value for place, value in enumerate(row)})
        row = [node_hash(row[place], row[place + 1]) for place in range(0, len(row) - 1, 2)]
        level += 1
    stored = {(level, place): value for level, place, value in connection.execute("SELECT * FROM tree")}
    return [] if stored == wanted else ["the tree over the log is not that of its entries"]
