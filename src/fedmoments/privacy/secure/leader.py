"""The leader: keeps masked reports, asks the helper for the sum of their masks, and adds the two.

Σ masked + Σ PRG(seed) = Σ x modulo 2⁶⁴, over the same reports and coordinates. Nobody waits for anybody: clients that
never reported are simply in no batch, and nothing is asked of clients a second time. There is no list of dropped
clients in this protocol, so that naming one as both present and dropped cannot even be said.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.report import Report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.store import ReportStore
from fedmoments.privacy.secure.stream import Block, Words

__all__ = ["Leader"]


class Leader:
    """Collects the reports of one round and unmasks their sums with the helper's answers.

    Parameters
    ----------
    context
        Federation, round and fingerprint.
    size
        Numbers of a vector.
    minimum
        Fewest reports of a batch: as agreed with the helper, which has the last word.
    path
        File of the reports, made if it is not there; several rounds may share it. None: in memory.

    Examples
    --------
    >>> from fedmoments.privacy.secure.helper import Helper
    >>> from fedmoments.privacy.secure.report import make_report, read_report
    >>> from fedmoments.privacy.secure.seal import HelperKey
    >>> from fedmoments.wire import IdentityKey
    >>> context, helper = Context("ab" * 32, 0, "cd" * 32), Helper(HelperKey.generate(), minimum=2)
    >>> leader = Leader(context, size=3, minimum=2)
    >>> for number, client in enumerate(["a", "b"]):
    ...     key = IdentityKey.generate()
    ...     vector = np.array([1, 2, number], np.uint64)
    ...     data = make_report(vector, context, client=client, version=1, helper=helper.public, key=key)
    ...     _ = leader.take(read_report(data, context, 3, lambda client: key.public))
    >>> request = leader.request()
    >>> leader.finish(request, helper.sum(request))
    array([2, 4, 1], dtype=uint64)
    """

    def __init__(self, context: Context, size: int, minimum: int, *, path: str | Path | None = None) -> None:
        self.context, self.size, self.minimum = context, size, minimum
        self._store = ReportStore(path)

    def take(self, report: Report) -> bool:
        """Keep a report that `read_report` read; True if it is new, False if it was here already.

        Raises
        ------
        RefusedError
            When a later version of the client is here, or one that is in a batch.
        """
        if len(report.masked) != self.size:
            raise InputError(
                f"the vectors of this round have {self.size} numbers, but that of client '{report.client}' has "
                f"{len(report.masked)}: read reports with the same size"
            )
        return self._store.keep(self.context, report)

    @property
    def present(self) -> dict[str, str]:
        """Report id of every client that reported, by client."""
        return self._store.present(self.context)

    def drop(self, client: str) -> bool:
        """Delete the report of a client that is in no batch; False if it has none.

        Raises
        ------
        RefusedError
            When it is in a batch: what a sum holds cannot be taken out, for nobody knows it.
        """
        return self._store.drop(self.context, client)

    def request(self, ids: Iterable[str] | None = None, blocks: Iterable[Block] | None = None) -> SumRequest:
        """Return what to ask of the helper; on the disk, so that it can be asked again after a crash.

        Parameters
        ----------
        ids
            Reports of the batch; None: all that are present.
        blocks
            Pairs (start, stop) of coordinates; None: all.

        Raises
        ------
        PrivacyError
            When the batch is too small, or names a report twice.
        InputError
            When a report is not here, or a block lies outside the vector.
        """
        names = list(self.present.values() if ids is None else ids)
        asked = [(0, self.size)] if blocks is None else list(blocks)
        if len(names) < self.minimum or len(set(names)) < len(names):
            raise PrivacyError(
                f"a batch must have {self.minimum} different reports or more, but {len(names)} were named, "
                f"{len(set(names))} of them different: wait for more clients"
            )
        if not asked or max(stop for _, stop in asked) > self.size:
            raise InputError(f"blocks must name coordinates from 0 to {self.size}, but {asked!r:.80} arrived")
        return self._store.ask(self.context, names, asked)

    def pending(self) -> list[SumRequest]:
        """Return the requests that were made and not finished: after a crash, send them again unchanged."""
        return self._store.pending(self.context)

    def withdraw(self, request: SumRequest) -> None:
        """Forget a request that the helper refused: it remembers none of it, and its reports may be asked for anew."""
        self._store.withdraw(request)

    def finish(self, request: SumRequest, answer: NDArray[Any]) -> Words:
        """Return the sum of the clients' vectors at the blocks of a request, one after the other.

        Parameters
        ----------
        request
            What :meth:`request` returned.
        answer
            (m,) uint64: what the helper returned.

        Returns
        -------
        numpy.ndarray
            (m,) uint64, modulo 2⁶⁴.
        """
        if answer.shape != (request.size,) or answer.dtype != np.uint64:
            raise InputError(
                f"the helper's answer must be {request.size} numbers of type uint64, but {answer.shape} of type "
                f"{answer.dtype} arrived: send it the same request again"
            )
        total = answer.astype(np.uint64, copy=True)
        self._store.add_masked(request, total)
        return total

    def forget(self) -> None:
        """Delete all vectors and sealed seeds of this round, once its sums are safe elsewhere.

        From then on not even both servers together can read a report.
        """
        self._store.forget(self.context)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
