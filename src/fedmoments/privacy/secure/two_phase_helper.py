"""The helper's side of the second phase: the same clients, told of no class that too few of them hold.

A server could broadcast a weight for a class that it had to suppress, and read one client's mean from the sum. So the
helper sees the broadcast too. Reports of the second phase are bound to it by their context, which the helper computes
itself; it adds them up only if every class in the broadcast is held by enough clients, and if the clients are exactly
those whose contributors it learned in the first phase. There is one broadcast for a first phase: several with different
weights would give a matrix of every class, and that of a class of two clients is the difference of their means.

What it cannot check: the means and weights themselves, which it does not know. Wrong ones give a wrong matrix, still
summed over all clients.
"""

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import PrivacyError
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.threshold import ThresholdHelper, clients_of

__all__ = ["TwoPhaseHelper"]

Words = NDArray[np.uint64]


class TwoPhaseHelper(ThresholdHelper):
    """A helper for both phases: ``learn`` and ``open`` in the first, ``second`` in the second.

    Examples
    --------
    See :mod:`fedmoments.privacy.modes.two_phase`.
    """

    def second(self, request: SumRequest, first: Context, broadcast: Broadcast) -> Words:
        """Return the masks of the second phase, added up.

        Parameters
        ----------
        request
            All reports of the second phase, all coordinates.
        first
            Context of the first phase.
        broadcast
            What the clients were told.

        Raises
        ------
        PrivacyError
            When reports are for another broadcast, the broadcast is of other classes or dimension, the clients are not
            those of the first phase, it has a class that too few of them hold, or another was added up before.
        """
        if (broadcast.n_classes, broadcast.dim) != (self._layout.n_classes, self._layout.dim):
            raise PrivacyError(
                f"{self._layout.n_classes} classes in {self._layout.dim} dimensions were agreed on, but the broadcast "
                f"is of {broadcast.n_classes} in {broadcast.dim}: broadcast what follows from the first phase"
            )
        if request.context != broadcast.context(first):
            raise PrivacyError("these reports were made for another broadcast than the one that the leader showed")
        with self._database.reading() as connection:
            query = "SELECT held FROM groups WHERE context = ? AND clients = ?"
            row = connection.execute(query, (first.digest, clients_of(request))).fetchone()
        if row is None:
            raise PrivacyError(
                f"the second phase must be over exactly the clients of the first, but these {len(request.reports)} are "
                "not: weights and class means belong to the clients of the first phase. Begin a new "
                "federation, or repeat the round with all of them"
            )
        held = np.frombuffer(row[0], np.int64)
        few = [int(label) for label in broadcast.classes if held[label] < self._least]
        if few:
            raise PrivacyError(
                f"the broadcast has class {few[0]}, which {int(held[few[0]])} clients hold, fewer than {self._least}: "
                "such classes are suppressed, and nothing about them is added up"
            )
        self._keep_company(request, broadcast.classes.tolist())
        self._tell_once((first.digest, clients_of(request)), broadcast.digest)
        return self.helper.sum(request)

    def _tell_once(self, phase: tuple[bytes, str], digest: str) -> None:
        """Remember the broadcast of a first phase, (context, clients); refuse another one."""
        with self._database.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO broadcasts VALUES (?, ?, ?)", (*phase, digest))
            query = "SELECT digest FROM broadcasts WHERE context = ? AND clients = ?"
            known = connection.execute(query, phase).fetchone()[0]
        if known != digest:
            raise PrivacyError(
                "another broadcast of this first phase was added up before: one matrix follows from a first phase, and "
                "the difference of two could be that of a single class. Repeat the former broadcast"
            )
