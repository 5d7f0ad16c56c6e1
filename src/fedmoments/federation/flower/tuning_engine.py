"""The clients of a deployment as an engine of tuning: one message to each client that is drawn, one update back.

The clients and their numbers of samples are requested once, and stay for the run: who joins later takes no part in it,
and who is missing is missing in the rounds that draw it. A client that fails costs the round its own update; a round
with fewer updates than the settings ask for fails the run, which can go on later from its checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.flower.exchange import Failure
from fedmoments.federation.flower.messages import GREET, SCORE, TEMPERATURE, TUNE, content_size
from fedmoments.federation.flower.replies import cleaned
from fedmoments.federation.flower.tuning_asking import Asking
from fedmoments.federation.flower.tuning_replies import (
    ROOM,
    Asked,
    Numbers,
    read_greeting,
    read_score,
    read_sums,
    read_update,
)
from fedmoments.federation.flower.tuning_task import Task
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import TuningSettings
from fedmoments.tuning.engine import Arrays, Score, Update, message_size, pack_parameters
from fedmoments.wire import PublicKey

__all__ = ["GridEngine"]

T = TypeVar("T")

#: Failures that are kept for the report.
MOST_TOLD = 200
#: Bytes of a reply without parameters.
SMALL = 2**16
_ROUNDS = "rounds"


class GridEngine:
    """The nodes behind a grid; see :class:`fedmoments.tuning.engine.Engine`.

    Parameters
    ----------
    grid
        Flower's, or ours.
    store
        The ledger: says who is enrolled, and keeps the log.
    settings
        Deadlines, and how many updates a round must bring.
    task
        What is tuned; its temperature may be chosen later.
    start
        Bytes of the classifier that the task starts from.
    roster
        Clients of a run that goes on, with their numbers of samples; None takes all who greet.
    """

    def __init__(
        self,
        grid: Grid,
        store: FederationStore,
        settings: TuningSettings,
        task: Task,
        start: bytes,
        *,
        roster: Mapping[str, Numbers] | None = None,
    ) -> None:
        self.task, self.failures = task, list[dict[str, Any]]()
        self.tested = 0
        self._grid, self._store, self._settings, self._start = grid, store, settings, start
        self._keys: dict[str, PublicKey] = {
            member.client: member.key for member in store.enrolled() if member.status == "enrolled"
        }
        self._roster = None if roster is None else dict(roster)
        self._where: dict[str, int] = {}
        self._greeted: set[int] = set()
        self._last: dict[str, int] = {}
        self._sent: dict[str, int] = {}

    # ---------------------------------------------------------------------------------------------- who is there

    def greet(self) -> None:
        """Ask all nodes that were not asked yet for their clients; the first time decides who is in the run.

        Raises
        ------
        DeploymentError
            When no client takes part.
        """
        new = sorted(set(self._grid.get_node_ids()) - self._greeted)
        greetings = self._ask_all(
            GREET,
            {str(node): (node, {}) for node in new},
            [],
            lambda _, content: read_greeting(content, self.task, self._keys),
            with_start=True,
        )
        seen: dict[str, Numbers] = {}
        for node in sorted(map(int, greetings)):
            self._greeted.add(node)
            greeting = greetings[str(node)]
            declined = list(greeting.declined)
            for client, numbers in greeting.clients.items():
                reason = self._unwelcome(client, numbers, node)
                if reason:
                    declined.append({"client": client, "why": reason})
                else:
                    self._where[client], seen[client] = node, numbers
            if declined:
                self._store.note("declined", node=str(node), count=len(declined), clients=declined[:20])
                self._keep({"node": str(node), "clients": declined[:20]})
        if self._roster is None:
            self._roster = {client: seen[client] for client in sorted(seen) if seen[client].train}
            if not self._roster:
                raise DeploymentError(f"no client takes part in this tuning. {self._reasons()}".strip())

    def _unwelcome(self, client: str, numbers: Numbers, node: int) -> str:
        """Return why a client that greets is not taken in, or "" if it is."""
        if self._where.get(client, node) != node and self._where[client] in set(self._grid.get_node_ids()):
            return f"it is served by node {self._where[client]} already"
        if self._roster is not None and client not in self._roster:
            return "it was not there when the run began, and can take part in the next"
        most = self._settings.max_client_samples
        if most and numbers.train > most:
            return f"it says that it has {numbers.train} samples to train on, but at most {most} are accepted"
        before = None if self._roster is None else self._roster[client]
        if before is not None and before != numbers:
            return (
                f"it has {numbers.train} samples to train and {numbers.validation} to validate on, but had "
                f"{before.train} and {before.validation} when the run began"
            )
        return ""

    @property
    def roster(self) -> dict[str, Numbers]:
        """Clients of the run, sorted, with their numbers of samples."""
        return dict(self._roster or {})

    @property
    def clients(self) -> Sequence[str]:
        """Names of all clients of the run, sorted."""
        return list(self.roster)

    @property
    def samples(self) -> Mapping[str, int]:
        """n_k of every client: samples to train on."""
        return {client: numbers.train for client, numbers in self.roster.items()}

    # ---------------------------------------------------------------------------------------------- rounds

    def train(
        self, round_number: int, arrays: Arrays, control: Arrays | None, clients: Sequence[str]
    ) -> Sequence[Update]:
        """Send the parameters to some clients, and return the updates that arrived, in the order of the names.

        Raises
        ------
        DeploymentError
            When fewer arrived than the settings ask for.
        """
        self.greet()
        first = self.task.plan.asks_first and control is None
        sent = pack_parameters(arrays, control, round=round_number)
        asks: dict[str, tuple[int, dict[str, Any]]] = {}
        here = set(self._grid.get_node_ids())
        for client in clients:
            if self._where.get(client) in here:
                fields = {"client": client, "round": round_number, "last": self._last.get(client, 0)}
                asks[client] = (self._where[client], fields)
            else:
                self._fail(Failure(0, TUNE, -1, "no node that is here serves it", client), round_number)

        def read(client: str, content: RecordDict) -> Update:
            asked = Asked(client, self._keys[client], self.roster[client], round_number, arrays, first)
            update = read_update(content, self.task, asked)
            return replace(update, up=content_size(content), down=self._sent[client])

        size = message_size(arrays, control) + ROOM
        updates = self._ask_all(TUNE, asks, [sent], read, round_number=round_number, reply_bytes=size)
        came = [updates[client] for client in clients if client in updates]
        if len(came) < self._settings.minimum:
            raise DeploymentError(
                f"round {round_number} brought {len(came)} updates of {len(clients)} clients that were drawn, but "
                f"{self._settings.minimum} are needed (minimum): start the missing clients, and run again with the "
                f"same folder to go on. {self._reasons()}".strip()
            )
        if not first:
            self._last |= {update.client: round_number for update in came}
        self._store.note(
            "tuning gradients" if first else "tuning round",
            run=self.task.run,
            round=round_number,
            asked=len(clients),
            updates=len(came),
            bytes=len(sent),
        )
        return came

    def validate(self, arrays: Arrays) -> Score:
        """Return sums over the validation shares of all clients that answer.

        Raises
        ------
        DeploymentError
            When none does.
        """
        score = self._score("validation", arrays)
        if not score.samples and any(numbers.validation for numbers in self.roster.values()):
            raise DeploymentError(f"no client reported results on its validation share. {self._reasons()}")
        return score

    def test(self, arrays: Arrays) -> Score | None:
        """Return sums over the test parts of clients; None if they are not asked, or have none."""
        score = self._score("test", arrays) if self._settings.evaluate else Score(0, 0, 0.0)
        self.tested = score.samples
        return score if score.samples else None

    def _score(self, part: str, arrays: Arrays) -> Score:
        self.greet()
        members = self._members()
        asks = {str(node): (node, {"part": part, "clients": names}) for node, names in members.items()}
        promised = {str(node): sum(self.roster[name].validation for name in names) for node, names in members.items()}

        def read(node: str, content: RecordDict) -> Score:
            return read_score(content, most=promised[node] if part == "validation" else None)

        scores = self._ask_all(SCORE, asks, [pack_parameters(arrays)], read)
        return sum((scores[node] for node in asks if node in scores), Score(0, 0, 0.0))

    def cross_entropies(self, temperatures: Sequence[float]) -> NDArray[np.float64]:
        """Return the start's cross-entropy under some temperatures, (G,), summed over all clients' samples.

        Raises
        ------
        DeploymentError
            When not all nodes answer: a choice by some clients' samples would be another one.
        """
        grid = [float(temperature) for temperature in temperatures]
        members = self._members()
        asks = {str(node): (node, {"temperatures": grid, "clients": names}) for node, names in members.items()}
        sums = self._ask_all(TEMPERATURE, asks, [], lambda _, content: read_sums(content, len(grid)))
        if len(sums) < len(asks):
            raise DeploymentError(f"not all nodes reported their cross-entropy. {self._reasons()}")
        return sum((sums[node] for node in asks), np.zeros(len(grid)))

    def state(self) -> Arrays:
        """Return in which round each client's last update was taken in, (K,)."""
        return {_ROUNDS: np.array([self._last.get(client, 0) for client in self.clients], np.float64)}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        rounds = state.get(_ROUNDS)
        if rounds is None or rounds.shape != (len(self.clients),):
            raise InputError("the checkpoint was made with other clients: give another folder, or start over")
        self._last = {client: int(last) for client, last in zip(self.clients, rounds, strict=True) if last}

    # ---------------------------------------------------------------------------------------------- asking

    def _members(self) -> dict[int, list[str]]:
        """Node -> clients of the run that it serves."""
        here, members = set(self._grid.get_node_ids()), dict[int, list[str]]()
        for client in self.clients:
            if self._where.get(client) in here:
                members.setdefault(self._where[client], []).append(client)
        return dict(sorted(members.items()))

    def _ask_all(
        self,
        kind: str,
        asks: Mapping[str, tuple[int, Mapping[str, Any]]],
        items: Sequence[bytes],
        read: Callable[[str, RecordDict], T],
        *,
        round_number: int = 0,
        reply_bytes: int = SMALL,
        with_start: bool = False,
    ) -> dict[str, T]:
        """Ask about this tuning, see :class:`Asking`; failures are logged."""
        asking = Asking(
            self._grid,
            self._settings,
            kind,
            self.task.fields(),
            asks,
            items,
            self._start,
            read,
            lambda failure: self._fail(failure, round_number),
            with_start,
        )
        self._sent = asking.sent
        return asking.run(reply_bytes=reply_bytes, group=f"{kind} {round_number}")

    def _fail(self, failure: Failure, round_number: int) -> None:
        """Log that a node or a client failed."""
        facts = {"node": str(failure.node), "code": failure.code, "reason": cleaned(failure.reason, 500)}
        facts |= {"client": failure.about} if failure.kind == TUNE else {}
        facts |= {"round": round_number} if round_number else {}
        self._store.note("node failed", kind=failure.kind, **facts)
        self._keep(facts)

    def _keep(self, facts: dict[str, Any]) -> None:
        if len(self.failures) < MOST_TOLD:
            self.failures.append(facts)

    def _reasons(self, most: int = 3) -> str:
        """Return the last few reasons why nodes or clients failed."""
        reasons = [
            f"{fact.get('client') or 'node ' + str(fact.get('node'))}: {fact.get('why') or fact.get('reason')}"
            for facts in self.failures
            for fact in facts.get("clients", [facts])
        ]
        return f"In its way were: {' | '.join(reasons[-most:])}" if reasons else ""
