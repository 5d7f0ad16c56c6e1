"""What a client answered to tests of classifiers, for its whole life: an account on its own disk.

Which classifiers are tested is the server's choice, so every one of them is a release about the client's held-out
samples. The account counts them over all federations, rounds and restarts, and is written before an answer leaves. The
very same question about the same samples gets the same bytes again, noise and mask included, and costs nothing.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from fedmoments.durable import DurableFile, Kind

__all__ = ["Answers", "Spent"]

_SCHEMA = """
-- who: a client, or all clients of a node; question: SHA-256 of terms, classifiers, samples and rules; loss: Σ Δ²/σ² of
-- noised answers, 0 of others
CREATE TABLE answers (
    who TEXT NOT NULL, question TEXT NOT NULL, federation TEXT NOT NULL, heads INTEGER NOT NULL, loss REAL NOT NULL,
    payload BLOB NOT NULL, PRIMARY KEY (who, question)
) WITHOUT ROWID;
"""
#: "fmAn".
_KIND = Kind(
    "account of answers",
    0x666D416E,
    _SCHEMA,
    remedy="restore it; without it nobody knows what was answered, so test nothing more (evaluate = false)",
    unwritten="nothing was recorded, so nothing may be sent",
)


class Spent(NamedTuple):
    """What answers cost: classifiers that were tested, and Σ Δ²/σ² of those that were noised."""

    heads: int
    loss: float


class Answers:
    """The account of one folder.

    Parameters
    ----------
    folder
        Where ``answers.db`` lies, made if it is not there; None: in memory, for simulations.

    Examples
    --------
    >>> answers = Answers(None)
    >>> answers.give("clinic", "q1", "federation", 2, lambda spent: b"first")
    b'first'
    >>> answers.give("clinic", "q1", "federation", 2, lambda spent: b"never made")
    b'first'
    >>> answers.spent("clinic")
    Spent(heads=2, loss=0.0)
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._database = DurableFile.at(Path(folder) / "answers.db" if folder else None, _KIND)

    def spent(self, who: str) -> Spent:
        """Return what all answers cost."""
        query = "SELECT coalesce(sum(heads), 0), coalesce(sum(loss), 0.0) FROM answers WHERE who = ?"
        ((heads, loss),) = self._database.rows(query, who)
        return Spent(int(heads), float(loss))

    def give(
        self,
        who: str,
        question: str,
        federation: str,
        heads: int,
        make: Callable[[Spent], bytes],
        *,
        loss: float = 0.0,
        others: Collection[str] = (),
    ) -> bytes:
        """Return the answer to a question: the former one, or one that is made and written down now.

        Parameters
        ----------
        who, question, federation, heads
            Whose account, what was asked, for which federation, and how many classifiers it costs.
        make
            Called with what was spent before; raises where the rules allow no more.
        loss
            Σ Δ²/σ² of the noise on the answer.
        others
            Further accounts of which some of the samples are: what the largest of them spent counts as well.
        """
        with self._database.writing() as connection:
            query = "SELECT payload FROM answers WHERE who = ? AND question = ?"
            known = connection.execute(query, (who, question)).fetchone()
            if known is not None:
                return bytes(known[0])
            further = [self.spent(other) for other in others]
            heads_before = max((spent.heads for spent in further), default=0)
            loss_before = max((spent.loss for spent in further), default=0.0)
            mine = self.spent(who)
            payload = make(Spent(mine.heads + heads_before, mine.loss + loss_before))
            values = (who, question, federation, heads, loss, payload)
            connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)", values)
        return payload

    def close(self) -> None:
        """Close the file; what was written down stays."""
        self._database.close()
