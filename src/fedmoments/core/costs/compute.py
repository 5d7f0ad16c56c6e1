"""What a client computes (Fed3R, Appendix E), in FLOPs; one multiply-add is one.

With n samples, an encoder of F_φ FLOPs a sample, a head of F_h = dC, a model of F_M = F_φ + F_h, and a backward pass
that costs two forward passes::

    one-shot            n (F_φ + what the moments cost)
      Fed3R             n (F_φ + d(d+1)/2 + dC)
      FedNCM            n (F_φ + d)
    iterative, round    3 E n F_M            E local epochs; FEAT costs the same, its gradients pass through the head
      LP                E n (F_φ + 3 F_h)    no backward pass through the encoder
"""

from fedmoments.core.costs.communication import mapped_dimension
from fedmoments.core.costs.cost import check_not_negative, check_whole
from fedmoments.core.costs.methods import iterative_method, known_methods, one_shot_method
from fedmoments.core.costs.moments import flops_of
from fedmoments.core.costs.rounds import expected_participations
from fedmoments.errors import UnknownNameError

__all__ = ["client_flops", "expected_flops", "head_flops"]


def head_flops(d: int, classes: int) -> int:
    """FLOPs of a linear head for one sample: dC.

    Examples
    --------
    >>> head_flops(1280, 2028)
    2595840
    """
    return check_whole("d", d) * check_whole("classes", classes)


def client_flops(
    method: str,
    *,
    samples: int,
    encoder_flops: float,
    d: int,
    classes: int,
    epochs: int = 1,
    map_dimension: int | None = None,
    count_map: bool = False,
) -> float:
    """FLOPs of one client that takes part once: in the one round of a one-shot method, or in one of many.

    Parameters
    ----------
    method
        One of ``known_methods()``.
    samples
        Samples n of the client.
    encoder_flops
        F_φ, FLOPs of the encoder's forward pass for one sample.
    d, classes
        Feature dimensions and number of classes C.
    epochs
        Local epochs E of iterative methods; one-shot methods pass over the data once.
    map_dimension
        Output dimension of the feature map of a one-shot method.
    count_map
        Whether to add the map itself, d times `map_dimension` a sample. Fed3R's Appendix E does not.

    Returns
    -------
    float
        FLOPs.

    Examples
    --------
    >>> client_flops("fed3r", samples=1, encoder_flops=332.9e6, d=1280, classes=1203)
    335259680.0
    >>> client_flops("fedavg", samples=1, encoder_flops=332.9e6, d=1280, classes=1203, epochs=5)
    5016597600.0
    """
    samples = check_whole("samples", samples, least=0)
    encoder, epochs = check_not_negative("encoder_flops", encoder_flops), check_whole("epochs", epochs)
    head = head_flops(d, classes)
    if method not in known_methods():
        raise UnknownNameError("method", method, known_methods())
    if method in known_methods("one-shot"):
        entry = one_shot_method(method)
        dimension = mapped_dimension(method, entry, d, map_dimension)
        mapping = d * dimension if count_map and map_dimension is not None else 0
        moments = flops_of(entry.moments, dimension, classes, samples, dense_sums=entry.dense_sums)
        return samples * (encoder + mapping) + moments
    if iterative_method(method).trains == "head":
        return epochs * samples * (encoder + 3 * head)
    return 3 * epochs * samples * (encoder + head)


def expected_flops(flops_per_round: float, *, rounds: int, sampled: int, clients: int) -> float:
    """FLOPs that a client is expected to have spent after t rounds: T · t κ/K.

    Parameters
    ----------
    flops_per_round
        T, what one participation costs a client.
    rounds, sampled, clients
        Rounds t, clients sampled per round κ, clients K.

    Returns
    -------
    float
        FLOPs.

    Examples
    --------
    >>> expected_flops(2e9, rounds=3000, sampled=10, clients=1200)
    50000000000.0
    """
    return check_not_negative("flops_per_round", flops_per_round) * expected_participations(clients, sampled, rounds)
