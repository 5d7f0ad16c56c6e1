"""What personalisation without training brings every client, in a simulated federation.

Every client is tested on samples of its own (:mod:`fedmoments.tuning.local_tests`), with these classifiers a head:

================================  =============================================================================
variant                           classifier
================================  =============================================================================
``global``                        the head of the federation
``labels``                        the same, predicting only labels that the client has
``shares``                        that, as often as the client has them (:mod:`fedmoments.tuning.personal`)
``blend β``                       the head on blended class means (:mod:`fedmoments.tuning.blending`)
``blend β + labels``              that, predicting only labels that the client has
``blend β + shares``              that, as often as the client has them
``local``                         the same head, fitted from the client's samples alone
================================  =============================================================================

Accuracy is given over all samples (large clients count more) and as the mean over clients that have any test sample.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.api import fit
from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations.personal import PersonalOutcome
from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.fit import fit_notes
from fedmoments.tuning.blending import blend, read_beta
from fedmoments.tuning.local_tests import deal_tests, hold_out_tests
from fedmoments.tuning.personal import own_shares

__all__ = ["BETAS", "ClientCounts", "PersonalResult", "simulate_personal"]

Ints = NDArray[np.int64]

#: Weights of local means that are tried by default.
BETAS: tuple[float | str, ...] = ("auto",)


#: Variants of the federation's own head.
_OF_GLOBAL = ("global", "labels", "shares")


def _of_blend(beta: float | str) -> tuple[str, str, str]:
    return f"blend {beta}", f"blend {beta} + labels", f"blend {beta} + shares"


@dataclass(frozen=True, eq=False)
class ClientCounts:
    """How the clients of one federation fare with one variant of a head.

    Parameters
    ----------
    head, variant
        Which.
    correct, reference
        (K,) test samples that the variant, and the global head, gets right.
    tests
        (K,) test samples.
    reason
        Why there is no figure; ``correct`` is 0 then.
    """

    head: str
    variant: str
    correct: Ints
    reference: Ints
    tests: Ints
    reason: str | None = None

    def outcome(self, seed: int) -> PersonalOutcome:
        """Return the figures of all clients together."""
        tested = self.tests > 0
        sizes = int(tested.sum()), int(self.tests.sum())
        if self.reason:
            return PersonalOutcome(seed, *sizes, reason=self.reason)
        correct, reference, tests = (counts[tested] for counts in (self.correct, self.reference, self.tests))
        return PersonalOutcome(
            seed,
            *sizes,
            float(correct.sum() / tests.sum()),
            float((correct / tests).mean()),
            float((correct > reference).mean()),
            float((correct < reference).mean()),
        )

    @property
    def accuracy(self) -> float | None:
        """Share of all clients' test samples that are right."""
        return self.outcome(0).accuracy


@dataclass(frozen=True, eq=False)
class PersonalResult:
    """All variants of all heads, in one federation: one of ``rows`` for every head and variant."""

    rows: tuple[ClientCounts, ...]
    seed: int

    def row(self, head: str, variant: str) -> ClientCounts:
        """Return the row of a head and variant."""
        for row in self.rows:
            if (row.head, row.variant) == (head, variant):
                return row
        raise InputError(
            f"there is no variant '{variant}' of the head '{head}'; there are "
            f"{', '.join(f'{row.head}: {row.variant}' for row in self.rows)}"
        )


def simulate_personal(
    features: Features,
    split: Split,
    heads: Iterable[str],
    *,
    betas: Sequence[float | str] = BETAS,
    seed: int = 0,
    held_out: float = 0.0,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    memory_limit: float = 4e9,
    progress: Callable[[int, int, str], None] | None = None,
) -> PersonalResult:
    """Fit heads from a federation, let every client personalise them, and test every client on samples of its own.

    Parameters
    ----------
    features
        Training samples, which are split over clients, and test samples, which are dealt to them.
    split
        Who holds which training sample.
    heads
        Names. Heads with a feature map of their own, or from other moments than sums, grams and client means, have no
        blend; the reason stands in its place.
    betas
        Weights of local means to try, from 0 to 1 or ``auto``.
    seed
        Deals the test samples.
    held_out
        Share of its samples that every client holds out and is tested on instead; 0 deals the test samples out.
    hyper
        Name -> hyper-parameters.
    memory_limit
        Bytes that the statistics of one head may take.
    progress
        Called with (done, in all, what is being done).

    Examples
    --------
    >>> from fedmoments.samples.features import Samples
    >>> y = np.arange(80) % 4
    >>> part = Samples(np.eye(4)[y] + np.arange(80)[:, None] / 1000, y)
    >>> split = Split(y // 2, n_clients=2, scheme="by hand")
    >>> result = simulate_personal(Features("toy", 4, part, part), split, ["fedncm"], betas=["auto"])
    >>> [(row.variant, row.accuracy) for row in result.rows]
    [('global', 1.0), ('labels', 1.0), ('shares', 1.0), ('blend auto', 1.0), ('blend auto + labels', 1.0), ...]
    """
    chosen = choose_heads(heads, hyper or {})
    for beta in betas:
        read_beta(beta)
    if held_out:
        features, split, tests = hold_out_tests(features, split, held_out, seed=seed)
    elif not len(features.test):
        raise InputError("there is no test sample to deal to clients: give some, or let clients hold out a share")
    else:
        cells = split.cells(features.train.y, features.n_classes).toarray()
        tests = deal_tests(features.test.y, cells, seed=seed)
    if not tests.sizes.any():
        raise InputError("no client holds a class that the test samples are of: there is nothing to test on")
    federation = Federation(features, split, list(chosen.values()), seed=seed, memory_limit=memory_limit)
    rows: list[ClientCounts] = []
    for place, (name, head) in enumerate(chosen.items()):
        if progress:
            progress(place, len(chosen), f"{split.scheme}, seed {seed}, {name}")
        rows += _Study(name, head, federation, split, tests, tuple(betas)).rows()
    return PersonalResult(tuple(rows), seed)


