"""Linear probing in one process: clients train the head on features that were computed once.

Clients are taken in order of their samples, a few at a time, as many as leave their parameters in the processor's
cache, and step together (:mod:`fedmoments.tuning.softmax_steps`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches, held_out
from fedmoments.tuning.engine import Arrays, Score, Update, require_finite, require_request
from fedmoments.tuning.local_rules import LocalRule
from fedmoments.tuning.samples import Samples
from fedmoments.tuning.softmax_steps import Stepped, StepRule, local_steps, softmax_gradients
from fedmoments.tuning.start import BIAS, WEIGHTS, Floats, Start

__all__ = ["FeatureEngine"]

#: Parameters of clients that step together: about a megabyte.
GROUP_NUMBERS = 1 << 18

_CONTROL = "control/"
_Part = tuple[str, NDArray[Any], NDArray[Any]]


class FeatureEngine:
    """Trains the head on clients' features, all in this process; see :class:`fedmoments.tuning.engine.Engine`.

    Parameters
    ----------
    plan
        Of stage ``lp``.
    start
        Where the head begins; its temperature is the loss's.
    parts
        Features (n_k, d), as the encoder gives them, and labels (n_k,) by client. A client without samples takes no
        part.
    test
        Features and labels of a test set, or None.
    dtype
        Type to compute in: float32, or float64 where exactness is tested.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> from fedmoments.tuning.start import start_from
    >>> start = start_from(fm.fit("fedncm", parties), "fedncm")
    >>> engine = FeatureEngine(TuningPlan(), start, parties, ([[0.2, 0.8]], [0]))
    >>> [(update.client, update.samples, update.steps) for update in engine.train(1, start.arrays(), None, ["b", "a"])]
    [('b', 1, 1), ('a', 2, 1)]
    >>> engine.test(start.arrays()).accuracy
    1.0
    """

    def __init__(
        self,
        plan: TuningPlan,
        start: Start,
        parts: Mapping[str, tuple[ArrayLike, ArrayLike]],
        test: tuple[ArrayLike, ArrayLike] | None,
        *,
        dtype: Any = np.float32,
    ) -> None:
        if plan.stage != "lp":
            raise InputError(
                f"cached features serve stage 'lp', which trains the head alone, not '{plan.stage}', which needs the "
                "samples themselves and a network"
            )
        self.plan, self.start, self.dtype = plan, start, np.dtype(dtype)
        self._local = LocalRule.of(plan)
        units = start.units(plan.feature_scale)
        self._squares = _squares(units, start.width, self.dtype) if units else None
        steps = (plan.step, start.temperature, plan.momentum, plan.weight_decay, plan.proximal)
        self._rule = StepRule(*steps, self._local.weight, self._squares, self._local.anchored)
        shares = {name: _shares(plan, name, X, y) for name, (X, y) in parts.items()}
        held = [validation for _, validation in shares.values()]
        training = {name: mine for name, (mine, _) in shares.items() if len(mine[2])}
        self._samples = {name: len(mine[2]) for name, mine in training.items()}
        self._training = Samples.of(start, list(training.values()), self.dtype)
        self._validation = Samples.of(start, held, self.dtype, unseen=True)
        self._test = None if test is None else Samples.of(start, [("the test set", *test)], self.dtype, unseen=True)
        ends = np.cumsum([0, *self._samples.values()]).tolist()
        self._first = dict(zip(self._samples, ends, strict=False))
        self._controls: dict[str, Floats] = {}
        #: What one sample counts for at most in a sum of losses.
        self.most_loss = float("inf")

    @property
    def clients(self) -> Sequence[str]:
        """Names of the clients that have samples to train on, in the order of the parts."""
        return list(self._samples)

    @property
    def samples(self) -> Mapping[str, int]:
        """n_k of every client, its validation share left out."""
        return dict(self._samples)

    # ---------------------------------------------------------------------------------------------- training

    def train(
        self, round_number: int, arrays: Arrays, control: Arrays | None, clients: Sequence[str]
    ) -> Sequence[Update]:
        """Let some clients train from the given parameters; return their updates in the order of the names.

        Parameters
        ----------
        round_number
            From 1; decides the batches.
        arrays
            W and b.
        control
            c of the server, by the same names, with SCAFFOLD and MimeLite, and for the steps of Mime; None otherwise.
        clients
            Names, each once.
        """
        require_request(self.plan, self._samples, control, clients)
        theta = self._joined(arrays, "parameters")
        if self.plan.asks_first and control is None:
            return [self._told(round_number, name, theta) for name in clients]
        server = None if control is None else self._joined(control, "control variates")
        order = sorted(clients, key=lambda name: (-self._samples[name], name))
        size = max(1, GROUP_NUMBERS // max(theta.size, 1))
        done: dict[str, Update] = {}
        for first in range(0, len(order), size):
            done.update(self._group(round_number, theta, server, order[first : first + size]))
        return [done[name] for name in clients]

    def _group(
        self, round_number: int, theta: Floats, server: Floats | None, names: Sequence[str]
    ) -> dict[str, Update]:
        """Return the updates of clients that step together."""
        rows = [self._batches(round_number, name) for name in names]
        zero, local = np.zeros_like(theta), self._local
        before: list[Any] | None = None
        if self.plan.remembers:
            before = [self._controls.get(name, zero) for name in names]
        extra = local.added(server, None if before is None else np.array(before))
        if extra is not None:
            extra = extra.reshape(-1, *theta.shape)  # one for all clients, or one each
        with np.errstate(over="ignore", invalid="ignore"):
            stepped = local_steps(self._training, rows, theta, self._rule, extra, measured=local.measures == "mean")
        updates = {}
        for place, name in enumerate(names):
            after = stepped.parameters[place]
            require_finite([after], "parameters", name, round_number, (self.plan.step, self.start.temperature))
            own = None if before is None else before[place]
            gradient = self._measured(name, theta, stepped, place)
            sent, kept = local.sent(own, gradient), local.kept(own, gradient, self._in_units(after - theta))
            if kept is not None:
                self._controls[name] = kept
            change = None if sent is None else _split(sent)
            loss = float(stepped.losses[place])
            updates[name] = Update(name, self._samples[name], len(rows[place]), loss, _split(after), change)
        return updates

    def _measured(self, name: str, theta: Floats, stepped: Stepped, place: int) -> Floats | None:
        """Return the gradient that the rule asks for: at the start, or the mean over the steps."""
        if self._local.measures == "first":
            return self._gradient(name, theta)
        return None if stepped.gradients is None else stepped.gradients[place]

    def _told(self, round_number: int, name: str, theta: Floats) -> Update:
        """Return a client's gradient at the parameters that came, and no steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = self._gradient(name, theta)
        require_finite([gradient], "gradient", name, round_number)
        return Update(name, self._samples[name], 0, 0.0, {}, _split(gradient))

    def _in_units(self, moved: Floats) -> Floats:
        return moved if self._squares is None else moved / self._squares

    def _gradient(self, name: str, theta: Floats) -> Floats:
        """Return the raw gradient of the mean loss over all samples of a client, L2 penalty included."""
        first, gradient = self._first[name], np.empty_like(theta)[None]
        rows = np.arange(first, first + self._samples[name])[None]
        softmax_gradients(self._training, rows, theta[None], self.start.temperature, gradient)
        decay = np.where(self.start.present, self.plan.weight_decay, 0.0).astype(theta.dtype)
        return np.asarray(gradient[0] + self._in_units(theta * decay))

    def _batches(self, round_number: int, name: str) -> list[Any]:
        """Return the rows of every batch of a client, among those of all clients."""
        plan, first = self.plan, self._first[name]
        drawn = batches(
            self._samples[name],
            plan.batch_size,
            seed=plan.seed,
            round_number=round_number,
            client=name,
            epochs=plan.epochs,
        )
        return [rows + first for rows in drawn]

    def _joined(self, arrays: Arrays, what: str) -> Floats:
        """Return W and b as one array (k+1, C)."""
        k, C = self.start.width, len(self.start.present)
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != {WEIGHTS: (k, C), BIAS: (C,)}:
            raise InputError(
                f"{what} of a head on {k} inputs with {C} classes are {WEIGHTS} {(k, C)} and {BIAS} {(C,)}, but "
                f"{', '.join(f'{name} {shape}' for name, shape in shapes.items()) or 'none'} arrived"
            )
        return np.concatenate([arrays[WEIGHTS], arrays[BIAS][None]]).astype(self.dtype, copy=False)

    # ---------------------------------------------------------------------------------------------- testing

    def validate(self, arrays: Arrays) -> Score:
        """Return sums over the validation shares of all clients."""
        return self._validation.score(
            _split(self._joined(arrays, "parameters")), self.start.temperature, self.most_loss
        )

    def test(self, arrays: Arrays) -> Score | None:
        """Return sums over the test set, if there is one."""
        if self._test is None:
            return None
        return self._test.score(_split(self._joined(arrays, "parameters")), self.start.temperature, self.most_loss)

    # ---------------------------------------------------------------------------------------------- memory

    def state(self) -> Arrays:
        """Return the control variates of every client that has any, by names like ``control/clinic/head/bias``."""
        return {
            f"{_CONTROL}{client}/{name}": array
            for client, joined in self._controls.items()
            for name, array in _split(joined).items()
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a state that :meth:`state` returned; clients that it does not name have control variates 0."""
        controls: dict[str, Arrays] = {}
        for name, array in state.items():
            ending = next((part for part in (WEIGHTS, BIAS) if name.endswith("/" + part)), None)
            client = name[len(_CONTROL) : -len(ending) - 1] if ending and name.startswith(_CONTROL) else None
            if client not in self._samples or ending is None:
                raise InputError(
                    f"'{name}' is not a state of this engine: it was saved with other clients or another stage"
                )
            controls.setdefault(client, {})[ending] = array
        self._controls = {
            client: self._joined(arrays, f"control variates of client '{client}'")
            for client, arrays in controls.items()
        }


def _shares(plan: TuningPlan, name: str, X: ArrayLike, y: ArrayLike) -> tuple[_Part, _Part]:
    """Return what a client trains on and its validation share, each with a name for error messages."""
    features, labels, whose = np.asarray(X), np.asarray(y), f"client '{name}'"
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"{whose} needs features of the shape (samples, dimensions) and as many labels, but features of shape "
            f"{features.shape} and labels of shape {labels.shape} arrived"
        )
    mine, held = held_out(len(features), plan.validation, seed=plan.seed, client=name)
    return (whose, features[mine], labels[mine]), (whose, features[held], labels[held])


def _squares(units: Mapping[str, float], width: int, dtype: Any) -> Floats:
    """Return the squared units of the rows of W and of b, (k+1, 1)."""
    rows = np.full((width + 1, 1), units[WEIGHTS] ** 2, dtype)
    rows[-1] = units[BIAS] ** 2
    return rows


def _split(joined: Floats) -> Arrays:
    """Return views of W and b by name."""
    return {WEIGHTS: joined[:-1], BIAS: joined[-1]}
