"""Who was invited: one token a name, hashed, good once and until a day.

They stand in a file beside the ledger (``LEDGER.invitations``) and not in it: a ledger that is restored from a snapshot
must not bring back a token that was used. A token that was used belongs to the keys that came with it: the same keys
again, after a lost answer, get the same answer; others are refused.
"""

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from fedmoments.durable import DurableFile, Kind
from fedmoments.errors import InputError, PolicyError
from fedmoments.federation.enrolment.kit import TOKEN_BYTES
from fedmoments.federation.keys.cards import check_name
from fedmoments.federation.keys.parties import Card

__all__ = ["Invitation", "Invitations", "invitations_of"]

#: Longest life of an invitation.
MOST_DAYS = 365
_KIND = Kind(
    "list of invitations",
    0x666D496E,  # "fmIn"
    """
-- digest: SHA-256 of federation, name and token; keys: SHA-256 of the card that used it
CREATE TABLE invitations (
    client TEXT PRIMARY KEY, digest BLOB NOT NULL, made TEXT NOT NULL, expires TEXT NOT NULL, used TEXT, keys BLOB
) WITHOUT ROWID;
""",
    version=1,
    remedy="move it away and invite those again who have not enrolled yet",
)


@dataclass(frozen=True)
class Invitation:
    """One invitation, without its token.

    Parameters
    ----------
    client
        Who was invited.
    expires
        Until when: ISO 8601, UTC.
    used
        When it was used; None: not yet.

    Examples
    --------
    >>> Invitation("clinic", "2030-01-01T00:00:00+00:00", None).is_open
    True
    """

    client: str
    expires: str
    used: str | None

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self.used is None and _now() < datetime.fromisoformat(self.expires)


class Invitations:
    """The invitations of one federation.

    Parameters
    ----------
    ledger
        The federation's; the file is made beside it.
    federation
        Its id.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Invitations(Path(folder, "pets"), "ab" * 32) as invitations:
    ...     token, expires = invitations.invite("clinic", days=7)
    ...     [invitation.client for invitation in invitations.all() if invitation.is_open]
    ['clinic']
    """

    def __init__(self, ledger: str | os.PathLike[str], federation: str) -> None:
        self._federation = federation
        self._file = DurableFile.at(invitations_of(Path(ledger)), _KIND)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def invite(self, client: str, *, days: float) -> tuple[str, str]:
        """Make a token for a name, in the place of an earlier one; return it, and until when it is good.

        Raises
        ------
        InputError
            When the name or the time cannot be.
        """
        check_name(client, "client")
        if not 0 < days <= MOST_DAYS:
            raise InputError(f"an invitation is good for up to {MOST_DAYS} days, not {days:g}")
        token = base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode()
        expires = (_now() + timedelta(days=days)).isoformat(timespec="seconds")
        row = (client, self._digest(client, token), _now().isoformat(timespec="seconds"), expires)
        with self._file.writing(f"{client!r} was not invited") as connection:
            connection.execute("INSERT OR REPLACE INTO invitations VALUES (?, ?, ?, ?, NULL, NULL)", row)
        return token, expires

    def withdraw(self, client: str) -> bool:
        """Take an invitation back; return whether there was one that nobody had used."""
        with self._file.writing(f"the invitation of {client!r} was not taken back") as connection:
            return bool(
                connection.execute("DELETE FROM invitations WHERE client = ? AND used IS NULL", (client,)).rowcount
            )

    def all(self) -> tuple[Invitation, ...]:
        """Return all invitations, in order of name."""
        rows = self._file.rows("SELECT client, expires, used FROM invitations ORDER BY client")
        return tuple(Invitation(*row) for row in rows)

    def use(self, card: Card, token: str) -> None:
        """Hand a token in for a card; from then on it is that card's.

        Raises
        ------
        PolicyError
            When the token is not that of the name on the card, is too old, or was used with other keys.
        """
        query = "SELECT digest, expires, used, keys FROM invitations WHERE client = ?"
        known = self._file.rows(query, card.name)
        digest, expires, _, _ = known[0] if known else (bytes(32), "", None, None)
        right = hmac.compare_digest(digest, self._digest(card.name, token))  # also where nobody has that name
        if not (known and right):
            raise PolicyError(f"no invitation of {card.name!r} has this token: ask the operator for a new kit")
        if _now() >= datetime.fromisoformat(expires) and known[0][2] is None:
            raise PolicyError(f"the invitation of {card.name!r} ended on {expires}: ask the operator for a new kit")
        keys = hashlib.sha256(f"{card.identity.hex}\n{card.node_key}".encode()).digest()
        with self._file.writing(f"{card.name!r} was not enrolled") as connection:
            connection.execute(
                "UPDATE invitations SET used = ?, keys = ? WHERE client = ? AND digest = ? AND used IS NULL",
                (_now().isoformat(timespec="seconds"), keys, card.name, digest),
            )
            used, owner = connection.execute(
                "SELECT used, keys FROM invitations WHERE client = ? AND digest = ?", (card.name, digest)
            ).fetchone() or ("", None)
        if owner is None or not hmac.compare_digest(owner, keys):
            raise PolicyError(
                f"the kit of {card.name!r} was used on {used}, with other keys: if that was not you, somebody else has "
                "your kit; let the operator revoke that client and invite you under another name"
            )

    def _digest(self, client: str, token: str) -> bytes:
        text = f"fedmoments invitation 1\n{self._federation}\n{client}\n{token}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def invitations_of(ledger: Path) -> Path:
    """Return where the invitations to a ledger are.

    Examples
    --------
    >>> invitations_of(Path("trial.ledger")).as_posix()
    'trial.ledger.invitations'
    """
    return ledger.with_name(f"{ledger.name}.invitations")


def _now() -> datetime:
    return datetime.now(UTC)
