"""What a report shows of all this: who was left out and why, and who moves the head."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from fedmoments.privacy.robust.filtering import Suspicion
from fedmoments.privacy.robust.influence import Influence

__all__ = ["robust_record"]


def robust_record(
    suspicion: Suspicion | None = None,
    influences: Sequence[Influence] = (),
    *,
    clients: int,
    head: str = "",
    attack: str | None = None,
    attackers: Iterable[Hashable] = (),
) -> dict[str, Any]:
    """Return the part ``robust`` of results, plain values for JSON.

    Parameters
    ----------
    suspicion
        Whom the server left out; None: nobody was examined.
    found
        Influences of clients, in the head named ``head``.
    clients
        How many contributed, those left out among them.
    attack, attackers
        What a simulation played, and who attacked.

    Examples
    --------
    >>> left_out = Suspicion({"c": "samples: too many"})
    >>> record = robust_record(left_out, clients=9, attack="flip:0.1", attackers=["c", "d"])
    >>> record["dropped"], record["caught"], record["false"]
    ([{'client': 'c', 'reason': 'samples: too many'}], 1, 0)
    """
    dropped = suspicion.dropped if suspicion else {}
    record: dict[str, Any] = {
        "clients": clients,
        "examined": suspicion is not None,
        "dropped": [{"client": str(client), "reason": reason} for client, reason in dropped.items()],
        "untested": suspicion.untested if suspicion else 0,
        "head": head,
        "influence": [influence.to_dict() for influence in influences],
    }
    if attack is not None:
        who = frozenset(attackers)
        record |= {
            "attack": attack,
            "attackers": sorted(str(client) for client in who),
            "caught": len(who & set(dropped)),
            "false": len(set(dropped) - who),
        }
    return record
