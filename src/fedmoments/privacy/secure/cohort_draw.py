"""Cohorts from public randomness that neither server can steer, over a frozen list of enrolled identities.

1. The roster (every client with its identity key) is frozen; both servers know its digest.
2. The leader draws a nonce and sends the helper a *commitment*, SHA-256 of context, roster and nonce.
3. The helper remembers commitment and roster, one of each for a context, and answers with a nonce of its own.
4. The leader reveals its nonce; the helper checks it against the commitment.
5. Clients in the order of SHA-256(both nonces ‖ context ‖ client ‖ identity key) are dealt to J = max(1, ⌊K/m⌋) cohorts
   in turn, so that each has m clients or a few more.

The leader fixed its nonce before it saw the helper's, and the helper drew its own without knowing the leader's. As long
as one of them is honest no one chose who is with whom. Both nonces are published, so every client can check its cohort.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedmoments.errors import InputError, PrivacyError, reading
from fedmoments.privacy.secure.context import Context
from fedmoments.wire import PublicKey, check_client_id

__all__ = ["NONCE_BYTES", "Roster", "commitment_to", "deal_cohorts", "join_nonces", "merge_small"]

NONCE_BYTES = 32
_COMMITTING = b"fedmoments cohort commitment 1\n"
_JOINING = b"fedmoments cohort randomness 1\n"
_DEALING = b"fedmoments cohort order 1\n"

Cohorts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Roster:
    """Enrolled clients and their identity keys, frozen.

    Parameters
    ----------
    members
        Pairs of a client's name and its public key (64 hexadecimal digits), ascending by name.

    Examples
    --------
    >>> roster = Roster.of({"lab": "22" * 32, "clinic": "11" * 32})
    >>> roster.clients
    ('clinic', 'lab')
    >>> Roster.from_bytes(roster.to_bytes()) == roster
    True
    """

    members: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.members]
        keys = [key for _, key in self.members]
        if not names or names != sorted(set(names)) or len(set(keys)) != len(keys):
            raise InputError(
                f"a roster lists one or more clients in ascending order, each name and each key once, but {len(names)} "
                f"clients with {len(set(names))} names and {len(set(keys))} keys arrived: enrol every client with a "
                "key of its own"
            )
        for name, key in self.members:
            check_client_id(name)
            PublicKey.from_hex(key)

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> "Roster":
        """Return the roster of clients by name."""
        return cls(tuple(sorted(keys.items())))

    @property
    def clients(self) -> tuple[str, ...]:
        """Names, ascending."""
        return tuple(name for name, _ in self.members)

    @property
    def keys(self) -> dict[str, PublicKey]:
        """Identity keys by name."""
        return {name: PublicKey.from_hex(key) for name, key in self.members}

    @property
    def digest(self) -> bytes:
        """SHA-256 of :meth:`to_bytes`, (32,)."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the roster as JSON, the same bytes for the same roster."""
        return json.dumps(self.members, separators=(",", ":"), ensure_ascii=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Roster":
        """Read what :meth:`to_bytes` wrote."""
        with reading("the roster cannot be read"):
            return cls(tuple((name, key) for name, key in json.loads(data)))


def commitment_to(nonce: bytes, context: Context, roster: Roster) -> bytes:
    """Return what the leader sends before it sees the helper's nonce, (32,).

    Examples
    --------
    >>> roster, context = Roster.of({"lab": "22" * 32}), Context("ab" * 32, 0, "cd" * 32)
    >>> commitment_to(bytes(32), context, roster) == commitment_to(bytes([1] * 32), context, roster)
    False
    """
    _check_nonce(nonce, "leader")
    return hashlib.sha256(_COMMITTING + context.digest + roster.digest + nonce).digest()


def join_nonces(leader: bytes, helper: bytes) -> bytes:
    """Return the public randomness that both nonces make, (32,).

    Examples
    --------
    >>> join_nonces(bytes(32), bytes(32)).hex()[:8]
    'd7a03101'
    """
    _check_nonce(leader, "leader")
    _check_nonce(helper, "helper")
    return hashlib.sha256(_JOINING + leader + helper).digest()


def _check_nonce(nonce: bytes, whose: str) -> None:
    if len(nonce) != NONCE_BYTES:
        raise InputError(f"the nonce of the {whose} must have {NONCE_BYTES} bytes, but {len(nonce)} arrived")


def deal_cohorts(roster: Roster, context: Context, randomness: bytes, size: int) -> Cohorts:
    """Return the clients of every cohort.

    Parameters
    ----------
    roster
        Who is enrolled.
    context
        Federation, round and fingerprint.
    randomness
        What :func:`join_nonces` returned.
    size
        m: every cohort has m clients or more (all of them if there are fewer than 2m), and fewer than 2m.

    Examples
    --------
    >>> roster = Roster.of({f"site {i}": f"{i + 2:064x}" for i in range(7)})
    >>> [len(cohort) for cohort in deal_cohorts(roster, Context("ab" * 32, 0, "cd" * 32), bytes(32), 3)]
    [4, 3]
    """
    if size < 1:
        raise InputError(f"a cohort has 1 client or more, not {size}")
    start = hashlib.sha256(_DEALING + randomness + context.digest)

    def place(member: tuple[str, str]) -> bytes:
        sha = start.copy()
        sha.update(check_client_id(member[0]) + bytes.fromhex(member[1]))
        return sha.digest()

    order = [name for name, _ in sorted(roster.members, key=place)]
    n_cohorts = max(1, len(order) // size)
    return tuple(tuple(order[j::n_cohorts]) for j in range(n_cohorts))


def merge_small(cohorts: Sequence[Sequence[str]], present: Collection[str], batch: int) -> Cohorts:
    """Return the present clients of every cohort; cohorts of fewer than ``batch`` are joined with the next ones.

    What is left at the end joins the last one. So who is with whom follows from the deal and from who is present.

    Raises
    ------
    PrivacyError
        When fewer than ``batch`` clients are present at all.

    Examples
    --------
    >>> merge_small([("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")], {"a", "c", "d", "e", "f", "g"}, 2)
    (('a', 'c', 'd'), ('e', 'f', 'g'))
    """
    here = set(present)
    merged: list[tuple[str, ...]] = []
    waiting: tuple[str, ...] = ()
    for cohort in cohorts:
        waiting += tuple(client for client in cohort if client in here)
        if len(waiting) >= batch:
            merged.append(waiting)
            waiting = ()
    if not merged:
        raise PrivacyError(
            f"no sum may be over fewer than {batch} clients, but only {len(waiting)} reported: wait for more, or let "
            "this round go"
        )
    merged[-1] += waiting
    return tuple(merged)
