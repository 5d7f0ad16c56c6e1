"""Values that few samples have: a second moment gives the samples away by them, and a table's sums who is there."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.linalg import unpack_symmetric
from fedmoments.core.maps import Categories, Normalize, Numbers, Offset, RandomProjection, TableMap
from fedmoments.errors import PolicyError
from fedmoments.federation.audit import Audit
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.rare_values import Shown, find_rare, repeated_classes

DIM = 120


def sparse_samples(sizes: list[int], seed: int = 0) -> tuple[Any, Any]:
    """Return features as behind a ReLU, half of them 0, and labels: so many samples of each class."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = np.maximum(rng.normal(size=(len(y), DIM)) + rng.normal(size=DIM), 0.0)
    return X.astype(np.float32).astype(np.float64), y


def read_rows(stats: Statistics) -> list[Any]:
    """Attack: every row of every second moment, scaled by its own diagonal, may be somebody."""
    if "class_grams" in stats.spec.moments:
        matrices = [unpack_symmetric(packed) for packed in stats.class_array("class_grams")]
    else:
        matrices = [unpack_symmetric(stats.global_array("gram"))]
    return [row / np.sqrt(row[j]) for matrix in matrices for j, row in enumerate(matrix) if row[j] > 0]


def recovered(stats: Statistics, X: Any) -> int:
    """Return how many samples are among the rows, to the last digits."""
    rows = np.stack(read_rows(stats))
    return sum(bool((np.abs(rows - x).max(axis=1) < 1e-9).any()) for x in X)


@pytest.mark.parametrize("name", ["gram", "class_grams"])
@pytest.mark.parametrize("sizes", [[5], [9], [5, 7, 10], [6, 30]])
def test_no_row_of_a_second_moment_is_a_sample(name: str, sizes: list[int]) -> None:
    X, y = sparse_samples(sizes)
    spec = StatisticsSpec.of(name)
    assert recovered(Statistics.of(X, y, spec, n_classes=len(sizes)), X) >= 1  # what the rule is for
    shown = Shown(X, y, None, spec.moments, fewest=5)[:]
    assert recovered(Statistics.of(shown, y, spec, n_classes=len(sizes)), X) == 0
    assert recovered(Statistics.of(shown, y, spec, n_classes=len(sizes)), shown) == 0


@pytest.mark.parametrize("name", ["gram", "class_grams"])
def test_an_audit_names_samples_that_a_row_gives_away(name: str) -> None:
    X, y = sparse_samples([9, 200] if name == "class_grams" else [9])
    spec = StatisticsSpec.of(name)
    shown = Shown(X, y, None, spec.moments, fewest=5)[:]
    audit = Audit.of(y, spec, DIM, ClientPolicy(), features=X, shown=shown)
    found = next(finding for finding in audit.before.findings if finding.kind == "alone")
    assert found.severity == "exposed"
    assert found.samples == recovered(Statistics.of(X, y, spec, n_classes=2), X) >= 5
    assert audit.after.about("alone") == 0
    assert Audit.of(y, StatisticsSpec.of("class_squares"), DIM, features=X).before.about("alone") == 0


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=24), st.integers(1, 6), st.data()
)
def test_of_what_a_class_shares_nobody_or_enough_differ(
    rows: list[list[int]], fewest: int, data: st.DataObject
) -> None:
    X = np.array(rows, np.float64)
    y = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(X), max_size=len(X))))
    y = np.unique(y, return_inverse=True)[1]
    shown = find_rare(X.__getitem__, y, fewest).hide(X, y)
    for label in np.unique(y):
        for before, after in zip(X[y == label].T, shown[y == label].T, strict=True):
            zeros = int((after == 0).sum())
            assert not zeros or len(after) - zeros == 0 or len(after) - zeros >= fewest
            values, counts = np.unique(after, return_counts=True)
            if 2 * counts.max() > len(after):
                assert counts.max() == len(after) or len(after) - counts.max() >= fewest
            kept = after == before
            assert set(after[~kept]) <= set(values[counts.argmax() : counts.argmax() + 1])


def test_dense_features_are_left_bit_for_bit_as_they_are() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    y = np.arange(40) % 5
    assert Shown(X, y, None, {"gram"}, fewest=5)[:] is not None
    assert Shown(X, y, None, {"gram"}, fewest=5)[:].tobytes() == X.tobytes()
    sparse, labels = sparse_samples([9])
    assert Shown(sparse, labels, None, {"gram"}, fewest=1)[:].tobytes() == sparse.tobytes()
    assert Shown(sparse, labels, None, {"sums", "client_means"}, fewest=5)[:].tobytes() == sparse.tobytes()


WARDS = ("east", "north", "south", "west")


