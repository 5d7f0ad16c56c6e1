"""What stands between the clients of a simulated federation and the heads: attacks, filters, secure sums, noise.

The parts are those of a deployed federation: clients' statistics in fixed point, masked and summed by the same
protocol, noised by the same mechanism. Only the network is missing.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedmoments.data import Split
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.federation.costs import PayloadSize
from fedmoments.heads import Head
from fedmoments.maps import Clip, FeatureMap, Normalize, compose
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import (
    Accountant,
    check_protection,
    clip_client,
    noise_vector,
    plan,
    release,
    repair,
    require_additive,
)
from fedmoments.privacy.obfuscation import parse_obfuscation
from fedmoments.privacy.protection import Agreed, Protection
from fedmoments.privacy.robust import Suspicion, influences, poison, robust_record, suspects
from fedmoments.privacy.secure import OVERHEAD_BYTES, Context, secure_sum
from fedmoments.privacy.secure.cohorts import run_cohorts
from fedmoments.privacy.secure.two_phase import run_two_phase
from fedmoments.privacy.sketch_limits import require_open
from fedmoments.simulation.features import Features
from fedmoments.simulation.payload import upload_size
from fedmoments.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec

__all__ = ["Shield", "public_map"]

Words = NDArray[np.uint64]
#: Bytes of a number on the wire in the clear, and of one in a masked vector.
CLEAR, MASKED = 4, 8


def public_map(projection: FeatureMap | None, agreed: Agreed) -> FeatureMap | None:
    """Return the map that clients apply before anything else: a projection, then the public bound that noise needs.

    Examples
    --------
    >>> public_map(None, Agreed(epsilon=1.0))
    Normalize()
    >>> public_map(None, Agreed()) is None
    True
    """
    if agreed.epsilon is None:
        return projection
    bound: FeatureMap = Clip(agreed.clip) if agreed.clip else Normalize()
    return compose(projection, bound) if projection else bound


@dataclass(frozen=True)
class _Measured(Mapping[str, Statistics]):
    """Client -> what it measures, made when it is asked for: one client's statistics in memory at a time."""

    features: Features
    split: Split
    spec: StatisticsSpec
    seed: int
    form: FixedPoint | None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        width = len(str(self.split.n_clients - 1))
        return {f"client-{k:0{width}d}": k for k in np.flatnonzero(self.split.sizes).tolist()}

    def __getitem__(self, client: str) -> Statistics:
        mine = self.split.indices(self._numbers[client])
        train = self.features.train
        return Statistics.of(
            train.X[mine],
            train.y[mine],
            self.spec,
            n_classes=self.features.n_classes,
            seed=self.seed,
            fixed_point=self.form,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(frozen=True)
class _Packed(Mapping[str, Words]):
    """Client -> its dense vector, made when it is asked for."""

    parts: Mapping[str, Statistics]
    layout: DenseLayout

    def __getitem__(self, client: str) -> Words:
        return self.layout.pack(self.parts[client])

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


class Shield:
    """The protections of one federation, but for what clients withhold, which the split has left out already.

    Every head has a release of its own: what it alone needs is measured, summed and noised. Publishing several costs
    the sum of their budgets.

    Parameters
    ----------
    protection
        What is done.
    features
        What clients measure, behind the public map.
    split
        Who holds what.
    seed
        Deals samples to several means, and draws attackers and obfuscated counts. Masks and the noise of differential
        privacy never follow from a seed.
    memory_limit
        Bytes that the statistics of all clients may take, where they must be kept apart.
    """

    def __init__(
        self, protection: Protection, features: Features, split: Split, *, seed: int = 0, memory_limit: float = 4e9
    ) -> None:
        check_protection(protection)
        self.protection, self.features, self.split = protection, features, split
        self.seed, self.memory_limit = seed, memory_limit
        self.dropped: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        self.attackers: frozenset[str] = frozenset()
        self.spent: dict[str, Any] | None = None
        self._made: dict[StatisticsSpec, Statistics] = {}

    @cached_property
    def form(self) -> FixedPoint:
        """The fixed point: under noise its norm bound is the public one."""
        agreed = self.protection.agreed
        return FixedPoint() if agreed.epsilon is None else FixedPoint(norm_bound=agreed.clip or 1.0)

    def statistics(self, spec: StatisticsSpec) -> Statistics:
        """Return what the server has for a head that needs ``spec``.

        Raises
        ------
        InputError
            When the protection does not go with it.
        """
        require_open(spec, self.protection.agreed)
        if spec not in self._made:
            self._made[spec] = self._summed(spec)
        return self._made[spec]

    def size(self, spec: StatisticsSpec, cells: Any) -> PayloadSize:
        """Return what all clients send; a number of a masked vector has 8 bytes and counts as two."""
        secure, dim = self.protection.agreed.secure, self.features.dim
        if secure is None:
            blurred = self.protection.obfuscation is not None
            return upload_size(spec, dim, self._sent_cells(spec) if blurred else cells)
        senders = int((np.diff(cells.indptr) > 0).sum())
        sizes = [self._layout(spec.additive).size]
        if spec.keeps_clients_apart and secure == "two-phase":
            sizes.append(dim * (dim + 1) // 2)
        each = sum(size * MASKED + OVERHEAD_BYTES for size in sizes)
        return PayloadSize(0, senders * each // CLEAR)

    def _sent_cells(self, spec: StatisticsSpec) -> Any:
        """Return samples by client and class as they are sent, (K, C) sparse: a blurred count of 0 sends nothing."""
        counts = [part.counts for part in self._parts(spec).values()]
        return csr_array(np.stack(counts) if counts else np.zeros((0, self.features.n_classes), np.int64))

    # ---------------------------------------------------------------------------------------------- inside

    def _summed(self, spec: StatisticsSpec) -> Statistics:
        agreed = self.protection.agreed
        if spec.keeps_clients_apart and agreed.epsilon is not None:
            require_additive(spec)
        if spec.keeps_clients_apart and agreed.secure == "sums":
            raise InputError(
                "client means are kept apart, and secure sums add up: choose the modes two-phase or cohorts for this "
                "head, or a head on second moments"
            )
        parts = self._parts(spec)
        suspicion = self._suspicion(parts)
        if suspicion is not None:
            if len(suspicion.dropped) == len(parts):
                raise NotEnoughDataError(
                    f"all {len(parts)} clients were left out, such as {next(iter(suspicion.dropped.items()))}: nothing "
                    "is left to fit. Raise max_samples to what clients may honestly have"
                )
            parts = {str(who): part for who, part in suspicion.keep(parts).items()}
        if agreed.secure:
            return self._secure(spec, parts)
        merged = Statistics.merge(parts.values()) if isinstance(parts, dict) else self._folded(spec)
        return merged if agreed.epsilon is None else self._released(merged)

    def _parts(self, spec: StatisticsSpec) -> Mapping[str, Statistics]:
        """Return what every client sends: blurred, clipped and poisoned as is asked for."""
        own = self.protection
        blurred = own.obfuscation is not None
        parts: Mapping[str, Statistics] = _Measured(
            self.features, self.split, spec, self.seed, None if blurred else self.form
        )
        by_client = own.agreed.unit == "client"
        if not (blurred or own.attack or own.robust or own.max_samples or by_client):
            return parts
        self._require_memory(spec)
        if blurred:
            how = parse_obfuscation(own.obfuscation or "")
            parts = {who: how.apply(part, seed=self._seed_of(who)).quantized(self.form) for who, part in parts.items()}
        if by_client:
            parts = {who: clip_client(part, own.agreed) for who, part in parts.items()}
        if own.attack:
            poisoned, attackers = poison(parts, own.attack, self.seed)
            parts, self.attackers = {str(who): part for who, part in poisoned.items()}, frozenset(map(str, attackers))
        return dict(parts)

    def _suspicion(self, parts: Mapping[str, Statistics]) -> Suspicion | None:
        """Return whom the server leaves out; None where it does not look."""
        own = self.protection
        if not (own.robust or own.max_samples):
            return None
        found = suspects(parts, max_samples=own.max_samples, filter=own.robust)
        self.dropped |= {str(who): why for who, why in found.dropped.items()}
        return found

    def examination(self, name: str, head: Head, spec: StatisticsSpec) -> dict[str, Any] | None:
        """Return whom the server left out, and who moves a head most, ready for JSON; None where nobody looks.

        Parameters
        ----------
        name, head, spec
            The head, and what clients send for it.
        """
        own = self.protection
        if not (own.attack or own.robust or own.max_samples) or own.agreed.secure:
            return None
        parts = self._parts(spec)
        try:
            moved = influences(parts, head) if len(parts) > 1 else []
        except NotEnoughDataError:  # what attackers sent leaves nothing that the head can be fitted from
            moved = []
        return robust_record(
            self._suspicion(parts),
            moved,
            clients=len(parts),
            head=name,
            attack=own.attack,
            attackers=self.attackers,
        )

    def _require_memory(self, spec: StatisticsSpec) -> None:
        cells = self.split.cells(self.features.train.y, self.features.n_classes)
        needed = 2 * 8 * upload_size(spec, self.features.dim, cells).floats
        if needed > self.memory_limit:
            raise NotEnoughDataError(
                f"the statistics of all clients ({spec}), which this protection looks at one by one, would take "
                f"{needed / 1e9:.1f} GB, more than the limit of {self.memory_limit / 1e9:g} GB"
            )

    def _seed_of(self, client: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed} {client}".encode()).digest()[:8], "big")

    def _folded(self, spec: StatisticsSpec) -> Statistics:
        """Return the sum over all clients, in memory that does not grow with them."""
        train = self.features.train
        ledger = Ledger.of(
            train.X,
            train.y,
            self.split.clients,
            spec,
            n_classes=self.features.n_classes,
            names=range(self.split.n_clients),
            seed=self.seed,
            fixed_point=self.form,
            fold=True,
        )
        return ledger.statistics()

    def _released(self, merged: Statistics) -> Statistics:
        found = release(merged, self.protection.agreed, self._account)
        self.spent = {"epsilon": found.epsilon, "delta": found.delta, "releases": 1}
        return found.statistics

    @property
    def _account(self) -> Accountant:
        """An account of its own for every head: as if it alone were published."""
        agreed = self.protection.agreed
        if agreed.epsilon is None:
            raise InputError("there is no budget, so that nothing can be charged to it: give an epsilon")
        return Accountant(agreed.epsilon, agreed.delta)

    # ---------------------------------------------------------------------------------------------- two servers

    def _layout(self, spec: StatisticsSpec) -> DenseLayout:
        return DenseLayout(spec, self.features.n_classes, self.features.dim)

    def _secure(self, spec: StatisticsSpec, parts: Mapping[str, Statistics]) -> Statistics:
        agreed = self.protection.agreed
        context = Context(hashlib.sha256(b"simulation").hexdigest(), 1, self.split.digest())
        if spec.keeps_clients_apart:
            return self._of_client_means(spec, parts, context)
        layout = self._layout(spec)
        vectors = _Packed(parts, layout)
        if agreed.epsilon is None:
            return layout.unpack(secure_sum(vectors, context, minimum=agreed.batch), self.form)
        self._account.record(plan(layout, self.form, agreed).ratio)
        noise = noise_vector(layout, self.form, agreed)
        total = secure_sum(vectors, context, minimum=agreed.batch, noise=lambda places: noise[places])
        total = total + noise_vector(layout, self.form, agreed).view(np.uint64)
        self.spent = {"epsilon": agreed.epsilon, "delta": agreed.delta, "releases": 1}
        return repair(total, layout, self.form, agreed, servers=2)

    def _of_client_means(self, spec: StatisticsSpec, parts: Mapping[str, Statistics], context: Context) -> Statistics:
        """Return the free scatter of all clients, or rows of cohorts, which a seed deals."""
        agreed = self.protection.agreed
        if spec.sent != ("client_means",) or spec.means_per_client > 1:
            raise InputError(
                f"secure sums of client means serve one mean a client and class and nothing beside, not {spec}: choose "
                "one mean a client, and a head on client means alone"
            )
        batch, contributors = agreed.batch, agreed.contributors
        if agreed.secure == "two-phase":
            found, facts = run_two_phase(parts, batch=batch, contributors=contributors, context=context)
            return self._noting(found, facts)
        found, facts = run_cohorts(
            parts,
            size=agreed.cohort,
            batch=batch,
            contributors=contributors,
            randomness=hashlib.sha256(f"cohorts {self.seed}".encode()).digest(),
            context=context,
        )
        return self._noting(found, facts)

    def _noting(self, found: Statistics, facts: Mapping[str, Any]) -> Statistics:
        """Return what was opened, and note which classes were not."""
        names = self.features.class_names or [str(label) for label in range(self.features.n_classes)]
        lost = [names[label] for label in facts["suppressed"]]
        if lost:
            listed = ", ".join(lost[:10]) + (" …" if len(lost) > 10 else "")
            few = self.protection.agreed.contributors
            note = f"{len(lost)} classes were not opened, for fewer than {few} clients hold them: {listed}"
            self.notes = (note,)
        return found