@dataclass(frozen=True, eq=False)
class _Study:
    """One head at every client."""

    name: str
    head: Head
    federation: Federation
    split: Split
    tests: Split
    betas: tuple[float | str, ...]

    def rows(self) -> list[ClientCounts]:
        variants = self._variants()
        try:
            classifier = self.federation.fitted(self.head)
        except FedMomentsError as error:
            return [self._row(variant, {}, {variant: str(error)}) for variant in variants]
        correct = {variant: np.zeros(self.split.n_clients, np.int64) for variant in variants}
        reasons: dict[str, str] = {}
        stats = self._statistics(reasons)
        with fit_notes():
            for client in np.flatnonzero(self.tests.sizes).tolist():
                self._count(client, classifier, stats, correct, reasons)
        return [self._row(variant, correct, reasons) for variant in variants]

    @property
    def _totals(self) -> Ints | None:
        """Samples of every class in the federation, where scores hold their shares."""
        data = getattr(self.head, "priors", None) == "data"
        return self.federation.merged.counts if data else None

    def _variants(self) -> list[str]:
        return [*_OF_GLOBAL, *(variant for beta in self.betas for variant in _of_blend(beta)), "local"]

    def _row(self, variant: str, correct: Mapping[str, Ints], reasons: Mapping[str, str]) -> ClientCounts:
        none = np.zeros(self.split.n_clients, np.int64)
        reason = reasons.get(variant)
        counts = none if reason else correct[variant]
        return ClientCounts(self.name, variant, counts, correct.get("global", none), self.tests.sizes, reason)

    def _statistics(self, reasons: dict[str, str]) -> Statistics | None:
        """Return what the head is fitted from, if class means can be moved in it."""
        if not self.head.has_own_map:
            return self.federation.received(self.head).restricted(self.head.needs)
        why = "it is measured behind a feature map of its own, in which no class mean is blended"
        reasons.update({variant: why for variant in self._variants() if variant.startswith("blend")})
        return None

    def _count(
        self,
        client: int,
        classifier: Classifier,
        stats: Statistics | None,
        correct: Mapping[str, Ints],
        reasons: dict[str, str],
    ) -> None:
        """Count what each variant gets right of one client's test samples."""
        train, test = self.federation.features.train, self.federation.features.test
        mine, tested = self.split.indices(client), self.tests.indices(client)
        X, y = train.X[mine], train.y[mine]

        def count(made: Classifier, *variants: str) -> None:
            scores, truth = made.scores(test.X[tested]), test.y[tested]
            others = np.setdiff1d(np.flatnonzero(made.present), y)
            for variant in variants:
                if variant.endswith("labels"):
                    scores[:, others] = -np.inf
                elif variant.endswith("shares"):
                    scores = scores + own_shares(made.scores(X), y, self._totals).shift
                correct[variant][client] = int((scores.argmax(axis=1) == truth).sum())

        count(classifier, *_OF_GLOBAL)
        for beta in self.betas:
            variants = _of_blend(beta)
            if stats is not None and variants[0] not in reasons:
                try:
                    count(blend(stats, X, y, beta=beta).fit(self.head), *variants)
                except FedMomentsError as error:
                    reasons.update(dict.fromkeys(variants, f"client {client}: {error}"))
        if "local" not in reasons:
            try:
                count(fit(self.head, {client: (X, y)}, n_classes=classifier.n_classes), "local")
            except FedMomentsError as error:
                reasons["local"] = f"client {client}: {error}"
