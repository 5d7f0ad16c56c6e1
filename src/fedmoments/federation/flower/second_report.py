"""The second of two phases at a client: a report on how its class means lie around those of all.

It is made from the very samples of the first phase, for one broadcast only: a server that could ask again with other
weights would learn more from the same clients than what was agreed on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import PolicyError
from fedmoments.federation.terms import Terms
from fedmoments.privacy.secure import make_report
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.wire import IdentityKey

__all__ = ["SecondPhase", "require_same_source", "second_report"]


@dataclass(frozen=True)
class SecondPhase:
    """What an outbox needs to know of the second phase, which has an id of its own there.

    Parameters
    ----------
    terms
        Of the federation.
    broadcast
        What the server sent to all clients.

    Examples
    --------
    >>> SecondPhase.__match_args__
    ('terms', 'broadcast')
    """

    terms: Terms
    broadcast: Broadcast

    @property
    def id(self) -> str:
        """The same for every broadcast: a client answers one of them."""
        return sha256(f"fedmoments second phase\n{self.terms.id}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.terms.name} (second phase)"

    @property
    def spec(self) -> StatisticsSpec:
        """What it is about."""
        return self.terms.spec


def require_same_source(client: str) -> Callable[[int], NoReturn]:
    """Return what is called when there is no report of the first phase from the samples that the client has now."""

    def refuse(_: int) -> NoReturn:
        raise PolicyError(
            f"client '{client}' has reported nothing in the first phase from the samples and rules that it has now: "
            "both phases must be over the same samples"
        )

    return refuse


def second_report(
    phase: SecondPhase, stats: Statistics, *, client: str, version: int, key: IdentityKey
) -> tuple[bytes, Mapping[str, Any]]:
    """Return a masked report of the second phase, and what the client's record tells of it.

    Raises
    ------
    PolicyError
        When the client has answered another broadcast of this federation.
    """
    if version != 1:
        raise PolicyError(
            f"client '{client}' was sent other class means before, and answers one broadcast only: from several, the "
            "server could separate classes that it must not separate"
        )
    terms, broadcast = phase.terms, phase.broadcast
    data = make_report(
        broadcast.vector(stats.restricted(StatisticsSpec())),
        broadcast.context(terms.context),
        client=client,
        version=1,
        helper=terms.privacy.helper,
        key=key,
    )
    facts = {"federation": phase.id, "name": phase.name, "client": client, "version": 1}
    facts |= {"digest": sha256(data).hexdigest(), "moments": ["free_scatter"], "bytes": len(data)}
    facts |= {"classes": len(stats.classes), "samples": stats.n_samples, "withheld": {"classes": 0, "samples": 0}}
    return data, {**facts, **terms.privacy.mode.record}
