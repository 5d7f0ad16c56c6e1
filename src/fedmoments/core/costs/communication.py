"""What travels, both ways (Fed3R, Appendix D; FedCOF, Tables 1 and 3; GH-OFL, Table 6).

With d feature dimensions, C classes, K clients of which client k holds |C_k| classes, and an encoder of b parameters,
floats upward are::

    FedNCM, FedCOF          Σ|C_k| d          (FedCOF with s means per client: s times that)
    Fed3R, GH-LDA           Σ|C_k| d + K d(d+1)/2
    FedCOF Oracle, paper    Σ|C_k| (d + d²)   (ours needs Fed3R's payload)
    GH-NB                   2 Σ|C_k| d
    GH-QDA                  Σ|C_k| (d + d(d+1)/2)
    sketch, lda-sketch      by budget, in codes: at most 4 Σ|C_k| d bytes with the budget ``means``
    FedAvg and relatives    κ T (b + dC) each way; LP dC, FEAT b; SCAFFOLD twice that

and downward nothing for one-shot methods, or bK when the encoder has to be shipped.

Two conventions of the papers are choices here. `packed`: GH-OFL counts a symmetric matrix as d(d+1)/2, Fed3R and
FedCOF as d². `send_absent_classes`: FedCOF's tables count the classes a client holds, Fed3R's Appendix D and GH-OFL's
Table 6 all C of them. The defaults are what this package sends: packed, absent classes left out.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.costs.cost import Cost, check_whole
from fedmoments.core.costs.methods import OneShotMethod, iterative_method, one_shot_method
from fedmoments.core.costs.moments import check_present_classes, moments_size
from fedmoments.core.costs.sketches import evenly
from fedmoments.core.statistics import SketchPlan
from fedmoments.errors import InputError

__all__ = ["iterative_cost", "mapped_dimension", "one_shot_cost"]


def mapped_dimension(name: str, method: OneShotMethod, d: int, map_dimension: int | None) -> int:
    """Dimension in which a one-shot method measures: that of the feature map if there is one, else d.

    Examples
    --------
    >>> mapped_dimension("gh-lda", one_shot_method("gh-lda"), 512, 256)
    256
    """
    d = check_whole("d", d)
    if map_dimension is not None:
        return check_whole("map_dimension", map_dimension)
    if method.needs_map:
        raise InputError(
            f"map_dimension is missing: '{name}' measures after random features and costs by their number; "
            "pass it (5,000 or 10,000 in the Fed3R paper)."
        )
    return d


def _checked_means(name: str, method: OneShotMethod, means_per_client: int) -> int:
    means = check_whole("means_per_client", means_per_client)
    if means > 1 and "client_means" not in method.moments:
        raise InputError(f"means_per_client must be 1 for '{name}', which does not send client means, but is {means}.")
    return means


def _each_client(
    clients: int, present_classes: int | ArrayLike | None, classes: int | None, *, send_absent_classes: bool
) -> NDArray[np.int64]:
    """(K,) classes that each client sends: |C_k|, spread evenly if only their sum is known, or C."""
    if classes is not None:
        classes = check_whole("classes", classes)
    if send_absent_classes:
        if classes is None:
            raise InputError("classes is missing: sending absent classes too costs by the number of all classes.")
        return np.full(clients, classes, np.int64)
    if present_classes is None:
        raise InputError(
            "present_classes is missing: pass the sum over clients of the classes each one holds (or one number per "
            "client), or classes with send_absent_classes=True."
        )
    _, present = check_present_classes(present_classes, clients)
    if classes is not None and present > clients * classes:
        raise InputError(
            f"present_classes must be at most clients times classes, {clients * classes}, but sums to {present}."
        )
    listed = np.asarray(present_classes, np.int64)
    return listed if listed.ndim else evenly(present, clients)


def one_shot_cost(
    method: str,
    *,
    d: int,
    clients: int,
    present_classes: int | ArrayLike | None = None,
    classes: int | None = None,
    map_dimension: int | None = None,
    means_per_client: int = 1,
    packed: bool = True,
    send_absent_classes: bool = False,
    encoder_parameters: int = 0,
    bytes_per_number: float = 4,
    sketch: SketchPlan | None = None,
    samples: ArrayLike | None = None,
) -> Cost:
    """Price a method whose clients upload once.

    Parameters
    ----------
    method
        One of ``known_methods("one-shot")``.
    d, clients
        Feature dimensions and number of clients K.
    present_classes : int or (K,) array of int
        Σ_k |C_k|, or |C_k| of every client.
    classes
        C, for `send_absent_classes`.
    map_dimension
        Output dimension of the feature map (projection k, random features D); without it features are sent as they are.
    means_per_client
        Mean rows per client and class, for ``fedcof``.
    packed, send_absent_classes
        The module's two conventions: a symmetric matrix is d(d+1)/2 or d²; all C classes or those a client holds.
    encoder_parameters, bytes_per_number
        b, when the server ships the encoder to every client, 0 when clients have it; width of a number on the wire.
    sketch, samples : SketchPlan, (K,) array of int
        For methods that send scatter sketches: how they are planned, the default plan if it is not said, and n_k of
        every client, as many as the ranks ask for if it is not said.

    Returns
    -------
    Cost
        Floats and bytes over all clients. Counts are in ``counts``, not in the floats.

    Examples
    --------
    >>> print(one_shot_cost("fedcof", d=1280, clients=6, present_classes=60, means_per_client=2))
    fedcof: up 614.4 kB, down 0 B; 6 uploads of 102.4 kB, downloads of 0 B; 120 counts not included
    >>> one_shot_cost("fed3r", d=512, clients=1, classes=100, packed=False, send_absent_classes=True).up_floats
    313344
    >>> one_shot_cost("sketch", d=512, clients=100, present_classes=500).up_bytes_per_client  # FedCOF's are 10240
    10148.0
    """
    entry = one_shot_method(method)
    dimension = mapped_dimension(method, entry, d, map_dimension)
    clients, means = check_whole("clients", clients), _checked_means(method, entry, means_per_client)
    present = _each_client(clients, present_classes, classes, send_absent_classes=send_absent_classes)
    plan = sketch or SketchPlan().settled(classes or 0)
    size = moments_size(entry.moments, dimension, present, means, packed=packed, sketch=plan, samples=samples)
    return Cost(
        method,
        clients,
        up_floats=size.floats,
        down_floats=clients * check_whole("encoder_parameters", encoder_parameters, least=0),
        counts=size.counts,
        bytes_per_number=bytes_per_number,
        coded=size.coded,
        coded_bytes=size.coded_bytes,
    )


def iterative_cost(
    method: str,
    *,
    d: int,
    classes: int,
    encoder_parameters: int,
    sampled: int,
    rounds: int,
    bias: bool = False,
    bytes_per_number: float = 4,
) -> Cost:
    """Price a method that exchanges parameters every round: the same number each way, but for Mime.

    Parameters
    ----------
    method
        One of ``known_methods("iterative")``: a bare name trains everything (FT), ``-lp`` the head, ``-feat`` the
        encoder.
    d, classes
        Feature dimensions and number of classes: the head has dC parameters.
    encoder_parameters
        b.
    sampled, rounds
        Clients sampled per round κ and number of rounds T.
    bias
        Whether the head has C more parameters (GH-OFL counts them, Fed3R and FedCOF do not).
    bytes_per_number
        Width of a number on the wire.

    Returns
    -------
    Cost
        Floats and bytes over all rounds and sampled clients; ``up_floats_per_client`` is one client in one round.

    Examples
    --------
    >>> cost = iterative_cost("fedavg-lp", d=512, classes=100, encoder_parameters=735_424, sampled=30, rounds=200)
    >>> cost.up_floats_per_client, cost.total_bytes
    (51200.0, 2457600000)
    >>> print(cost)
    fedavg-lp: up 1.2 GB, down 1.2 GB; 6,000 uploads of 204.8 kB, downloads of 204.8 kB
    """
    entry = iterative_method(method)
    encoder = check_whole("encoder_parameters", encoder_parameters, least=0)
    head = (check_whole("d", d) + bias) * check_whole("classes", classes)
    trained = {"all": encoder + head, "head": head, "encoder": encoder}[entry.trains]
    uploads = check_whole("sampled", sampled) * check_whole("rounds", rounds)
    up, down = (copies * trained * uploads for copies in (entry.copies, entry.down))
    return Cost(method, uploads, up_floats=up, down_floats=down, bytes_per_number=bytes_per_number)
