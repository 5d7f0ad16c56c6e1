"""A node lowers the rank of its sketches by its own policy, whatever the terms ask for."""

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
