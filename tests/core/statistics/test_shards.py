"""Shards of one client: any partition of its samples, in any order, merged in any tree, is the client measured at once.

Bit for bit in fixed point; up to rounding in float64; scatter sketches keep the energy of their leading directions.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.statistics.cell_sums import ExactSums
from fedmoments.core.statistics.moments import moment
from fedmoments.errors import FileFormatError, FixedPointOverflowError, InputError, MergeError

FORM = fm.FixedPoint(norm_bound=32.0, max_samples=100_000)
SPECS = {
    "sums": fm.StatisticsSpec(),
    "gram": fm.StatisticsSpec.of("gram"),
    "class grams": fm.StatisticsSpec.of("class_grams"),
    "powers": fm.StatisticsSpec.of("class_norms", "class_thirds", "class_fourths"),
    "client means": fm.StatisticsSpec.of("client_means", "gram", "class_squares"),
    "three means": fm.StatisticsSpec.of("client_means", means_per_client=3),
}


def samples(n: int, dim: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    X = rng.normal(size=(n, dim)) * rng.uniform(0.01, 2.0, size=dim) + np.eye(n_classes, dim)[y]
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True) / 30.0, 1.0), y


def shard(spec: fm.StatisticsSpec, X: np.ndarray, y: np.ndarray, n_classes: int, **options: object) -> fm.Accumulator:
    made = fm.Accumulator(spec, n_classes=n_classes, dim=X.shape[1], **options)  # type: ignore[arg-type]
    return made.update(X, y)


def merged(shards: list[fm.Accumulator], rng: np.random.Generator, *, through_bytes: bool = False) -> fm.Accumulator:
    """Join random pairs until one is left: a random tree."""
    while len(shards) > 1:
        i, j = sorted(rng.choice(len(shards), size=2, replace=False).tolist(), reverse=True)
        other, one = shards.pop(i), shards.pop(j)
        pair = [one, other] if rng.random() < 0.5 else [other, one]
        if through_bytes:
            pair = [fm.Accumulator.from_bytes(each.to_bytes()) for each in pair]
        shards.append(pair[0].merge(pair[1]))
    return shards[0]


def cut(X: np.ndarray, y: np.ndarray, parts: int, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Deal samples to shards at random, in random order; some shards may be empty."""
    place = rng.integers(0, parts, size=len(y))
    order = rng.permutation(len(y))
    return [(X[order][place[order] == k], y[order][place[order] == k]) for k in range(parts)]


@pytest.mark.parametrize("kind", SPECS)
@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 120), parts=st.integers(1, 7), seed=st.integers(0, 10_000), through_bytes=st.booleans())
def test_any_partition_merged_in_any_tree_is_the_client_at_once_bit_for_bit(
    kind: str, n: int, parts: int, seed: int, through_bytes: bool
) -> None:
    X, y = samples(n, 5, 4, seed)
    rng = np.random.default_rng(seed)
    whole = shard(SPECS[kind], X, y, 4, fixed_point=FORM).statistics()
    shards = [shard(SPECS[kind], *part, 4, fixed_point=FORM) for part in cut(X, y, parts, rng)]
    joined = merged(shards, rng, through_bytes=through_bytes).statistics()
    assert joined == whole
    assert joined.fixed_point == FORM
    assert len(joined.row_labels) == len(whole.row_labels)


def test_half_of_the_shards_are_not_the_client() -> None:
    X, y = samples(60, 5, 4, 1)
    whole = shard(SPECS["client means"], X, y, 4, fixed_point=FORM).statistics()
    assert shard(SPECS["client means"], X[:30], y[:30], 4, fixed_point=FORM).statistics() != whole


@pytest.mark.parametrize("kind", [name for name in SPECS if name != "three means"])
def test_float64_shards_are_the_client_up_to_rounding(kind: str) -> None:
    X, y = samples(300, 6, 4, 3)
    whole = shard(SPECS[kind], X, y, 4).statistics()
    for parts in itertools.islice(itertools.count(2), 4):
        rng = np.random.default_rng(parts)
        joined = merged([shard(SPECS[kind], *part, 4) for part in cut(X, y, parts, rng)], rng).statistics()
        assert np.array_equal(joined.class_counts, whole.class_counts)
        for name, array in whole.arrays.items():
            np.testing.assert_allclose(joined.arrays[name], array, rtol=1e-12, atol=1e-12)


def test_exact_sums_agree_with_float64_to_the_resolution_of_the_form() -> None:
    X, y = samples(3000, 7, 3, 5)
    spec = SPECS["client means"] | SPECS["class grams"] | SPECS["powers"]
    exact = shard(spec, X, y, 3, fixed_point=FORM).statistics().to_float()
    plain = shard(spec, X, y, 3).statistics()
    for name, array in plain.arrays.items():
        bound = len(X) * FORM.norm_bound ** moment(name).degree * 2.0**-40
        assert np.abs(exact.arrays[name] - array).max() < bound, name


