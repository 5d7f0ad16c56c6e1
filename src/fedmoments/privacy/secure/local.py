"""The whole protocol in one process: for simulations and tests."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.helper import Helper, Noise
from fedmoments.privacy.secure.report import make_report, read_report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey
from fedmoments.privacy.secure.stream import Words
from fedmoments.wire import IdentityKey

__all__ = ["secure_sum"]


def secure_sum(
    vectors: Mapping[str, NDArray[Any]],
    context: Context,
    *,
    minimum: int,
    dropped: Collection[str] = (),
    noise: Noise | None = None,
) -> Words:
    """Add up vectors through masking, sealing, signing, unsealing and unmasking, as two servers would.

    All keys are made for the occasion. Masked vectors are added as they arrive and not kept, so that memory does not
    grow with the number of clients.

    Parameters
    ----------
    vectors
        (m,) uint64 or int64 of each client, modulo 2⁶⁴.
    context
        What the sum is for.
    minimum
        Fewest reports of a batch.
    dropped
        Clients that never report.
    noise
        What the helper adds; see :meth:`Helper.sum`.

    Returns
    -------
    numpy.ndarray
        (m,) uint64: the sum over clients that did not drop, modulo 2⁶⁴, bit for bit.

    Raises
    ------
    PrivacyError
        When fewer than ``minimum`` clients remain.

    Examples
    --------
    >>> vectors = {name: np.array([1, 2, 3], np.uint64) for name in "abcd"}
    >>> secure_sum(vectors, Context("ab" * 32, 0, "cd" * 32), minimum=3, dropped=["b"])
    array([3, 6, 9], dtype=uint64)
    """
    unknown = sorted(set(dropped) - set(vectors))
    if unknown:
        raise InputError(f"clients that drop out must have a vector, but {unknown[:3]} have none")
    clients = [client for client in vectors if client not in set(dropped)]
    if len(clients) < minimum:
        raise PrivacyError(
            f"a batch must have {minimum} reports or more, but {len(clients)} of {len(vectors)} reported"
        )
    sizes = {len(vectors[client]) for client in clients}
    if len(sizes) > 1:
        raise InputError(f"the vectors of all clients must have one length, but those of {sorted(sizes)[:5]} arrived")
    keys = {client: IdentityKey.generate() for client in clients}
    members = {client: key.public.hex for client, key in keys.items()}
    size = sizes.pop()
    total = np.zeros(size, np.uint64)
    sealed = []
    with Helper(HelperKey.generate(), minimum=minimum, members=members) as helper:
        for client, key in keys.items():
            data = make_report(vectors[client], context, client=client, version=1, helper=helper.public, key=key)
            report = read_report(data, context, size, lambda name: keys[name].public)
            np.add(total, report.masked, out=total)
            sealed.append((report.id, report.sealed))
        total += helper.sum(SumRequest(context, sealed, [(0, size)]), noise=noise)
    return total
