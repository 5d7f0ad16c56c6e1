"""FisherMix against the recipe of its paper in plain torch, and its solver against two of L-BFGS.

The recipe: cold start, AdamW, learning rate 8e-4, weight decay 3e-4, 40 epochs of shuffled batches of 2048, float32, on
one thread, on the very samples that our head draws. Ours is timed from the statistics to the classifier, the recipe
from the samples to its weights: drawing is on our side alone. Statistics have the sizes of CIFAR-10 behind SqueezeNet
(10 classes, 512 dimensions) and BANKING77 behind MiniLM (77 classes, 384 dimensions), and spectra, overlap and numbers
of samples like theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, FisherClasses, GaussianSamples
from fedmoments.core.heads.fishermix import _flat_lda
from fedmoments.core.softmax import Block, SoftmaxLoss, fit_softmax
from fedmoments.core.statistics import Statistics, StatisticsSpec

Compare = Callable[..., float]
Note = Callable[[str, str, str], None]
Floats = NDArray[np.float64]
TAU, DECAY = 0.9, 1e-3


class Size(NamedTuple):
    """A data set's size: classes, dimensions, training and test samples, and how far apart class means are."""

    name: str
    n_classes: int
    dim: int
    train: int
    test: int
    apart: float


CIFAR = Size("10 x 512", 10, 512, 20_000, 10_000, 0.11)
BANKING = Size("77 x 384", 77, 384, 10_003, 3_080, 0.19)
SIZES = pytest.mark.parametrize("size", [CIFAR, BANKING], ids=["cifar10", "banking77"])


@dataclass(frozen=True, eq=False)
class Task:
    """Statistics, a test set, and the synthetic samples of the default FisherMix."""

    stats: Statistics
    X: Floats
    y: NDArray[np.int64]
    classes: FisherClasses
    samples: GaussianSamples

    def accuracy(self, weights: Floats, bias: Floats) -> float:
        """Return the accuracy of weights (k, C) in the Fisher subspace."""
        return float(np.mean((self.classes.subspace.project(self.X) @ weights + bias).argmax(axis=1) == self.y))

    def blocks(self) -> list[Block]:
        return [Block(rows, label) for label, rows in self.samples]


def make_task(size: Size, per_class: int = 4000) -> Task:
    """Return classes in kins of five, in a space with a falling spectrum, each spreading towards others as it likes."""
    rng = np.random.default_rng(0)
    scales = np.arange(1, size.dim + 1) ** -0.5
    means = size.apart * rng.normal(size=(size.n_classes, size.dim)) * scales
    towards = rng.normal(size=(size.n_classes, 6, size.n_classes)) @ means / np.sqrt(size.n_classes)
    towards *= 0.35 * np.exp(0.6 * rng.normal(size=(size.n_classes, 1, 1)))
    kin = np.arange(size.n_classes) % (size.n_classes // 5)
    means = means + 3.0 * size.apart * (rng.normal(size=means.shape) * scales)[kin]
    turn = np.linalg.qr(rng.normal(size=(size.dim, size.dim)))[0]

    def draw(n: int) -> tuple[Floats, NDArray[np.int64]]:
        y = rng.integers(size.n_classes, size=n)
        X = means[y] + rng.normal(size=(n, size.dim)) * scales
        for label in range(size.n_classes):
            mine = y == label
            X[mine] += rng.normal(size=(np.count_nonzero(mine), 6)) @ towards[label]
        return X @ turn, y

    X, y = draw(size.train)
    stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=size.n_classes)
    classes = FisherClasses.of(ClassGaussians(stats), directions=256)
    tau = np.full(size.n_classes, TAU)
    samples = GaussianSamples(classes.subspace.means, classes.covariances, tau, classes.present, per_class)
    return Task(stats, *draw(size.test), classes, samples)