@given(
    st.lists(st.tuples(st.sampled_from([None, 1, 2, 3.5]), st.sampled_from([None, "attic", *WARDS])), min_size=1),
    st.integers(2, 6),
    st.booleans(),
)
def test_no_count_of_a_table_is_of_few(rows: list[tuple[Any, Any]], fewest: int, other: bool) -> None:
    table = TableMap((Numbers("age", 2.0, 3.0), Categories("ward", WARDS, other=other)))
    codes = table.code({"age": [age for age, _ in rows], "ward": [ward for _, ward in rows]})
    y = np.arange(len(rows)) % 2
    y = np.unique(y, return_inverse=True)[1]
    features = Shown(codes, y, table, {"sums"}, fewest)[:]
    for label in np.unique(y):
        counts = features[y == label][:, table.counted].sum(axis=0)
        n = int((y == label).sum())
        for count in counts.tolist():
            assert count in (0, n) or (fewest <= count <= n - fewest)


def test_the_only_number_of_a_column_is_not_told() -> None:
    table = TableMap((Numbers("load", 10.0, 5.0), Categories("ward", ("east", "west"))))
    codes = table.code({"load": [None] * 11 + [4711.0], "ward": ["east"] * 11 + ["west"]})
    y = np.zeros(12, np.int64)
    plain = Statistics.of(table(codes), y, StatisticsSpec.of("class_squares"), n_classes=1)
    assert plain.sums[0, 0] * 5.0 + 10.0 == pytest.approx(4711.0)  # what the rule is for
    shown = Statistics.of(Shown(codes, y, table, {"sums"}, 5)[:], y, StatisticsSpec.of("class_squares"), n_classes=1)
    assert shown.sums[0].tolist() == [0.0, 12.0, 12.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("copies", [4, 5, 50])
def test_copies_of_one_sample_are_one_sample(copies: int) -> None:
    X = np.concatenate([np.tile([[1.5, 2.0]], (copies, 1)), np.random.default_rng(0).normal(size=(8, 2))])
    y = np.repeat([0, 1], [copies, 8])
    assert repeated_classes(X, y, 5) == [0]
    assert repeated_classes(X, y, 1) == []


def test_no_rotation_of_the_features_brings_a_sample_back() -> None:
    """Behind a public projection no feature is 0, but whoever knows it turns the gram back."""
    n, d = 200, 16
    X, y = np.maximum(np.random.default_rng(0).normal(size=(n, d)), 0), np.arange(n) % 2
    X[:, 0], X[4, 0] = 0.0, 2.0
    projection = RandomProjection(d, d, seed=3)
    back = np.linalg.inv(projection.matrix)

    def row(fewest: int) -> Any:
        shown = Shown(X, y, projection, {"gram"}, fewest)[:]
        return (back.T @ (shown.T @ shown) @ back)[0]

    np.testing.assert_allclose(row(1) / X[4, 0], X[4], atol=1e-6)
    np.testing.assert_allclose(row(5), 0.0, atol=1e-6)


@pytest.mark.parametrize("scales", [(1e-9, 1.0), (1.0, 1e9)])
def test_no_scale_of_a_column_picks_one_row_of_a_table_out(scales: tuple[float, float]) -> None:
    """Terms that enlarge a column around 73, and rows scaled to length 1: the sum of a class is who is 73."""
    rng, n = np.random.default_rng(0), 20
    rows = np.column_stack([np.where(np.arange(n) == 7, 73, rng.integers(20, 70, n)), rng.normal(size=(n, 3))])
    gate, rest = scales
    wide = [Numbers(f"value {j}", 0.0, rest, missing=False) for j in range(3)]
    labels, shown = np.zeros(n, np.int64), rows.astype(np.float32)

    def map_of(scale: float, others: list[Numbers]) -> Any:
        return TableMap((Numbers("age", 73.0, scale, missing=False), *others)) | Normalize()

    total = Shown(shown, labels, map_of(gate, wide), {"sums"}, 1)[:].sum(axis=0)[1:]
    wanted = shown[7, 1:] / np.linalg.norm(shown[7, 1:])
    np.testing.assert_allclose(total, wanted, atol=1e-5)  # what the rule is for
    with pytest.raises(PolicyError, match="as loud as the others"):
        Shown(shown, labels, map_of(gate, wide), {"sums"}, 5)
    fair = [Numbers(f"value {j}", 0.0, 1.0, missing=False) for j in range(3)]
    assert len(Shown(shown, labels, map_of(15.0, fair), {"sums"}, 5)[:]) == n


def test_no_offset_picks_one_row_of_numbers_out() -> None:
    """Columns of numbers have units of their own, and who is exactly at a chosen center is louder than all others."""
    rng, n = np.random.default_rng(0), 20
    ages = np.where(np.arange(n) == 7, 73.0, rng.integers(20, 60, n))
    rows = np.column_stack([ages, rng.normal(size=(n, 3)) / 100])
    aimed = Offset([73.0, 0.0, 0.0, 0.0]) | Normalize()
    total = Shown(rows, np.zeros(n, np.int64), aimed, {"sums"}, 1)[:].sum(axis=0)[1:]
    np.testing.assert_allclose(total, rows[7, 1:] / np.linalg.norm(rows[7, 1:]), atol=0.01)  # what the rule is for
    with pytest.raises(PolicyError, match="as loud as the others"):
        Shown(rows, np.zeros(n, np.int64), aimed, {"sums"}, 5)
    assert len(Shown(rows, np.zeros(n, np.int64), Normalize(), {"sums"}, 5)[:]) == n
