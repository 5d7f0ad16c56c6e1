"""What a report is made for: a report of one context is worth nothing in another.

A context is the federation (the digest of its terms), the round, and the fingerprint of how features are made. It is
signed with every report and bound into the encryption of its seed: the helper cannot open a seed under any other.
"""

import hashlib
import struct
from dataclasses import dataclass

from fedmoments.errors import InputError

__all__ = ["CONTEXT_BYTES", "MOST_ATTEMPTS", "MOST_ROUNDS", "Context", "tests_of"]

#: UTF-8 bytes of a federation's id and of a fingerprint.
NAME_BYTES = 256
#: Rounds are kept in signed 64-bit integers.
MOST_ROUNDS = 2**63 - 1
#: After so many batches that were given up, somebody does not want a sum: clients report in no later round.
MOST_ATTEMPTS = 100

_PLACES = struct.Struct("<32sQ32s")
#: Bytes of a context in headers: SHA-256 of federation, round, SHA-256 of fingerprint.
CONTEXT_BYTES = _PLACES.size


def tests_of(federation: str) -> str:
    """Return the id under which results of tests of a federation are added up."""
    return hashlib.sha256(f"fedmoments evaluation 1\n{federation}".encode()).hexdigest()


@dataclass(frozen=True)
class Context:
    """Federation, round and fingerprint.

    Parameters
    ----------
    federation
        Id of the federation: 1 to 256 bytes of printable text, such as the SHA-256 of its terms.
    round
        From 0. A client's data should be in one round only, unless all rounds are over the same clients.
    fingerprint
        Of encoder, preprocessing and feature map: 1 to 256 bytes of printable text.
    about
        Which samples reports are about, ``moments`` or ``tests``: no part of what is signed, but known to who checks.

    Examples
    --------
    >>> context = Context("ab" * 32, 0, "cd" * 32)
    >>> context.digest == Context("ab" * 32, 1, "cd" * 32).digest
    False
    """

    federation: str
    round: int
    fingerprint: str
    about: str = "moments"

    def testing(self, heads: str) -> "Context":
        """Return the context of results of classifiers with this digest, which are tested on held-out samples.

        Tests have a federation of their own: sums of results and sums of moments are over different samples, so that
        batches of both may differ, while batches of two tests may not differ by few clients. They are the same in
        whatever round the moments were summed.
        """
        both = f"fedmoments evaluation 1\n{self.fingerprint}\n{heads}"
        return Context(tests_of(self.federation), 0, hashlib.sha256(both.encode()).hexdigest(), "tests")

    def __post_init__(self) -> None:
        for name in ("federation", "fingerprint"):
            value = getattr(self, name)
            is_text = isinstance(value, str) and value.isprintable()
            if not is_text or not 1 <= len(value.encode("utf-8")) <= NAME_BYTES:
                raise InputError(
                    f"the {name} of a context must be 1 to {NAME_BYTES} bytes of printable text, but {value!r:.80} "
                    "arrived: give the digest that the terms have"
                )
        if type(self.round) is not int or not 0 <= self.round <= MOST_ROUNDS:
            raise InputError(f"the round of a context must be a whole number from 0 to {MOST_ROUNDS}, not {self.round}")

    @property
    def drawing(self) -> "Context":
        """What cohorts are drawn for, once: the first attempt. Later ones have the same cohorts."""
        return Context(self.federation, 0, self.fingerprint)

    def to_bytes(self) -> bytes:
        """Return the context as it stands in headers, (72,): digest of federation, round, digest of fingerprint."""
        return _PLACES.pack(_sha256(self.federation), self.round, _sha256(self.fingerprint))

    @property
    def digest(self) -> bytes:
        """SHA-256 of federation, round and fingerprint together, (32,)."""
        return hashlib.sha256(b"fedmoments secure context 1\n" + self.to_bytes()).digest()


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()
