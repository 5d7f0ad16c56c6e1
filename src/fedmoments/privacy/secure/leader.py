"""The leader: asks the helper for the sum of the masks of reports, and adds it to the sum of the masked vectors.

Σ masked + Σ PRG(seed) = Σ x modulo 2⁶⁴, over the same reports and coordinates. Nobody waits for anybody: clients that
never reported are simply in no batch, and nothing is asked of clients a second time. There is no list of dropped
clients in this protocol, so that naming one as both present and dropped cannot even be said.

A leader remembers nothing. Reports are in the ledger of a federation, which writes down what is added up before the
helper is asked (:meth:`fedmoments.federation.store.FederationStore.leader`), or in memory (:class:`HeldReports`): in
simulations, and where clients send again what was lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.report import Report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.stream import Block, Words
from fedmoments.wire import Reason

__all__ = ["HeldReports", "Leader", "Reports"]


class Reports(Protocol):
    """Where the reports are."""

    @property
    def present(self) -> Mapping[str, str]:
        """Report id of every client whose report is here, by client."""
        ...

    def envelopes(self, names: Sequence[str]) -> list[bytes]:
        """Return the envelopes of reports, by their ids: all that the helper gets of them."""
        ...

    def masked(self, name: str) -> Words:
        """Return the masked vector of a report."""
        ...


class HeldReports:
    """Reports in memory: the latest of each client.

    Examples
    --------
    >>> HeldReports().present
    {}
    """

    def __init__(self) -> None:
        self._by_client: dict[str, Report] = {}
        self._by_id: dict[str, Report] = {}

    def take(self, report: Report) -> bool:
        """Keep a report that `read_report` read; True if it is new, False if it was here already.

        Raises
        ------
        RefusedError
            When another report of this version or a later one is here, or the id is that of another client's.
        """
        client, version = report.client, report.version
        held, namesake = self._by_client.get(client), self._by_id.get(report.id)
        if held is not None and (held.version, held.id) == (version, report.id):
            return False
        if namesake is not None and namesake.client != client:
            sentence = f"client '{client}' sent a report under the id {report.id} of another client's: make a new one"
            raise RefusedError(Reason.CONFLICT, sentence, client)
        if held is not None and version <= held.version:
            older = version < held.version
            sentence = (
                f"version {held.version} of client '{client}' is here, but "
                f"{f'the older version {version}' if older else 'another report of the same version'} arrived: number "
                "a new report higher"
            )
            raise RefusedError(Reason.REPLAYED if older else Reason.CONFLICT, sentence, client)
        if held is not None:
            del self._by_id[held.id]
        self._by_client[client] = self._by_id[report.id] = report
        return True

    @property
    def present(self) -> dict[str, str]:
        """Report id of every client that reported, in order of name."""
        return {client: self._by_client[client].id for client in sorted(self._by_client)}

    def envelopes(self, names: Sequence[str]) -> list[bytes]:
        """Return the envelopes of reports, by their ids."""
        return [self._named(name).sealed for name in names]

    def masked(self, name: str) -> Words:
        """Return the masked vector of a report."""
        return self._named(name).masked

    def _named(self, name: str) -> Report:
        if name not in self._by_id:
            raise InputError(f"there is no report {name[:40]!r} in this round: ask for those that are present")
        return self._by_id[name]


class Leader:
    """Asks for sums of the reports of one round, and unmasks them with the helper's answers.

    Parameters
    ----------
    context
        Federation, round and fingerprint.
    size
        Numbers of a vector.
    minimum
        Fewest reports of a batch: as agreed with the helper, which has the last word.
    reports
        The reports that may be added up.

    Examples
    --------
    >>> from fedmoments.privacy.secure.helper import Helper
    >>> from fedmoments.privacy.secure.report import make_report, read_report
    >>> from fedmoments.privacy.secure.seal import HelperKey
    >>> from fedmoments.wire import IdentityKey
    >>> context, helper = Context("ab" * 32, 0, "cd" * 32), Helper(HelperKey.generate(), minimum=2)
    >>> reports = HeldReports()
    >>> for number, client in enumerate(["a", "b"]):
    ...     key = IdentityKey.generate()
    ...     vector = np.array([1, 2, number], np.uint64)
    ...     data = make_report(vector, context, client=client, version=1, helper=helper.public, key=key)
    ...     _ = reports.take(read_report(data, context, 3, lambda client: key.public))
    >>> leader = Leader(context, 3, 2, reports)
    >>> request = leader.request()
    >>> leader.finish(request, helper.sum(request))
    array([2, 4, 1], dtype=uint64)
    """

    def __init__(self, context: Context, size: int, minimum: int, reports: Reports) -> None:
        self.context, self.size, self.minimum, self._reports = context, size, minimum, reports

    @property
    def present(self) -> dict[str, str]:
        """Report id of every client that reported, by client."""
        return dict(self._reports.present)

    def request(self, ids: Iterable[str] | None = None, blocks: Iterable[Block] | None = None) -> SumRequest:
        """Return what to ask of the helper: the same, whenever it is made of the same reports.

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
        return SumRequest(self.context, list(zip(names, self._reports.envelopes(names), strict=True)), asked)

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
        for name in request.ids:
            masked, at = self._reports.masked(name), 0
            if len(masked) != self.size:
                raise InputError(
                    f"the vectors of this round have {self.size} numbers, but that of report {name} has {len(masked)}: "
                    "read reports with the same size"
                )
            for start, stop in request.blocks:
                part = total[at : at + stop - start]
                np.add(part, masked[start:stop], out=part)
                at += stop - start
        return total
