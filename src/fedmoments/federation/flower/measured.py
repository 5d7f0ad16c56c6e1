"""What a client makes of its samples: statistics, what its record tells of them, and the source they are kept under."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from fedmoments.core.statistics import Statistics
from fedmoments.errors import PolicyError
from fedmoments.federation.flower.held import Held
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.rare_values import Shown
from fedmoments.privacy.small_classes import merge_rows
from fedmoments.wire import Withheld

__all__ = ["facts_of_report", "measure_held", "shown_to", "source_of"]


def shown_to(terms: Terms, held: Held, policy: ClientPolicy | None) -> Shown:
    """Return a client's features behind the terms' feature map, as its policy lets them be measured."""
    return held.shown(terms, 1 if policy is None else policy.min_count)


def measure_held(
    held: Held,
    terms: Terms,
    policy: ClientPolicy | None = None,
    *,
    noise: str | None = None,
    shown: Shown | None = None,
) -> Statistics:
    """Measure one client's features behind the terms' feature map, in fixed point.

    Parameters
    ----------
    held
        The samples.
    terms
        What is measured.
    policy
        Whether rare values are hidden, thin means are merged, how many rows of a sketch may leave, and whether counts
        are blurred, before anything is rounded; None: nothing of it.
    noise
        Seeds the noise on counts; None takes it from the system's cryptographic generator.
    shown
        What :func:`shown_to` returned for them, if it is known.
    """
    shown = shown or shown_to(terms, held, policy)
    stats = held.measured(terms, shown)
    if policy is not None and policy.merges:
        stats = merge_rows(stats, policy.min_count)
    if policy is not None:
        stats = policy.limited(stats)
    if policy is not None and policy.obfuscation is not None:
        stats = policy.obfuscation.apply(stats, seed=noise)
    measured = stats.quantized(terms.fixed_point)
    return terms.privacy.mode.noise.clipped(measured)


def facts_of_report(
    data: bytes, terms: Terms, client: str, version: int, *, stats: Statistics, withheld: Withheld
) -> dict[str, Any]:
    """Return what a client's own record tells of a masked report; the server learns nothing of it but its size."""
    return {
        "federation": terms.id,
        "name": terms.name,
        "client": client,
        "version": version,
        "digest": sha256(data).hexdigest(),
        "moments": list(terms.spec.sent),
        "bytes": len(data),
        "classes": len(stats.classes),
        "samples": stats.n_samples,
        "withheld": {"classes": withheld.classes, "samples": withheld.samples},
        **terms.privacy.mode.record,
    }


def source_of(client: str, source: str, attempt: int, former: Sequence[str]) -> str:
    """Return the source under which a report of this attempt, behind another mask than the former, is kept.

    Two sums over the same clients tell the leader nothing new if every client reports the same numbers both times:
    their difference is zero. They would tell what changed, exactly, if one client had changed anything in between. So a
    client reports again from the very samples and rules of its first report, and never for an attempt that is over.

    Parameters
    ----------
    client
        Whose, for messages.
    source
        Digest of the samples, rules and key that it would be made from now.
    attempt
        For which one the server asks.
    former
        What this function returned for all that the client ever made for this federation.

    Raises
    ------
    PolicyError
        When the attempt is over, or what the client would report now is not what it reported before.

    Examples
    --------
    >>> source_of("clinic", "ab12", 0, []), source_of("clinic", "ab12", 1, ["ab12"])
    ('ab12', 'ab12/1')
    >>> source_of("clinic", "cd34", 1, ["ab12"])
    Traceback (most recent call last):
    fedmoments.errors.PolicyError: client 'clinic' has other samples or rules than when it first reported: ...
    """
    made = [text.partition("/") for text in former]
    last = max((int(number or 0) for _, _, number in made), default=0)
    if attempt < last:
        raise PolicyError(f"client '{client}' has reported for attempt {last}: attempt {attempt} is over")
    if attempt and any(base != source for base, _, _ in made):
        raise PolicyError(
            f"client '{client}' has other samples or rules than when it first reported: the difference of two sums "
            "over the same clients would show what changed. Report from what was reported, or in a new federation"
        )
    return f"{source}/{attempt}" if attempt else source
