"""What must not be combined with noise: shown by how far apart neighbours get, and refused."""

from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import plan
from fedmoments.privacy.protection import Agreed

SAMPLE = Agreed(epsilon=1.0)
CLIENT = Agreed(epsilon=1.0, unit="client", client_norm=3.0)
RULES = [{"min_count": 5}, {"max_per_class": 10}, {"obfuscation": "uniform:0.5"}, {"max_samples": 100}]


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_look_at_the_data_are_refused_for_samples_and_not_for_clients(rule: Any) -> None:
    with pytest.raises(PrivacyError, match=f"{next(iter(rule))} = .* exclude each other"):
        SAMPLE.mode.noise.check_rules(**rule)
    CLIENT.mode.noise.check_rules(**rule)
    Agreed().mode.noise.check_rules(**rule)
    SAMPLE.mode.noise.check_rules()


@pytest.mark.parametrize("agreed", [SAMPLE, CLIENT])
def test_a_robust_filter_is_refused_for_both(agreed: Any) -> None:
    with pytest.raises(PrivacyError, match="robust filter 'mad'"):
        agreed.mode.noise.check_rules(robust="mad")
    Agreed().mode.noise.check_rules(robust="mad")


@pytest.mark.parametrize("agreed", [SAMPLE, CLIENT])
def test_clients_that_measure_for_each_other_are_refused_for_both(agreed: Any) -> None:
    with pytest.raises(PrivacyError, match="small_classes = merge"):
        agreed.mode.noise.check_rules(small_classes="merge")
    Agreed().mode.noise.check_rules(small_classes="merge")


def test_one_sample_over_a_minimum_count_changes_more_than_the_sensitivity() -> None:
    """Why min_count is refused: the fifth sample of a class brings four others with it."""
    form, spec = FixedPoint(1.0, 1000), StatisticsSpec()
    layout = DenseLayout(spec, 2, 2)
    made = plan(layout, form, SAMPLE)

    def sent(n: Any) -> Any:
        kept = n if n >= 5 else 0
        stats = Statistics.of(np.tile([1.0, 0.0], (kept, 1)), [0] * kept, spec, n_classes=2, fixed_point=form)
        return layout.signed(layout.pack(stats))[2:].astype(float)

    gap = made.sigma * (sent(5) - sent(4)) / made.grid_scales()[2:]
    assert np.linalg.norm(gap) > 4.9 * made.sensitivity
