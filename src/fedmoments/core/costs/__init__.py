"""What a federation costs: numbers and bytes on the wire, arithmetic at a client, rounds until clients were seen.

Everything here is a formula; nothing is measured and no data are needed. Units, everywhere:

- *floats* are numbers sent; *bytes* are floats times ``bytes_per_number`` (4: FP32); MB = 10⁶ bytes, KiB = 1024 bytes;
- *counts* (one whole number a class, n_kc) are negligible and reported on their own, as the papers do;
- one *FLOP* is one multiply-add.

``communication`` prices methods by name, ``moments`` any set of moments, ``compute`` a client's arithmetic and
``rounds`` client sampling. ``known_methods()`` lists the names.
"""

from fedmoments.core.costs.communication import iterative_cost, one_shot_cost
from fedmoments.core.costs.compute import client_flops, expected_flops, head_flops
from fedmoments.core.costs.cost import Cost, kibibytes, megabytes
from fedmoments.core.costs.methods import known_methods
from fedmoments.core.costs.moments import PayloadSize, floats_of, flops_of
from fedmoments.core.costs.rounds import (
    RoundsToSee,
    expected_participations,
    expected_rounds,
    rounds_without_replacement,
    simulate_rounds,
)

__all__ = [
    "Cost",
    "PayloadSize",
    "RoundsToSee",
    "client_flops",
    "expected_flops",
    "expected_participations",
    "expected_rounds",
    "floats_of",
    "flops_of",
    "head_flops",
    "iterative_cost",
    "kibibytes",
    "known_methods",
    "megabytes",
    "one_shot_cost",
    "rounds_without_replacement",
    "simulate_rounds",
]
