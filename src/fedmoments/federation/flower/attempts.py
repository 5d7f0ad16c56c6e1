"""Reporting again, behind another mask, after a batch was given up: what a client checks before it does.

Two sums over the same clients tell the leader nothing new if every client reports the same numbers both times: their
difference is zero. They would tell what changed, exactly, if one client had changed anything in between. So a client
reports again from the very samples and rules of its first report, and never for an attempt that is over.
"""

from collections.abc import Sequence

from fedmoments.errors import PolicyError

__all__ = ["source_of"]


def source_of(client: str, source: str, attempt: int, former: Sequence[str]) -> str:
    """Return the source under which a report of this attempt is kept.

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
