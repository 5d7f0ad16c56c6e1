"""Attacks on contributions in the clear: those that must succeed are why the policy exists; under it they must fail."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import FixedPoint
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.leaks import LeakReport, guessing
from fedmoments.privacy.obfuscation import Obfuscation
from fedmoments.privacy.small_classes import merge_rows
from fedmoments.wire import Agreement, Contribution, IdentityKey, decode, encode

Floats = NDArray[np.float64]
Upload = Callable[..., Contribution]

D, C = 16, 6
FORM = FixedPoint(norm_bound=1.0, max_samples=100_000)
#: A client's samples: one of class 0, two of class 1, four of class 2, nine of class 3, none of the others.
LABELS = np.repeat(np.arange(4), [1, 2, 4, 9])


def unit_vectors(n: int, dim: int = D, seed: int = 1) -> Floats:
    X = np.random.default_rng(seed).normal(size=(n, dim))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


@pytest.fixture
def upload() -> Upload:
    """Send a client's samples as a signed contribution, and return what the server reads."""
    key = IdentityKey.from_bytes(bytes(32))

    def send(
        X: Floats, y: NDArray[np.int64], spec: StatisticsSpec, policy: ClientPolicy, version: int = 1
    ) -> Contribution:
        agreement = Agreement("ab" * 32, "ab" * 32, "ab" * 32, C, X.shape[1], spec, FORM)
        mask, withheld = policy.select(y, spec.means_per_client)
        stats = Statistics.of(X[mask], y[mask], spec, n_classes=C)
        stats = merge_rows(stats, policy.min_count) if policy.merges else stats
        data = encode(stats, agreement, client="clinic", version=version, key=key, withheld=withheld)
        return decode(data, agreement, lambda _: key.public)

    return send


def single_samples(stats: Statistics) -> dict[int, Floats]:
    """The attack: every mean over one sample is that sample."""
    found = {
        k: a for k, n, a in zip(stats.classes, stats.class_counts, stats.class_array("sums"), strict=True) if n == 1
    }
    if stats.spec.keeps_clients_apart:
        rows = stats.rows
        found |= {k: a for k, n, a in zip(rows.labels, rows.counts, rows.block_sums(), strict=True) if n == 1}
    return {int(label): sample for label, sample in found.items()}


SPECS = [StatisticsSpec(), StatisticsSpec.of("client_means"), StatisticsSpec.of("gram", "client_means")]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_single_sample_is_read_from_a_clear_upload_of_everything(upload: Upload, spec: StatisticsSpec) -> None:
    X = unit_vectors(len(LABELS))
    sent = upload(X, LABELS, spec, ClientPolicy(min_count=1))
    found = single_samples(sent.statistics)
    np.testing.assert_allclose(found[0], X[0], atol=FORM.resolution(1))
    assert LeakReport.of(sent.statistics).about("sample") == len(found) == 1


