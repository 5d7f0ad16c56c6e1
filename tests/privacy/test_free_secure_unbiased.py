"""The free covariance of cohort rows has the population's as its expectation: thousands of draws of a small problem."""

import numpy as np
from numpy.typing import NDArray
from tests.privacy.secure_workshop import run_cohorts

from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.cohort_draw import Roster, deal_cohorts, merge_small
from fedmoments.privacy.secure.cohorts import plan_openings, rows_of
from fedmoments.privacy.secure.parties import SIMULATED

K, C, D, DRAWS = 14, 2, 2, 2500
FORM = FixedPoint(norm_bound=64.0, max_samples=4000)
LAYOUT = DenseLayout(StatisticsSpec(), C, D)
ROSTER = Roster.of({f"site {i:02d}": f"{i + 2:064x}" for i in range(K)})
MEANS = np.array([[1.0, -2.0], [4.0, 3.0]])
COVARIANCE = np.array([[2.0, 0.9], [0.9, 1.0]])
ROOT = np.linalg.cholesky(COVARIANCE)


def drawn_vectors(rng: np.random.Generator, counts: NDArray[np.int64]) -> dict[str, NDArray[np.uint64]]:
    """Return what clients would send: sums of n samples are Gaussian with n times the mean and covariance."""
    noise = rng.normal(size=(K, C, D)) @ ROOT.T
    sums = counts[:, :, None] * MEANS + np.sqrt(counts)[:, :, None] * noise
    vectors = {}
    for client, n, own in zip(ROSTER.clients, counts, sums, strict=True):
        vector = np.zeros(LAYOUT.size, np.int64)
        vector[:C] = n > 0
        table = vector[C:].reshape(C, 1 + D)
        table[:, 0] = n
        table[:, 1:] = np.rint(np.ldexp(own, FORM.bits(1)))
        vectors[client] = vector.view(np.uint64)
    return vectors


def cohort_rows(vectors: dict[str, NDArray[np.uint64]], word: bytes, size: int, contributors: int) -> Statistics:
    """Return what both servers open together, added up in the clear."""
    groups = merge_small(deal_cohorts(ROSTER, SIMULATED, word, size), vectors, 2)
    sums = np.stack([np.stack([vectors[client] for client in group]).sum(axis=0) for group in groups])
    openings, _ = plan_openings(np.stack([LAYOUT.contributors(total) for total in sums]), contributors)
    parts = []
    for opening in openings:
        whole = sums[list(opening.cohorts)].sum(axis=0)
        parts.append(np.concatenate([whole[LAYOUT.class_block(label)] for label in opening.labels]))
    return rows_of(openings, parts, LAYOUT, FORM)


def z_scores(size: int, contributors: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return z of every entry of the mean covariance over many draws of data, holders and cohorts; and its error."""
    rng = np.random.default_rng(seed)
    found = np.zeros((DRAWS, D, D))
    for draw in range(DRAWS):
        counts = rng.integers(1, 9, (K, C)) * (rng.random((K, C)) < 0.7)
        counts[:4] = np.maximum(counts[:4], 1)  # enough holders for two rows
        stats = cohort_rows(drawn_vectors(rng, counts), rng.bytes(32), size, contributors)
        found[draw] = ClassGaussians(stats, "free").pooled_covariance("none")
    error = found.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    return (found.mean(axis=0) - COVARIANCE) / error, error


def test_the_free_covariance_of_cohort_rows_is_unbiased() -> None:
    for size, contributors in ((2, 1), (4, 2), (4, 4)):
        z, error = z_scores(size, contributors, seed=size + contributors)
        assert np.abs(z).max() < 4.0
        assert (np.diag(error) < 0.03 * np.diag(COVARIANCE)).all()  # a bias of an eighth would be seen


def test_the_clear_sum_of_this_file_is_the_protocol() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, (K, C))
    vectors = drawn_vectors(rng, counts)
    parts = {client: LAYOUT.unpack(vector, FORM) for client, vector in vectors.items()}
    stats, facts = run_cohorts(parts, size=4, contributors=2)
    clear = cohort_rows(vectors, bytes(32), 4, 2)
    assert sum(facts["cohorts"]) == K
    np.testing.assert_array_equal(stats.raw("sums"), clear.raw("sums"))  # cohorts differ, their sums do not
