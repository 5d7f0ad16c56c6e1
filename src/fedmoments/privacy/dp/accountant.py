"""What Gaussian noise promises, and an account of what several releases spend together.

One release adds Gaussian noise of σ to numbers that one sample (or client) changes by at most Δ. Its promise depends on
σ/Δ alone: the analytic curve of the Gaussian mechanism, as ``dp_accounting`` computes it,

    δ(ε) = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ).

Releases of the same data compose **exactly**: several Gaussian releases of σ_i/Δ_i tell as much as one of
(Σ Δ_i²/σ_i²)^(−1/2), also if what is asked next depends on what came out before. The account adds up Δ²/σ² and refuses
what would go past the ε that was agreed on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedmoments.errors import InputError, PrivacyError
from fedmoments.extras import require

__all__ = ["Accountant", "Spending", "epsilon_of", "least_ratio"]

#: Rounding of sums of Δ²/σ²: planned releases fill the budget to the last bit and must not be refused for it.
ROUNDING = 1e-9


@lru_cache(maxsize=256)
def least_ratio(epsilon: float, delta: float) -> float:
    """Return σ₁, the least σ/Δ with which one Gaussian release is (ε, δ)-differentially private.

    Examples
    --------
    >>> round(least_ratio(2.0, 1e-5), 4)
    1.9938
    """
    losses: Any = require("dp_accounting.pld.privacy_loss_mechanism", "Differential privacy", "privacy")
    common: Any = require("dp_accounting.pld.common", "Differential privacy", "privacy")
    goal = common.DifferentialPrivacyParameters(epsilon, delta)
    return float(losses.GaussianPrivacyLoss.from_privacy_guarantee(goal, sensitivity=1).standard_deviation)


@lru_cache(maxsize=256)
def epsilon_of(ratio: float, delta: float) -> float:
    """Return the ε of one Gaussian release of that σ/Δ; 0 where nothing was released (ratio infinite).

    Examples
    --------
    >>> round(epsilon_of(1.9938, 1e-5), 3)
    2.0
    """
    if math.isinf(ratio):
        return 0.0
    accounting: Any = require("dp_accounting", "Differential privacy", "privacy")
    return float(accounting.get_epsilon_gaussian(ratio, delta))


@dataclass(frozen=True)
class Spending:
    """One release that was made.

    Parameters
    ----------
    ratio
        σ/Δ of its noise.
    what
        What was released, for whoever reads the account.
    """

    ratio: float
    what: str = ""


class Accountant:
    """A budget (ε, δ) for all releases about the same data, and what was spent of it.

    Parameters
    ----------
    epsilon, delta
        What all releases together may not exceed.
    spendings
        Releases that were made already.

    Examples
    --------
    >>> account = Accountant(2.0, 1e-5)
    >>> account.record(3.0, "first release")
    >>> round(account.spent, 3), account.allows(3.0)
    (1.271, True)
    >>> account.record(2.0, "a second one")
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: a release with noise of 2 times the sensitivity would bring ε to 2.4... in all, ...
    >>> Accountant.from_dict(account.to_dict()).spent == account.spent
    True
    """

    def __init__(self, epsilon: float, delta: float, spendings: tuple[Spending, ...] = ()) -> None:
        if not (epsilon > 0 and math.isfinite(epsilon) and 0 < delta < 1):
            raise InputError(f"a budget is a finite ε above 0 and a δ between 0 and 1, not {epsilon!r} and {delta!r}")
        self.epsilon, self.delta = float(epsilon), float(delta)
        for spending in spendings:
            _check_ratio(spending.ratio)
        self.spendings = tuple(spendings)

    @property
    def spent(self) -> float:
        """ε of all releases so far, together, at the budget's δ."""
        return epsilon_of(self._together(), self.delta)

    @property
    def left(self) -> float:
        """What is left of ε; :meth:`least` says how much noise a release must have to fit in."""
        return max(self.epsilon - self.spent, 0.0)

    def least(self, releases: int = 1) -> float:
        """Return the least σ/Δ with which so many more releases fit the budget; infinite when it is spent."""
        room = least_ratio(self.epsilon, self.delta) ** -2 - sum(spending.ratio**-2 for spending in self.spendings)
        return math.sqrt(releases / room) if room > 0 else math.inf

    def allows(self, ratio: float) -> bool:
        """Say whether one more release of that σ/Δ fits the budget."""
        total = sum(spending.ratio**-2 for spending in self.spendings) + _check_ratio(ratio) ** -2
        return total <= least_ratio(self.epsilon, self.delta) ** -2 * (1 + ROUNDING)

    def require(self, ratio: float) -> None:
        """Refuse a release of that σ/Δ that would go past the budget.

        Raises
        ------
        PrivacyError
            When it would.
        """
        if self.allows(ratio):
            return
        total = epsilon_of(self._together(ratio), self.delta)
        raise PrivacyError(
            f"a release with noise of {ratio:.4g} times the sensitivity would bring ε to {total:.4g} in all, but "
            f"ε = {self.epsilon:g} at δ = {self.delta:g} was agreed on and {len(self.spendings)} release(s) spent "
            f"{self.spent:.4g} of it: publish what was released before (that costs nothing), or agree on a new budget"
        )

    def record(self, ratio: float, what: str = "") -> None:
        """Write down a release **before** it leaves; refuses what :meth:`require` refuses."""
        self.require(ratio)
        self.spendings = (*self.spendings, Spending(ratio, what))

    def _together(self, *more: float) -> float:
        total = sum(spending.ratio**-2 for spending in self.spendings) + sum(ratio**-2 for ratio in more)
        return total**-0.5 if total else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the account as plain values, ready for JSON: what a ledger keeps."""
        rows = [{"ratio": spending.ratio, "what": spending.what} for spending in self.spendings]
        return {"epsilon": self.epsilon, "delta": self.delta, "spendings": rows}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Accountant":
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            When something is missing or no number: an account that cannot be read must not count as empty.
        """
        try:
            rows = [Spending(float(row["ratio"]), str(row["what"])) for row in table["spendings"]]
            return cls(float(table["epsilon"]), float(table["delta"]), tuple(rows))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"an account of privacy holds epsilon, delta and spendings, each with ratio and what, but {table!r} "
                "arrived: restore it from a copy; without it nothing more may be released"
            ) from error


def _check_ratio(ratio: float) -> float:
    if not (ratio > 0 and math.isfinite(ratio)):
        raise InputError(f"the noise of a release is a finite number of sensitivities above 0, not {ratio!r}")
    return ratio
