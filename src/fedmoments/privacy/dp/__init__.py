"""Central differential privacy of merged statistics: one Gaussian release on the fixed-point grid, accounted for.

Everything here is a public constant or noise: a clip norm, weight or shrinkage that was tuned on the private data voids
the promise.
"""

from fedmoments.privacy.dp.accountant import Accountant, Spending, epsilon_of, least_ratio
from fedmoments.privacy.dp.budget import check_rules, parse_budget, shares_of
from fedmoments.privacy.dp.client_clip import clip_client
from fedmoments.privacy.dp.client_means import MeansForm, release_client_means, require_client_means
from fedmoments.privacy.dp.discrete import Stream, discrete_gaussian
from fedmoments.privacy.dp.noise_plan import NoisePlan, plan, require_additive
from fedmoments.privacy.dp.releases import Released, SumsForm, finish, noise_vector, release
from fedmoments.privacy.dp.scatters import repair

__all__ = [
    "Accountant",
    "MeansForm",
    "NoisePlan",
    "Released",
    "Spending",
    "Stream",
    "SumsForm",
    "check_rules",
    "clip_client",
    "discrete_gaussian",
    "epsilon_of",
    "finish",
    "least_ratio",
    "noise_vector",
    "parse_budget",
    "plan",
    "release",
    "release_client_means",
    "repair",
    "require_additive",
    "require_client_means",
    "shares_of",
]