@pytest.mark.parametrize("small", ["withhold", "merge"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_default_policy_leaves_no_single_sample_to_read(upload: Upload, spec: StatisticsSpec, small: str) -> None:
    sent = upload(unit_vectors(len(LABELS)), LABELS, spec, ClientPolicy(small_classes=small))
    assert single_samples(sent.statistics) == {}
    assert sent.statistics.classes.tolist() == [3]
    assert (sent.withheld.classes, sent.withheld.samples) == (3, 7)
    assert LeakReport.of(sent.statistics).about("sample", "pair", "values", "few") == 0


def test_a_sample_of_a_withheld_class_changes_nothing_of_what_is_sent(upload: Upload) -> None:
    """Whatever an attack computes, it cannot tell one withheld sample from another: the statistics are the same."""
    X, other = unit_vectors(len(LABELS)), unit_vectors(len(LABELS))
    other[0] = unit_vectors(1, seed=99)[0]
    spec = StatisticsSpec.of("class_grams", "client_means")
    one, two = (upload(each, LABELS, spec, ClientPolicy()).statistics for each in (X, other))
    assert one.digest() == two.digest()
    assert upload(other, LABELS, spec, ClientPolicy(min_count=1)).statistics.digest() != two.digest()


# ---------------------------------------------------------------------------------------------- two samples


def pairs(stats: Statistics) -> dict[int, Floats]:
    """The attack: of two samples with mean m, S/2 − m mᵀ = δ δᵀ has rank one, and they are m ± δ."""
    found = {}
    for (label, gram), total, n in zip(stats.class_grams, stats.class_array("sums"), stats.class_counts, strict=True):
        if n == 2:
            values, vectors = np.linalg.eigh(gram / 2 - np.outer(total, total) / 4)
            offset = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
            found[label] = np.stack([total / 2 + offset, total / 2 - offset])
    return found


def test_two_samples_are_read_from_their_class_gram(upload: Upload) -> None:
    X = unit_vectors(len(LABELS))
    spec = StatisticsSpec.of("class_grams")
    sent = upload(X, LABELS, spec, ClientPolicy(min_count=1)).statistics
    ((label, found),) = pairs(sent).items()
    assert label == 1
    closest = min(np.abs(found - X[1:3]).max(), np.abs(found[::-1] - X[1:3]).max())
    assert closest < 1e-5
    assert LeakReport.of(sent).about("pair") == 2
    assert pairs(upload(X, LABELS, spec, ClientPolicy()).statistics) == {}


def test_values_of_two_samples_are_read_from_their_squares(upload: Upload) -> None:
    """Every coordinate's two values are known, not which belong together."""
    X = unit_vectors(len(LABELS))
    sent = upload(X, LABELS, StatisticsSpec.of("class_squares"), ClientPolicy(min_count=1)).statistics
    place = sent.classes.tolist().index(1)
    mean = sent.class_array("sums")[place] / 2
    offset = np.sqrt(np.maximum(sent.class_array("class_squares")[place] / 2 - mean**2, 0.0))
    np.testing.assert_allclose(mean + offset, X[1:3].max(axis=0), atol=1e-5)
    np.testing.assert_allclose(mean - offset, X[1:3].min(axis=0), atol=1e-5)


# ---------------------------------------------------------------------------------------------- two releases


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_difference_of_two_versions_is_the_sample_that_came_with_its_label(
    upload: Upload, spec: StatisticsSpec
) -> None:
    """Neither version breaks the policy: no rule on one release can prevent it, only sums over many clients."""
    X, y = unit_vectors(61), np.repeat(np.arange(3), [20, 20, 21])
    old = upload(X[:-1], y[:-1], spec, ClientPolicy()).statistics
    new = upload(X, y, spec, ClientPolicy(), version=2).statistics
    label = np.flatnonzero(new.counts != old.counts)
    assert label.tolist() == [2]
    np.testing.assert_allclose(new.sums[2] - old.sums[2], X[-1], atol=2 * FORM.resolution(1))


# ---------------------------------------------------------------------------------------------- membership


def auc(members: Floats, others: Floats) -> float:
    """Return the probability that a member has the larger score."""
    return float((members[:, None] > others).mean() + 0.5 * (members[:, None] == others).mean())


def membership(gram: Floats, X: Floats) -> Floats:
    """The attack: by leverage, −xᵀ(B + tiny·I)⁻¹x; a vector outside of the span of B has a huge one."""
    ridge = 1e-9 * np.trace(gram) * np.eye(len(gram))
    return -np.asarray(np.einsum("ij,ij->i", X, np.linalg.solve(gram + ridge, X.T).T))


@pytest.mark.parametrize(("n", "severity"), [(16, "exposed"), (32, "exposed"), (320, "weak"), (6400, None)])
def test_membership_is_certain_from_a_gram_of_up_to_d_samples_and_fades_as_the_report_says(
    upload: Upload, n: int, severity: str | None
) -> None:
    dim, others = 32, 1500
    X = unit_vectors(n + others, dim, seed=n)
    sent = upload(X[:n], np.zeros(n, np.int64), StatisticsSpec.of("gram"), ClientPolicy()).statistics
    found = auc(membership(sent.gram, X[:n][:others]), membership(sent.gram, X[n:]))
    if n <= dim:
        assert found >= 0.99
    else:
        assert abs(found - guessing(dim, n)) < 0.04
    severities = [each.severity for each in LeakReport.of(sent).findings if each.kind == "membership"]
    assert severities == ([severity] if severity else [])


# ---------------------------------------------------------------------------------------------- obfuscated counts


def count_behind(mean: Floats, grid: float, most: int) -> int:
    """The attack: features are multiples of the grid, so the mean times the true count is one, too."""
    for count in range(1, most + 1):
        steps = count * mean / grid
        if np.abs(steps - np.rint(steps)).max() < 1e-2:
            return count
    return 0


def odd(number: int) -> int:
    """Return a number without its factors of two."""
    while number and number % 2 == 0:
        number //= 2
    return number


def test_the_true_count_is_read_from_the_exact_mean_of_features_in_half_precision() -> None:
    """Why it is called obfuscation: numbers in half precision are multiples of 2⁻²⁴, so n follows but for its twos."""
    read, told = [], []
    for n in range(5, 25):
        X = (0.9 * unit_vectors(n, seed=n)).astype(np.float16)
        stats = Statistics.of(X, np.zeros(n, np.int64), StatisticsSpec.of("client_means"), n_classes=C)
        blurred = Obfuscation("uniform", 0.3).apply(stats, seed=n).quantized(FORM)
        read.append(count_behind(blurred.rows.block_means()[0], 2.0**-24, most=60))
        told.append(int(blurred.class_counts[0]))
    right, guessed = (sum(odd(a) == odd(n) for a, n in zip(found, range(5, 25), strict=True)) for found in (read, told))
    assert right >= 18
    assert guessed <= 5