def recipe(Z: torch.Tensor, y: torch.Tensor, n_classes: int) -> tuple[Floats, Floats]:
    """Train GH-OFL's linear head as its authors do."""
    torch.manual_seed(0)
    head = torch.nn.Linear(Z.shape[1], n_classes)
    optimizer = torch.optim.AdamW(head.parameters(), lr=8e-4, weight_decay=3e-4)
    for _ in range(40):
        for batch in torch.split(torch.randperm(len(Z)), 2048):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(head(Z[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return head.weight.detach().numpy().T.astype(np.float64), head.bias.detach().numpy().astype(np.float64)


def tensors(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all synthetic samples in float32, and their labels."""
    Z = np.concatenate([rows.astype(np.float32) for _, rows in task.samples])
    y = np.concatenate([np.full(len(rows), label) for label, rows in task.samples])
    return torch.from_numpy(Z), torch.from_numpy(y)


@SIZES
def test_fishermix_beats_the_recipe_in_torch(size: Size, compare: Compare, note: Note) -> None:
    task = make_task(size)
    Z, y = tensors(task)
    head = fm.make_head("fishermix", priors="balanced")
    ours: list[fm.Classifier] = []
    theirs: list[tuple[Floats, Floats]] = []
    compare(
        f"FisherMix vs 40 epochs of AdamW in torch, {size.name}",
        lambda: ours.append(head.fit(task.stats)),
        lambda: theirs.append(recipe(Z, y, size.n_classes)),
        at_least=5,
        rounds=1,
    )
    loss = SoftmaxLoss(task.blocks(), size.n_classes, decay=DECAY)
    fitted = ours[0]
    assert isinstance(fitted, LinearClassifier)
    weights = np.linalg.pinv(task.classes.subspace.basis) @ fitted.weights
    # What is minimised has a scale that the head undoes: it is found again along the ray.
    mine = float(
        minimize_scalar(lambda s: loss(s * weights, s * fitted.bias)[0], bounds=(0.01, 3.0), method="bounded").fun
    )
    accuracy = float(np.mean(fitted.predict(task.X) == task.y))
    lda = float(np.mean(fm.make_head("gh-lda").fit(task.stats).predict(task.X) == task.y))
    reference, their_loss = task.accuracy(*theirs[0]), loss(*theirs[0])[0]
    for name, value in (("ours", accuracy), ("the recipe", reference), ("LDA", lda)):
        note(f"  … accuracy of {name}", f"{value:.2%}", "-")
    for name, value in (("ours", mine), ("the recipe", their_loss)):
        note(f"  … loss of {name}, with decay", f"{value:.5f}", "-")
    assert mine < their_loss
    assert accuracy >= reference - 0.002
    assert accuracy >= lda - 0.002


# -------------------------------------------------------------------------------------------------- solvers


def by_scipy(loss: SoftmaxLoss, start: tuple[Floats, Floats], target: float, most: int) -> tuple[float, int]:
    """Run scipy's L-BFGS until a loss is reached; return where it stopped and after how many passes."""
    shape, passes, best = start[0].shape, 0, np.inf

    def flat(point: Floats) -> tuple[float, Floats]:
        nonlocal passes, best
        value, (by_weight, by_bias) = loss(point[: -shape[1]].reshape(shape), point[-shape[1] :])
        passes, best = passes + 1, min(best, value)
        if value <= target or passes >= most:
            raise StopIteration
        return value, np.concatenate([by_weight.ravel(), by_bias])

    try:
        options = {"maxfun": most, "maxiter": most, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
        minimize(flat, np.concatenate([start[0].ravel(), start[1]]), jac=True, method="L-BFGS-B", options=options)
    except StopIteration:
        pass
    return best, passes


def by_torch(task: Task, start: tuple[Floats, Floats], target: float, most: int) -> tuple[float, int]:
    """Run torch's L-BFGS with a strong Wolfe search until a loss is reached."""
    Z, y = tensors(task)
    weights = torch.from_numpy(np.ascontiguousarray(start[0], np.float32)).requires_grad_()
    bias = torch.from_numpy(start[1].astype(np.float32)).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights, bias],
        max_iter=1,
        history_size=20,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    passes, best = 0, np.inf

    def closure() -> torch.Tensor:
        nonlocal passes, best
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(Z @ weights + bias, y) + 0.5 * DECAY * (weights**2).sum()
        value.backward()  # type: ignore[no-untyped-call]
        passes, best = passes + 1, min(best, float(value.detach()))
        return value

    while best > target and passes < most:
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return best, passes


@SIZES
def test_newton_reaches_a_lower_loss_sooner_than_l_bfgs(size: Size, compare: Compare, note: Note) -> None:
    task = make_task(size, 4000 if size is CIFAR else 1000)
    loss = SoftmaxLoss(task.blocks(), size.n_classes, decay=DECAY)
    start = _flat_lda(loss, task.classes.subspace.means, TAU**2)
    fit = fit_softmax(loss, *start, thin=8, noise=0.1)
    most = 100
    reached: dict[str, tuple[float, int]] = {}

    def race(name: str, run: Callable[[], tuple[float, int]]) -> Callable[[], None]:
        return lambda: reached.__setitem__(name, run())

    compare(
        f"Newton vs L-BFGS of scipy to the same loss, {size.name}",
        lambda: fit_softmax(loss, *start, thin=8, noise=0.1),
        race("scipy", lambda: by_scipy(loss, start, fit.loss, most)),
        rounds=1,
        vs_L_BFGS_of_torch=race("torch", lambda: by_torch(task, start, fit.loss, most)),
    )
    note(f"  … loss of ours, after {fit.passes} passes", f"{fit.loss:.5f}", "-")
    for name, (value, passes) in reached.items():
        note(f"  … loss of {name}, after {passes} passes (at most {most})", f"{value:.5f}", "-")
        assert passes > fit.passes
        assert value >= fit.loss or passes < most


@SIZES
def test_samples_that_are_drawn_again_in_every_pass(size: Size, compare: Compare) -> None:
    task = make_task(size, 1000)
    held, again = (fm.make_head("fishermix", samples=1000, most_bytes=most) for most in (1 << 29, 0))
    assert held.fit(task.stats).digest() == again.fit(task.stats).digest()
    compare(
        f"FisherMix with held samples vs drawn in every pass, {size.name}",
        lambda: held.fit(task.stats),
        lambda: again.fit(task.stats),
        rounds=2,
    )
