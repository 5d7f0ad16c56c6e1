"""What modes for client means share: classes are opened one by one, where enough clients hold them, and once only."""

from typing import TYPE_CHECKING, ClassVar

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError, PolicyError
from fedmoments.privacy.modes.masked import Masked
from fedmoments.privacy.modes.mode import Mode
from fedmoments.privacy.modes.sums import Sums

if TYPE_CHECKING:
    from fedmoments.privacy.modes.parties import Ledger, TermsLike, Waiting

__all__ = ["ClassByClass"]


class ClassByClass(Masked):
    """A mode with two servers that serves heads on client means."""

    opens_parts = True
    opens_classes = True
    takes: ClassVar[tuple[str, ...]] = (*Masked.takes, "contributors")

    def check_agreed(self) -> None:
        """Refuse noise."""
        super().check_agreed()
        self.noise.forbid(
            InputError(
                f"noise cannot protect client means ({self.name}): what one sample changes there depends on the data. "
                "Choose secure sums of second moments (secure='sums') with an epsilon"
            )
        )

    def check(self, spec: StatisticsSpec) -> None:
        """Refuse client means of several pieces, or beside other moments."""
        super().check(spec)
        if spec.sent != ("client_means",) or spec.means_per_client > 1:
            raise InputError(
                f"secure sums of client means serve one mean a client and class and nothing beside, not {spec}: choose "
                "one mean a client, and a head on client means alone"
            )

    def serving(self, spec: StatisticsSpec) -> Mode:
        return self if spec.keeps_clients_apart else Sums(self.agreed, self.noise)

    def check_moments(self, terms: "TermsLike") -> None:
        """Refuse terms that do not ask for client means, one a class as int64."""
        if not terms.spec.keeps_clients_apart:
            raise InputError(
                f"secure {self.name} serve heads on client means, but the terms ask for {terms.spec}, which adds up: "
                "agree on secure sums, which show less"
            )
        if terms.rows != "int64" or terms.spec.means_per_client != 1:
            raise InputError(
                f"behind masks a client has one mean a class, as int64, but {terms.spec.means_per_client} as "
                f"{terms.rows} were agreed on: leave both at their defaults"
            )

    def check_helper(self, terms: "TermsLike", minimum: int) -> None:
        """Refuse terms whose sums may be over fewer clients than the helper's own minimum: cohorts would differ."""
        if minimum > self.agreed.batch:
            raise PolicyError(
                f"the terms of '{terms.name}' allow sums over {self.agreed.batch} clients, but this helper opens none "
                f"over fewer than {minimum} (minimum): lower that, or agree on larger batches"
            )

    def ready(self, ledger: "Ledger") -> tuple[list["Waiting"], str]:
        """Return the reports that wait, unless a sum was opened before: a class is opened over the same clients."""
        waiting, why = super().ready(ledger)
        if any(batch.status != "left" for batch in ledger.batches()):
            why = f"secure {self.name} are over once, and were before: create a new federation"
        return waiting, why

    def facts(self) -> list[tuple[str, str]]:
        return [*super().facts(), ("A class is opened", f"if at least {self.agreed.contributors} clients hold it")]
