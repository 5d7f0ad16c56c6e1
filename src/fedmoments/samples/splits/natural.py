"""Splits that the data themselves give: by domain (feature shift) and by user id."""

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.samples.splits.deal import Cells, deal, group
from fedmoments.samples.splits.draws import Seed, check_count, even_sizes, generator
from fedmoments.samples.splits.scheme import Request, Scheme, count
from fedmoments.samples.splits.split import Split

__all__ = ["by_domain", "by_id"]


def by_domain(domains: ArrayLike, n_clients_per_domain: int = 1, seed: Seed = 0) -> Split:
    """Give every client samples of one domain only; the clients of a domain share it iid. Nothing is dropped.

    Clients are in the sorted order of domains and are named after them: ``sketch``, or ``sketch/0``, ``sketch/1`` …

    Parameters
    ----------
    domains
        (n,), the domain of each sample: whole numbers or text.
    n_clients_per_domain
        Clients that share a domain, at least 1. When a domain has fewer samples than that, its last are empty.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> split = by_domain(["photo", "sketch", "photo", "photo"], n_clients_per_domain=2, seed=0)
    >>> split.names, split.sizes.tolist()
    (('photo/0', 'photo/1', 'sketch/0', 'sketch/1'), [2, 1, 1, 0])
    """
    groups = group(domains, "domains")
    per = check_count(n_clients_per_domain, "n_clients_per_domain")
    n_domains = len(groups.keys)
    cells = Cells(
        np.arange(n_domains * per),
        np.repeat(np.arange(n_domains), per),
        np.concatenate([even_sizes(size, per) for size in groups.sizes.tolist()]),
    )
    names = [str(key) if per == 1 else f"{key}/{j}" for key in groups.keys.tolist() for j in range(per)]
    clients = deal(generator(seed), groups, cells)
    return Split(clients, n_domains * per, "domain" if per == 1 else f"domain:{per}", names=tuple(names))


def by_id(ids: ArrayLike) -> Split:
    """Make every user a client: the natural split. Nothing is random and nothing is dropped.

    Parameters
    ----------
    ids
        (n,), the user of each sample: whole numbers or text.

    Returns
    -------
    Split
        The client of every sample. Clients are in the sorted order of ids, and `Split.names` are the ids.

    Examples
    --------
    >>> split = by_id(["eve", "bob", "eve"])
    >>> split.clients.tolist(), split.names
    ([1, 0, 1], ('bob', 'eve'))
    """
    groups = group(ids, "ids")
    return Split(groups.codes, len(groups.keys), "id", names=tuple(str(key) for key in groups.keys.tolist()))


def _domain(request: Request, per_domain: int) -> Split:
    return by_domain(request.key("domains"), per_domain, request.seed)


def _id(request: Request) -> Split:
    return by_id(request.key("ids"))


SPLITS = (
    Scheme(
        "domain",
        "each client holds one domain",
        (count("CLIENTS_PER_DOMAIN", default=1),),
        _domain,
        finds_clients=lambda *_: True,
    ),
    Scheme("id", "each user id is a client", (), _id, finds_clients=lambda *_: True),
)
