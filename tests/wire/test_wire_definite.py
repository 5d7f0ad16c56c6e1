"""Whether a second moment is taken in, against eigenvalues; and what a decode costs in memory and time."""

import time
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.wire.wire_workshop import WORKSHOP

from fedmoments.core.linalg import pack_symmetric
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import RefusedError
from fedmoments.wire import Agreement, Reason, decode, encode

Array = npt.NDArray[Any]
DIM = 6
FORM = FixedPoint(norm_bound=16.0, max_samples=100_000)


def answer(name: str, X: Array, y: Array, change: Array) -> str:
    """Return the reason for which a contribution is refused whose (first) second moment is changed, or nothing."""
    agreement = WORKSHOP.agreement(name, dim=DIM, n_classes=2, fixed_point=FORM)
    sound = Statistics.of(X, y, agreement.spec, n_classes=2)
    second = np.atleast_2d(sound.arrays[name]).copy()
    second[0] += pack_symmetric(change)
    arrays = {"sums": sound.arrays["sums"], name: second.reshape(sound.arrays[name].shape)}
    stats = Statistics(agreement.spec, 2, DIM, sound.classes, sound.class_counts, arrays)
    try:
        data = encode(stats, agreement, client=WORKSHOP.client, version=1, key=WORKSHOP.key)
    except RefusedError as error:
        return error.reason
    decode(data, agreement, WORKSHOP.key_of)
    return ""


@pytest.mark.parametrize("name", ["gram", "class_grams"])
@pytest.mark.parametrize("seed", range(10))
def test_a_negative_eigenvalue_is_noticed_down_to_rounding(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = (
        rng.normal(size=(5, DIM)),
        np.array([0, 0, 0, 1, 1]),
    )  # too few samples for a regular scatter
    own = X if name == "gram" else X[y == 0]
    labels = y if name == "gram" else y[y == 0]
    scatter = own.T @ own
    for label in np.unique(labels):
        total = own[labels == label].sum(axis=0)
        scatter -= np.outer(total, total) / (labels == label).sum()
    values, vectors = np.linalg.eigh(scatter)
    assert abs(values[0]) < 1e-12
    trace = float((own**2).sum())
    for share in (1e-9, 1e-6, 1e-3):
        down = -share * trace * np.outer(vectors[:, 0], vectors[:, 0])
        assert np.linalg.eigvalsh(scatter + down)[0] < -0.9 * share * trace
        assert answer(name, X, y, down) == Reason.INDEFINITE
        assert answer(name, X, y, -down) == Reason.INCONSISTENT  # one direction more than so few samples have
        inside = -share * values[-1] * np.outer(vectors[:, -1], vectors[:, -1])  # smaller, but still semi-definite
        assert np.linalg.eigvalsh(scatter + inside)[0] > -1e-12
        assert answer(name, X, y, inside) == ""
    assert answer(name, X, y, np.zeros((DIM, DIM))) == ""


def test_half_precision_makes_the_check_no_laxer_than_its_rounding() -> None:
    for rows, share in (("float16", 0.01), ("bfloat16", 0.06)):
        spec = StatisticsSpec.of("client_means", "gram")
        agreement = WORKSHOP.agreement(dim=DIM, n_classes=1, fixed_point=FORM, spec=spec, rows=rows)
        X = np.full((50, DIM), 2.0)
        stats = Statistics.of(X, np.zeros(50, int), spec, n_classes=1)
        smaller = {**stats.arrays, "gram": stats.arrays["gram"] * (1 - share)}
        wrong = Statistics(spec, 1, DIM, stats.classes, stats.class_counts, smaller, stats.row_labels, stats.row_counts)
        encode(stats, agreement, client="c", version=1, key=WORKSHOP.key)
        with pytest.raises(RefusedError, match="indefinite"):
            encode(wrong, agreement, client="c", version=1, key=WORKSHOP.key)


def contribution(agreement: Agreement, n: int) -> bytes:
    stats = WORKSHOP.statistics(agreement, n=n)
    return encode(stats, agreement, client=WORKSHOP.client, version=1, key=WORKSHOP.key)


@pytest.mark.parametrize("names", [("gram",), ("class_grams",), ("class_squares", "class_thirds", "class_fourths")])
def test_decoding_takes_about_as_much_memory_as_two_contributions(names: tuple[str, ...]) -> None:
    dim = 512 if "gram" in names else 160 if "class_grams" in names else 20_000
    agreement = WORKSHOP.agreement(*names, dim=dim)
    data = contribution(agreement, 12)
    decode(data, agreement, WORKSHOP.key_of)
    tracemalloc.start()
    try:
        found = decode(data, agreement, WORKSHOP.key_of)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.statistics.n_samples == 12
    assert kept < 0.05 * len(data) + 20_000
    assert peak < 2.2 * len(data) + 20_000


def test_ten_thousand_contributions_of_client_means_decode_in_seconds() -> None:
    agreement = WORKSHOP.agreement("client_means", dim=512, n_classes=100, fixed_point=FixedPoint(64.0, 2**24))
    data = contribution(agreement, 12)
    assert len(decode(data, agreement, WORKSHOP.key_of).statistics.classes) == 3
    start = time.process_time()
    for _ in range(500):
        decode(data, agreement, WORKSHOP.key_of)
    assert 20 * (time.process_time() - start) < 10.0
