"""One federation of one seed: a split, and the statistics that each head is fitted from."""

import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.baselines import Baseline
from fedmoments.classifier import Classifier
from fedmoments.data import DROPPED, Split
from fedmoments.errors import FedMomentsError, InputError, NotEnoughDataError
from fedmoments.federation.costs import PayloadSize, floats_of
from fedmoments.heads import Head
from fedmoments.linalg import blocks
from fedmoments.maps import FeatureMap, compose
from fedmoments.privacy.protection import Protection
from fedmoments.simulation.budgets import sketch_sizes
from fedmoments.simulation.comparison import collect, combine
from fedmoments.simulation.evaluation import predict_blocks
from fedmoments.simulation.features import Features
from fedmoments.simulation.methods import Method
from fedmoments.simulation.notices import choice_of, fit_notes
from fedmoments.simulation.payload import upload_size
from fedmoments.simulation.projection import map_features
from fedmoments.simulation.results import BYTES_PER_NUMBER, Outcome
from fedmoments.simulation.shield import Shield, public_map
from fedmoments.simulation.withholding import withhold
from fedmoments.statistics import (
    MOMENTS,
    Accumulator,
    FixedPoint,
    Layout,
    Ledger,
    SketchPlan,
    Statistics,
    StatisticsSpec,
)

__all__ = ["Federation", "sent_by"]

#: A moment is held as it is accumulated, packed, and in what a head makes of it.
COPIES = 4


def sent_by(head: Head, means_per_client: int, plan: SketchPlan | None = None) -> StatisticsSpec:
    """Return what a client sends for one head; sketches by a plan, with one mean a class.

    Examples
    --------
    >>> from fedmoments.heads import make_head
    >>> str(sent_by(make_head("fedcof"), 2)), str(sent_by(make_head("fedncm"), 2))
    ('counts + client_means × 2', 'counts + sums')
    """
    needs = head.needs
    if needs.has_sketch:
        return needs.with_plan(plan or needs.plan)
    if means_per_client > 1 and needs.keeps_clients_apart:
        return needs | StatisticsSpec.of("client_means", means_per_client=means_per_client)
    return needs


