"""Local noise: every client noises its own sums before they leave it, so that no server need be trusted.

What one client sends is a dense vector of all classes, held or not, with the full noise of the budget on it: (ε, δ) for
one of its samples against everybody, the server included. The sum over K clients then has √K times the noise of central
privacy, so it takes many samples a client, or many clients and a large ε.
"""

from typing import TYPE_CHECKING

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.dp import plan, require_additive
from fedmoments.privacy.modes.central_noise import CentralNoise
from fedmoments.privacy.modes.noised_clients import NoisedClients

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from fedmoments.privacy.modes.mode import Mode
    from fedmoments.privacy.modes.parties import Asked

__all__ = ["LocalNoise"]

#: Noise of so many standard deviations does not happen: once in 10³² numbers.
MOST_SIGMAS = 12.0


class LocalNoise(CentralNoise):
    """Noise for a budget ε at every client.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(epsilon=2.0, noise="local").mode.noise.title
    ', noised by each client'
    """

    title = ", noised by each client"

    def carrier(self, mode: "type[Mode]") -> "type[Mode]":
        """Return the mode of reports that clients noised; with masks the noise of two servers does the same, with less.

        Raises
        ------
        InputError
            For secure sums.
        """
        if mode.has_helper:
            raise InputError(
                "noise = local and secure sums exclude each other: behind masks each of two servers adds the noise, so "
                "none need be trusted and the sum has √2 instead of √K times as much. Agree on noise = central, or on "
                "no secure sums"
            )
        return NoisedClients

    def check_spec(self, spec: StatisticsSpec) -> None:
        """Refuse whatever is not a sum."""
        require_additive(spec)

    def beyond(self, numbers: "NDArray[int64]", asked: "Asked") -> int:
        """Return how many numbers of a report are larger than its samples and the noise can make them."""
        layout = asked.layout
        counts = numbers[layout.classes_block].reshape(layout.n_classes, -1)[:, 0].astype(float)
        limits = plan(layout, asked.fixed_point, self.agreed).limits(counts, MOST_SIGMAS)
        return int((abs(numbers[layout.n_classes :].astype(float)) > limits).sum())

    def assumptions(self, who: str) -> list[str]:
        del who
        return super().assumptions("Every client adds the full noise to its own sums, and no server is trusted")

    def rows(self) -> dict[str, str]:
        return {**super().rows(), "noised by": "every client, before it sends anything"}