def test_the_exact_gram_is_that_of_whole_numbers() -> None:
    """A naive referee: Python integers, without a limit."""
    form = fm.FixedPoint(norm_bound=10.0, max_samples=2**24)
    sums, gram = ExactSums(form), moment("gram")
    X = np.random.default_rng(0).uniform(-3, 3, size=(50, 3))
    work = sums.workspace(gram, 1, 3)
    sums.add(gram, work, X, np.zeros(50, np.int64))
    bits, reach = sums._bits, sums._range
    high = [[round(x * 2.0 ** (bits - reach)) for x in row] for row in X.tolist()]
    low = [
        [round((x * 2.0 ** (bits - reach) - h) * 2.0**bits) for x, h in zip(row, whole, strict=True)]
        for row, whole in zip(X.tolist(), high, strict=True)
    ]
    for place, (i, j) in enumerate(zip(*np.triu_indices(3), strict=True)):
        assert work[0, place] == sum(h[i] * h[j] for h in high)
        assert work[1, place] == sum(h[i] * w[j] + w[i] * h[j] for h, w in zip(high, low, strict=True))


def test_shares_of_several_means_are_disjoint_random_and_leave_nobody_out() -> None:
    X, y = samples(4000, 5, 2, 7)
    stats = shard(SPECS["three means"], X, y, 2, fixed_point=FORM).statistics()
    assert len(stats.row_labels) == 6
    assert stats.row_counts.sum() == 4000
    share = stats.row_counts / stats.class_counts[stats.row_labels]
    assert (np.abs(share - 1 / 3) < 5 * np.sqrt(2 / 9 / 2000)).all()  # five deviations of a binomial share


