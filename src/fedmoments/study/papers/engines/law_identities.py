"""Laws that hold exactly, up to rounding: decompositions of scatters, and independence of how data are handed out.

What clients send is measured client by client and merged; beside it stands what loops over all samples give.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace
from fedmoments.core.heads import Head, make_head
from fedmoments.core.heads.recursive import RecursiveRidge
from fedmoments.core.linalg import new_gram, symmetrize_upper
from fedmoments.core.maps import RandomFourier, RandomProjection
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.study.papers.engines.law_worlds import (
    ONE_CLASS,
    ONE_SAMPLE,
    Finding,
    Floats,
    Ints,
    class_features,
    joined,
    partition,
    relative,
)

__all__ = ["class_means", "heads", "moments", "oracle", "ridge", "scatters"]

_GRAM, _CLASS_GRAMS = StatisticsSpec.of("gram"), StatisticsSpec.of("class_grams")
#: How the names of heads begin that are trained on drawn samples.
_TRAINED = ("fishermix", "proto-hyper")
#: Samples that classifiers are compared on.
_TEST = 100


def _world(settings: Mapping[str, Any], seed: int, law: int, offset: float = 0.0) -> tuple[Floats, Ints, int]:
    """Return features, labels and C, which counts one class more than there are: nobody has a sample of it."""
    rng = np.random.default_rng([seed, law])
    size = {key: int(settings[key]) for key in ("samples", "dim", "classes")}
    X, y = class_features(rng, **size, offset=offset)
    return X, y, size["classes"] + 1


def _weights(classifier: Classifier) -> Floats:
    if not isinstance(classifier, LinearClassifier):
        raise InputError(f"weights are those of linear classifiers, not of {type(classifier).__name__}")
    return classifier.weights


def _unit(weights: Floats) -> Floats:
    """Return columns of unit norm; those of absent classes stay 0."""
    norms = np.linalg.norm(weights, axis=0)
    return np.asarray(weights / np.where(norms > 0, norms, 1.0))


def _solved(gram: Floats, right: Floats, penalty: float) -> Floats:
    """Return (G + λI)⁻¹B with columns of unit norm."""
    weights = np.linalg.solve(gram + penalty * np.eye(len(gram)), right)
    return _unit(np.asarray(weights, np.float64))


def _sums(X: Floats, y: Ints, classes: int) -> Floats:
    """Return Σ x of every class, (C, d), by a loop."""
    return np.stack([X[y == label].sum(axis=0) for label in range(classes)])


def _class_grams(X: Floats, y: Ints, classes: int) -> Floats:
    """Return Σ x xᵀ of every class, (C, d, d), by a loop."""
    return np.stack([X[y == label].T @ X[y == label] for label in range(classes)])


def scatters(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Proposition 3 of FedCOF: G is within scatter + between scatter + N μ_g μ_gᵀ, and ridge follows from it.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients``, ``split``, ``ridge`` λ, and ``cases``: a table of names and
        distances of all features from the origin.
    seed
        Of features and split.

    Yields
    ------
    Finding
        ``relative difference``, with ``part`` = ``G`` (from merged statistics, Eq. 10, against FFᵀ), ``within`` (the
        package's within scatter against a loop), ``B`` (Eq. 9 against FY) and ``W`` (ridge weights).
    """
    for case, offset in settings["cases"].items():
        X, y, classes = _world(settings, seed, 5, float(offset))
        holders = partition(settings["split"], y, int(settings["clients"]), seed)
        stats = joined(X, y, holders, _GRAM, n_classes=classes).statistics()
        gaussians = ClassGaussians(stats, "exact")
        within = new_gram(stats.dim)
        gaussians.scatter.add_to(within, 1.0)
        within = symmetrize_upper(within)
        centred = np.where(gaussians.present[:, None], gaussians.means - gaussians.global_mean, 0.0)
        between = (gaussians.counts[:, None] * centred).T @ centred
        together = within + between + len(y) * np.outer(gaussians.global_mean, gaussians.global_mean)
        deviations = np.concatenate([X[y == label] - X[y == label].mean(axis=0) for label in np.unique(y)])
        right, gram = gaussians.means.T * gaussians.counts, X.T @ X
        penalty = float(settings["ridge"])
        head = make_head("fed3r", ridge=penalty).fit(stats)
        labels = np.eye(classes)[y]
        for part, merged, truth in (
            ("G", together, gram),
            ("within", within, deviations.T @ deviations),
            ("B", right, X.T @ labels),
            ("W", _solved(together, right, penalty), _weights(head)),
        ):
            # The within scatter is a difference of two parts of G: what is rounded is relative to G.
            scale = float(np.abs(gram).max()) if part == "within" else None
            yield {"case": case, "part": part}, "relative difference", relative(merged, truth, scale)


