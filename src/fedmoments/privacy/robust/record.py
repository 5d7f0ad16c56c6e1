"""What a report shows of all this: who was left out and why, and who moves the head."""

from collections.abc import Hashable, Iterable, Sequence

from fedmoments.core.observations.parts import ClientInfluence, Dropped, Examination
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
) -> Examination:
    """Return the part ``robust`` of results.

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
    >>> record.dropped, record.caught, record.false
    ((Dropped(client='c', reason='samples: too many'),), 1, 0)
    """
    dropped = suspicion.dropped if suspicion else {}
    who = frozenset(attackers)
    return Examination(
        clients,
        suspicion is not None,
        tuple(Dropped(str(client), reason) for client, reason in dropped.items()),
        suspicion.untested if suspicion else 0,
        head,
        tuple(ClientInfluence(**influence.to_dict()) for influence in influences),
        attack,
        tuple(sorted(str(client) for client in who)),
        None if attack is None else len(who & set(dropped)),
        None if attack is None else len(set(dropped) - who),
    )