@pytest.mark.parametrize(("rows", "n_classes"), [("pooled", 3), ("class", 6)])
@pytest.mark.parametrize("dim", [12, 300])
@settings(max_examples=6, deadline=None)
@given(parts=st.integers(2, 9), seed=st.integers(0, 1000), through_bytes=st.booleans())
def test_merged_sketches_keep_99_percent_of_the_energy(
    rows: str, n_classes: int, dim: int, parts: int, seed: int, through_bytes: bool
) -> None:
    """Of the energy that the best rows of that rank hold, and all of the trace."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=900)
    scale = np.arange(1, dim + 1) ** -0.5
    X = rng.normal(size=(900, dim)) * scale + 5 * rng.normal(size=(n_classes, dim))[y]
    spec = fm.StatisticsSpec.of("scatter_sketch", sketch=fm.SketchPlan(None, rank=8, code="float64", rows=rows))
    whole = shard(spec, X, y, n_classes).statistics()
    shards = [shard(spec, *part, n_classes) for part in cut(X, y, parts, rng)]
    joined = merged(shards, rng, through_bytes=through_bytes).statistics()
    np.testing.assert_allclose(joined.sketches.traces, whole.sketches.traces, rtol=1e-9)
    centred = X - np.stack([X[y == c].mean(axis=0) for c in range(n_classes)])[y]
    blocks = [centred] if rows == "pooled" else [centred[y == c] for c in range(n_classes)]
    best = np.sort(np.concatenate([np.linalg.svd(block, compute_uv=False) ** 2 for block in blocks]))[::-1][:8].sum()
    assert np.square(joined.raw("scatter_sketch")).sum() >= 0.99 * best
    assert joined.row_counts.tolist() == whole.row_counts.tolist()


def test_a_merged_sketch_is_exact_while_nothing_was_lost() -> None:
    X, y = samples(150, 12, 3, 2)
    spec = fm.StatisticsSpec.of("scatter_sketch", sketch=fm.SketchPlan(None, rank=12, code="float64", rows="pooled"))
    whole = shard(spec, X, y, 3).statistics().raw("scatter_sketch")
    joined = shard(spec, X[:70], y[:70], 3).merge(shard(spec, X[70:], y[70:], 3)).statistics().raw("scatter_sketch")
    np.testing.assert_allclose(joined.T @ joined, whole.T @ whole, atol=1e-9)


def test_a_large_offset_does_not_cancel_when_sketches_merge() -> None:
    X, y = samples(150, 12, 3, 2)
    spec = fm.StatisticsSpec.of("scatter_sketch", sketch=fm.SketchPlan(None, rank=12, code="float64", rows="pooled"))
    near = shard(spec, X, y, 3).statistics().sketches.trace
    far = shard(spec, X[:50] + 1e6, y[:50], 3).merge(shard(spec, X[50:] + 1e6, y[50:], 3)).statistics().sketches.trace
    assert far == pytest.approx(near, rel=1e-6)


def test_the_rows_of_two_shards_are_those_of_one_client() -> None:
    X, y = samples(90, 4, 3, 0)
    shards = [shard(SPECS["client means"], X[k::5], y[k::5], 3, client="clinic") for k in range(5)]
    total = merged(shards, np.random.default_rng(0)).statistics()
    assert len(total.rows) == 3
    assert total.clients == {"clinic"}


def test_shards_of_different_streams_are_refused_with_what_differs() -> None:
    X, y = samples(9, 4, 3, 0)
    one = shard(SPECS["gram"], X, y, 3, client="clinic")
    with pytest.raises(MergeError, match=r"same client, but one has clinic and the other lab.*statistics of different"):
        one.merge(shard(SPECS["gram"], X, y, 3, client="lab"))
    with pytest.raises(MergeError, match="same spec"):
        one.merge(shard(SPECS["sums"], X, y, 3, client="clinic"))
    with pytest.raises(MergeError, match="same fixed_point"):
        one.merge(shard(SPECS["gram"], X, y, 3, client="clinic", fixed_point=FORM))
    with pytest.raises(MergeError, match="with itself"):
        one.merge(one)
    with pytest.raises(MergeError, match="same seed"):
        shard(SPECS["three means"], X, y, 3).merge(shard(SPECS["three means"], X, y, 3, seed=1))


def test_one_client_is_not_merged_twice_unless_it_is_said_to_be_two() -> None:
    X, y = samples(30, 4, 3, 0)
    parts = [fm.Statistics.of(X[k::2], y[k::2], SPECS["client means"], n_classes=3, client="clinic") for k in range(2)]
    with pytest.raises(MergeError, match="the client 'clinic' is in two"):
        fm.Statistics.merge(parts)
    with pytest.raises(MergeError, match="the client 'clinic' is in two"):
        _ = parts[0] + parts[1]
    both = fm.Statistics.merge(parts, two_clients=True)
    assert len(both.rows) == 6
    nameless = fm.Statistics.of(X, y, SPECS["client means"], n_classes=3)
    with pytest.raises(MergeError, match="given twice"):
        fm.Statistics.merge([nameless, nameless])
    assert (both - parts[0]).clients == frozenset()


def test_names_of_clients_travel_in_files_but_are_no_part_of_equality(tmp_path: Path) -> None:
    named = fm.Statistics.of([[1.0]], [0], SPECS["gram"], n_classes=1, client="clinic")
    fm.save_statistics(tmp_path / "clinic.stats", named)
    again, _ = fm.load_statistics(tmp_path / "clinic.stats")
    assert again.clients == {"clinic"}
    assert again == fm.Statistics.of([[1.0]], [0], SPECS["gram"], n_classes=1)


def test_a_sample_beyond_the_range_leaves_the_shard_as_it_was() -> None:
    X, y = samples(20, 4, 3, 0)
    one = shard(SPECS["powers"], X, y, 3, fixed_point=FORM)
    before = one.statistics()
    with pytest.raises(FixedPointOverflowError, match="sample 1 has a norm of 40"):
        one.update([[0.0, 0.0, 0.0, 0.0], [0.0, 40.0, 0.0, 0.0]], [0, 0])
    small = fm.FixedPoint(norm_bound=32.0, max_samples=21)
    full = shard(SPECS["gram"], X, y, 3, fixed_point=small)
    with pytest.raises(FixedPointOverflowError, match="22 samples"):
        full.update(X[:2], y[:2])
    with pytest.raises(FixedPointOverflowError, match="40 samples"):
        full.merge(shard(SPECS["gram"], X, y, 3, fixed_point=small))
    assert one.statistics() == before


@pytest.mark.parametrize("spec", ["gram", "three means"])
def test_damaged_bytes_of_a_shard_are_refused(spec: str) -> None:
    X, y = samples(20, 4, 3, 0)
    data = shard(SPECS[spec], X, y, 3).to_bytes()
    for place in range(0, len(data), 97):
        wrong = bytearray(data)
        wrong[place] ^= 0x41
        with pytest.raises(FileFormatError):
            fm.Accumulator.from_bytes(bytes(wrong))


def test_a_shard_whose_numbers_contradict_each_other_is_refused() -> None:
    from fedmoments.files import pack_tensors, unpack_tensors

    plan = fm.SketchPlan(None, rank=2, code="float64", rows="pooled")
    X, y = samples(80, 4, 3, 0)
    sketch = fm.StatisticsSpec.of("scatter_sketch", "gram", sketch=plan)
    tensors, header = unpack_tensors(shard(sketch, X, y, 3).to_bytes(), "shard", "it")
    lies = {
        "counts": tensors["counts"] + 1,
        "classes": tensors["classes"][::-1].copy(),
        "moment.gram": tensors["moment.gram"][:2],
        "scatter.means": tensors["scatter.means"] * np.nan,
        "scatter.traces": -tensors["scatter.traces"],
        "scatter.rows": tensors["scatter.rows"][:, :1].copy(),
    }
    for name, lie in lies.items():
        with pytest.raises((FileFormatError, InputError)):
            fm.Accumulator.from_bytes(pack_tensors("shard", tensors | {name: lie}, header))
