"""What stands for an outbox in a simulation, where nothing is kept."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fedmoments.federation.terms import Terms

__all__ = ["NoOutbox"]


class NoOutbox:
    """Stands for an outbox in a simulation, where nothing is kept: a contribution is made anew, the same bytes."""

    def prepare(
        self,
        terms: Terms,  # noqa: ARG002
        client: str,  # noqa: ARG002
        source: str,  # noqa: ARG002
        make: Callable[[int], bytes],
        describe: Callable[[bytes, int], Mapping[str, Any]] | None = None,  # noqa: ARG002
        *,
        samples: bytes | None = None,  # noqa: ARG002
        shared: Callable[[], bytes | None] | None = None,  # noqa: ARG002
    ) -> bytes:
        """Make the first version."""
        return make(1)

    def batch(self) -> AbstractContextManager[None]:
        """Group nothing."""
        return nullcontext()

    def acknowledged(self, terms_id: str, client: str) -> bool:  # noqa: ARG002
        """Remember no receipt."""
        return False

    def sources(self, terms_id: str, client: str) -> tuple[str, ...]:  # noqa: ARG002
        """Remember no source."""
        return ()

    def measured(self, terms_id: str, client: str) -> tuple[bytes, ...]:  # noqa: ARG002
        """Remember no sample."""
        return ()

    def shared(self, terms_id: str, client: str) -> tuple[tuple[bytes, None], ...]:  # noqa: ARG002
        """Remember no value."""
        return ()

    def departure(self, terms_id: str, client: str) -> None:
        """Remember nobody who left."""

    def _forget(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    sent = acknowledge = refused = declined = audited = sending = _forget
