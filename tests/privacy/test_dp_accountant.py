"""The account of privacy: σ of dp-accounting, exact composition, refusal past the budget, and a memory."""

import json
import math
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedmoments.core.statistics import FixedPoint, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import Accountant, Spending, epsilon_of, least_ratio, plan
from fedmoments.privacy.protection import Agreed

pytest.importorskip("dp_accounting")


def curve(epsilon: Any, ratio: Any) -> Any:
    """δ(ε) of a Gaussian release, from its formula."""
    return norm.cdf(0.5 / ratio - epsilon * ratio) - math.exp(epsilon) * norm.cdf(-0.5 / ratio - epsilon * ratio)


@pytest.mark.parametrize(
    ("epsilon", "known"), [(0.5, 7.0318), (1.0, 3.7306), (2.0, 1.9938), (4.0, 1.0812), (8.0, 0.6002)]
)
def test_sigma_is_the_accountants(epsilon: Any, known: Any) -> None:
    ratio = least_ratio(epsilon, 1e-5)
    assert abs(ratio - known) < 1e-4
    referee = brentq(lambda s: curve(epsilon, s) - 1e-5, 0.1, 50.0)
    assert abs(ratio / referee - 1) < 1e-4
    assert curve(epsilon, ratio) <= 1e-5
    assert abs(epsilon_of(ratio, 1e-5) / epsilon - 1) < 1e-4


@pytest.mark.parametrize("budget", ["automatic", "equal"])
def test_the_noise_of_a_release_is_the_accountants_sigma_times_sensitivity(budget: Any) -> None:
    layout = DenseLayout(StatisticsSpec.of("gram"), 7, 5)
    made = plan(layout, FixedPoint(1.0, 10**6), Agreed(epsilon=2.0, budget=budget))
    assert abs(made.sigma / made.sensitivity / 1.99381 - 1) < 1e-4
    assert abs(made.epsilon - 2.0) < 1e-4
    assert made.delta == 1e-5


@pytest.mark.parametrize("releases", [1, 2, 5])
def test_planned_releases_share_the_budget_and_one_more_is_refused(releases: Any) -> None:
    agreed = Agreed(epsilon=1.5, releases=releases)
    made = plan(DenseLayout(StatisticsSpec(), 3, 4), FixedPoint(1.0, 10**6), agreed)
    account = Accountant(1.5, 1e-5)
    for number in range(releases):
        account.record(made.ratio, f"release {number}")
    assert abs(account.spent - 1.5) < 1e-4
    assert account.left < 1e-4
    with pytest.raises(PrivacyError, match=rf"{releases} release\(s\) spent 1.5"):
        account.record(made.ratio)
    with pytest.raises(PrivacyError):
        account.require(1e3)
    assert len(account.spendings) == releases


def test_gaussians_compose_exactly() -> None:
    account = Accountant(5.0, 1e-6)
    for ratio in (3.0, 4.0, 6.0):
        account.record(ratio)
    together = (1 / 9 + 1 / 16 + 1 / 36) ** -0.5
    assert math.isclose(account.spent, epsilon_of(together, 1e-6))
    least = account.least()
    assert account.allows(least * 1.000001)
    assert not account.allows(least * 0.999)
    assert math.isclose(account.least(4), 2 * least)


def test_nothing_spent_is_epsilon_0() -> None:
    account = Accountant(1.0, 1e-5)
    assert account.spent == 0.0
    assert account.left == 1.0
    assert math.isclose(account.least(), least_ratio(1.0, 1e-5))


def test_an_account_survives_a_restart() -> None:
    account = Accountant(2.0, 1e-5)
    account.record(2.5, "counts + sums")
    again = Accountant.from_dict(json.loads(json.dumps(account.to_dict())))
    assert again.spent == account.spent
    assert again.spendings == (Spending(2.5, "counts + sums"),)
    with pytest.raises(PrivacyError):
        again.record(2.5)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"epsilon": 1.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 1e-5, "spendings": [{}]},
        {"epsilon": 1.0, "delta": 1e-5, "spendings": [{"ratio": 0.0, "what": ""}]},
        {"epsilon": 1.0, "delta": 1e-5, "spendings": [{"ratio": "nan", "what": ""}]},
        {"epsilon": -1.0, "delta": 1e-5, "spendings": []},
    ],
)
def test_a_damaged_account_is_not_an_empty_one(table: Any) -> None:
    with pytest.raises(InputError):
        Accountant.from_dict(table)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_noise_that_cannot_be_is_refused(ratio: Any) -> None:
    with pytest.raises(InputError, match="finite number of sensitivities"):
        Accountant(1.0, 1e-5).record(ratio)
