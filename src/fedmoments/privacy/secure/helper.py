"""The helper: the second server, which adds up masks and never sees a masked vector.

For a batch the helper opens the seeds and returns Σ PRG(seed) at the coordinates asked for (plus noise, if it adds
some). It sees the names of clients and who is in which batch; of their numbers it sees nothing at all. It protects the
clients from the leader by what it refuses (:mod:`fedmoments.privacy.secure.memory`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.secure.envelope import Envelope, read_envelope
from fedmoments.privacy.secure.memory import Memory
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey
from fedmoments.privacy.secure.stream import Words, add_stream
from fedmoments.wire import PublicKey, Reason

__all__ = ["Helper", "Noise"]

#: Maps coordinates (m,) int64 to integers (m,) int64 that are added there.
Noise = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class Helper:
    """Adds up the masks of batches that are large enough, each coordinate of a report once.

    Parameters
    ----------
    key
        Its private key; the public half stands in the terms.
    minimum
        Fewest reports of a batch, 2 or more. The helper's own rule, whatever the leader says.
    path
        File of its memory, made if it is not there; None: in memory, for simulations only. Never restore it from a
        backup and never delete it while the key is in use: what it forgot could be asked for again.
    members
        Public key (64 hexadecimal digits) of every enrolled client. Reports of others are refused, so that the leader
        cannot fill a batch with clients of its own invention. The list must not come from the leader alone. None: any
        report that opens counts; then a leader that makes reports itself can isolate one client.
    once
        What it opens in one attempt only (:mod:`~fedmoments.privacy.secure.memory`).

    Examples
    --------
    >>> from fedmoments.privacy.secure.context import Context
    >>> from fedmoments.privacy.secure.report import make_report, read_report
    >>> from fedmoments.wire import IdentityKey
    >>> context, helper = Context("ab" * 32, 0, "cd" * 32), Helper(HelperKey.generate(), minimum=2)
    >>> keys = {name: IdentityKey.generate() for name in ("a", "b")}
    >>> reports = []
    >>> for name, key in keys.items():
    ...     data = make_report(
    ...         np.array([1, 2], np.uint64), context, client=name, version=1, helper=helper.public, key=key
    ...     )
    ...     reports.append(read_report(data, context, 2, lambda client: keys[client].public))
    >>> request = SumRequest(context, [(report.id, report.sealed) for report in reports], [(0, 2)])
    >>> helper.sum(request) + reports[0].masked + reports[1].masked
    array([2, 4], dtype=uint64)
    >>> helper.sum(SumRequest(context, request.reports[:1], [(0, 2)]))
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: a batch must have 2 reports or more, but 1 was asked for: ...
    """

    def __init__(
        self,
        key: HelperKey,
        *,
        minimum: int,
        path: str | Path | None = None,
        members: Mapping[str, str] | None = None,
        once: str = "",
    ) -> None:
        if type(minimum) is not int or minimum < 2:
            raise InputError(f"the smallest batch must be a whole number of 2 or more, not {minimum!r}")
        self._key, self.minimum = key, minimum
        self._members = None if members is None else _keys(members)
        self._memory = Memory(path, key.public, minimum, once)

    @property
    def public(self) -> str:
        """The helper's public key, 64 hexadecimal digits."""
        return self._key.public

    @property
    def batches(self) -> int:
        """How many different batches were answered, of all contexts."""
        return self._memory.batches()

    def sum(self, request: SumRequest, *, noise: Noise | None = None) -> Words:
        """Return the sum of the masks of a batch, at the blocks asked for, one after the other.

        What is answered is remembered before the answer is made, so that a crash in between loses nothing: the same
        request, repeated, gets the same answer bit for bit, and the same noise.

        Parameters
        ----------
        request
            Which reports, and which coordinates.
        noise
            Draws integers for the coordinates (m,), to be added before the answer leaves; drawn once for a batch, and
            remembered. It must come from a cryptographic generator.

        Returns
        -------
        numpy.ndarray
            (m,) uint64, modulo 2⁶⁴; m is ``request.size``.

        Raises
        ------
        PrivacyError
            When the request breaks a rule: a batch too small, a report twice, a coordinate asked for before, a batch
            that differs from earlier ones by too few clients. Nothing is remembered then.
        RefusedError
            When one report is unsound; it names the client, whose report must be left out. Nothing is remembered then.
        """
        envelopes = self._envelopes(request)
        seeds = [self._seed(envelope) for envelope in envelopes]
        drawn = self._memory.remember(
            request,
            {envelope.client: envelope.id for envelope in envelopes},
            None if noise is None else lambda: _draw(noise, request),
        )
        total = np.zeros(request.size, np.uint64)
        for seed in seeds:
            add_stream(total, seed, request.blocks)
        return total if drawn is None else total + np.frombuffer(drawn, "<u8")

    def close(self) -> None:
        """Close the memory's file."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _envelopes(self, request: SumRequest) -> list[Envelope]:
        """Return the envelopes of a batch whose form is right and whose clients are different ones."""
        n = len(request.reports)
        if n < self.minimum:
            raise PrivacyError(
                f"a batch must have {self.minimum} reports or more, but {n} {'was' if n == 1 else 'were'} asked for: "
                "wait for more clients"
            )
        if not request.blocks:
            raise PrivacyError("a request must name coordinates, but none arrived: ask for one block or more")
        envelopes = [read_envelope(sealed, request.context) for _, sealed in request.reports]
        for what, values in (("report", request.ids), ("client", [envelope.client for envelope in envelopes])):
            value, times = Counter(values).most_common(1)[0]
            if times > 1:
                raise PrivacyError(
                    f"a batch is of different clients, but {what} '{value}' is in it {times} times: name every client "
                    "once, with its latest report"
                )
        _require_size(envelopes, request.blocks[-1][1])
        return envelopes

    def require_known(self, members: Iterable[tuple[str, str]]) -> None:
        """Refuse a roster, pairs (client, public key), with clients that the helper's operator does not know."""
        if self._members is None:
            return
        keys = {client: key.hex for client, key in self._members.items()}
        unknown = [client for client, key in members if keys.get(client) != key]
        if unknown:
            raise PrivacyError(
                f"the leader's roster holds clients that this helper's operator does not know: {', '.join(unknown[:5])}"
                ": give their cards to the helper (members), or let the leader leave them out"
            )

    def require_opens(self, envelope: Envelope) -> None:
        """Refuse an envelope whose seed does not open, naming its client."""
        self._opened(envelope)

    def _seed(self, envelope: Envelope) -> bytes:
        if self._members is not None:
            key = self._members.get(envelope.client)
            if key is None:
                raise RefusedError(
                    Reason.UNKNOWN_CLIENT,
                    f"the helper knows no client '{envelope.client}': leave it out of the batch, or tell the helper's "
                    "operator who enrolled",
                    envelope.client,
                )
            envelope.verify(key)
        return self._opened(envelope)

    def _opened(self, envelope: Envelope) -> bytes:
        try:
            return self._key.open(envelope.sealed, envelope.info)
        except PrivacyError as error:
            sentence = f"report of client '{envelope.client}': {error}"
            raise RefusedError(Reason.BODY, sentence, envelope.client) from error


