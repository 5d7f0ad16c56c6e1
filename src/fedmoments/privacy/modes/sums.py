"""Secure sums: two servers add up all moments of a batch, and see nothing else of it."""

from typing import TYPE_CHECKING

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.modes.masked import Masked

if TYPE_CHECKING:
    from fedmoments.privacy.modes.parties import TermsLike

__all__ = ["MODES", "Sums"]


class Sums(Masked):
    """One sum of every batch, for heads on moments that add up; noise may lie on it.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(secure="sums").mode.check(StatisticsSpec.of("client_means"))
    Traceback (most recent call last):
    fedmoments.errors.InputError: client means are kept apart, and secure sums add up: ...
    """

    name = "sums"
    title = "secure sums"

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Sums may be asked for again, over the same clients: without noise, which two draws would thin out."""
        return not self.noise.is_on

    def check(self, spec: StatisticsSpec) -> None:
        """Refuse moments that keep clients apart."""
        super().check(spec)
        if spec.keeps_clients_apart:
            raise InputError(
                "client means are kept apart, and secure sums add up: choose the modes two-phase or cohorts for this "
                "head, or a head on second moments"
            )

    def check_moments(self, terms: "TermsLike") -> None:
        """Refuse terms that ask for client means."""
        if terms.spec.keeps_clients_apart:
            raise InputError(
                f"the terms ask for {terms.spec}, client means that are not added up across clients, but secure sums "
                "show sums alone: agree on secure cohorts, or choose heads on second moments"
            )

    def sees(self) -> list[tuple[str, str]]:
        more = ", with the helper's noise" if self.noise.is_on else ", and how many of its clients hold a class"
        return [
            ("The leader", f"sums over a batch{more}"),
            ("The helper", "who takes part, and nothing of what they send"),
        ]

    def not_promised(self) -> list[str]:
        alone = "A class that one client of the batch holds alone: its sum is that client's."
        return [*([] if self.noise.is_on else [alone]), *super().not_promised()]


MODES = (Sums,)
