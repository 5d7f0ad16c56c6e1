"""A dense vector holds every class, adds as statistics add, and comes back bit for bit."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import FixedPointOverflowError, InputError, MissingMomentError
from fedmoments.privacy.dense import DenseLayout

FORM = FixedPoint(norm_bound=8.0, max_samples=10_000)
NAMES = ("class_norms", "class_squares", "class_thirds", "class_fourths", "gram", "class_grams")
SPECS = [StatisticsSpec.of(*some) for n in range(4) for some in combinations(NAMES, n)]


def drawn(rng: np.random.Generator, spec: StatisticsSpec, n_classes: int, dim: int, n: int) -> Statistics:
    X, y = rng.normal(size=(n, dim)), rng.integers(0, n_classes, n)
    return Statistics.of(X, y, spec, n_classes=n_classes, fixed_point=FORM)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(SPECS), st.integers(1, 5), st.integers(1, 4), st.lists(st.integers(0, 6), min_size=1, max_size=4)
)
def test_the_sum_of_vectors_is_the_vector_of_the_sum(
    spec: StatisticsSpec, n_classes: int, dim: int, sizes: list[int]
) -> None:
    rng = np.random.default_rng([n_classes, dim, *sizes])
    parts = [drawn(rng, spec, n_classes, dim, n) for n in sizes]
    layout = DenseLayout(spec, n_classes, dim)
    total = np.stack([layout.pack(part) for part in parts]).sum(axis=0, dtype=np.uint64)
    merged = Statistics.merge(parts)
    assert layout.unpack(total, FORM) == merged
    assert np.array_equal(total[layout.n_classes :], layout.pack(merged)[layout.n_classes :])
    assert layout.contributors(total).tolist() == [sum(c in part.classes for part in parts) for c in range(n_classes)]


def test_blocks_are_disjoint_and_cover_the_vector() -> None:
    layout = DenseLayout(StatisticsSpec.of("gram", "class_squares"), n_classes=3, dim=4)
    blocks = [layout.contributor_block, *(layout.class_block(c) for c in range(3)), layout.global_block]
    places = [place for block in blocks for place in range(block.start, block.stop)]
    assert places == list(range(layout.size))
    assert (layout.class_width, layout.global_width) == (1 + 4 + 4, 10)


def test_a_vector_tells_nothing_by_its_length() -> None:
    layout = DenseLayout(StatisticsSpec.of("class_grams"), n_classes=5, dim=3)
    rng = np.random.default_rng(0)
    sizes = {len(layout.pack(drawn(rng, layout.spec, 5, 3, n))) for n in (0, 1, 50)}
    assert sizes == {layout.size}


def test_client_means_have_no_dense_vector() -> None:
    with pytest.raises(InputError, match="not added up across clients"):
        DenseLayout(StatisticsSpec.of("client_means"), 2, 2)


def test_what_does_not_fit_the_layout_is_refused() -> None:
    layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=2, dim=2)
    float_stats = Statistics.of(np.ones((3, 2)), [0, 1, 1], layout.spec, n_classes=2)
    with pytest.raises(InputError, match="quantize them"):
        layout.pack(float_stats)
    with pytest.raises(InputError, match="2 classes in 2 dimensions"):
        layout.pack(Statistics.zero(layout.spec, n_classes=3, dim=2, fixed_point=FORM))
    with pytest.raises(MissingMomentError):
        layout.pack(Statistics.zero(StatisticsSpec(), n_classes=2, dim=2, fixed_point=FORM))
    with pytest.raises(InputError, match="numbers of 64 bits"):
        layout.signed(np.zeros(3, np.uint64))


@pytest.mark.parametrize("count", [-1, FORM.max_samples + 1])
def test_masks_that_do_not_cancel_are_noticed(count: int) -> None:
    layout = DenseLayout(StatisticsSpec(), n_classes=2, dim=2)
    vector = np.zeros(layout.size, np.int64)
    vector[layout.class_block(1).start] = count
    with pytest.raises(InputError, match="masks that do not"):
        layout.unpack(vector.view(np.uint64), FORM)


def test_more_samples_than_agreed_are_noticed_before_moments_of_all_classes_wrap() -> None:
    """No class has too many, all together do: the gram would come out modulo 2⁶⁴."""
    form, n_classes = FixedPoint(norm_bound=1.0, max_samples=1024), 3
    layout = DenseLayout(StatisticsSpec.of("gram"), n_classes, dim=1)
    total = np.zeros(layout.size, np.uint64)
    for label in range(n_classes):
        part = Statistics.of(np.ones((1000, 1)), [label] * 1000, layout.spec, n_classes=n_classes, fixed_point=form)
        total += layout.pack(part)
    assert layout.signed(total)[-1] != 1000 * n_classes * 2 ** form.bits(2)
    with pytest.raises(FixedPointOverflowError, match="hold 3000 samples, more than the agreed max_samples=1024"):
        layout.unpack(total, form)