def oracle(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Equation 25 of FedCOF: clients' class covariances combined are those of all samples; the gram is enough.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients``, ``splits``, ``shrinkage`` γ and ``ridge`` λ.
    seed
        Of features and splits.

    Yields
    ------
    Finding
        For every ``split``, ``relative difference`` with ``part`` = ``covariances`` (Eq. 25 against the package's, from
        class grams), ``samples`` (Eq. 25 against the covariance of all samples), ``weights`` (the oracle by Eq. 11 from
        these against the package's, from one gram), and ``predictions`` (share that differs).
    """
    X, y, classes = _world(settings, seed, 6)
    gamma, penalty, dim = float(settings["shrinkage"]), float(settings["ridge"]), X.shape[1]
    test = X[:_TEST] + 0.1
    head = make_head("fedcof-oracle", shrinkage=f"absolute:{gamma}", ridge=penalty)
    for split in settings["splits"]:
        holders = partition(split, y, int(settings["clients"]), seed)
        ledger = joined(X, y, holders, _CLASS_GRAMS, n_classes=classes)
        stats = ledger.statistics()
        parts = [ledger.client(client) for client in ledger.clients]
        combined = _equation_25(parts, stats)
        ours = np.zeros_like(combined)
        for label, covariance, _ in ClassGaussians(stats, "exact").class_covariances():
            ours[label] = covariance
        several = np.flatnonzero(np.bincount(y) > 1)
        loops = {label: np.cov(X[y == label], rowvar=False) for label in several}
        matrix = sum((stats.counts[label] - 1) * (combined[label] + gamma * np.eye(dim)) for label in stats.classes)
        mean = X.mean(axis=0)
        weights = _solved(matrix + len(y) * np.outer(mean, mean), stats.sums.T, penalty)
        fitted = head.fit(joined(X, y, holders, _GRAM, n_classes=classes).statistics())
        differ = np.argmax(test @ weights[:, :-1], axis=1) != fitted.predict(test)
        covariances = max(relative(combined[label], ours[label]) for label in several)
        for part, difference in (
            ("covariances", covariances),
            ("samples", max(relative(combined[label], loops[label]) for label in several)),
            ("weights", relative(weights, _weights(fitted))),
            ("predictions", float(differ.mean())),
        ):
            yield {"split": split, "part": part}, "relative difference", difference


def _equation_25(parts: list[Statistics], stats: Statistics) -> Floats:
    """Return every class covariance (C, d, d) from what clients know of their own: covariance, count and mean."""
    total = np.zeros((stats.n_classes, stats.dim, stats.dim))
    for part in parts:
        own = ClassGaussians(part, "exact")
        for label, covariance, _ in own.class_covariances():
            n, mean = int(part.counts[label]), own.means[label]
            total[label] += (n - 1) * covariance + n * np.outer(mean, mean)
    for label in stats.classes.tolist():
        mean = stats.sums[label] / stats.counts[label]
        total[label] -= stats.counts[label] * np.outer(mean, mean)
        total[label] /= max(int(stats.counts[label]) - 1, 1)
    return total


def moments(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Equation 5 of GH-OFL: merged moments are the sums over samples, for any partition, also when projected.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients``, ``partitions`` and ``projection`` k.
    seed
        Of features, partitions and projection.

    Yields
    ------
    Finding
        ``relative difference`` of every ``moment`` in every ``partition``; that of projected moments is between
        clients that project before they measure, and RᵀBR of the sums over all samples.
    """
    X, y, classes = _world(settings, seed, 7)
    sums, grams = _sums(X, y, classes), _class_grams(X, y, classes)
    sketch = RandomProjection(X.shape[1], int(settings["projection"]), seed)
    R = sketch.matrix
    sides: dict[str, tuple[Floats, Floats, Floats]] = {
        "": (X, sums, grams),
        "z": (sketch(X), sums @ R, np.einsum("dk,cde,el->ckl", R, grams, R)),
    }
    for name in settings["partitions"]:
        holders = partition(name, y, int(settings["clients"]), seed)
        for suffix, (features, right_sums, right_grams) in sides.items():
            fine = joined(features, y, holders, _CLASS_GRAMS, n_classes=classes).statistics()
            gram = joined(features, y, holders, _GRAM, n_classes=classes).statistics()
            squares = StatisticsSpec.of("class_squares")
            narrow = joined(features, y, holders, squares, n_classes=classes).statistics()
            # Of all classes, so that one that is lost on the way is seen.
            found_grams, found_squares = np.zeros_like(right_grams), np.zeros_like(right_sums)
            for label, gram_of_class in fine.class_grams:
                found_grams[label] = gram_of_class
            found_squares[narrow.classes] = narrow.class_array("class_squares")
            for moment, merged, right in (
                ("N", fine.counts, np.bincount(y, minlength=classes)),
                ("A", fine.sums, right_sums),
                ("B", gram.gram, right_grams.sum(axis=0)),
                ("S", found_grams, right_grams),
                ("D", found_squares, np.einsum("ckk->ck", right_grams)),
            ):
                yield {"partition": name, "moment": moment + suffix}, "relative difference", relative(merged, right)


def heads(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Equation 6 of GH-OFL, appendix C: heads of merged moments do not depend on clients and partition.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients`` (several), ``partitions``, ``heads`` (a table of heads and
        hyper-parameters) and ``projection`` k, or 0 for the features as they are.
    seed
        Of features, partitions and projection.

    Yields
    ------
    Finding
        ``relative difference`` of a ``head``'s scores from those of the same head fitted on one pile of samples, the
        largest over all numbers of clients, for every ``partition``; that of the head ``fisher`` is between the
        projectors V Vᵀ on the Fisher subspace, and its eigenvalues. ``predictions``: share that differs. ``kind`` is
        ``closed form``, or ``trained`` for heads whose solver stops near its end.
    """
    X, y, classes = _world(settings, seed, 8)
    size = int(settings.get("projection", 0))
    Z = np.asarray(RandomProjection(X.shape[1], size, seed)(X)) if size else X
    names: dict[str, dict[str, Any]] = settings["heads"]
    trial = _HeadTrial(
        {name: make_head(name, **hyper) for name, hyper in names.items() if name != "fisher"},
        Statistics.of(Z, y, _CLASS_GRAMS, n_classes=classes),
        Z[:_TEST] + 0.1,
        names["fisher"].get("shrinkage", "blend:0.05") if "fisher" in names else None,
    )
    for name in settings["partitions"]:
        largest: dict[tuple[str, str], float] = {}
        for clients in _numbers_of_clients(name, settings):
            holders = partition(name, y, int(clients), seed)
            stats = joined(Z, y, holders, _CLASS_GRAMS, n_classes=classes).statistics()
            largest = {key: max(value, largest.get(key, 0.0)) for key, value in trial.differences(stats)}
        for (head, quantity), value in largest.items():
            kind = "trained" if head.startswith(_TRAINED) else "closed form"
            yield {"partition": name, "head": head, "kind": kind}, quantity, value


def _numbers_of_clients(name: str, settings: Mapping[str, Any]) -> list[Any]:
    """Return the numbers of clients that a partition is tried with: one where the data alone decide."""
    every: list[Any] = settings["clients"]
    return every[:1] if name in (ONE_CLASS, ONE_SAMPLE) else every


@dataclass(frozen=True)
class _HeadTrial:
    """Heads fitted on one pile of samples, to compare with the same heads fitted on merged statistics."""

    heads: Mapping[str, Head]
    pile: Statistics
    test: Floats
    shrinkage: str | None  # of the Fisher subspace; None where it is not compared

    @cached_property
    def fitted(self) -> dict[str, Classifier]:
        return {name: head.fit(self.pile) for name, head in self.heads.items()}

    def differences(self, stats: Statistics) -> Iterator[tuple[tuple[str, str], float]]:
        """Yield head and quantity, and how far the head on these statistics is from the one on the pile."""
        for name, head in self.heads.items():
            merged, alone = head.fit(stats), self.fitted[name]
            present = merged.present & alone.present  # others have no score
            difference = relative(merged.scores(self.test)[:, present], alone.scores(self.test)[:, present])
            lost = bool((merged.present != alone.present).any())
            yield (name, "relative difference"), max(difference, 1.0) if lost else difference
            yield (name, "predictions"), float((merged.predict(self.test) != alone.predict(self.test)).mean())
        if self.shrinkage is not None:
            yield ("fisher", "relative difference"), _fisher_difference(stats, self.pile, self.shrinkage)


def _fisher_difference(stats: Statistics, alone: Statistics, shrinkage: str) -> float:
    """Return the difference of two Fisher subspaces: directions may turn inside, V Vᵀ may not."""
    one, other = (FisherSubspace.of(ClassGaussians(statistics), shrinkage=shrinkage) for statistics in (stats, alone))
    spaces = relative(one.basis @ one.basis.T, other.basis @ other.basis.T)
    return max(spaces, relative(one.eigenvalues, other.eigenvalues))


def ridge(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Equations 5 and 6 of Fed3R: its solution is that of centralised ridge, for any split and any order.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients``, ``partitions``, ``ridge`` λ, and ``fourier``: how many random
        features (Fed3R-RF), or 0 for the features as they are.
    seed
        Of features, partitions, orders and random features.

    Yields
    ------
    Finding
        ``relative difference`` in every ``partition``, with ``part`` = ``A`` and ``b`` (sums over clients against FᵀF
        and FᵀY), ``W`` (weights against the normal equations of all samples), ``W, shuffled`` (clients in another
        order), ``W, recursive`` (updated client after client), and ``bits``: share of the numbers that another order
        changes in fixed point.
    """
    X, y, classes = _world(settings, seed, 9)
    size, penalty = int(settings.get("fourier", 0)), float(settings["ridge"])
    Z = np.asarray(RandomFourier(X.shape[1], size, 4.0, seed)(X)) if size else X
    labels = np.eye(classes)[y]
    gram, right = Z.T @ Z, Z.T @ labels
    weights = _solved(gram, right, penalty)
    head = make_head("fed3r", ridge=penalty)
    form = FixedPoint(norm_bound=float(np.linalg.norm(Z, axis=1).max()) + 1.0, max_samples=len(y))
    for name in settings["partitions"]:
        holders = partition(name, y, int(settings["clients"]), seed)
        shuffled = np.random.default_rng([seed, 10]).permutation(np.unique(holders)).tolist()
        ledger = joined(Z, y, holders, _GRAM, n_classes=classes)
        other = joined(Z, y, holders, _GRAM, n_classes=classes, order=shuffled)
        recursive = RecursiveRidge(n_classes=classes, dim=Z.shape[1], ridge=penalty)
        for client in ledger.clients:
            recursive.join(ledger.client(client))
        exact = [
            joined(Z, y, holders, _GRAM, n_classes=classes, order=order, fixed_point=form).statistics()
            for order in (None, shuffled)
        ]
        stored = [
            np.concatenate([contribution.raw("gram"), contribution.raw("sums").ravel()]) for contribution in exact
        ]
        for part, difference in (
            ("A", relative(ledger.statistics().gram, gram)),
            ("b", relative(ledger.statistics().sums.T, right)),
            ("W", relative(_weights(head.fit(ledger.statistics())), weights)),
            ("W, shuffled", relative(_weights(head.fit(other.statistics())), weights)),
            ("W, recursive", relative(_weights(recursive.classifier()), weights)),
            ("bits", float((stored[0] != stored[1]).mean())),
        ):
            yield {"partition": name, "part": part}, "relative difference", difference


def class_means(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Algorithm 1 of FedNCM: class means of merged sums are those of all samples, and so is the classifier.

    Parameters
    ----------
    settings
        ``samples``, ``dim``, ``classes``, ``clients`` and ``partitions``.
    seed
        Of features and partitions.

    Yields
    ------
    Finding
        ``relative difference`` in every ``partition``, with ``part`` = ``means``, ``weights`` and ``predictions``
        (share that differs).
    """
    X, y, classes = _world(settings, seed, 11)
    present = np.unique(y)
    means = np.stack([X[y == label].mean(axis=0) for label in present])
    weights = _unit(means.T)
    test = X[:_TEST] + 0.1
    nearest = present[np.argmax(test @ weights, axis=1)]
    for name in settings["partitions"]:
        holders = partition(name, y, int(settings["clients"]), seed)
        stats = joined(X, y, holders, StatisticsSpec(), n_classes=classes).statistics()
        fitted = make_head("fedncm").fit(stats)
        for part, difference in (
            ("means", relative(ClassGaussians(stats).means[present], means)),
            ("weights", relative(_weights(fitted)[:, present], weights)),
            ("predictions", float((fitted.predict(test) != nearest).mean())),
        ):
            yield {"partition": name, "part": part}, "relative difference", difference
