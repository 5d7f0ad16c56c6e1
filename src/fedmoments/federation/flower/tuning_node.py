"""A node's part in a tuning: one client at a time trains on its own samples. Knows nothing of Flower.

The node decides. Nothing is trained unless its policy says so, and never on samples that its policy withholds. What
leaves is signed, written down in the client's record before, and repeated as it was if the server asks again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FedMomentsError, InputError, OwnDataError, PolicyError
from fedmoments.federation.evaluation.coarse import MOST_LOSS, coarse_losses, rounded_part
from fedmoments.federation.flower.choosing import Chooser
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.holdings import Holdings, holdings_of
from fedmoments.federation.flower.node import Node
from fedmoments.federation.flower.tuning_memory import answered_sums, recall, remember, remember_sum
from fedmoments.federation.flower.tuning_task import Task, greeting_bytes, signed_bytes
from fedmoments.federation.own_data import measuring
from fedmoments.files import write_whole
from fedmoments.samples.samples import Chosen
from fedmoments.settings.client import ClientSettings
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.engine import Arrays, Engine, Score, pack_parameters, unpack_parameters
from fedmoments.tuning.start import Start
from fedmoments.wire import IdentityKey

if TYPE_CHECKING:
    from fedmoments.tuning.network import NetworkEngine
    from fedmoments.tuning.probing import FeatureEngine

__all__ = ["PARTS", "MissingStartError", "TuningNode"]

#: What parameters are tested on: the share of the training samples that was held out, or the test part.
PARTS = ("validation", "test")
#: Temperatures that are tried at once, at most.
MOST_TEMPERATURES = 50
#: Starts of nodes without a folder, by digest.
_STARTS: dict[str, bytes] = {}


Own = TypeVar("Own", "FeatureEngine", "NetworkEngine")


class MissingStartError(FedMomentsError):
    """A node does not have the classifier that the tuning starts from: it must be sent again."""


class TuningNode:
    """One party's machine in a tuning, serving one client or several.

    Parameters
    ----------
    settings, identity
        As in :class:`~fedmoments.federation.flower.node.Node`.
    """

    def __init__(self, settings: ClientSettings, identity: Callable[[str], IdentityKey] | None = None) -> None:
        self.settings, self._node = settings, Node(settings, identity)

    # ---------------------------------------------------------------------------------------------- what is asked

    def greet(self, task: Task, start: bytes) -> dict[str, Any]:
        """Return this node's clients that take part, each with its numbers of samples, signed, and who does not.

        Parameters
        ----------
        task
            What is to be tuned.
        start
            Bytes of the classifier that it starts from; they are kept.
        """
        try:
            self._allow(task)
            begun = self._keep(task, start)
            clients = holdings_of(self.settings, task.terms).clients
        except (FedMomentsError, OSError, ValueError) as error:
            return {"clients": [], "declined": [self._decline(task, self._everybody, error)]}
        greeted, declined = [], []
        for client in clients:
            try:
                greeted.append(self._numbers(task, begun, client))
            except (FedMomentsError, OSError, ValueError, ArithmeticError) as error:
                declined.append(self._decline(task, client, error))
        return {"clients": greeted, "declined": declined}

    def tune(
        self, task: Task, client: str, round_number: int, data: bytes, *, last: int, start: bytes | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Train on one client's samples, and return a few fields and its parameters afterwards.

        Parameters
        ----------
        task
            What is tuned.
        client, round_number
            Whose turn it is.
        data
            Parameters, as :func:`~fedmoments.tuning.engine.pack_parameters` packs them.
        last
            Round of the last update of this client that the server took in; 0 if none.
        start
            Bytes of the start, if they came along.

        Raises
        ------
        PolicyError
            When the client's policy forbids it.
        MissingStartError
            When the start is not known here.
        """
        asked = task.asked(client, round_number, last, data)
        with self._declining(task, client):
            self._allow(task)
            self._require_own(task, client)  # before its name is that of a file
            memory = recall(self.settings.folder, task.terms.id, client)
            self._allow(task, rounds=memory.counted(asked))
            self._training(task, client)
        begun = self._start(task, start)
        arrays, control, _ = unpack_parameters(data, "the server")
        before = memory.state(task.run, last) if task.plan.remembers else {}
        memory = memory.charged(task.run, asked)
        remember(self.settings.folder, task.terms.id, client, memory)  # before: what fails tells something, too
        with self._declining(task, client), measuring():
            engine = self._engine(task, begun, [client])
            if task.plan.remembers:
                engine.restore(before)
            (update,) = engine.train(round_number, arrays, control, [client])
            facts = {"client": client, "samples": update.samples, "steps": update.steps, "loss": update.loss}
            body = pack_parameters(update.arrays, update.control, round=round_number, **facts)
            self._node.policy.require_size(len(body))
        state = engine.state() if task.plan.remembers else {}
        kept = memory.after(task.run, last if task.plan.remembers else 0, round_number, state)
        remember(self.settings.folder, task.terms.id, client, kept)
        entry = {"run": task.run, "round": round_number, "stage": task.plan.stage, "bytes": len(body)}
        self._node.outbox.sending(
            "tuned", task.terms, client, **entry, samples=update.samples, digest=sha256(body).hexdigest()
        )
        return {"client": client, "signature": self._signed("update", task, client, body)}, body

    def score(self, task: Task, part: str, clients: Sequence[str], data: bytes, start: bytes | None = None) -> Score:
        """Return how parameters do on samples of this node, summed over its clients.

        Only the sum leaves, and nothing of fewer samples than the policy's ``min_count``; of a test part, classes of
        which all clients of the node have fewer together are left out.
        """
        if part not in PARTS:
            raise InputError(f"parameters are tested on {' or '.join(PARTS)}, not on {part!r}")
        with self._declining(task, self._everybody):
            self._allow(task)
            for client in clients:
                self._require_own(task, client)
            asked = self._counted(task, f"score {part}", clients, data)
        begun = self._start(task, start)
        arrays, _, _ = unpack_parameters(data, "the server")
        nothing = Score(0, 0, 0.0)
        if not self.settings.evaluate:
            return nothing
        remember_sum(self.settings.folder, task.terms.id, self._whose, asked)  # before: what fails tells something, too
        with self._declining(task, self._everybody), measuring():
            tested = part != "validation"
            total = self._test(task, begun, arrays) if tested else self._validate(task, begun, clients, arrays)
        if total.samples < self._node.policy.min_count:
            return nothing
        self._node.outbox.sending("scored", task.terms, self._everybody, run=task.run, part=part, samples=total.samples)
        return self._coarse(task, asked, total)

    def temperature(
        self, task: Task, temperatures: Sequence[float], clients: Sequence[str], start: bytes | None = None
    ) -> list[float]:
        """Return the start's cross-entropy under each temperature, summed over what the clients train on."""
        from fedmoments.tuning.temperature import cross_entropy_sums

        given = _checked_temperatures(temperatures)
        with self._declining(task, self._everybody):
            self._allow(task)
            for client in clients:
                self._require_own(task, client)
            parts = {client: self._training(task, client) for client in clients}
            asked = self._counted(task, "temperature", clients, repr(given).encode())
        begun = self._start(task, start)
        total = np.zeros(len(given))
        remember_sum(self.settings.folder, task.terms.id, self._whose, asked)
        with self._declining(task, self._everybody), measuring():
            for client, held in parts.items():
                total += cross_entropy_sums(
                    begun, held.X, held.y, given, whose=f"client {client}", most_loss=self._most_loss
                )
        samples = sum(len(held.y) for held in parts.values())
        self._node.outbox.sending(
            "scored", task.terms, self._everybody, run=task.run, part="temperature", samples=samples
        )
        losses = coarse_losses(total, self._chances(task, asked)) if self._is_coarse else total
        return [float(value) for value in losses]

    @property
    def _is_coarse(self) -> bool:
        """Whether sums are rounded: a policy that lets single samples out has nothing to hide in them."""
        return self._node.policy.min_count > 1

    @property
    def _most_loss(self) -> float:
        return MOST_LOSS if self._is_coarse else float("inf")

    def _coarse(self, task: Task, asked: str, score: Score) -> Score:
        """Return a score of which no part is about few samples; asked again, it is the same."""
        if not self._is_coarse:
            return score
        draw = self._chances(task, asked)
        correct = rounded_part(score.correct, score.samples, self._node.policy.min_count, draw())
        return Score(score.samples, correct, float(coarse_losses(np.array([score.loss]), draw)[0]))

    def _chances(self, task: Task, asked: str) -> Callable[[], float]:
        """Return chances that the server cannot know, the same for the same request."""
        client = holdings_of(self.settings, task.terms).clients[0]
        secret = self._node.identity(client).derive(f"chances\n{task.terms.id}{asked}".encode())
        return np.random.default_rng(list(secret)).random

    # ---------------------------------------------------------------------------------------------- who may, on what

    @property
    def _everybody(self) -> str:
        return self.settings.name or "all clients of this node"

    @property
    def _whose(self) -> str:
        return f"{self.settings.name} {self.settings.partitions}"

    def _allow(self, task: Task, rounds: int = 1) -> None:
        """Raise PolicyError unless this party takes part in such a tuning."""
        self._node.require_terms(task.terms)
        self._node.policy.require(task.terms)
        self._node.policy.require_tuning(task.terms, task.plan.stage, rounds)

    def _counted(self, task: Task, what: str, clients: Sequence[str], data: bytes) -> str:
        """Return the digest of a request for a sum of losses, once it is no more than the policy lets out."""
        asked = task.asked("\n".join([what, *sorted(clients)]), 0, 0, data)
        answered = answered_sums(self.settings.folder, task.terms.id, self._whose)
        self._node.policy.require_sums(task.terms, len(answered) + (asked not in answered))
        return asked

    def _require_own(self, task: Task, client: str) -> None:
        clients = holdings_of(self.settings, task.terms).clients
        if client not in clients:
            raise PolicyError(f"this node does not serve the client {client!r}, but {', '.join(clients[:5])}")

    def _decline(self, task: Task, client: str, error: Exception) -> dict[str, str]:
        told = self._node.decline(task.terms, client, error)
        return {"client": client, "why": told["why"]}

    @contextmanager
    def _declining(self, task: Task, client: str) -> Iterator[None]:
        """Write down what the policy forbids, and what fails on samples: the server hears less of that."""
        try:
            yield
        except (PolicyError, OwnDataError) as error:
            self._decline(task, client, error)
            raise

    def _signed(self, what: str, task: Task, client: str, payload: bytes) -> str:
        return self._node.identity(client).sign(signed_bytes(what, task, payload)).hex()

    def _shares(self, task: Task, client: str, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return held_out(n, task.plan.validation, seed=task.plan.seed, client=client)

    def _training(self, task: Task, client: str) -> Held:
        """Return what a client trains on; the server, who chooses the share, may not make it fewer than min_count."""
        held = self._node.chooser(task.terms).choose(client).held
        rows, _ = self._shares(task, client, len(held.y))
        least = self._node.policy.min_count
        if 0 < len(rows) < least:
            raise PolicyError(
                f"client {client} would train on fewer samples than its policy's min_count, {least}, with a validation "
                f"share of {task.plan.validation:g}: nothing was trained; ask for a smaller share",
                f"it would be {len(rows)} of its {len(held.y)} samples",
            )
        return held if len(rows) == len(held.y) else Held(held.X[rows], held.y[rows])

    def _numbers(self, task: Task, start: Start, client: str) -> dict[str, Any]:
        """Return how many samples a client trains and validates on, once those can be trained on."""
        n, held = len(self._node.chooser(task.terms).choose(client).held.y), self._training(task, client)
        if len(held.y):
            start.inputs(held.X[:1])
            unseen = held.y[~start.present[held.y]]
            if len(unseen):
                raise OwnDataError(
                    f"client {client} holds samples of a class that the start '{start.name}' has never seen and gives "
                    "the probability 0: contribute them first, or withhold it",
                    f"it is the class '{task.terms.classes[unseen[0]]}'",
                )
        train, validation = (len(rows) for rows in self._shares(task, client, n))
        validation = validation if self.settings.evaluate else 0
        signature = self._signed("greeting", task, client, greeting_bytes(client, train, validation))
        return {"client": client, "train": train, "validation": validation, "signature": signature}

    # ---------------------------------------------------------------------------------------------- the start

    def _keep(self, task: Task, data: bytes) -> Start:
        """Keep the bytes of a start for later messages, which only name it; older ones are forgotten."""
        begun = task.start(data)
        if not self.settings.folder:
            _STARTS.clear()
            _STARTS[task.start_digest] = data
            return begun
        path = self._start_path(task)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for former in path.parent.glob("start-*.safetensors"):
            if former != path:
                former.unlink(missing_ok=True)
        write_whole(path, data)
        return begun

    def _start(self, task: Task, data: bytes | None) -> Start:
        """Return the start, which came along or was kept."""
        if data is not None:
            return self._keep(task, data)
        path = self._start_path(task)
        if self.settings.folder and path.exists():
            return task.start(path.read_bytes())
        if not self.settings.folder and task.start_digest in _STARTS:
            return task.start(_STARTS[task.start_digest])
        raise MissingStartError(f"this node does not have the start '{task.start_name}' of this tuning")

    def _start_path(self, task: Task) -> Path:
        if not all(letter in "0123456789abcdef" for letter in task.start_digest):
            raise InputError("the digest of a start must be hexadecimal")
        return (
            Path(self.settings.folder) / "tuning" / task.terms.id[:16] / f"start-{task.start_digest[:32]}.safetensors"
        )

    # ---------------------------------------------------------------------------------------------- engines

    def _engine(self, task: Task, start: Start, clients: Sequence[str]) -> Engine:
        """Return what trains these clients."""
        if task.plan.stage == "lp":
            from fedmoments.tuning.probing import FeatureEngine

            chooser = self._node.chooser(task.terms)
            held = {client: chooser.choose(client).held for client in clients}
            parts = {name: (part.X, part.y) for name, part in held.items()}
            return self._capped(FeatureEngine(task.plan, start, parts, None))
        holdings = self._with_samples(task)
        chooser = Chooser(_Rows(holdings), self._node.policy, task.terms)
        rows = {client: chooser.choose(client).held for client in clients}
        prepared = {client: (self._prepared(holdings, part.X[:, 0]), part.y) for client, part in rows.items()}
        return self._network(task, start, holdings, prepared, None)

    def _validate(self, task: Task, start: Start, clients: Sequence[str], arrays: Arrays) -> Score:
        return self._engine(task, start, clients).validate(arrays) if clients else Score(0, 0, 0.0)

    def _test(self, task: Task, start: Start, arrays: Arrays) -> Score:
        """Return sums over the test parts of all clients of the node, less classes that are too small."""
        holdings = holdings_of(self.settings, task.terms)
        rows = _Rows(holdings)
        tests = [rows.test(client) if task.plan.stage != "lp" else holdings.test(client) for client in holdings.clients]
        X, y = np.concatenate([part.X for part in tests]), np.concatenate([part.y for part in tests])
        enough = np.bincount(y, minlength=len(task.terms.classes))[y] >= self._node.policy.min_count
        X, y = X[enough], y[enough]
        if not len(y):
            return Score(0, 0, 0.0)
        if task.plan.stage == "lp":
            from fedmoments.tuning.probing import FeatureEngine

            score = self._capped(FeatureEngine(task.plan, start, {}, (X, y))).test(arrays)
        else:
            holdings = self._with_samples(task)
            prepared = self._prepared(holdings, X[:, 0], test=True)
            score = self._network(task, start, holdings, {}, (prepared, y)).test(arrays)
        if score is None:
            raise InputError("the engine tested nothing, although this client has a test part")
        return score

    def _with_samples(self, task: Task) -> Holdings:
        """Return holdings whose samples a network can be trained on."""
        holdings = holdings_of(self.settings, task.terms)
        if holdings.samples().modality == "features":
            raise InputError(
                f"stage '{task.plan.stage}' trains an encoder, but this client's data are features: only 'lp' can be "
                "tuned on them"
            )
        return holdings

    def _prepared(self, holdings: Holdings, rows: NDArray[Any], *, test: bool = False) -> Sequence[Any]:
        from fedmoments.tuning.network import prepare_all

        items = holdings.samples(test=test).items
        chosen = items[rows] if isinstance(items, np.ndarray) else Chosen(items, rows)
        return cast("Sequence[Any]", prepare_all(holdings.encoder, chosen, readers=self.settings.readers))

    def _network(self, task: Task, start: Start, holdings: Holdings, parts: Mapping[str, Any], test: Any) -> Engine:
        from fedmoments.tuning.network import NetworkEngine

        own = self.settings
        trained = NetworkEngine(
            task.plan, start, holdings.encoder, parts, test, threads=own.threads or 1, device=own.device
        )
        return self._capped(trained)

    def _capped(self, engine: Own) -> Own:
        """Return an engine in whose sums no sample counts for more than may be told of it."""
        engine.most_loss = self._most_loss
        return engine


class _Rows:
    """Holdings that name samples by their rows instead of their features, so that a policy can choose among them."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings, self.clients, self.unknown = holdings, holdings.clients, holdings.unknown
        self.unreadable = holdings.unreadable

    def notes_of_unreadable(self, part: int) -> dict[str, Any]:
        """Return what the party's own record says of samples that could not be read."""
        return self._holdings.notes_of_unreadable(part)

    def train(self, client: str) -> Held:
        """Return the rows of a client's training samples as features (n, 1)."""
        rows, labels = self._holdings.rows(client)
        return Held(rows[:, None], labels)  # type: ignore[arg-type]

    def test(self, client: str) -> Held:
        """Return the rows of a client's test samples as features (n, 1)."""
        rows, labels = self._holdings.rows(client, test=True)
        return Held(rows[:, None], labels)  # type: ignore[arg-type]


def _checked_temperatures(temperatures: Sequence[float]) -> list[float]:
    """Return what a server asks to try, as numbers."""
    given = [float(temperature) for temperature in temperatures]
    if not 1 <= len(given) <= MOST_TEMPERATURES or not all(0 < temperature < np.inf for temperature in given):
        raise InputError(f"from 1 to {MOST_TEMPERATURES} temperatures above 0 can be tried at once")
    return given
