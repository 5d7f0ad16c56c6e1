"""Which version of which classifier this is: a name, a number, the digest of the one before it.

It stands in a classifier's notes under ``version``; the digest of a classifier does not depend on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.core.classifier.base import Classifier

__all__ = ["Version", "version_of"]


@dataclass(frozen=True)
class Version:
    """A version of a classifier.

    Parameters
    ----------
    name
        The same for all versions.
    number
        From 1; another one only for other parameters.
    parent
        Digest of the version before, if there was one.
    federation, entry
        Id of the federation whose ledger it was fitted from, and the number of the entry of its log that says so.

    Examples
    --------
    >>> first = Version("clinic").following("ab", "ab")
    >>> first.following("ab", "cd")
    Version(name='clinic', number=2, parent='ab', federation=None, entry=None)
    """

    name: str
    number: int = 1
    parent: str | None = None
    federation: str | None = None
    entry: int | None = None

    def following(self, before: str | None, digest: str) -> "Version":
        """Return the version with that digest, where this one has the digest ``before``: the next, or still this."""
        return self if before == digest else Version(self.name, self.number + 1, before)

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, ready for JSON."""
        return {key: value for key, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        return f"{self.name}, version {self.number}"


def version_of(classifier: Classifier) -> Version | None:
    """Return the version that a classifier's notes name, or None where they name none that makes sense."""
    noted = classifier.info.get("version")
    if not isinstance(noted, Mapping) or not isinstance(noted.get("name"), str):
        return None
    kinds = {"name": str, "number": int, "parent": str, "federation": str, "entry": int}
    return Version(**{key: noted[key] for key, kind in kinds.items() if isinstance(noted.get(key), kind)})
