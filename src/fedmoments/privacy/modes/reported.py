"""What modes share in which a client sends a dense vector as a signed report, and not a contribution."""

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmoments.errors import PolicyError
from fedmoments.privacy.modes.mode import Mode
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES, read_envelope

if TYPE_CHECKING:
    from fedmoments.privacy.modes.parties import Ledger, TermsLike

__all__ = ["Reported"]


class Reported(Mode, ABC):
    """A mode whose ledger takes reports in."""

    must_keep = True

    def check_kept(self, client: str, *, kept: bool) -> None:
        """Refuse a client that keeps nothing: a second report of the same version would have another mask or noise."""
        if not kept:
            raise PolicyError(
                f"client '{client}' keeps nothing on disk (folder), but a report with masks or noise must be kept "
                "until it is acknowledged: made again, it would be another one under the same version"
            )

    def take_in(self, ledger: "Ledger", items: Sequence[bytes], sources: Sequence[str]) -> list[Any]:
        return ledger.report_many(items, source=sources)

    def sender(self, item: bytes, terms: "TermsLike") -> tuple[str, int]:
        envelope = read_envelope(item[:ENVELOPE_BYTES], terms.context)
        return envelope.client, envelope.version