class Federation:
    """Clients of one split, measured once for all heads.

    Parameters
    ----------
    features
        Everybody's training samples, and the test samples.
    split
        Who holds what.
    heads
        All heads that will be fitted: the ledger holds the least that serves them together. Baselines may stand among
        them; they send what they send.
    feature_map
        Public: clients apply it to their features before anything else, and classifiers to what they score.
    means_per_client
        Means that a client sends of a class.
    seed
        Deals samples to those means.
    memory_limit
        Bytes that the statistics of one head may take.
    fixed_point
        Measure client by client in this form: the statistics, and so the classifiers, are bit for bit those of a
        deployed federation of these clients in this order. Not behind a feature map of a head's own. None measures in
        float64, which is faster.
    protection
        What clients withhold, and what is done to what they send; it has a fixed point of its own.
    plan
        How large scatter sketches are; the default plan without one.

    Examples
    --------
    >>> from fedmoments.data import parse_split
    >>> from fedmoments.heads import make_head
    >>> from fedmoments.simulation import Samples
    >>> y = np.arange(40) % 2
    >>> part = Samples(np.eye(2)[y] + np.arange(40)[:, None] / 1000, y)
    >>> head = make_head("fedcof")
    >>> split = parse_split("iid").apply(y, n_clients=5)
    >>> federation = Federation(Features("toy", 2, part, part), split, [head])
    >>> federation.try_head(head).accuracy
    1.0
    """

    def __init__(
        self,
        features: Features,
        split: Split,
        heads: Sequence[Method],
        *,
        feature_map: FeatureMap | None = None,
        means_per_client: int = 1,
        seed: int = 0,
        memory_limit: float = 4e9,
        fixed_point: FixedPoint | None = None,
        protection: Protection = Protection(),  # noqa: B008 - frozen
        plan: SketchPlan | None = None,
    ) -> None:
        self.plan = plan or SketchPlan()
        self.protection, self.features, self.seed = protection, features, seed
        self.split = withhold(split, features.train.y, protection.min_count, means_per_client)
        self.feature_map = public_map(feature_map, protection.agreed)
        self.means_per_client, self.memory_limit, self.fixed_point = means_per_client, memory_limit, fixed_point
        self._heads = [head for head in heads if isinstance(head, Head)]
        self._restricted: dict[StatisticsSpec, Statistics] = {}
        self._cells = self.split.cells(features.train.y, features.n_classes)
        self._tried: dict[Method, Outcome] = {}

    @property
    def n_senders(self) -> int:
        """How many clients hold a sample."""
        return int((self.split.sizes > 0).sum())

    @property
    def dim(self) -> int:
        """Dimension of what clients measure, behind the public map."""
        return self.feature_map.output_dim(self.features.dim) if self.feature_map else self.features.dim

    @cached_property
    def mapped(self) -> Features:
        """What clients measure: the features behind the public map."""
        return map_features(self.features, self.split, self.feature_map) if self.feature_map else self.features

    @cached_property
    def shield(self) -> Shield | None:
        """What is done to what clients measured; None if nothing is."""
        if not self.protection.acts_after_measuring:
            return None
        return Shield(self.protection, self.mapped, self.split, seed=self.seed, memory_limit=self.memory_limit)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """What every client sends: the least that serves all heads without a feature map of their own."""
        spec = StatisticsSpec()
        for head in self._heads:
            if not head.has_own_map and self._fits_memory(head.needs, self.dim):
                spec = spec | self._sent(head)
        return spec

    @property
    def numbers(self) -> int:
        """How many numbers all clients together send of :attr:`spec`."""
        return self._size(self.spec, self.dim)[0].floats

    @cached_property
    def ledger(self) -> Ledger:
        """The contributions of all clients, serving every head that has no feature map of its own."""
        return self._ledger(self.spec, self.fixed_point)

    def received(self, head: Head) -> Statistics:
        """Return the merged statistics that a head without a map of its own is fitted from, as clients send them."""
        if self.shield:
            return self.shield.statistics(self._sent(head))
        received = self.ledger.statistics().restricted(self._sent(head))
        return received.as_sent() if head.needs.has_sketch else received

    def _sent(self, head: Head) -> StatisticsSpec:
        return sent_by(head, self.means_per_client, self.plan)

    def try_head(self, head: Head) -> Outcome:
        """Fit and test a head; one that cannot be fitted gives an outcome with the reason."""
        if head not in self._tried:
            self._tried[head] = self._try(head)
        return self._tried[head]

    def try_baseline(self, baseline: Baseline) -> Outcome:
        """Let clients work, combine and test; a baseline that cannot be run gives an outcome with the reason."""
        if baseline not in self._tried:
            self._tried[baseline] = self._compare(baseline)
        return self._tried[baseline]

    def fitted(self, method: Method) -> Classifier:
        """Return the classifier of a head or baseline behind its maps; raises what the outcome would report.

        What is fitted in a lesser way than asked for is told in the outcome, not here.
        """
        with fit_notes():
            if isinstance(method, Baseline):
                self._require_plain()
                limit = self.memory_limit
                collected = collect(method, self.mapped, self.split, seed=self.seed, memory_limit=limit)
                return combine(method, collected, dim=self.dim, seed=self.seed)[0].mapped(self.feature_map)
            return self.fit(method, self._own_map(method))[0]

    def _try(self, head: Head) -> Outcome:
        size = PayloadSize(0, 0)
        accuracy: float | None = None
        seconds: float | None = None
        reason: str | None = None
        choice: str | None = None
        coded: int | None = None
        notes: list[str] = []
        try:
            own = self._own_map(head)
            size, coded = self._upload(head, own.output_dim(self.dim) if own else self.dim)
            with fit_notes() as notes:
                classifier, seconds = self.fit(head, own)
            accuracy = self._accuracy(classifier)
            choice = choice_of(classifier)
        except FedMomentsError as error:
            reason = str(error)
        found = (self.seed, accuracy, self.n_senders, size.floats, size.counts, seconds, reason)
        told = self.shield.notes if self.shield and head.needs.keeps_clients_apart else ()
        return Outcome(*found, notes=(*notes, *told), choice=choice, coded_bytes=coded)

    def _compare(self, baseline: Baseline) -> Outcome:
        size = PayloadSize(0, 0)
        accuracy: float | None = None
        seconds: float | None = None
        local: float | None = None
        reason: str | None = None
        notes: list[str] = []
        try:
            self._require_plain()
            with fit_notes() as notes:
                limit = self.memory_limit
                collected = collect(baseline, self.mapped, self.split, seed=self.seed, memory_limit=limit)
                size, local = collected.size, collected.seconds
                classifier, seconds = combine(baseline, collected, dim=self.dim, seed=self.seed)
            accuracy = self._accuracy(classifier.mapped(self.feature_map))
        except FedMomentsError as error:
            reason = str(error)
        found = (self.seed, accuracy, self.n_senders, size.floats, size.counts, seconds, reason)
        return Outcome(*found, notes=tuple(notes), client_seconds=local)

    def _require_plain(self) -> None:
        if self.shield:
            raise InputError(
                "a baseline's clients send what is neither summed in secret, noised nor filtered: compare it in the "
                "clear, or leave it out"
            )

    def _accuracy(self, classifier: Classifier) -> float:
        test = self.features.test
        return float((predict_blocks(classifier, test.X) == test.y).mean())

    def fit(self, head: Head, own_map: FeatureMap | None = None) -> tuple[Classifier, float]:
        """Return the classifier of a head, behind the public map and one of its own, and the seconds of solving."""
        dim = own_map.output_dim(self.dim) if own_map else self.dim
        if not self._fits_memory(head.needs, dim):
            raise NotEnoughDataError(
                f"its statistics ({head.needs}) of {self.features.n_classes} classes in {dim} dimensions would take "
                f"{self._bytes(head.needs, dim) / 1e9:.1f} GB, more than the limit of {self.memory_limit / 1e9:g} GB"
            )
        stats = self._mapped(head, own_map) if own_map else self._shared(head)
        start = time.perf_counter()
        classifier = head.fit(stats)
        seconds = time.perf_counter() - start
        maps = [each for each in (self.feature_map, own_map) if each]
        return classifier.mapped(compose(*maps) if maps else None), seconds

    # ---------------------------------------------------------------------------------------------- inside

    def _ledger(self, spec: StatisticsSpec, fixed_point: FixedPoint | None = None) -> Ledger:
        train = self.mapped.train
        names = range(self.split.n_clients)
        return Ledger.of(
            train.X,
            train.y,
            self.split.clients,
            spec,
            n_classes=self.features.n_classes,
            names=names,
            seed=self.seed,
            fixed_point=fixed_point,
            fold=True,
        )

    def _shared(self, head: Head) -> Statistics:
        """Return what the head itself would have received: deriving or rounding it is not part of its fit."""
        if self.shield:
            found = self.received(head)
            return found.restricted(head.needs) if head.needs <= found.spec else found
        if head.needs not in self._restricted:
            needed = self.ledger.statistics().restricted(head.needs)
            self._restricted[head.needs] = needed.as_sent() if head.needs.has_sketch else needed
        return self._restricted[head.needs]

    def _own_map(self, head: Head) -> FeatureMap | None:
        """Return the head's own map, if it has one, after the first exchange that it may need."""
        if not head.has_own_map:
            return None
        if self.shield:
            raise InputError(
                "it is measured behind a feature map of its own, which no protection is simulated with: leave it out"
            )
        pilot = self._ledger(head.pilot_needs).statistics() if head.pilot_needs else None
        return head.feature_map(self.dim, pilot)

    def _upload(self, head: Head, dim: int) -> tuple[PayloadSize, int | None]:
        """Return what all clients send, in numbers, and in bytes where these are coded."""
        sent = self._sent(head)
        if self.shield:
            return self.shield.size(sent, self._cells), None
        size, coded = self._size(sent, dim)
        if head.has_own_map and head.pilot_needs:
            pilot = upload_size(head.pilot_needs, self.dim, self._cells)
            size += pilot
            coded = None if coded is None else coded + pilot.floats * BYTES_PER_NUMBER
        return size, coded

    def _size(self, sent: StatisticsSpec, dim: int) -> tuple[PayloadSize, int | None]:
        """Return the numbers of a spec, and the bytes where a sketch, and means within its budget, are coded."""
        if not sent.has_sketch:
            return upload_size(sent, dim, self._cells), None
        coded, present = sketch_sizes(self.plan, dim, self._cells), np.diff(self._cells.indptr)
        in_codes = (Layout.SKETCH,) if self.plan.budget is None else (Layout.SKETCH, Layout.ROWS)
        rest = [name for name in sent.sent if MOMENTS[name].layout not in in_codes]
        more = floats_of(rest, dim, present[present > 0]).floats if rest and present.any() else 0
        return PayloadSize(int(self._cells.nnz), coded.numbers + more), coded.bytes + more * BYTES_PER_NUMBER

    def _mapped(self, head: Head, feature_map: FeatureMap) -> Statistics:
        """Measure behind a map, a block of samples at a time: all of them mapped would be large."""
        spec = self._sent(head)
        dim = feature_map.output_dim(self.dim)
        if not spec.keeps_clients_apart:
            held = np.flatnonzero(self.split.clients != DROPPED)
            return self._measured(held, spec, feature_map, dim)
        ledger = Ledger(spec, n_classes=self.features.n_classes, dim=dim, fold=True)
        for client, mine in enumerate(self.split):
            ledger.join(client, self._measured(mine, spec, feature_map, dim))
        return ledger.statistics()

    def _measured(
        self, samples: NDArray[np.int64], spec: StatisticsSpec, feature_map: FeatureMap, dim: int
    ) -> Statistics:
        train = self.mapped.train
        accumulator = Accumulator(spec, n_classes=self.features.n_classes, dim=dim, seed=self.seed)
        for block in blocks(len(samples)):
            chosen = samples[block]
            accumulator.update(feature_map(train.X[chosen]), train.y[chosen])
        return accumulator.statistics()

    def _bytes(self, spec: StatisticsSpec, dim: int) -> int:
        sent = [MOMENTS[name] for name in spec.sent]
        times = {Layout.CLASS: self.features.n_classes, Layout.GLOBAL: 1, Layout.ROWS: int(self._cells.nnz)}
        times[Layout.SKETCH] = sketch_sizes(self.plan, dim, self._cells).rows if spec.has_sketch else 0
        return COPIES * 8 * sum(moment.width(dim) * times[moment.layout] for moment in sent)

    def _fits_memory(self, spec: StatisticsSpec, dim: int) -> bool:
        return self._bytes(spec, dim) <= self.memory_limit
