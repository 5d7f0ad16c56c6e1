"""Clients that train a torch network in one process, by the rule of :mod:`fedmoments.tuning.engine`.

One network serves all clients: the parameters that were sent are loaded before each begins. Dropout and stochastic
depth stay off, or follow from seed, round and client, so that a round depends on nothing but the parameters and the
draws of :mod:`fedmoments.tuning.draws`.
Batch normalisation is ``frozen`` (running values of the encoder are used and stay, scales and shifts are trained) or
``averaged`` (each batch is normalised by itself, and the running values that result travel with the parameters; a batch
of one sample, which has no variance, is normalised by the running values and leaves them alone).

Memory: the samples (:mod:`fedmoments.tuning.network.samples`), one network with its gradients, a copy of what each
client of a round sends, and with SCAFFOLD one more copy of the parameters for every client that ever took part.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.torch_runtime import chosen_device, inference
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches, held_out, stream
from fedmoments.tuning.engine import Arrays, Score, Update, require_finite, require_request
from fedmoments.tuning.local_rules import LocalRule
from fedmoments.tuning.network.augmentation import augmented
from fedmoments.tuning.network.samples import Held, Prepared, held
from fedmoments.tuning.start import Start

__all__ = ["NetworkEngine"]

Ints = NDArray[np.int64]
Part = tuple[Prepared, ArrayLike]

_CONTROL = "control/"
#: Place of a class that the start has never seen, among those that it has.
_UNSEEN = -1


class NetworkEngine:
    """An :class:`~fedmoments.tuning.engine.Engine` that trains an encoder (``ft``, ``feat``), or its head from samples.

    Parameters
    ----------
    plan
        What is trained, and how.
    start
        The head; in stage ``feat`` it stays as it is and is not sent.
    encoder
        One with a torch network: it is copied and stays as it is.
    parts
        Of every client its samples, as ``encoder.prepare`` gives them (see
        :func:`~fedmoments.tuning.network.prepare_all`), and their labels (n,).
    test
        Samples and labels that the server tests on; None has none.
    threads
        Of torch, on a CPU. Results depend on their number in the last bits.
    device
        Where torch computes.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> from fedmoments.tuning.start import random_start
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> images = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    >>> start = random_start(encoder.dim, np.array([True, True]), seed=0)
    >>> plan = TuningPlan(stage="feat", lr=1e-4)
    >>> engine = NetworkEngine(plan, start, encoder, {"clinic": (images, [0, 1, 0, 1, 0, 1])})
    >>> update, = engine.train(1, engine.initial(), None, ["clinic"])
    >>> update.samples, update.steps, "head/weights" in update.arrays
    (6, 1, False)
    """

    def __init__(
        self,
        plan: TuningPlan,
        start: Start,
        encoder: Encoder,
        parts: Mapping[str, Part],
        test: Part | None = None,
        *,
        threads: int = 1,
        device: str = "cpu",
    ) -> None:
        require("torch", "Tuning an encoder", "torch")
        if plan.feature_scale is not None:
            raise InputError("feature_scale is for features that were computed once, not for samples: leave it out")
        from fedmoments.tuning.network.modules.model import TunedModel

        if plan.augmentations and encoder.modality != "image":
            raise InputError(f"augmentations are of images, but '{encoder.name}' encodes {encoder.modality}")
        self._plan, self._start, self._encoder, self._threads = plan, start, encoder, threads
        self._device = chosen_device(device)
        self._model = TunedModel(plan, start, encoder, self._device)
        self._initial = self._model.read()
        self._parts = {client: self._checked(part, f"client '{client}'") for client, part in parts.items()}
        self._test = None if test is None else self._checked(test, "the test part")
        self._rows = {
            client: held_out(len(places), plan.validation, seed=plan.seed, client=client)
            for client, (_, places) in self._parts.items()
        }
        for client, (train, _) in self._rows.items():
            self._require_seen(np.asarray(parts[client][1])[train], f"client '{client}'")
        self._clients = tuple(client for client, (train, _) in self._rows.items() if len(train))
        self._controls: dict[str, Arrays] = {}
        self._local = LocalRule.of(plan)
        #: What one sample counts for at most in a sum of losses.
        self.most_loss = float("inf")

    # ------------------------------------------------------------------------------------------ what there is

    @property
    def clients(self) -> Sequence[str]:
        """Names of all clients that have samples to train on, in the order in which they were given."""
        return self._clients

    @property
    def samples(self) -> Mapping[str, int]:
        """n_k of every client: samples to train on."""
        return {client: len(self._rows[client][0]) for client in self._clients}

    @property
    def memory(self) -> int:
        """Bytes of the samples that are held, test part included."""
        every = [*self._parts.values(), *([] if self._test is None else [self._test])]
        return sum(samples.nbytes for samples, _ in every)

    def initial(self) -> Arrays:
        """Return the arrays that the first round begins with: those of the encoder and of the start."""
        return {name: array.copy() for name, array in self._initial.items()}

    def plain(self, arrays: Arrays) -> Arrays:
        """Return arrays as those of an encoder without adapters: what a file of a tuned encoder holds."""
        return dict(self._model.plain(arrays))

    @property
    def encoder_parameters(self) -> int:
        """How many numbers of the encoder are trained and sent; running values are not counted."""
        from fedmoments.tuning.network.modules.model import ENCODER

        return sum(array.size for name, array in self._initial.items() if name.startswith(ENCODER))

    def _checked(self, part: Part, whose: str) -> tuple[Held, Ints]:
        """Return samples, and the places of their labels among the classes that the start has seen."""
        samples, labels = held(self._encoder, part[0]), np.asarray(part[1])
        present = self._start.present
        if labels.shape != (len(samples),):
            raise InputError(f"{len(samples)} samples of {whose} need as many labels, but {labels.shape} arrived")
        if not len(labels):
            return samples, np.zeros(0, np.int64)
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(present):
            raise InputError(
                f"labels of {whose} must be whole numbers from 0 to {len(present) - 1}, but {labels.dtype} from "
                f"{labels.min()} to {labels.max()} arrived"
            )
        places = np.where(present, np.cumsum(present) - 1, _UNSEEN)
        return samples, places[labels].astype(np.int64)

    def _require_seen(self, labels: NDArray[Any], whose: str) -> None:
        """Refuse to train on classes that the start has never seen; tested, they are wrong, with an infinite loss."""
        missing = np.unique(labels[~self._start.present[labels]]) if len(labels) else labels
        if len(missing):
            raise InputError(
                f"{whose} holds samples of class {missing[0]}, which the start '{self._start.name}' has never seen and "
                "gives the probability 0: fit the head on all classes, start at random, or leave these samples out"
            )

    # ------------------------------------------------------------------------------------------ training

    def train(
        self, round_number: int, arrays: Arrays, control: Arrays | None, clients: Sequence[str]
    ) -> Sequence[Update]:
        """Let some clients train from the given parameters; return their updates in the order of the names.

        Parameters
        ----------
        round_number
            From 1; decides the batches.
        arrays
            What :meth:`initial` returns, of any round.
        control
            c of the server, by the names that are optimised, with SCAFFOLD, MimeLite and for steps of Mime; else None.
        clients
            Names, each once.
        """
        from fedmoments.tuning.network.modules.networks import fixed_threads

        require_request(self._plan, self._clients, control, clients)
        ask = self._plan.asks_first and control is None
        with fixed_threads(self._threads):
            if ask:
                return [self._told(round_number, arrays, client) for client in clients]
            return [self._train_one(round_number, arrays, control, client) for client in clients]

    def _train_one(self, round_number: int, arrays: Arrays, control: Arrays | None, client: str) -> Update:
        from fedmoments.tuning.network.modules.model import mean_gradient, train_locally
        from fedmoments.tuning.network.modules.networks import seeded

        plan, local = self._plan, self._local
        self._model.load(arrays)
        before = {name: np.array(arrays[name], np.float32) for name in self._model.trained}
        own = None
        if plan.remembers:
            own = self._controls.get(client) or {name: np.zeros_like(array) for name, array in before.items()}
        first = mean_gradient(self._model, plan, self._all(client)) if local.measures == "first" else None
        correction = _by_name(local.added, before, control, own)
        with seeded(stream(plan.seed, "dropout", round_number, client)):
            done = train_locally(
                self._model, plan, self._batches(round_number, client), correction, measured=local.measures == "mean"
            )
        after, gradient = self._model.read(), first or done.gradients
        require_finite(after.values(), "parameters", client, round_number, (plan.step, self._start.temperature))
        moved = {name: after[name] - array for name, array in before.items()}
        change = _by_name(local.sent, before, own, gradient)
        kept = _by_name(local.kept, before, own, gradient, moved)
        if kept is not None:
            self._controls[client] = kept
        return Update(client, len(self._rows[client][0]), done.steps, done.loss, after, change)

    def _told(self, round_number: int, arrays: Arrays, client: str) -> Update:
        """Return a client's gradient at the parameters that came, and no steps."""
        from fedmoments.tuning.network.modules.model import mean_gradient

        self._model.load(arrays)
        gradient = mean_gradient(self._model, self._plan, self._all(client))
        require_finite(gradient.values(), "gradient", client, round_number)
        return Update(client, len(self._rows[client][0]), 0, 0.0, {}, gradient)

    def _seen(self, batch: tuple[NDArray[Any], ...], rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Return a batch as it is trained on."""
        how = self._plan.augmentations
        return (augmented(batch[0], how, rng),) if how else batch

    def _all(self, client: str) -> Iterator[tuple[tuple[NDArray[Any], ...], Ints]]:
        """Yield all that a client trains on, in batches."""
        samples, places = self._parts[client]
        for rows in samples.groups(self._encoder.batch_size, self._rows[client][0]):
            yield samples.batch(rows), places[rows]

    def _batches(self, round_number: int, client: str) -> Iterator[tuple[tuple[NDArray[Any], ...], Ints]]:
        plan, (samples, places) = self._plan, self._parts[client]
        rows = self._rows[client][0]
        drawing = stream(plan.seed, "augment", round_number, client)
        seen = {"seed": plan.seed, "round_number": round_number, "epochs": plan.epochs}
        for drawn in batches(len(rows), plan.batch_size, client=client, **seen):
            chosen = rows[drawn]
            yield self._seen(samples.batch(chosen), drawing), places[chosen]

    # ------------------------------------------------------------------------------------------ testing

    def validate(self, arrays: Arrays) -> Score:
        """Return sums over the validation shares of all clients."""
        self._model.load(arrays)
        score = Score(0, 0, 0.0)
        for client, (_, rows) in self._rows.items():
            samples, places = self._parts[client]
            score += self._score(samples, places, samples.groups(self._encoder.batch_size, rows))
        return score

    def test(self, arrays: Arrays) -> Score | None:
        """Return sums over the test part, if there is one."""
        if self._test is None:
            return None
        self._model.load(arrays)
        samples, places = self._test
        return self._score(samples, places, samples.groups(self._encoder.batch_size), fill=True)

    def features(self, arrays: Arrays, prepared: Prepared) -> NDArray[np.float32]:
        """Return the features (n, d) that the tuned encoder gives for prepared samples."""
        self._model.load(arrays)
        samples = held(self._encoder, prepared)
        features = np.empty((len(samples), self._encoder.dim), np.float32)
        with inference(self._device, self._threads):
            for rows in samples.groups(self._encoder.batch_size):
                outputs = self._model.features(samples.batch(self._filled(rows)))
                features[rows] = outputs[: len(rows)].cpu().numpy()
        return features

    def _filled(self, rows: Ints) -> Ints:
        """Return the rows of a full batch: the encoder fills up, too, and torch's last bits depend on the size."""
        return np.concatenate([rows, np.repeat(rows[-1:], self._encoder.batch_size - len(rows))])

    def _score(self, samples: Held, places: Ints, groups: Sequence[Ints], *, fill: bool = False) -> Score:
        correct, loss = 0, 0.0
        with inference(self._device, self._threads):
            for rows in groups:
                outputs = self._model.scores(samples.batch(self._filled(rows) if fill else rows))
                scores = outputs[: len(rows)].cpu().numpy()
                correct += int(np.count_nonzero(scores.argmax(axis=1) == places[rows]))
                loss += float(np.minimum(_cross_entropies(scores, places[rows]), self.most_loss).sum())
        return Score(sum(map(len, groups)), correct, loss)

    # ------------------------------------------------------------------------------------------ memory

    def state(self) -> Arrays:
        """Return the control variates of every client that has any, by names like ``control/clinic/head/bias``."""
        return {
            f"{_CONTROL}{client}/{name}": array
            for client, arrays in self._controls.items()
            for name, array in arrays.items()
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a state that :meth:`state` returned; clients that it does not name have control variates 0."""
        trained = self._model.trained
        known = {f"{_CONTROL}{client}/{name}": (client, name) for client in self._clients for name in trained}
        unknown = sorted(state.keys() - known.keys())
        if unknown:
            raise InputError(
                f"'{unknown[0]}' is not a state of this engine: it was saved with other clients or another stage"
            )
        controls: dict[str, Arrays] = {}
        for key, array in state.items():
            client, name = known[key]
            controls.setdefault(client, {})[name] = np.array(array, np.float32)
        for client, arrays in controls.items():
            if arrays.keys() != trained.keys() or any(
                arrays[name].shape != tuple(tensor.shape) for name, tensor in trained.items()
            ):
                raise InputError(f"the control variates of client '{client}' are not those of this encoder and stage")
        self._controls = controls


def _by_name(rule: Callable[..., Any], names: Iterable[str], *given: Arrays | None) -> Arrays | None:
    """Return what a rule makes of each array by name; None where it makes nothing of them."""
    made = {name: rule(*(None if arrays is None else arrays[name] for arrays in given)) for name in names}
    return None if any(array is None for array in made.values()) else made


def _cross_entropies(scores: NDArray[np.float32], places: Ints) -> NDArray[np.float64]:
    """Return −log softmax at the labels' places, (n,); infinite where a class is unseen."""
    shifted = scores.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(places)), places]
    return np.where(places == _UNSEEN, np.inf, losses)
