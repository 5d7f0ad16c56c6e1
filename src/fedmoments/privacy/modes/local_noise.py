"""Local noise: every client noises its own sums before they leave it, so that no server need be trusted.

What one client sends is a dense vector of all classes, held or not, with the full noise of the budget on it: (ε, δ) for
one of its samples against everybody, the server included. The sum over K clients then has √K times the noise of central
privacy, so it takes many samples a client, or many clients and a large ε.
"""

from typing import TYPE_CHECKING

import numpy as np

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.dp import noise_vector, repair, require_additive
from fedmoments.privacy.modes.central_noise import CentralNoise

if TYPE_CHECKING:
    from fedmoments.privacy.modes.parties import Crowd, TermsLike

__all__ = ["LocalNoise"]


class LocalNoise(CentralNoise):
    """Noise for a budget ε at every client.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(epsilon=2.0, noise="local").mode.noise.title
    ', noised by each client'
    """

    title = ", noised by each client"

    def check_mode(self, *, masked: bool) -> None:
        """Refuse secure sums: with masks central noise of two servers does the same with less noise."""
        if masked:
            raise InputError(
                "noise = local and secure sums exclude each other: behind masks each of two servers adds the noise, so "
                "none need be trusted and the sum has √2 instead of √K times as much. Agree on noise = central, or on "
                "no secure sums"
            )

    def check_spec(self, spec: StatisticsSpec) -> None:
        """Refuse whatever is not a sum."""
        require_additive(spec)

    def check_terms(self, terms: "TermsLike") -> None:
        """Refuse terms of a deployed federation."""
        raise InputError(
            f"the terms of '{terms.name}' ask for noise at every client (noise = local), which only simulations have: "
            "a server takes in moments that data could have, and noised ones are not. Agree on secure sums with an "
            "epsilon, where no server need be trusted alone either"
        )

    def simulated(self, crowd: "Crowd") -> Statistics:
        """Return the sum of what all clients noised, repaired for all of their noise."""
        asked, agreed = crowd.asked, self.agreed
        layout, form = asked.layout, asked.fixed_point
        total, clients = np.zeros(layout.size, np.uint64), 0
        for part in crowd.parts.values():
            total += layout.pack(part) + noise_vector(layout, form, agreed).view(np.uint64)
            clients += 1
        return repair(total, layout, form, agreed, servers=max(clients, 1))

    def assumptions(self, who: str) -> list[str]:
        del who
        return super().assumptions("Every client adds the full noise to its own sums, and no server is trusted")

    def rows(self) -> dict[str, str]:
        return {**super().rows(), "noised by": "every client, before anything leaves it"}
