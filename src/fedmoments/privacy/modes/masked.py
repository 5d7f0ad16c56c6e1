"""What all modes with two servers share: masked reports to the leader, sealed seeds for the helper."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.modes.local import open_locally
from fedmoments.privacy.modes.messages import TESTED, add_tested
from fedmoments.privacy.modes.mode import CLIENTS_OBEY, Cost
from fedmoments.privacy.modes.reported import Reported
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES
from fedmoments.privacy.secure.helper import Helper, Noise
from fedmoments.privacy.secure.report import OVERHEAD_BYTES, make_report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.wire import IdentityKey, Withheld

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Crowd, Ledger, Sitting, TermsLike, Waiting
    from fedmoments.privacy.protection import Agreed

__all__ = ["Masked"]

Words = NDArray[np.uint64]

_SEALED = (
    "The two servers, leader and helper, do not work together: with both their data, one can read every contribution."
)
_MEMBERS = (
    "Most clients of a batch are real: a leader that enrols made-up clients can subtract what they sent from the sum."
)


@dataclass(frozen=True)
class _Adds:
    """The helper of plain sums."""

    helper: Helper
    draws: Noise | None

    def sum(self, request: SumRequest) -> Words:
        return self.helper.sum(request, noise=self.draws)

    def close(self) -> None:
        """Leave the helper open: its owner closes it."""


class Masked(Reported):
    """A mode in which no server reads a contribution."""

    takes: ClassVar[tuple[str, ...]] = ("batch", "helper")
    has_helper = True
    masks = ", masked"
    exchanges = 1
    repeats = True
    steps: tuple[str, ...] = ("sum",)
    noises = "Each of the two servers adds the full noise"

    # ---------------------------------------------------------------------------------------------- check

    def check_sketch(self, spec: StatisticsSpec) -> None:
        if spec.has_sketch:
            raise PrivacyError(
                f"scatter sketches and secure {self.name} exclude each other: sketches of clients are laid side by "
                "side and read one by one, and masks let nothing but sums through. Send 'gram' under secure sums "
                "(heads fed3r, gh-lda, fedcof-oracle), which adds up to what sketches only approximate, or agree on "
                "clear contributions"
            )

    def check_terms(self, terms: "TermsLike") -> None:
        """Refuse terms without a helper, too."""
        self.check_sketch(terms.spec)
        if not re.fullmatch("[0-9a-f]{64}", self.agreed.helper):
            raise InputError(
                f"secure {self.name} need the helper's public key (helper, 64 hexadecimal digits) in the terms, but "
                f"{self.agreed.helper[:80]!r} stands there: take it from the helper's card"
            )
        self.check_moments(terms)
        self.noise.check_terms(terms)

    def check_moments(self, terms: "TermsLike") -> None:
        """Refuse terms that ask for moments which it does not open."""

    def check_clients(self, clients: int) -> None:
        super().check_clients(clients)
        if clients < self.agreed.batch:
            raise InputError(
                f"secure sums are over {self.agreed.batch} clients or more (--batch), but there are {clients}: lower "
                "it, or take more clients"
            )

    def check_filter(self, asked: str) -> None:
        raise InputError(
            f"{asked} needs to see every contribution, but under secure {self.name} the server sees sums only: choose "
            "one of both"
        )

    # ---------------------------------------------------------------------------------------------- collect

    @property
    def unmasked(self) -> "Agreed":
        """What clients would agree on to measure the same and send it in the clear."""
        rules = ("secure", *self.takes)
        defaults: dict[str, Any] = {rule: getattr(type(self.agreed), rule) for rule in rules}
        return replace(self.agreed, **defaults)

    @property
    def record(self) -> dict[str, Any]:
        return {"secure": self.name}

    def pack(
        self, stats: Statistics, terms: "TermsLike", *, client: str, version: int, key: IdentityKey, withheld: Withheld
    ) -> bytes:
        del withheld
        vector = terms.layout.pack(stats)
        helper = self.agreed.helper
        return make_report(vector, terms.context, client=client, version=version, helper=helper, key=key)

    def ready(self, ledger: "Ledger") -> tuple[list["Waiting"], str]:
        """Return the reports that wait, and why they cannot be added up now."""
        waiting = list(ledger.waiting())
        few = len(waiting) < self.agreed.batch
        return waiting, f"a sum is over {self.agreed.batch} clients or more (batch)" if few else ""

    # ---------------------------------------------------------------------------------------------- sum

    def check_step(self, step: str) -> None:
        """Refuse a step that its protocol does not have; results of tests are added up in every mode."""
        if step != TESTED:
            super().check_step(step)

    def answer(self, gate: Any, asked: "Asked", step: str, data: bytes) -> bytes:
        return add_tested(gate.helper, asked, data) if step == TESTED else super().answer(gate, asked, step, data)

    def gate(
        self,
        helper: Helper,
        asked: "Asked",
        *,
        minimum: int,
        folder: Path | None = None,
        randomness: bytes | None = None,
    ) -> Any:
        """Return what adds up masks at the helper's end, with its noise where noise was agreed on."""
        del minimum, folder, randomness
        return _Adds(helper, self.noise.draws(asked))

    def open(self, sitting: "Sitting") -> "Opened":
        """Add up all moments of a batch, but not how many clients hold a class, which nobody needs."""
        layout = sitting.terms.layout
        request = sitting.leader.request(blocks=[(layout.n_classes, layout.size)])
        total = np.zeros(layout.size, np.uint64)
        total[layout.n_classes :] = sitting.leader.finish(request, sitting.helper.sum(request))
        return self.noise.opened(total, sitting.terms)

    def simulated(self, crowd: "Crowd") -> "Opened":
        return open_locally(self, crowd)

    # ---------------------------------------------------------------------------------------------- card

    @property
    def promise(self) -> str:
        return f"secure {self.name}"

    def facts(self) -> list[tuple[str, str]]:
        return [("Smallest sum", f"over {self.agreed.batch} clients"), *super().facts()]

    def assumptions(self) -> list[str]:
        return [CLIENTS_OBEY, _SEALED, _MEMBERS, *self.noise.assumptions(self.noises)]

    def not_promised(self) -> list[str]:
        return ["Nobody can check one client's numbers, or remove one client from a sum."]

    def rows(self) -> dict[str, str]:
        agreed = self.agreed
        rows = {"the server sees": f"secure {self.name} only", "smallest sum": f"{agreed.batch} clients"}
        return {**rows, "helper": agreed.helper, **self.rows_of_classes(), **super().rows()}

    def rows_of_classes(self) -> dict[str, str]:
        """Return what the terms say of how classes are opened, for a table."""
        return {}

    @property
    def hides(self) -> str:
        return (
            f"these terms add up securely ({self.name}): the server reads sums over {self.agreed.batch} clients or "
            "more, and what stands above only together with the helper"
        )

    # ---------------------------------------------------------------------------------------------- cost

    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of a masked report, which has places for all classes, held or not."""
        del clear
        size = asked.layout.size
        return Cost(up=OVERHEAD_BYTES + 8 * size, helper=clients * ENVELOPE_BYTES + 8 * (size - asked.layout.n_classes))
