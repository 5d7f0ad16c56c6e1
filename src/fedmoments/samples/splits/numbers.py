"""How many clients a split has when no number is given."""

from fedmoments.samples.splits.registry import parse_split

__all__ = ["CLIENTS", "finds_clients"]

#: Clients of a split that does not say itself how many there are.
CLIENTS = 100


def finds_clients(scheme: str) -> bool:
    """Return whether a scheme says itself how many clients there are.

    Examples
    --------
    >>> finds_clients("domain"), finds_clients("iid")
    (True, False)
    """
    return parse_split(scheme).finds_clients
