"""Secure sums: two servers add up all moments of a batch, class by class where enough clients hold a class."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.modes.masked import Masked
from fedmoments.privacy.modes.mode import Cost
from fedmoments.privacy.modes.noise import Noise
from fedmoments.privacy.modes.opened import Summed
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.threshold import ThresholdHelper
from fedmoments.privacy.secure.two_phase import open_classes

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Sitting, TermsLike
    from fedmoments.privacy.protection import Agreed

__all__ = ["MODES", "Sums"]


class Sums(Masked):
    """One sum of every batch, for heads on moments that add up; noise may lie on it.

    Without noise a class is opened only where enough clients hold it. A gram is over all classes and is opened whole:
    samples of a class that is not opened are in it. With noise nobody learns who holds what, and all is opened.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(secure="sums").mode.check(StatisticsSpec.of("client_means"))
    Traceback (most recent call last):
    fedmoments.errors.InputError: client means are kept apart, and secure sums add up: ...
    """

    name = "sums"
    title = "secure sums"
    takes: ClassVar[tuple[str, ...]] = (*Masked.takes, "contributors")

    def __init__(self, agreed: "Agreed", noise: Noise) -> None:
        super().__init__(agreed, noise)
        self.opens_classes = not noise.is_on
        self.steps = ("learn", "open") if self.opens_classes else ("sum",)
        # Equal numbers give equal sums, but with noise of their own two sums of a client would thin the noise out.
        self.opens_once = "client" if noise.is_on else ""

    def check_agreed(self) -> None:
        """Refuse a threshold beside noise."""
        super().check_agreed()
        if self.agreed.contributors != type(self.agreed).contributors:
            self.noise.forbid(
                InputError(
                    f"a class cannot wait for {self.agreed.contributors} contributors under an epsilon: how many hold "
                    "it would be told without noise, and the noise hides a single client's class by itself. Leave "
                    "contributors out"
                )
            )

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

    # ---------------------------------------------------------------------------------------------- sum

    def gate(
        self,
        helper: Helper,
        asked: "Asked",
        *,
        minimum: int,
        folder: Path | None = None,
        randomness: bytes | None = None,
    ) -> Any:
        """Return what adds up masks at the helper's end: with its noise, or of classes that enough clients hold."""
        if not self.opens_classes:
            return super().gate(helper, asked, minimum=minimum, folder=folder, randomness=randomness)
        place = None if folder is None else folder / "classes.db"
        return ThresholdHelper(helper, asked.layout, self.agreed.contributors, place)

    def open(self, sitting: "Sitting") -> "Opened":
        """Add up a batch: without noise, classes that enough of its clients hold, and moments of all classes."""
        if not self.opens_classes:
            return super().open(sitting)
        terms = sitting.terms
        total, held = open_classes(sitting.leader, sitting.helper, terms.layout, self.agreed.contributors)
        few = np.flatnonzero((held > 0) & (held < self.agreed.contributors))
        facts = {"clients": len(sitting.leader.present), "suppressed": [terms.classes[label] for label in few.tolist()]}
        return Summed(terms.layout.unpack(total, terms.fixed_point), self.name if len(few) else "", facts=facts)

    # ---------------------------------------------------------------------------------------------- card

    def facts(self) -> list[tuple[str, str]]:
        opened = [("A class is opened", f"if at least {self.agreed.contributors} clients hold it")]
        return [*super().facts(), *(opened if self.opens_classes else [])]

    def rows_of_classes(self) -> dict[str, str]:
        """Return what the terms say of how classes are opened, for a table."""
        return {"a class is opened": f"if {self.agreed.contributors} clients hold it"} if self.opens_classes else {}

    def sees(self) -> list[tuple[str, str]]:
        leader = "how many clients of a batch hold a class, and sums of the classes that enough hold"
        helper = "who takes part, and how many of them hold a class"
        if not self.opens_classes:
            leader, helper = (
                "sums over a batch, with the helper's noise",
                "who takes part, but nothing of what they send",
            )
        return [("The leader", leader), ("The helper", helper)]

    def not_promised(self) -> list[str]:
        alone = "A second-moment matrix covers all classes, including those that too few clients hold."
        return [*([alone] if self.opens_classes else []), *super().not_promised()]

    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of a masked report, and of the helper's two steps where classes are opened one by one."""
        whole = super().cost(asked, clear=clear, clients=clients)
        learned = clients * ENVELOPE_BYTES + 16 * asked.layout.n_classes if self.opens_classes else 0
        return Cost(whole.up, whole.down, whole.helper + learned)


MODES = (Sums,)
