"""A helper that opens no class that too few clients hold, as far as it can tell.

Two steps for every group of reports:

1. ``learn``: the leader asks for the masks of the contributors, and hands over its own sum of *masked* contributors.
   Both servers now know how many clients of the group hold each class, and nothing about a single client.
2. ``open``: the leader asks for blocks of classes over one group or several. The helper adds up what it knows of those
   groups, and refuses the whole request if a class in it has fewer clients than the threshold.

In later rounds of the federation a class is opened over the same clients as before, or over others: of two sums of a
class that share some clients only, the difference may be what a single client holds, though enough hold each.

What it can check: that every report is in one group and every class of a group is opened once (its memory of
coordinates), that numbers of clients are possible (from 0 to the reports of the group), that the leader does not tell
two stories about one group. What it cannot: that the sum of masked contributors it was handed is the true one. A leader
that lies there gets a class opened that too few clients hold; it still gets no sum over fewer clients than the batch.

The helper's side of the second phase: the same clients, told of no class that too few of them hold.

A server could broadcast a weight for a class that it had to suppress, and read one client's mean from the sum. So the
helper sees the broadcast too. Reports of the second phase are bound to it by their context, which the helper computes
itself; it adds them up only if every class in the broadcast is held by enough clients, and if the clients are exactly
those whose contributors it learned in the first phase. There is one broadcast for a first phase: several with different
weights would give a matrix of every class, and that of a class of two clients is the difference of their means.

What it cannot check: the means and weights themselves, which it does not know. Wrong ones give a wrong matrix, still
summed over all clients.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.durable import DurableFile, Kind
from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import read_envelope
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.wire import Reason

__all__ = ["Sums", "ThresholdHelper", "TwoPhaseHelper", "clients_of"]


Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

_SCHEMA = """
-- a group of reports, what the leader said of it, and how many clients hold each class (int64)
CREATE TABLE groups (
    id BLOB PRIMARY KEY, masked BLOB NOT NULL, held BLOB NOT NULL, context BLOB NOT NULL, clients TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE members (report TEXT PRIMARY KEY, id BLOB NOT NULL REFERENCES groups) WITHOUT ROWID;
CREATE INDEX members_by_group ON members (id);
-- which classes (JSON) were opened over which clients (JSON), and in which context
CREATE TABLE openings (
    id BLOB PRIMARY KEY, federation TEXT NOT NULL, context BLOB NOT NULL, labels TEXT NOT NULL, clients TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX openings_by_federation ON openings (federation, context);
-- the broadcast (SHA-256) of a second phase (fedmoments.privacy.secure.threshold)
CREATE TABLE broadcasts (
    context BLOB NOT NULL, clients TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (context, clients)
) WITHOUT ROWID;
-- draws of cohorts (fedmoments.privacy.secure.cohort_helper): both nonces; the reports of each cohort, and SHA-256 of
-- their envelopes
CREATE TABLE draws (
    federation TEXT PRIMARY KEY, context BLOB NOT NULL, commitment BLOB NOT NULL, roster BLOB NOT NULL,
    own BLOB NOT NULL, theirs BLOB
) WITHOUT ROWID;
CREATE TABLE cohorts (
    report TEXT PRIMARY KEY, context BLOB NOT NULL, cohort INTEGER NOT NULL, envelope BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX cohorts_by_number ON cohorts (context, cohort);
"""
#: "fmT1".
_KIND = Kind(
    "memory of thresholds",
    0x666D5431,
    _SCHEMA,
    remedy="make a new key, which gets a new memory",
    unwritten="nothing was recorded, so nothing may be sent",
)


def clients_of(request: SumRequest) -> str:
    """Return who made the reports of a request, as text: the same for the same clients."""
    return json.dumps(sorted(read_envelope(sealed, request.context).client for _, sealed in request.reports))


class Sums(Protocol):
    """Whoever adds up masks: :class:`~fedmoments.privacy.secure.helper.Helper`, in this process or at another party."""

    def sum(self, request: SumRequest) -> Words:
        """Return the masks of the reports at the blocks, added up modulo 2⁶⁴."""
        ...


class ThresholdHelper:
    """Adds up masks, and minds how many clients hold a class.

    Parameters
    ----------
    helper
        Adds up masks: every coordinate of a report once, batches of a minimum size.
    layout
        Where contributors and classes stand. Moments of all classes together are opened with any of them.
    contributors
        Fewest clients that an opened class must be held by.
    path
        File of its memory (SQLite); None: in memory, gone with the process.

    Examples
    --------
    See :mod:`fedmoments.privacy.modes`.
    """

    def __init__(self, helper: Sums, layout: DenseLayout, contributors: int, path: str | Path | None = None) -> None:
        if contributors < 1:
            raise InputError(f"a threshold is 1 client or more, but contributors={contributors} arrived")
        self.helper, self._layout, self._least = helper, layout, contributors
        self._database = DurableFile.at(path, _KIND)

    def learn(self, request: SumRequest, masked: Words) -> Words:
        """Return the masks of the contributors of a group of reports, and learn how many clients hold each class.

        Parameters
        ----------
        request
            The group's reports, and the block of contributors.
        masked
            (C,) uint64, the leader's sum of masked contributors over the same reports.

        Raises
        ------
        RefusedError
            When the numbers of clients are impossible: nobody can tell whose fault that is.
        PrivacyError
            When they are others than the leader said before.
        """
        block = self._layout.contributor_block
        if request.blocks != ((block.start, block.stop),) or masked.shape != (self._layout.n_classes,):
            raise InputError(
                f"the contributors stand at {block.start} to {block.stop}, but the blocks {request.blocks} and "
                f"{masked.shape} masked numbers arrived: ask for exactly those"
            )
        masks = self.helper.sum(request)
        held = (masks + masked).view(np.int64)
        possible = held.min() >= 0 and held.max() <= len(request.reports)
        # An impossible story is remembered too: a leader that may try again would learn from what is refused.
        self._remember(request, masked, held if possible else np.zeros_like(held))
        if not possible:
            sentence = (
                f"of {len(request.reports)} clients from 0 to all can hold a class, but the sum that the leader handed "
                f"over gives from {held.min()} to {held.max()}: it is not the sum over these reports, or one is not "
                "of statistics"
            )
            raise RefusedError(Reason.INCONSISTENT, sentence)
        return masks

    def learn_many(self, requests: Sequence[SumRequest], masked: Sequence[Words]) -> list[Words]:
        """Return the masks of the contributors of many groups; see :meth:`learn`."""
        return [self.learn(request, sums) for request, sums in zip(requests, masked, strict=True)]

    def _remember(self, request: SumRequest, masked: Words, held: Ints) -> None:
        with self._database.writing() as connection:
            query = "SELECT id, masked FROM groups WHERE id IN (SELECT id FROM members WHERE report = ?)"
            known = {row for name in request.ids for row in connection.execute(query, (name,))}
            story = (request.digest, masked.tobytes())
            if known and known != {story}:
                raise PrivacyError(
                    "the contributors of these reports were requested before, with other reports or with another sum "
                    "of masked contributors: every report has one group, and a group one story"
                )
            if not known:
                values = (*story, held.tobytes(), request.context.digest, clients_of(request))
                connection.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?)", values)
                rows = [(report, request.digest) for report in request.ids]
                connection.executemany("INSERT INTO members VALUES (?, ?)", rows)

    def open(self, request: SumRequest) -> Words:
        """Return the masks of classes, over one group of reports or several, if enough clients hold each class.

        Raises
        ------
        PrivacyError
            When a report is in no group that was learned, a group is not there whole, too few clients hold a class, or
            it was opened over some of these clients in another round.
        """
        labels, held = self._labels(request), self._held(request)
        few = [label for label in labels if held[label] < self._least]
        if few:
            raise PrivacyError(
                f"no class may be opened that fewer than {self._least} clients hold, but {int(held[few[0]])} of these "
                f"{len(request.reports)} clients hold class {few[0]}: pool it over more cohorts, or suppress it"
            )
        self._keep_company(request, labels)
        return self.helper.sum(request)

    def open_many(self, requests: Sequence[SumRequest]) -> list[Words]:
        """Return the masks of many sums of classes; see :meth:`open`."""
        return [self.open(request) for request in requests]

    def _keep_company(self, request: SumRequest, labels: Iterable[int]) -> None:
        """Remember over which clients classes are opened; refuse if one was over some of them in another context.

        In the same context every coordinate of a report is unmasked once, so that sums of a class share no client.
        """
        clients, federation = clients_of(request), request.context.federation
        asked, here = set(labels), set(json.loads(clients))
        with self._database.writing() as connection:
            rows = connection.execute(
                "SELECT labels, clients FROM openings WHERE federation = ? AND context <> ? AND clients <> ?",
                (federation, request.context.digest, clients),
            )
            for known, others in rows:
                both = asked.intersection(json.loads(known))
                if both and not here.isdisjoint(json.loads(others)):
                    raise PrivacyError(
                        f"class {min(both)} was opened in another round over some of these {len(here)} clients and "
                        "others: the difference of both sums may be what one client holds. Ask for the same clients "
                        "as then, or begin a new federation"
                    )
            connection.execute(
                "INSERT OR IGNORE INTO openings VALUES (?, ?, ?, ?, ?)",
                (request.digest, federation, request.context.digest, json.dumps(sorted(asked)), clients),
            )

    def _labels(self, request: SumRequest) -> list[int]:
        """Return the classes of the blocks, which must be whole, as must moments of all classes behind them."""
        width, start, end = self._layout.class_width, self._layout.n_classes, self._layout.classes_block.stop
        labels: list[int] = []
        for first, stop in request.blocks:
            last = end if stop == self._layout.size else stop
            if not start <= first <= last <= end or (first - start) % width or (last - start) % width:
                raise PrivacyError(
                    f"classes are opened whole, {width} numbers each from {start} on, but the block {(first, stop)} "
                    "was asked for"
                )
            labels += range((first - start) // width, (last - start) // width)
        return labels

    def _held(self, request: SumRequest) -> Ints:
        """Return how many clients of the request's groups hold each class, (C,)."""
        left = set(request.ids)
        held = np.zeros(self._layout.n_classes, np.int64)
        with self._database.reading() as connection:
            while left:
                some = min(left)
                row = connection.execute("SELECT id FROM members WHERE report = ?", (some,)).fetchone()
                if row is None:
                    raise PrivacyError(
                        f"classes of report {some[:12]}... are to be opened, but it is not known how many clients of "
                        "its group hold them: learn the contributors of the group first"
                    )
                group = {name for (name,) in connection.execute("SELECT report FROM members WHERE id = ?", row)}
                if not group <= left:
                    raise PrivacyError(
                        f"{len(group - left)} of {len(group)} reports of a group are missing: groups are opened whole, "
                        "because nobody knows how many clients of a part of them hold a class"
                    )
                (counts,) = connection.execute("SELECT held FROM groups WHERE id = ?", row).fetchone()
                held += np.frombuffer(counts, np.int64)
                left -= group
        return held

    def close(self) -> None:
        """Close the file of its memory."""
        self._database.close()


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
