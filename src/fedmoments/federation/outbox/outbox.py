"""The outbox: a contribution is measured once, stored, and sent as the very same bytes until it is acknowledged.

A server takes each (client, version) in exactly once and answers a repetition with the same receipt. So a client may
send as often as it likes, after any failure, as long as it never sends two contents under one version: that is what
the outbox is for.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from fedmoments.durable import Connection
from fedmoments.errors import InputError, LedgerError
from fedmoments.federation.outbox.checks import MOST_TEXT, facts_of, follows, read_receipt
from fedmoments.federation.outbox.kept import Kept, Refusal
from fedmoments.federation.terms import Terms
from fedmoments.wire import check_client_id
from fedmoments.wire.header import MOST_VERSIONS

__all__ = ["Outbox"]


class Outbox(Kept):
    """One folder, for any number of federations and clients; threads and processes may share it.

    ==================  ============================================================================================
    ``outbox.db``       contributions, receipts and refusals (SQLite; see :mod:`fedmoments.durable`)
    ``answers.db``      tests of classifiers that were answered (:mod:`fedmoments.federation.outbox.answers`)
    ``record.jsonl``    everything that left, a line each (see :mod:`fedmoments.federation.outbox.record`): ``time``
                        (UTC), ``event`` (audited, prepared, sent, acknowledged, refused, evaluated, tuned, scored
                        or declined), ``federation`` (id), ``name``, ``client``, ``version``, ``digest``,
                        ``moments``, ``bytes``, ``classes``, ``samples``, ``withheld``, ``seq`` and ``chain`` of the
                        receipt, ``sentence``;
                        of an audit: ``policy``, ``kept_back``, ``classes_kept_back``, ``unreadable``, ``merged``,
                        ``one_mean``, ``reveals`` and ``replaces``;
                        of tuning: ``run``, ``round``, ``stage`` and ``part``; of a test: ``heads``, ``told`` and
                        ``unreadable``;
                        what does not apply is left out
    ==================  ============================================================================================

    A process that was forked must open its own.

    Parameters
    ----------
    folder
        Made if it is not there; both files in it are readable by their owner only.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments import Statistics, StatisticsSpec
    >>> from fedmoments.samples.fingerprint import Fingerprint
    >>> from fedmoments.wire import IdentityKey, encode
    >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 2, StatisticsSpec())
    >>> measured = Statistics.of([[1.0, 0.0]], [0], terms.spec, n_classes=2)
    >>> key = IdentityKey.generate()
    >>> def make(version):
    ...     print("measuring for version", version)
    ...     return encode(measured, terms.agreement, client="clinic", version=version, key=key)
    >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
    ...     first = outbox.prepare(terms, "clinic", "data of May", make)
    ...     again = outbox.prepare(terms, "clinic", "data of May", make)
    ...     outbox.sent(terms, "clinic")
    ...     outbox.pending(terms.id), first == again
    measuring for version 1
    (('clinic',), True)
    """

    def batch(self) -> AbstractContextManager[Connection]:
        """Group everything inside in one transaction: much faster for many clients.

        Nothing of it is on the disk before the block ends, so no contribution may leave before; when the block raises,
        nothing of it happened. Other writers wait meanwhile, so measure before, or in batches of seconds.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Outbox(folder) as outbox:
        ...     with outbox.batch():
        ...         outbox.rejoin("ab" * 32, "clinic", above=3)
        """
        return self._database.writing()

    # ---------------------------------------------------------------------------------------------- sending

    def prepare(
        self,
        terms: Terms,
        client: str,
        source: str,
        make: Callable[[int], bytes],
        describe: Callable[[bytes, int], Mapping[str, Any]] | None = None,
        *,
        samples: bytes | None = None,
        shared: Callable[[], bytes | None] = lambda: None,
    ) -> bytes:
        """Return the contribution to send: the stored one, or a new one if there is none of this source yet.

        Parameters
        ----------
        terms
            Of the federation that asks.
        client
            Who contributes.
        source
            A digest of everything that the contribution is made from: data, policy, key.
        make
            Called with the version to make; returns the signed bytes (:func:`fedmoments.wire.encode`). Never called if
            the newest contribution has the same source.
        describe
            Called with what was made and its version; returns what the record tells of it. None: it is a contribution,
            and is looked into. Masked reports cannot be, and are described by whoever made them.
        samples
            Keys of the samples that it is measured from, kept for :meth:`measured`; None keeps none.
        shared
            Called once it is made; returns what its samples share, kept for :meth:`shared`.

        Returns
        -------
        bytes
            On the disk before they are returned (in a :meth:`batch`, when it ends).

        Raises
        ------
        InputError
            When ``make`` returns something else than a contribution of this client and version.
        """
        check_client_id(client)
        if not source:
            raise InputError("the source of a contribution must be a digest of what it is made from, not empty")
        while True:
            before = self._last(terms.id, client)
            stored, version = self._reusable(terms.id, client, source, *before)
            if stored is not None:
                return stored
            data = make(version)
            facts = facts_of(data, terms, client, version) if describe is None else dict(describe(data, version))
            with self._database.writing() as connection:
                if self._last(terms.id, client) != before:
                    continue  # another process was faster: take what it stored, or make the version after it
                connection.execute(
                    "INSERT INTO contributions (federation, client, version, source, digest, facts, payload) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (terms.id, client, version, source, facts["digest"], json.dumps(facts), data),
                )
                if samples is not None:
                    values = (terms.id, client, version, samples, shared())
                    connection.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", values)
                self._record.add("prepared", **facts)
            return data

    def sent(self, terms: Terms, client: str) -> None:
        """Record that the newest contribution is being sent; call it before every attempt."""
        with self._database.writing():
            version, _ = self._last(terms.id, client)
            facts, _ = self._known(terms.id, client, version)
            self._record.add("sent", **facts)

    def acknowledge(self, receipt: str) -> None:
        """Keep a server's receipt, JSON text; the same one again is fine.

        Raises
        ------
        LedgerError
            When it is not a receipt, is for something that this outbox did not make, or contradicts one that it holds.
        """
        new = read_receipt(receipt)
        with self._database.writing() as connection:
            facts, held = self._known(new.federation, new.client, new.version)
            if new.digest != facts["digest"]:
                raise LedgerError(
                    f"the receipt for version {new.version} of client '{new.client}' is for the digest {new.digest}, "
                    f"but what was made has {facts['digest']}: the server holds something that this client did not send"
                )
            if held is not None and not follows(new, read_receipt(held)):
                return
            connection.execute(
                "UPDATE contributions SET receipt = ?, refusal = NULL "
                "WHERE federation = ? AND client = ? AND version = ?",
                (new.to_json(), new.federation, new.client, new.version),
            )
            self._record.add("acknowledged", **facts, seq=new.seq, chain=new.chain, sentence=new.event)

    def refused(self, terms_id: str, client: str, version: int, reason: str, sentence: str) -> None:
        """Keep why a server refused a contribution; it stays unacknowledged.

        Raises
        ------
        LedgerError
            When this outbox made no such version.
        """
        refusal = Refusal(str(reason)[:MOST_TEXT], sentence[:MOST_TEXT])
        with self._database.writing() as connection:
            facts, _ = self._known(terms_id, client, version)
            connection.execute(
                "UPDATE contributions SET refusal = ? WHERE federation = ? AND client = ? AND version = ?",
                (json.dumps(refusal), terms_id, client, version),
            )
            self._record.add("refused", **facts, sentence=": ".join(refusal))

    # ---------------------------------------------------------------------------------------------- leaving

    def withdraw(self, terms_id: str, client: str) -> int:
        """Note that a client's contribution is to be taken out, and return its version; sent until it is acknowledged.

        Raises
        ------
        LedgerError
            When there is none.
        """
        newest = self.newest(terms_id, client)
        if newest is None:
            raise LedgerError(
                f"client '{client}' has contributed nothing from {self.folder}: there is nothing to withdraw"
            )
        with self._database.writing() as connection:
            values = (terms_id, client, newest.version)
            connection.execute("INSERT OR REPLACE INTO withdrawals VALUES (?, ?, ?)", values)
        return newest.version

    def rejoin(self, terms_id: str, client: str, above: int) -> None:
        """Make sure that what is prepared next has a version above ``above``: up to there the server takes none.

        For a client that left, or whose outbox was lost. A newest contribution above it stays the one to send.
        """
        if type(above) is not int or not 0 <= above < MOST_VERSIONS:
            raise InputError(f"versions are whole numbers from 0 to {MOST_VERSIONS - 1}, not {above!r}")
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO floors VALUES (?, ?, ?) "
                "ON CONFLICT (federation, client) DO UPDATE SET above = max(above, excluded.above)",
                (terms_id, client, above),
            )
            connection.execute("DELETE FROM withdrawals WHERE federation = ? AND client = ?", (terms_id, client))

    # ---------------------------------------------------------------------------------------------- the rest

    def forget(self, terms_id: str, client: str) -> None:
        """Delete the bytes of all contributions of a client, on the disk too; versions and receipts stay known.

        Raises
        ------
        LedgerError
            In a batch, or when another process is reading and the bytes cannot be overwritten yet: try again.
        """
        if self._database.is_writing:
            raise LedgerError("bytes cannot be forgotten inside of a batch: end it first")
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE contributions SET payload = NULL WHERE federation = ? AND client = ?", (terms_id, client)
            )
        self._database.erase_log()

    def audited(self, terms: Terms, client: str, version: int, notes: Mapping[str, Any]) -> None:
        """Record what a version that is being made reveals, and what the client's rules did about it.

        Parameters
        ----------
        terms
            Of the federation that asks.
        client, version
            Whose contribution, and which.
        notes
            Ready for JSON; ``replaces`` is added where an older version is known to the server, for the difference of
            two versions reveals what changed between them.
        """
        with self._database.writing():
            last, _ = self._last(terms.id, client)
            facts = {"version": version, "moments": list(terms.spec.sent), **notes, "replaces": last or None}
            self.sending("audited", terms, client, **facts)

    def pinned(self, federation: str, client: str, key: str) -> None:
        """Record that a server was believed by the first key that it showed: the terms named none."""
        sentence = (
            f"the terms name no key for the server's log, so the first one that it showed is trusted, {key}, and from "
            "now on only that. Compare it with what others were shown ('fedmoments witness'), or ask its operator"
        )
        with self._database.writing():
            self._record.add("pinned", federation=federation, client=client, sentence=sentence)

    def declined(self, terms: Terms, client: str, sentence: str) -> None:
        """Record that the client was asked and did not do it, and why."""
        self.sending("declined", terms, client, sentence=sentence[:MOST_TEXT])

    def sending(self, event: str, terms: Terms, client: str, **facts: Any) -> None:
        """Record what is being sent that is not a contribution, and is not kept.

        Parameters
        ----------
        event
            ``tuned``: parameters that were trained on the client's samples; ``scored``: sums of results of parameters;
            ``evaluated``: results of classifiers on held-out samples.
        terms, client, facts
            For whom, whose, and what the table of the class says of it.
        """
        with self._database.writing():
            self._record.add(event, federation=terms.id, name=terms.name, client=client, **facts)
