"""A node lowers the rank of its sketches by its own policy, whatever the terms ask for."""

from dataclasses import replace

import numpy as np
import pytest

from fedmoments import StatisticsSpec
from fedmoments.core.statistics import FixedPoint, SketchPlan
from fedmoments.errors import PolicyError
from fedmoments.federation import Terms
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.policy import ClientPolicy
from fedmoments.samples.fingerprint import Fingerprint

D = 16
SPEC = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=12, share=1.0))
TERMS = Terms(
    "pets",
    {"name": "identity", "options": {}},
    Fingerprint("none", "none", None, ("cat", "dog")),
    D,
    SPEC,
    FixedPoint(norm_bound=64.0, max_samples=1000),
)
HELD = Held(np.random.default_rng(0).normal(size=(42, D)), np.arange(42) % 2)


def test_a_node_sends_no_more_rows_than_its_policy_allows() -> None:
    whole = measure_held(HELD, TERMS)
    assert whole.sketches.sizes.tolist() == [12]
    for policy, rank in ((ClientPolicy(), 10), (ClientPolicy(sketch_share=0.1), 4), (ClientPolicy(sketch_spare=41), 0)):
        sent = measure_held(HELD, TERMS, policy)
        assert sent.sketches.sizes.tolist() == [rank]
        np.testing.assert_allclose(sent.sketches.trace, whole.sketches.trace, rtol=1e-12)
        np.testing.assert_array_equal(sent.raw("client_means"), whole.raw("client_means"))


def test_a_node_refuses_where_its_policy_says_so() -> None:
    with pytest.raises(PolicyError, match="of fewer than the 41 spare samples allowed; nothing was sent"):
        measure_held(HELD, TERMS, ClientPolicy(sketch_spare=41, small_sketches="refuse"))


def row_of_a_whole_sketch(policy: ClientPolicy, *, by_class: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return what a server makes of the first column's row, and the one sample of its class that has this column."""
    plan = SketchPlan(
        None, rank=2 * D if by_class else D, code="float64", share=1.0, rows="class" if by_class else "pooled"
    )
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    terms = replace(TERMS, spec=spec)
    X, y = np.maximum(np.random.default_rng(1).normal(size=(300, D)), 0), np.arange(300) % 2
    X[:, 0], X[4, 0] = 0.0, 2.0
    sent = measure_held(Held(X, y), terms, policy).to_float()
    means = sent.sums / sent.counts[:, None]
    second = sent.sketches.rows.T @ sent.sketches.rows + (means * sent.counts[:, None]).T @ means
    return second[0], X[4]


@pytest.mark.parametrize("by_class", [False, True])
def test_no_row_of_a_sketch_of_all_directions_is_a_sample(by_class: bool) -> None:
    """Terms may ask for as many rows as there are dimensions: that is a gram, and has its rare values."""
    row, sample = row_of_a_whole_sketch(ClientPolicy(min_count=1), by_class=by_class)
    np.testing.assert_allclose(row / sample[0], sample, atol=1e-3)
    row, _ = row_of_a_whole_sketch(ClientPolicy(), by_class=by_class)
    np.testing.assert_allclose(row, 0.0, atol=1e-6)
