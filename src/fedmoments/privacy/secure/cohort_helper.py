"""The helper's side of cohorts: it draws its nonce, deals the cohorts itself, and opens sums over them alone.

For one federation, in this order: ``draw`` (a commitment and a roster come, a nonce goes), ``reveal`` (the leader's
nonce must be what it committed to), ``admit`` (the envelopes of everybody who is present, each signed by the client on
the roster; the helper deals and merges cohorts by the public rule), ``learn`` and ``open`` over those cohorts, with
those envelopes. Each of the first three happens once: asking again with the same gives the same, asking with anything
else is refused, in another round too. A leader that could draw in round after round would choose the one it likes.

What it cannot check: that a client who is not among the envelopes really did not report, and that names on the roster
are different people. A leader that enrols clients of its own makes cohorts in which few are honest; so rosters are
public, and who may enrol is for people to decide.
"""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.cohort_draw import (
    NONCE_BYTES,
    Roster,
    commitment_to,
    deal_cohorts,
    join_nonces,
    merge_small,
)
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import read_envelope
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.threshold import Sums, ThresholdHelper

__all__ = ["CohortHelper", "Draw"]

Words = NDArray[np.uint64]


class Draw(NamedTuple):
    """What is remembered of a draw."""

    commitment: bytes
    roster: Roster
    own: bytes
    theirs: bytes | None


