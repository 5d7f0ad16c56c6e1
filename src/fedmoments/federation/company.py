"""How many parties a head must be fitted from: a head of one party shows its class means to all who receive it.

The terms say how many (``parties``), and a party's policy how many it asks for. Whatever leaves parties out of a head
besides (a cap on samples, a filter, a half-life) may never leave a single one of several, whatever the terms say.
"""

from collections.abc import Sequence

from fedmoments.errors import NotEnoughDataError
from fedmoments.federation.terms import Terms

__all__ = ["require_company", "require_parties"]

#: Fewest parties that a choice among several may leave.
CHOSEN = 2


def require_parties(terms: Terms, parties: int) -> None:
    """Refuse to fit a head from fewer parties than the terms allow; from none at all, other errors say more.

    Raises
    ------
    NotEnoughDataError
        When they are too few.
    """
    if 0 < parties < terms.privacy.parties:
        raise NotEnoughDataError(
            f"the terms of '{terms.name}' let no head be fitted from fewer than {terms.privacy.parties} parties, and "
            f"{parties} have samples in the ledger: wait for others, or agree on fewer (--parties) in a new federation"
        )


def require_company(terms: Terms, kept: Sequence[str], several: int, choice: str, mend: str) -> None:
    """Refuse a choice that leaves one party of several in a head, or fewer than the terms allow.

    Parameters
    ----------
    terms
        Of the federation.
    kept, several
        Parties with samples that stay in the head, and how many have some in the ledger.
    choice, mend
        What left others out, and what to do instead.

    Raises
    ------
    NotEnoughDataError
        When they are too few.
    """
    require_parties(terms, several)
    least = max(terms.privacy.parties, min(CHOSEN, several))
    if 0 < len(kept) < least:
        who = f"only the contribution of '{kept[0]}' has" if len(kept) == 1 else f"only {len(kept)} contributions have"
        raise NotEnoughDataError(
            f"{choice} {who} a weight, of {several}, and a head is fitted from {least} parties or more: a head of "
            f"fewer would show their class means to everybody; {mend}"
        )