def _draw(noise: Noise, request: SumRequest) -> bytes:
    coordinates = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in request.blocks])
    drawn = np.asarray(noise(coordinates))
    if drawn.shape != coordinates.shape or drawn.dtype != np.int64:
        raise InputError(
            f"noise for {len(coordinates)} coordinates must be so many numbers of type int64, but {drawn.shape} of "
            f"type {drawn.dtype} arrived"
        )
    return drawn.tobytes()


def _keys(members: Mapping[str, str]) -> dict[str, PublicKey]:
    """Return the keys of clients; two clients of one key would be one client in two places."""
    first: dict[str, str] = {}
    for client, key in members.items():
        other = first.setdefault(key, client)
        if other != client:
            raise InputError(
                f"clients '{other}' and '{client}' have the same public key {key[:16]}...: they would be counted as "
                "two, but are one; let each enrol with its own key"
            )
    return {client: PublicKey.from_hex(key) for client, key in members.items()}


def _require_size(envelopes: Sequence[Envelope], end: int) -> None:
    """Refuse reports of different sizes, or without all coordinates up to ``end``."""
    for envelope in envelopes:
        if end > envelope.size:
            raise PrivacyError(
                f"coordinates up to {end} were requested, but the report of client '{envelope.client}' has "
                f"{envelope.size}: ask for coordinates that all reports have"
            )
    if len({envelope.size for envelope in envelopes}) > 1:
        raise PrivacyError("the reports of a batch are of different sizes: those of one federation have the same")
