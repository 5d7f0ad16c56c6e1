"""Covariances from the spread of client means: FedCOF's, scaled to exact traces, or without far clients."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.covariance_source import CovarianceSource
from fedmoments.core.gaussian.precision import DEAD, noise_of_rows, noise_of_squares
from fedmoments.core.gaussian.scatter import FreeScatter, RowScatter, Scatter, without_spread
from fedmoments.core.linalg import add_gram, blocks, new_gram, symmetrize_upper
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import ClientsPooledError, InputError

__all__ = ["Energy", "Free", "Robust", "effective_dimension", "row_energies"]

Floats = NDArray[np.float64]


class Free(CovarianceSource):
    """FedCOF: covariances from the spread of client means, at no cost in bytes.

    Parameters
    ----------
    all_clients
        Divide by K − 1 as FedCOF's Eq. 8 prints it, not by K_c − 1: too small by (K_c − 1)/(K − 1) of a class that
        K_c of K clients hold.
    """

    name = "free"

    def __init__(self, *, all_clients: bool = False) -> None:
        self.all_clients = all_clients

    def _held_by(self, stats: Statistics) -> NDArray[np.int64]:
        """Return how many rows (C,) every class counts for."""
        held = np.bincount(stats.rows.labels, minlength=stats.n_classes)
        if not self.all_clients:
            return held
        clients = len(np.unique(stats.row_owners)) * stats.spec.means_per_client
        return np.where(held > 0, np.maximum(held, clients), 0)

    pooled_needs = StatisticsSpec.of("client_means")
    class_needs = pooled_needs
    variance_needs = pooled_needs

    def about(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats | None]:  # noqa: ARG002 - for overriders
        """Return the centres (C, d) of rows, and by what their outer products are multiplied (rows,); None for 1."""
        return means, None

    def pooled(self, stats: Statistics, means: Floats) -> Scatter:
        if stats.spec.keeps_clients_apart:
            noise = noise_of_rows(stats, means)
            centres, scales = self.about(stats, means)
            return RowScatter(stats.rows, stats.counts, centres, noise, held_by=self._held_by(stats), scales=scales)
        if type(self) is not Free:
            raise ClientsPooledError(
                f"a covariance of source '{self.name}' needs client means that are kept apart, but these statistics "
                f"hold {stats.spec}: fit from the ledger, or take the source 'free'"
            )
        if self.all_clients:
            raise InputError(
                "the divisor 'clients' needs client means kept apart, but these statistics hold one free scatter, "
                "divided already by the clients that hold a class: leave it out"
            )
        held_by = np.zeros(stats.n_classes)
        held_by[stats.classes] = stats.class_array("contributors")[:, 0]
        packed = stats.global_array("free_scatter")
        rounding = float(noise_of_squares(packed[-1:], float(held_by.sum()), stats.fixed_point)[0])
        return FreeScatter(packed, stats.counts, held_by, rounding)

    def class_scatters(self, stats: Statistics, means: Floats) -> Iterator[tuple[int, Floats, float]]:
        rows, (centres, weights) = stats.rows, self.weighted(stats, means)
        order = np.argsort(rows.labels, kind="stable")
        bounds = np.searchsorted(rows.labels[order], np.append(stats.classes, stats.n_classes))
        for label, start, stop in zip(stats.classes.tolist(), bounds[:-1], bounds[1:], strict=True):
            mine = order[start:stop]
            centred = np.stack([rows.block_means(slice(i, i + 1))[0] for i in mine]) - centres[label]
            matrix = new_gram(stats.dim)
            add_gram(matrix, centred * np.sqrt(weights[mine])[:, None])
            yield label, symmetrize_upper(matrix), float(self._held_by(stats)[label] - 1)

    def variances(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        rows, (centres, weights) = stats.rows, self.weighted(stats, means)
        scatter = np.zeros_like(means)
        for block in blocks(len(rows), 256):  # a large block would be three more copies of many rows
            labels = rows.labels[block]
            centred = rows.block_means(block) - centres[labels]
            scatter += cell_sums(weights[block, None] * centred**2, labels, stats.n_classes)
        held = np.bincount(rows.labels, minlength=stats.n_classes)
        return scatter, np.where(held > 1, self._held_by(stats) - 1.0, 0.0)

    def weighted(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats]:
        """Return the centres (C, d), and n_kc of every row multiplied by its scale."""
        centres, scales = self.about(stats, means)
        counts = stats.rows.counts.astype(np.float64)
        return centres, counts if scales is None else counts * scales


class Energy(Free):
    """Free covariances, each scaled to the exact trace of its class: one number a class more.

    Where clients differ in more than their labels, the spread of their means is many times that of samples, and free
    covariances are as much too large. Σ‖x‖² of a class tells how large: tr W_c = Σ‖x‖² − N_c‖μ_c‖², whatever the split.
    The shape is that of the client means.

    **Law** every class covariance has its exact trace; **Law** one sample a client gives the free covariance.
    """

    name = "energy"
    pooled_needs = StatisticsSpec.of("client_means", "class_norms")
    class_needs = pooled_needs
    variance_needs = pooled_needs

    def about(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats | None]:
        energies, held = row_energies(stats, means)
        if energies.sum() <= DEAD**2 * noise_of_rows(stats, means):
            return means, None
        spread = np.bincount(stats.rows.labels, energies, stats.n_classes)
        norms, exact = stats.class_array("class_norms"), np.zeros(stats.n_classes)
        exact[stats.classes] = norms[:, 0] - stats.class_counts * np.square(means[stats.classes]).sum(axis=1)
        rounding = np.zeros(stats.n_classes)
        counts = stats.class_counts[:, None].astype(np.float64)
        rounding[stats.classes] = noise_of_squares(norms, counts, stats.fixed_point)[:, 0]
        exact[without_spread(exact, rounding)] = 0.0
        # B₂ of the class has K_c − 1 degrees of freedom behind it, W_c has N_c − 1.
        ratio = exact / np.maximum(stats.counts - 1, 1) * np.maximum(held - 1, 1) / np.where(spread > 0, spread, 1.0)
        return means, ratio[stats.rows.labels]


class Robust(Free):
    """Free covariances that no few clients decide: Student-t weights of client means by their distance.

    A row's distance q = n_kc‖μ_kc − m_c‖²/tr Σ̂ is 1 on average if clients draw from one population, with about
    e = (tr Σ̂)²/tr Σ̂² degrees of freedom in it. Rows are weighted by (ν + e)/(ν + e·q), ν = 4, a few times over, m_c and
    tr Σ̂ being those of the weighted rows: a client ten times as far away as others counts for a tenth instead of for
    all. The class means of heads stay what they are, exact sums.
    """

    name = "robust"
    freedom = 4.0
    passes = 8

    def about(self, stats: Statistics, means: Floats) -> tuple[Floats, Floats | None]:
        rows, centres = stats.rows, means
        held = np.bincount(rows.labels, minlength=stats.n_classes)
        told, share = (held > 1)[rows.labels], 1.0 - 1.0 / np.maximum(held, 2)[rows.labels]
        weights = np.ones(len(rows))
        if not told.any():
            return means, None
        for _ in range(self.passes):
            distances = row_energies(stats, centres)[0] / share  # a mean of K_c rows is one of them in part
            trace = float((weights * distances)[told].mean())
            if trace <= 0.0:
                return means, None
            inner = effective_dimension(stats, centres)
            weights = np.where(told, (self.freedom + inner) / (self.freedom + inner * distances / trace), 1.0)
            centres = weighted_means(stats, weights)
        return centres, np.where(told, weights / weights[told].mean(), 1.0)


def weighted_means(stats: Statistics, weights: Floats) -> Floats:
    """Return the means (C, d) of client means, each weighing n_kc times its weight; 0 for a class without any."""
    rows, total = stats.rows, np.zeros((stats.n_classes, stats.dim))
    mass = rows.counts * weights
    for block in blocks(len(rows), 512):
        total += cell_sums(mass[block, None] * rows.block_means(block), rows.labels[block], stats.n_classes)
    sums = np.bincount(rows.labels, mass, stats.n_classes)
    return np.asarray(total / np.where(sums > 0, sums, 1.0)[:, None])


def row_energies(stats: Statistics, means: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return n_kc‖μ_kc − μ_c‖² of every row (rows,), and how many rows (C,) every class has."""
    rows, found = stats.rows, []
    for block in blocks(len(rows), 512):
        away = rows.block_means(block) - means[rows.labels[block]]
        found.append(rows.counts[block] * np.einsum("rd,rd->r", away, away))
    return np.concatenate(found or [np.zeros(0)]), np.bincount(rows.labels, minlength=stats.n_classes)


def effective_dimension(stats: Statistics, means: Floats) -> float:
    """Return the median over rows of (tr Σ̂)²/tr Σ̂², estimated row against row: 1 / E[cos²] of two rows.

    Directions alone enter, so that no far row decides it. At most 256 rows are compared.
    """
    rows = stats.rows
    take = np.linspace(0, len(rows) - 1, min(len(rows), 256)).astype(np.int64)
    away = np.stack([rows.block_means(slice(i, i + 1))[0] - means[rows.labels[i]] for i in take.tolist()])
    norms = np.linalg.norm(away, axis=1)
    unit = away[norms > 0] / norms[norms > 0, None]
    if len(unit) < 3:
        return 1.0
    squares = np.square(unit @ unit.T)
    np.fill_diagonal(squares, np.nan)
    return float(1.0 / max(float(np.nanmedian(np.nanmean(squares, axis=1))), 1.0 / stats.dim))
