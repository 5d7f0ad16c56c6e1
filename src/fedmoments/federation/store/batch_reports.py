"""The reports of a batch in a ledger, as the leader of secure sums asks for them."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmoments.durable import DurableFile
from fedmoments.federation.store.batches import Batch
from fedmoments.federation.store.masked import stored_envelope, stored_report
from fedmoments.federation.terms import Terms

__all__ = ["BatchReports"]

Words = NDArray[np.uint64]

#: Reports of so many bytes together are kept in memory while a batch is added up; more are read again when needed.
CACHE_BYTES = 2**28


class BatchReports:
    """What a :class:`~fedmoments.privacy.secure.Leader` adds up: reports whose batch was written down before.

    Parameters
    ----------
    file, terms
        Of the ledger.
    batch
        Which reports; requests follow from it, after a crash as before.
    """

    def __init__(self, file: DurableFile, terms: Terms, batch: Batch) -> None:
        self._file, self._terms, self._batch = file, terms, batch
        self._keeps = len(batch.members) * 8 * terms.layout.size <= CACHE_BYTES
        self._masked: dict[str, Words] = {}

    @property
    def present(self) -> Mapping[str, str]:
        """Report id of every client of the batch, by client."""
        return dict(self._batch.members)

    def envelopes(self, names: Sequence[str]) -> list[bytes]:
        """Return the envelopes of reports: all that the helper gets of them."""
        with self._file.reading() as connection:
            return [stored_envelope(connection, name) for name in names]

    def masked(self, name: str) -> Words:
        """Return the masked vector of a report whose batch was not collected yet."""
        if name in self._masked:
            return self._masked[name]
        with self._file.reading() as connection:
            masked = stored_report(connection, self._terms, name).masked
        if self._keeps:
            self._masked[name] = masked
        return masked
