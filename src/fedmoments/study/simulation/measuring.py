"""One federation of one seed: a split, the statistics that each head is fitted from, and every fit, made once."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.costs import PayloadSize
from fedmoments.core.gaussian.client_draws import MOST_KEPT
from fedmoments.core.gaussian.folded import folded_spec, folded_statistics
from fedmoments.core.heads import Head
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import FeatureMap, compose
from fedmoments.core.observations import Outcome
from fedmoments.core.observations.rows import BYTES_PER_NUMBER
from fedmoments.core.statistics import (
    MOMENTS,
    Accumulator,
    FixedPoint,
    Ledger,
    SketchPlan,
    Statistics,
    StatisticsSpec,
)
from fedmoments.core.statistics.moments import DERIVED
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.privacy.protection import Protection
from fedmoments.samples import DROPPED, Split
from fedmoments.samples.features import Features
from fedmoments.study.baselines import Baseline
from fedmoments.study.simulation.fit import (
    Fit,
    Made,
    choice_of,
    collect,
    combine,
    fit_notes,
    predict_blocks,
    why_not_fitted,
)
from fedmoments.study.simulation.methods import Method, map_features
from fedmoments.study.simulation.payload import (
    Form,
    by_client,
    choose_form,
    coded_size,
    room_of,
    sent_by,
    serve,
    side_by_side,
    withhold,
)
from fedmoments.study.simulation.shield import Shield

__all__ = ["Federation"]

#: Bytes of client means from which they are folded into one scatter as they are made, if all heads do with that.
MOST_MEANS = 2_000_000_000


class Federation:
    """Clients of one split, measured once for all heads; every head is fitted once.

    Parameters
    ----------
    features
        Everybody's training samples, and the test samples.
    split
        Who holds what.
    heads
        All heads that will be fitted: the statistics are the least that serves them together. Baselines may stand
        among them; they send what they send.
    feature_map
        Public: clients apply it to their features before anything else, and classifiers to what they score.
    means_per_client
        Means that a client sends of a class.
    seed
        Deals samples to those means.
    memory_limit
        Bytes that the statistics of one head may take.
    fixed_point
        Measure client by client in this form, where features allow it (:func:`choose_form`): the
        statistics, and so the classifiers, are bit for bit those of a deployed federation of these clients. None
        measures in float64.
    protection
        What clients withhold, and what is done to what they send; it has a fixed point of its own.
    plan
        How large scatter sketches are; the default plan without one.

    Examples
    --------
    >>> from fedmoments.samples import parse_split
    >>> from fedmoments.core.heads import make_head
    >>> from fedmoments.samples.features import Samples
    >>> y = np.arange(40) % 2
    >>> part = Samples(np.eye(2)[y] + np.arange(40)[:, None] / 1000, y)
    >>> head = make_head("fedcof")
    >>> split = parse_split("iid").apply(y, n_clients=5)
    >>> federation = Federation(Features("toy", 2, part, part), split, [head])
    >>> federation.outcome(head).accuracy
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
        fixed_point: FixedPoint | None = FixedPoint(),  # noqa: B008 - frozen
        protection: Protection = Protection(),  # noqa: B008 - frozen
        plan: SketchPlan | None = None,
    ) -> None:
        if features.first_exchange and protection.agreed.mode.noise.is_on:
            raise InputError(
                "the first exchange of a raw table is exact, which no epsilon promises: give a table that was "
                "standardised before, on public data or without noise (--table FILE of 'fedmoments table')"
            )
        self.plan = plan or SketchPlan()
        self.protection, self.features, self.seed = protection, features, seed
        self.split = withhold(split, features.train.y, protection.min_count, means_per_client)
        self.feature_map = protection.agreed.mode.noise.bounded(feature_map)
        self.means_per_client, self.memory_limit, self._asked_form = means_per_client, memory_limit, fixed_point
        self._heads = [head for head in heads if isinstance(head, Head)]
        self._merged: Statistics | None = None
        self._restricted: dict[StatisticsSpec, Statistics] = {}
        self._cells = self.split.cells(features.train.y, features.n_classes)
        self._fits: dict[Method, Fit] = {}

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
        """What is measured: the least that serves all heads without a feature map of their own."""
        return folded_spec(self._sent_spec) if self.is_folded else self._sent_spec

    @cached_property
    def _kept_spec(self) -> StatisticsSpec:
        """What is kept of it: clients' class sums apart, for heads that see in them how wide classes are."""
        spec = self.spec
        for head in self._heads if self._keeps_sums else ():
            if head.apart_needs != head.needs and head.needs <= spec:
                spec = spec | head.apart_needs
        return spec

    @cached_property
    def _sent_spec(self) -> StatisticsSpec:
        """What every client sends of it."""
        spec = StatisticsSpec()
        for head in self._heads:
            if not head.has_own_map and self._bytes(head, self.dim) <= self.memory_limit:
                spec = spec | self._sent(head)
        return spec

    @cached_property
    def _keeps_sums(self) -> bool:
        """Whether there is room for clients' class sums apart."""
        if self.means_per_client > 1 or self.protection.acts_after_measuring or self.is_folded:
            return False
        return bool(8 * self._cells.nnz * self.dim <= min(MOST_KEPT, self.memory_limit / 8))

    @cached_property
    def is_folded(self) -> bool:
        """Whether client means are folded into one scatter as they are made: kept, they would take gigabytes."""
        if self.means_per_client > 1 or self.features.names is not None or self.protection.acts_after_measuring:
            return False
        own = [head for head in self._heads if not head.has_own_map and head.needs.keeps_clients_apart]
        rows = 8 * self._cells.nnz * self.dim
        return bool(own) and rows > min(MOST_MEANS, self.memory_limit) and not any(map(self._keeps_means, own))

    def _keeps_means(self, head: Head) -> bool:
        """Whether a head takes no scatter in place of client means, and there is room for these."""
        room = room_of(self._sent(head), self.dim, self._cells, self.plan)
        return not head.folds_means and room <= self.memory_limit

    @property
    def numbers(self) -> int:
        """How many numbers all clients together send."""
        return coded_size(self._sent_spec, self.dim, self._cells, self.plan)[0].floats

    @cached_property
    def form(self) -> Form:
        """The fixed point that clients measure in, or why it is float64; of a protection its own."""
        if self.shield:
            return Form(self.shield.form)
        if self.is_folded:
            means = self._cells.nnz
            return Form(None, f"its {means:,} client means are folded into one scatter as they are made, not kept")
        return choose_form(self.mapped, self.split, self.spec, self.numbers, self._asked_form)

    @property
    def merged(self) -> Statistics:
        """The contributions of all clients, serving every head that has no feature map of its own; measured once."""
        if self._merged is None:
            self._merged = self._with_names(self._measured(self._kept_spec, self.form.fixed_point))
        return self._merged

    def _with_names(self, received: Statistics) -> Statistics:
        """Return what clients sent and what class names say, if they count: one sample a class of one more party."""
        names = self.features.names
        if names is None:
            return received
        mapped = np.asarray(self.feature_map(names) if self.feature_map else names)
        labels, form = np.arange(self.features.n_classes), self.form.fixed_point
        own = Statistics.of(mapped, labels, received.spec, n_classes=len(labels), seed=self.seed, fixed_point=form)
        return received + own

    def in_turns(self, groups: Sequence[NDArray[np.int64]]) -> Iterator[Statistics]:
        """Yield the merged statistics after each group of clients, which together hold all samples.

        Clients are measured when their turn comes, so that whoever looks at a federation in turns has measured it
        once: :attr:`merged` is what the last turn leaves, rows in the order of the clients again.

        Parameters
        ----------
        groups
            Numbers of clients, each client in one group.
        """
        total: Statistics | None = None
        sent = self._sent_spec if self.is_folded else self._kept_spec
        for group in groups:
            fresh = self._measured(sent, self.form.fixed_point, np.sort(group))
            total = fresh if total is None else total + fresh
            yield total
        order = np.concatenate([np.sort(group) for group in groups]) if groups else np.zeros(0, np.int64)
        if self._merged is None and total is not None and len(order) == self.n_senders and not self.is_folded:
            self._merged = self._with_names(by_client(total, order))

    def observed(self, spec: StatisticsSpec) -> Statistics:
        """Return statistics of these clients for a closer look, in float64.

        Moments that heads were fitted from are taken from there; those that clients did not send are measured beside.

        Parameters
        ----------
        spec
            What is looked at.
        """
        if self.is_folded and "client_means" in spec.moments:
            raise NotEnoughDataError(
                f"the {self._cells.nnz:,} means of its clients were folded into one scatter as they were made: kept, "
                f"they would take {8e-9 * self._cells.nnz * self.dim:.1f} GB"
            )
        received = None if self.shield else self.merged.to_float()
        # sums kept apart for temperatures are rounded as they were sent: a look at client means measures these
        lacking = [name for name in spec.sent if received is None or name not in self.spec.moments]
        if received is not None and not lacking:
            return side_by_side(spec, received, received, lacking)
        beside = self._beside(lacking, spec.means_per_client, apart=received is None)
        return side_by_side(spec, received, beside, lacking)

    def _beside(self, moments: Sequence[str], means_per_client: int, *, apart: bool) -> Statistics:
        """Measure moments client by client, or, where they need not be kept apart, as sums over all samples."""
        means = means_per_client if "client_means" in moments else 1
        extra = StatisticsSpec.of(*moments, means_per_client=means)
        if apart or any(MOMENTS[name].layout.apart for name in moments):
            return self._measured(extra, None)
        train, held = self.mapped.train, np.flatnonzero(self.split.clients != DROPPED)
        return Statistics.of(train.X[held], train.y[held], extra, n_classes=self.features.n_classes)

    def received(self, head: Head) -> Statistics:
        """Return the merged statistics that a head without a map of its own is fitted from, as clients send them."""
        if self.shield:
            return self.shield.statistics(self._sent(head))
        sent = self._sent(head)
        received = self.merged.restricted(folded_spec(sent) if self.is_folded else sent)
        return received.as_sent() if head.needs.has_sketch else received

    def outcome(self, method: Method) -> Outcome:
        """Return what a head or baseline gave; one that cannot be fitted gives an outcome with the reason."""
        return self.fit(method).outcome

    def fitted(self, method: Method) -> Classifier:
        """Return the classifier of a head or baseline behind its maps; raises what the outcome reports."""
        fit = self.fit(method)
        if fit.classifier is None:
            raise fit.error or NotEnoughDataError(fit.outcome.reason or "it could not be fitted")
        return fit.classifier

    def fit(self, method: Method) -> Fit:
        """Fit and test a head or baseline, once: asked again, the same fit is returned."""
        if method not in self._fits:
            self._fits[method] = self._try(method)
        return self._fits[method]

    # ---------------------------------------------------------------------------------------------- fitting

    def _try(self, method: Method) -> Fit:
        made = Made()
        notes: list[str] = []
        predicted: NDArray[np.int64] | None = None
        error: Exception | None = None
        try:
            with fit_notes() as notes:
                self._fit(method, made) if isinstance(method, Head) else self._compare(method, made)
            if made.classifier is not None:
                predicted = predict_blocks(made.classifier, self.features.test.X)
        except Exception as caught:  # a head of somebody else: its row says so
            made.classifier, error = None, caught
        outcome = Outcome(
            self.seed,
            None,
            self.n_senders,
            made.size.floats,
            made.size.counts,
            made.seconds,
            None if error is None else why_not_fitted(method, error),
            notes=(*notes, *self._notes_on(method)),
            client_seconds=made.client_seconds,
            choice=choice_of(made.classifier) if made.classifier else None,
            coded_bytes=made.coded,
            float64=made.float64,
        )
        if predicted is not None and len(predicted):
            hits = predicted == self.features.test.y
            outcome = replace(outcome, accuracy=float(hits.mean()), hits=np.packbits(hits).tobytes())
        return Fit(outcome, made.classifier, predicted, error)

    def _notes_on(self, method: Method) -> tuple[str, ...]:
        """Return what the protection says of a method: which classes it left closed to heads on clients' own rows."""
        apart = isinstance(method, Head) and method.needs.keeps_clients_apart
        return self.shield.notes if self.shield and apart else ()

    def _fit(self, head: Head, made: Made) -> None:
        """Fit a head from the statistics of these clients, behind the public map and one of its own."""
        own_map = self._own_map(head)
        dim = own_map.output_dim(self.dim) if own_map else self.dim
        made.size, made.coded = self._upload(head, dim)
        needed = self._bytes(head, dim)
        if needed > self.memory_limit:
            raise NotEnoughDataError(
                f"its statistics ({head.needs}) of {self.features.n_classes} classes in {dim} dimensions would take "
                f"{needed / 1e9:.2g} GB, more than the limit of {self.memory_limit / 1e9:g} GB"
            )
        made.float64 = "it has a feature map of its own" if own_map else self.form.reason
        stats = self._mapped(head, own_map) if own_map else self._shared(head)
        start = time.perf_counter()
        classifier = head.fit(stats)
        made.seconds = time.perf_counter() - start
        maps = [part for part in (self.feature_map, own_map) if part]
        made.classifier = self._named(classifier.mapped(compose(*maps) if maps else None))

    def _compare(self, baseline: Baseline, made: Made) -> None:
        """Let the clients of a baseline work, and combine what they send."""
        if self.shield:
            raise InputError(
                "a baseline's clients send what is neither summed in secret, noised nor filtered: compare it in the "
                "clear, or leave it out"
            )
        collected = collect(baseline, self.mapped, self.split, seed=self.seed, memory_limit=self.memory_limit)
        made.size, made.client_seconds = collected.size, collected.seconds
        classifier, made.seconds = combine(baseline, collected, dim=self.dim, seed=self.seed)
        made.classifier = self._named(classifier.mapped(self.feature_map))

    def _named(self, classifier: Classifier) -> Classifier:
        names = self.features.class_names
        return classifier.named(names) if names else classifier

    def _sent(self, head: Head) -> StatisticsSpec:
        return sent_by(head, self.means_per_client, self.plan)

    def _shared(self, head: Head) -> Statistics:
        """Return what the head itself would have received: deriving or rounding it is not part of its fit."""
        if self.shield:
            received = self.received(head)
            return received.restricted(head.needs) if head.needs <= received.spec else received
        return serve(head, self.merged, self._restricted, apart=self._keeps_sums)

    def _own_map(self, head: Head) -> FeatureMap | None:
        """Return the head's own map, if it has one, after the first exchange that it may need."""
        if not head.has_own_map:
            return None
        if self.shield:
            raise InputError(
                "it is measured behind a feature map of its own, which no protection is simulated with: leave it out"
            )

        def measured(needs: StatisticsSpec, behind: FeatureMap | None) -> Statistics:
            return self._measured(needs, None) if behind is None else self._all_behind(needs, behind)

        return head.agreed_map(self.dim, measured)

    # ---------------------------------------------------------------------------------------------- measuring

    def _measured(
        self, spec: StatisticsSpec, form: FixedPoint | None, clients: NDArray[np.int64] | None = None
    ) -> Statistics:
        """Return the merged statistics of all clients, or of some (ascending) that hold samples."""
        train, holders = self.mapped.train, self.split.clients
        names: Sequence[int] = range(self.split.n_clients)
        X, y = train.X, train.y
        if spec.moments & DERIVED.keys():
            return folded_statistics(X, y, holders, spec, n_classes=self.features.n_classes)
        if clients is not None:
            mine = np.flatnonzero(np.isin(holders, clients))
            X, y, holders, names = X[mine], y[mine], np.searchsorted(clients, holders[mine]), clients.tolist()
        return Ledger.of(
            X, y, holders, spec, n_classes=self.features.n_classes, names=names, seed=self.seed, fixed_point=form,
            fold=True, leaving=False,
        ).statistics()  # fmt: skip

    def _mapped(self, head: Head, feature_map: FeatureMap) -> Statistics:
        """Measure behind a map, a block of samples at a time: all of them mapped would be large."""
        return self._all_behind(self._sent(head), feature_map)

    def _all_behind(self, spec: StatisticsSpec, feature_map: FeatureMap) -> Statistics:
        """Return what all clients measure behind a map, merged."""
        dim = feature_map.output_dim(self.dim)
        if not spec.keeps_clients_apart:
            held = np.flatnonzero(self.split.clients != DROPPED)
            return self._behind(held, spec, feature_map, dim)
        ledger = Ledger(spec, n_classes=self.features.n_classes, dim=dim, fold=True)
        for client, mine in enumerate(self.split):
            ledger.join(client, self._behind(mine, spec, feature_map, dim))
        return ledger.statistics()

    def _behind(
        self, samples: NDArray[np.int64], spec: StatisticsSpec, feature_map: FeatureMap, dim: int
    ) -> Statistics:
        train = self.mapped.train
        accumulator = Accumulator(spec, n_classes=self.features.n_classes, dim=dim, seed=self.seed)
        for block in blocks(len(samples)):
            chosen = samples[block]
            accumulator.update(feature_map(train.X[chosen]), train.y[chosen])
        return accumulator.statistics()

    # ---------------------------------------------------------------------------------------------- sizes

    def _upload(self, head: Head, dim: int) -> tuple[PayloadSize, int | None]:
        """Return what all clients send, in numbers, and in bytes where these are coded."""
        sent, before = self._sent(head), [self.features.first_exchange] if self.features.first_exchange else []
        if self.shield:
            sizes = [self.shield.size(spec, self._cells, dim) for spec, dim in before]
            return sum(sizes, self.shield.size(sent, self._cells)), None
        size, coded = coded_size(sent, dim, self._cells, self.plan)
        before += [(needs.settled(self.features.n_classes), width) for needs, width in head.earlier(self.dim)]
        for first, columns in before:
            pilot, pilot_coded = coded_size(first, columns, self._cells, first.plan or self.plan)
            coded = _both((size, coded), (pilot, pilot_coded))
            size += pilot
        return size, coded

    def _bytes(self, head: Head, dim: int) -> int:
        sent = self._sent(head)
        return room_of(folded_spec(sent) if self.is_folded and head.folds_means else sent, dim, self._cells, self.plan)


def _both(*parts: tuple[PayloadSize, int | None]) -> int | None:
    """Return the bytes of several parts, some of which are coded; None where none is."""
    if all(coded is None for _, coded in parts):
        return None
    return sum(size.floats * BYTES_PER_NUMBER if coded is None else coded for size, coded in parts)