class CohortHelper(ThresholdHelper):
    """A helper for sums inside cohorts.

    Parameters
    ----------
    helper
        Adds up masks: every coordinate of a report once, batches of a minimum size.
    layout
        Where contributors and classes stand.
    size
        Clients in a cohort.
    batch
        Fewest clients that a cohort may have once some dropped out.
    contributors
        Fewest clients that an opened class must be held by.
    path
        File of its memory (SQLite); None: in memory.
    nonce
        Its nonce, 32 bytes, in a simulation that must deal the same cohorts again; None: from the operating system.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> roster, context = Roster.of({"clinic": "11" * 32, "lab": "22" * 32}), Context("ab" * 32, 0, "cd" * 32)
    >>> class Adds:
    ...     def sum(self, request): ...
    >>> helper = CohortHelper(Adds(), DenseLayout(StatisticsSpec(), 3, 2), size=2, batch=2, contributors=2)
    >>> mine = bytes(32)
    >>> theirs = helper.draw(context, roster, commitment_to(mine, context, roster))
    >>> sorted(helper.reveal(context, mine)[0])
    ['clinic', 'lab']
    >>> helper.reveal(context, bytes([1] * 32))
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: the leader's nonce is not the one that it committed to ...
    """

    def __init__(
        self,
        helper: Sums,
        layout: DenseLayout,
        *,
        size: int,
        batch: int,
        contributors: int,
        path: str | Path | None = None,
        nonce: bytes | None = None,
    ) -> None:
        super().__init__(helper, layout, contributors, path)
        self._size, self._batch, self._nonce = size, batch, nonce

    # ---------------------------------------------------------------------------------------------- dealing

    def draw(self, context: Context, roster: Roster, commitment: bytes) -> bytes:
        """Return the helper's nonce for a federation, and remember round, roster and commitment: one of each, ever.

        Raises
        ------
        PrivacyError
            When another round, roster or commitment of this federation was given before.
        """
        if len(commitment) != NONCE_BYTES:
            raise InputError(f"a commitment has {NONCE_BYTES} bytes, but {len(commitment)} arrived")
        own = self._nonce or secrets.token_bytes(NONCE_BYTES)
        values = (context.federation, context.digest, commitment, roster.to_bytes(), own)
        with self._database.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO draws VALUES (?, ?, ?, ?, ?, NULL)", values)
        drawn = self._drawn(context)
        if (drawn.commitment, drawn.roster) != (commitment, roster):
            raise PrivacyError(
                f"cohorts of round {context.round} were drawn already, with another "
                f"{'commitment' if drawn.roster == roster else 'roster'}: a draw is made once, or whoever repeats it "
                "could choose the cohorts it likes. Begin a new federation"
            )
        return drawn.own

    def reveal(self, context: Context, nonce: bytes) -> tuple[tuple[str, ...], ...]:
        """Take the leader's nonce and return the names of every cohort's clients.

        Raises
        ------
        PrivacyError
            When it is not what the leader committed to, or nothing was drawn.
        """
        drawn = self._drawn(context)
        if commitment_to(nonce, context, drawn.roster) != drawn.commitment:
            raise PrivacyError(
                "the leader's nonce is not the one that it committed to before it saw the helper's: it may have "
                "looked for cohorts that it likes, so none are dealt in this round"
            )
        with self._database.writing() as connection:
            connection.execute("UPDATE draws SET theirs = ? WHERE context = ?", (nonce, context.digest))
        return self._dealt(context)

    def _drawn(self, context: Context) -> Draw:
        with self._database.reading() as connection:
            query = "SELECT context, commitment, roster, own, theirs FROM draws WHERE federation = ?"
            row = connection.execute(query, (context.federation,)).fetchone()
        if row is None:
            raise PrivacyError(f"no cohorts were drawn for round {context.round}: commit to a nonce first")
        if row[0] != context.digest:
            raise PrivacyError(
                f"cohorts of this federation were drawn already, for another round than {context.round}: a draw is "
                "made once, or whoever repeats it could choose the cohorts it likes. Begin a new federation"
            )
        return Draw(row[1], Roster.from_bytes(row[2]), *row[3:])

    def _dealt(self, context: Context) -> tuple[tuple[str, ...], ...]:
        drawn = self._drawn(context)
        if drawn.theirs is None:
            raise PrivacyError("the leader has not revealed its nonce: reveal it before anybody is admitted")
        return deal_cohorts(drawn.roster, context, join_nonces(drawn.theirs, drawn.own), self._size)

    def admit(self, context: Context, envelopes: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
        """Fix who is present, and return the report ids of every cohort, small ones merged.

        Parameters
        ----------
        context
            Of the draw.
        envelopes
            One of every client that reported (``Report.sealed``).

        Raises
        ------
        PrivacyError
            When the nonces are not both known, a client is there twice, or others were admitted before.
        RefusedError
            When an envelope was not signed by the client on the roster.
        """
        cohorts = self._dealt(context)
        reports = self._verified(context, self._drawn(context).roster, envelopes)
        digests = {read_envelope(data, context).id: hashlib.sha256(data).digest() for data in envelopes}
        merged = merge_small(cohorts, reports, self._batch)
        groups = tuple(tuple(sorted(reports[client] for client in group)) for group in merged)
        new = [(number, report, digests[report]) for number, group in enumerate(groups) for report in group]
        with self._database.writing() as connection:
            query = "SELECT cohort, report, envelope FROM cohorts WHERE context = ? ORDER BY cohort, report"
            known = connection.execute(query, (context.digest,)).fetchall()
            if known and known != new:
                raise PrivacyError(
                    f"{len(known)} reports of round {context.round} were admitted before, and others are now named: "
                    "who is present is said once"
                )
            if not known:
                rows = [(report, context.digest, number, digest) for number, report, digest in new]
                connection.executemany("INSERT INTO cohorts VALUES (?, ?, ?, ?)", rows)
        return groups

    @staticmethod
    def _verified(context: Context, roster: Roster, envelopes: Sequence[bytes]) -> dict[str, str]:
        """Return the report id of every client that signed an envelope."""
        keys = roster.keys
        reports: dict[str, str] = {}
        for data in envelopes:
            envelope = read_envelope(data, context)
            if envelope.client not in keys or envelope.client in reports:
                raise PrivacyError(
                    f"client '{envelope.client}' is {'named twice' if envelope.client in keys else 'not on the roster'}"
                    ": every client of the frozen roster reports once"
                )
            envelope.verify(keys[envelope.client])
            reports[envelope.client] = envelope.id
        return reports

    # ---------------------------------------------------------------------------------------------- sums

    def learn(self, request: SumRequest, masked: Words) -> Words:
        """Return the masks of the contributors of one cohort; see :meth:`ThresholdHelper.learn`.

        Raises
        ------
        PrivacyError
            When the reports are not exactly those of a cohort, or see there.
        """
        query = "SELECT a.report FROM cohorts a JOIN cohorts b USING (context, cohort) WHERE b.report = ?"
        first = request.ids[0] if request.ids else ""
        with self._database.reading() as connection:
            cohort = tuple(sorted(name for (name,) in connection.execute(query, (first,))))
        if not cohort or cohort != request.ids:
            raise PrivacyError(
                f"sums are taken inside cohorts, but these {len(request.ids)} reports are no cohort: ask for the "
                "cohorts that admitting the reports returned"
            )
        self._require_admitted(request)
        return super().learn(request, masked)

    def open(self, request: SumRequest) -> Words:
        """Return the masks of classes over one cohort or several; see :meth:`ThresholdHelper.open`.

        Raises
        ------
        PrivacyError
            When an envelope is not the one that was admitted, or see there.
        """
        self._require_admitted(request)
        return super().open(request)

    def _require_admitted(self, request: SumRequest) -> None:
        """Refuse other envelopes than the admitted ones: with a seed of its own the leader could unmask the others."""
        with self._database.reading() as connection:
            for name, sealed in request.reports:
                row = connection.execute("SELECT envelope FROM cohorts WHERE report = ?", (name,)).fetchone()
                if row != (hashlib.sha256(sealed).digest(),):
                    raise PrivacyError(
                        f"the envelope of report {name[:12]}... is not the one that was admitted, which its client "
                        "signed: send that one"
                    )
