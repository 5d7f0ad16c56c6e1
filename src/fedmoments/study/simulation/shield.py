"""What stands between the clients of a simulated federation and the heads: attacks, filters, secure sums, noise.

The parts are those of a deployed federation: clients' statistics in fixed point, masked and summed by the same
protocol, noised by the same mechanism. Only the network is missing.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fedmoments.core.costs import PayloadSize
from fedmoments.core.heads import Head
from fedmoments.core.observations.federated import Examination
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import NotEnoughDataError
from fedmoments.privacy.modes.parties import Crowd, HeadAsked
from fedmoments.privacy.obfuscation import parse_obfuscation
from fedmoments.privacy.protection import Protection
from fedmoments.privacy.robust import Suspicion, influences, poison, robust_record, suspects
from fedmoments.privacy.secure import Context
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.simulation.payload import upload_size

__all__ = ["Shield"]

#: Bytes of a number on the wire in the clear.
CLEAR = 4


@dataclass(frozen=True)
class _Measured(Mapping[str, Statistics]):
    """Client -> what it measures, made when it is requested: one client's statistics in memory at a time."""

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
        protection.check_rules()
        self.protection, self.features, self.split = protection, features, split
        self.mode = protection.agreed.mode
        self.mode.check_parties(split.n_clients)
        self.seed, self.memory_limit = seed, memory_limit
        self.dropped: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        self.attackers: frozenset[str] = frozenset()
        self.spent: dict[str, Any] | None = None
        self._made: dict[StatisticsSpec, Statistics] = {}

    @cached_property
    def form(self) -> FixedPoint:
        """The fixed point: under noise its norm bound is the public one."""
        return self.mode.noise.form()

    def statistics(self, spec: StatisticsSpec) -> Statistics:
        """Return what the server has for a head that needs ``spec``.

        Raises
        ------
        InputError
            When the protection does not go with it.
        """
        self.mode.serving(spec).check(spec)
        if spec not in self._made:
            self._made[spec] = self._summed(spec)
        return self._made[spec]

    def size(self, spec: StatisticsSpec, cells: Any, dim: int | None = None) -> PayloadSize:
        """Return what all clients send; a number of a masked vector has 8 bytes and counts as two.

        Parameters
        ----------
        spec, cells
            The moments, and samples by client and class.
        dim
            Columns, where these are others than those of the features.
        """
        if self.mode.reads_contributions:  # what a contribution takes depends on what the client holds
            blurred = self.protection.obfuscation is not None
            return upload_size(spec, dim or self.features.dim, self._sent_cells(spec) if blurred else cells)
        senders = int((np.diff(cells.indptr) > 0).sum())
        return PayloadSize(0, senders * self.mode.serving(spec).cost(self._asked(spec), clear=0).up // CLEAR)

    def _sent_cells(self, spec: StatisticsSpec) -> Any:
        """Return samples by client and class as they are sent, (K, C) sparse: a blurred count of 0 sends nothing."""
        counts = [part.counts for part in self._parts(spec).values()]
        return csr_array(np.stack(counts) if counts else np.zeros((0, self.features.n_classes), np.int64))

    # ---------------------------------------------------------------------------------------------- inside

    def _summed(self, spec: StatisticsSpec) -> Statistics:
        parts = self._parts(spec)
        suspicion = self._suspicion(parts)
        if suspicion is not None:
            if len(suspicion.dropped) == len(parts):
                raise NotEnoughDataError(
                    f"all {len(parts)} clients were left out, such as {next(iter(suspicion.dropped.items()))}: nothing "
                    "is left to fit. Raise max_samples to what clients may honestly have"
                )
            parts = {str(who): part for who, part in suspicion.keep(parts).items()}
        asked = self._asked(spec)
        merged = partial(Statistics.merge, parts.values()) if isinstance(parts, dict) else partial(self._folded, spec)
        opened = self.mode.serving(spec).simulated(Crowd(asked, parts, merged, self.seed))
        statistics, self.spent = opened.statistics, self.mode.noise.spent(asked)
        self._note_suppressed(opened.facts.get("suppressed", ()))
        return statistics

    def _asked(self, spec: StatisticsSpec) -> HeadAsked:
        context = Context(hashlib.sha256(b"simulation").hexdigest(), 1, self.split.digest())
        names = self.features.class_names or [str(label) for label in range(self.features.n_classes)]
        return HeadAsked(spec, self.form, context, names, self.features.dim)

    def _parts(self, spec: StatisticsSpec) -> Mapping[str, Statistics]:
        """Return what every client sends: blurred, clipped and poisoned as is requested."""
        own = self.protection
        blurred = own.obfuscation is not None
        parts: Mapping[str, Statistics] = _Measured(
            self.features, self.split, spec, self.seed, None if blurred else self.form
        )
        by_client = own.agreed.unit == "client"
        if not any((blurred, own.attack, own.robust, own.max_samples, by_client)):
            return parts
        self._require_memory(spec)
        if blurred:
            how = parse_obfuscation(own.obfuscation or "")
            parts = {who: how.apply(part, seed=self._seed_of(who)).quantized(self.form) for who, part in parts.items()}
        if by_client:
            parts = {who: self.mode.noise.clipped(part) for who, part in parts.items()}
        return self._poisoned(parts) if own.attack else dict(parts)

    def _poisoned(self, parts: Mapping[str, Statistics]) -> dict[str, Statistics]:
        poisoned, attackers = poison(parts, self.protection.attack or "", self.seed)
        self.attackers = frozenset(map(str, attackers))
        return {str(who): part for who, part in poisoned.items()}

    def _suspicion(self, parts: Mapping[str, Statistics]) -> Suspicion | None:
        """Return whom the server leaves out; None where it does not look."""
        own = self.protection
        if not (own.robust or own.max_samples):
            return None
        suspected = suspects(parts, max_samples=own.max_samples, filter=own.robust)
        self.dropped |= {str(who): why for who, why in suspected.dropped.items()}
        return suspected

    def examination(self, name: str, head: Head, spec: StatisticsSpec) -> Examination | None:
        """Return whom the server left out, and who moves a head most; None where nobody looks.

        Parameters
        ----------
        name, head, spec
            The head, and what clients send for it.
        """
        own = self.protection
        if not (own.attack or own.robust or own.max_samples) or not self.mode.reads_contributions:
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
                f"{needed / 1e9:.2g} GB, more than the limit of {self.memory_limit / 1e9:g} GB"
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

    def _note_suppressed(self, names: Sequence[str]) -> None:
        """Note which classes were not opened."""
        if names:
            listed = ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
            few = self.protection.agreed.contributors
            self.notes = (f"{len(names)} classes were not opened, for fewer than {few} clients hold them: {listed}",)
