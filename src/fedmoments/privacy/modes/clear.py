"""Clear sums: the server reads every contribution, and adds them up itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import PrivacyError
from fedmoments.privacy.modes.mode import Cost, Mode
from fedmoments.privacy.modes.opened import Summed
from fedmoments.wire import IdentityKey, Withheld, encode, read_header

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Crowd, Ledger, TermsLike

__all__ = ["MODES", "Clear"]


class Clear(Mode):
    """Contributions in the clear; what the terms say of no mode at all.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed().mode.title, Agreed().mode.is_open, Agreed(epsilon=1.0).mode.is_open
    ('clear sums', True, False)
    """

    name = "clear"
    title = "clear sums"
    reads_contributions = True

    def check_sketch(self, spec: StatisticsSpec) -> None:
        if spec.has_sketch:
            self.noise.forbid(
                PrivacyError(
                    f"scatter sketches and an epsilon of {self.noise.label} exclude each other: by how much one sample "
                    "turns the leading directions of a client depends on all its others, so no noise is enough. Send "
                    "'gram' with an epsilon (heads fed3r, gh-lda, fedcof-oracle), or agree on none"
                )
            )

    def pack(
        self, stats: Statistics, terms: "TermsLike", *, client: str, version: int, key: IdentityKey, withheld: Withheld
    ) -> bytes:
        return encode(stats, terms.agreement, client=client, version=version, key=key, withheld=withheld)

    def take_in(self, ledger: "Ledger", items: Sequence[bytes], sources: Sequence[str]) -> list[Any]:
        return ledger.submit_many(items, source=sources)

    def sender(self, item: bytes, terms: "TermsLike") -> tuple[str, int]:
        header = read_header(item, terms.agreement)
        return header.client, header.version

    def simulated(self, crowd: "Crowd") -> "Opened":
        return Summed(self.noise.simulated(crowd))

    def contributors(self, status: Any) -> int:
        return sum(client.samples > 0 for client in status.contributors)

    def sees(self) -> list[tuple[str, str]]:
        return [("The server", "each client's own counts and moments, class by class; never samples")]

    def not_promised(self) -> list[str]:
        return ["Secrecy from the server: it reads every contribution."]

    def rows(self) -> dict[str, str]:
        return {"the server sees": "every contribution", **super().rows()}

    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of a contribution, which depend on what the client holds."""
        del asked, clients
        return Cost(up=clear)


MODES = (Clear,)
