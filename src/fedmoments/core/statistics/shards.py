"""A shard of one client as bytes: an accumulator that goes from one machine of the client to another."""

import numpy as np

from fedmoments.core.statistics.accumulator import Accumulator
from fedmoments.core.statistics.files import kind_header, kind_of
from fedmoments.errors import InputError, reading
from fedmoments.files import Header, pack_tensors, unpack_tensors

__all__ = ["pack_shard", "unpack_shard"]

_KIND = "shard"


def pack_shard(shard: Accumulator) -> bytes:
    """Return an accumulator as bytes.

    Examples
    --------
    >>> from fedmoments.core.statistics.spec import StatisticsSpec
    >>> shard = Accumulator(StatisticsSpec.of("gram"), n_classes=1, dim=2).update([[1.0, 2.0]], [0])
    >>> unpack_shard(pack_shard(shard)).n_samples
    1
    """
    state = shard.state()
    header = {**kind_header(shard), "seed": shard.seed, "client": shard.client}
    return pack_tensors(_KIND, {name: np.ascontiguousarray(array) for name, array in state.items()}, header)


def unpack_shard(data: bytes) -> Accumulator:
    """Return the accumulator that :func:`pack_shard` wrote, checked."""
    tensors, header = unpack_tensors(data, _KIND, "the shard")
    with reading("the shard is not valid"):
        shard = _empty(header)
        shard.restore(tensors)
    return shard


def _empty(header: Header) -> Accumulator:
    spec, n_classes, dim, form = kind_of(header)
    seed, client = header["seed"], header["client"]
    if type(seed) is not int or not isinstance(client, str | None):
        raise InputError(f"a shard has a whole number as seed and a name as client, not {seed!r} and {client!r}")
    return Accumulator(spec, n_classes=n_classes, dim=dim, seed=seed, fixed_point=form, client=client)
