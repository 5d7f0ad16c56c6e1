"""Sums that every client noised itself: the server adds up reports that anybody could read."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, PolicyError, PrivacyError, RefusedError
from fedmoments.privacy.modes.mode import CLIENTS_OBEY, Cost
from fedmoments.privacy.modes.opened import Summed
from fedmoments.privacy.modes.reported import Reported
from fedmoments.privacy.secure.report import OVERHEAD_BYTES, make_open_report
from fedmoments.wire import IdentityKey, Reason, Withheld

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedmoments.privacy.modes.local_noise import LocalNoise
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Crowd, Ledger, TermsLike
    from fedmoments.privacy.protection import Agreed
    from fedmoments.privacy.secure.report import Report

__all__ = ["NoisedClients"]

Words = NDArray[np.uint64]


class NoisedClients(Reported):
    """Reports with the full noise on each; what is in is the sum of those that did not leave.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> mode = Agreed(epsilon=4.0, noise="local").mode
    >>> mode.title, mode.has_helper, mode.adds_reports
    ('sums', False, True)
    """

    name = "clear"
    title = "sums"
    masks = ", with this client's own noise on it"
    adds_reports = True

    @property
    def _local(self) -> "LocalNoise":
        return cast("LocalNoise", self.noise)

    # ---------------------------------------------------------------------------------------------- check

    def check_sketch(self, spec: StatisticsSpec) -> None:
        if spec.has_sketch:
            raise PrivacyError(
                "scatter sketches and noise at every client exclude each other: by how much one sample turns the "
                "leading directions depends on all others. Send sums (heads fedncm, fed3r, gh-lda)"
            )

    def check_report(self, report: "Report", terms: "TermsLike") -> None:
        """Refuse a report that is not sums of so many samples with noise of the planned size on them."""
        beyond = self._local.beyond(terms.layout.signed(report.masked), terms)
        if beyond:
            raise RefusedError(
                Reason.OUT_OF_RANGE,
                f"{beyond} numbers of client '{report.client}' are larger than its samples, at most "
                f"{terms.fixed_point.max_samples} of norm {terms.fixed_point.norm_bound:g}, and the agreed noise can "
                "make them: report what was measured behind the agreed map",
                report.client,
            )

    def check_made(self, client: str, made: int) -> None:
        """Refuse another draw of noise on the same samples than the budget was planned for."""
        if made >= self.agreed.releases:
            raise PolicyError(
                f"client '{client}' has sent its sums {made} times with noise for {self.agreed.releases} (releases): "
                "once more would show more of a sample than was agreed on. Agree on more releases in a new federation"
            )

    # ---------------------------------------------------------------------------------------------- collect

    def pack(
        self, stats: Statistics, terms: "TermsLike", *, client: str, version: int, key: IdentityKey, withheld: Withheld
    ) -> bytes:
        del withheld
        vector = self._local.release_form(terms).noised(stats)
        return make_open_report(vector, terms.context, client=client, version=version, key=key)

    @property
    def unmasked(self) -> "Agreed":
        return replace(self.agreed, noise="central")

    @property
    def record(self) -> dict[str, Any]:
        return {"noise": "local", "epsilon": self.agreed.epsilon}

    # ---------------------------------------------------------------------------------------------- sum

    def simulated(self, crowd: "Crowd") -> "Opened":
        form = self._local.release_form(crowd.asked)
        return Summed(self._added((form.noised(part) for part in crowd.parts.values()), crowd.asked))

    def read(self, ledger: "Ledger") -> "tuple[Statistics, Mapping[str, Any] | None]":
        vectors = [vector for _, vector in ledger.reported()]
        form = self._local.release_form(ledger.terms)
        noise = {name: sigma * len(vectors) ** 0.5 for name, sigma in form.describe()["noise"].items()}
        return self._added(vectors, ledger.terms), {**form.describe(), "noise": noise, "noised_by": len(vectors)}

    def _added(self, vectors: Any, asked: "Asked") -> Statistics:
        """Return the sum of what clients noised, repaired for all of their noise."""
        total, clients = np.zeros(asked.layout.size, np.uint64), 0
        for vector in vectors:
            total += vector
            clients += 1
        return self._local.release_form(asked).statistics(total, servers=max(clients, 1))

    def weights(self, ledger: "Ledger") -> dict[str, int]:
        layout = ledger.terms.layout
        counts = {
            client: layout.signed(vector)[layout.classes_block].reshape(layout.n_classes, -1)[:, 0].sum()
            for client, vector in ledger.reported()
        }
        return {client: max(int(count), 1) for client, count in counts.items()}

    # ---------------------------------------------------------------------------------------------- card

    def sees(self) -> list[tuple[str, str]]:
        return [("The server", "each client's sums of every class, held or not, with that client's noise on them")]

    def assumptions(self) -> list[str]:
        return [CLIENTS_OBEY, *self.noise.assumptions("")]

    def not_promised(self) -> list[str]:
        return ["Accuracy: the sum over K clients has √K times the noise that one trusted server would add."]

    def check_filter(self, asked: str) -> None:
        raise InputError(
            f"{asked} looks at single contributions, and behind each client's noise there is nothing to see: choose "
            "one of both"
        )

    def rows(self) -> dict[str, str]:
        return {"the server sees": "every client's sums, noised by the client", **super().rows()}

    @property
    def hides(self) -> str:
        return (
            f"what stands above is measured and leaves with this client's own noise on it ({self.noise.text}): the "
            "server reads noised sums of all classes"
        )

    # ---------------------------------------------------------------------------------------------- cost

    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of a report, which has places for all classes, held or not."""
        del clear, clients
        return Cost(up=OVERHEAD_BYTES + 8 * asked.layout.size)
