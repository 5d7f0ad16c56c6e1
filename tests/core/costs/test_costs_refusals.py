"""What the cost formulas refuse, and that each refusal is a full sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from fedmoments.core.costs import (
    Cost,
    client_flops,
    expected_flops,
    expected_rounds,
    floats_of,
    flops_of,
    iterative_cost,
    known_methods,
    one_shot_cost,
    rounds_without_replacement,
    simulate_rounds,
)
from fedmoments.errors import InputError, UnknownNameError

ONE_SHOT: dict[str, Any] = {"method": "fed3r", "d": 8, "clients": 3, "present_classes": 5}
ITERATIVE: dict[str, Any] = {
    "method": "fedavg",
    "d": 8,
    "classes": 3,
    "encoder_parameters": 100,
    "sampled": 2,
    "rounds": 5,
}
COMPUTE: dict[str, Any] = {"method": "fed3r", "samples": 3, "encoder_flops": 1e6, "d": 8, "classes": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d must be a whole number of at least 1, but is 0."),
        ({"d": 8.5}, "d must be a whole number"),
        ({"clients": 0}, "clients must be a whole number of at least 1, but is 0."),
        ({"present_classes": -1}, "present_classes must be a whole number of zero or more"),
        ({"present_classes": 2.5}, "present_classes must be a whole number of zero or more"),
        ({"present_classes": [1, -2, 3]}, "present_classes must be a whole number of zero or more"),
        ({"present_classes": [[1, 2, 3]]}, "present_classes must be a whole number of zero or more"),
        ({"present_classes": [1, 2]}, "one entry for each of the 3 clients, but has 2"),
        ({"present_classes": None}, "present_classes is missing"),
        ({"classes": 1}, "at most clients times classes, 3, but sums to 5"),
        ({"classes": 0}, "classes must be a whole number of at least 1"),
        ({"send_absent_classes": True}, "classes is missing"),
        ({"map_dimension": 0}, "map_dimension must be a whole number of at least 1"),
        ({"method": "fed3r-rf"}, "map_dimension is missing: 'fed3r-rf'"),
        ({"means_per_client": 0}, "means_per_client must be a whole number of at least 1"),
        ({"means_per_client": 2}, "means_per_client must be 1 for 'fed3r'"),
        ({"encoder_parameters": -1}, "encoder_parameters must be a whole number of at least 0"),
        ({"bytes_per_number": 0}, "bytes_per_number must be a finite number above zero"),
        ({"bytes_per_number": float("nan")}, "bytes_per_number must be a finite number above zero"),
    ],
)
def test_one_shot_cost_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        one_shot_cost(**(ONE_SHOT | change))
    assert message in str(refusal.value)
    assert str(refusal.value).endswith((".", ")."))


@pytest.mark.parametrize(
    "change",
    [
        {"d": 0},
        {"classes": -3},
        {"encoder_parameters": -1},
        {"sampled": 0},
        {"rounds": 0},
        {"bytes_per_number": -4},
        {"bytes_per_number": float("inf")},
    ],
)
def test_iterative_cost_refuses(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(InputError, match=f"^{name} must be .* but is .*\\.$"):
        iterative_cost(**(ITERATIVE | change))


@pytest.mark.parametrize("change", [{"samples": -1}, {"encoder_flops": -1.0}, {"d": 0}, {"classes": 0}, {"epochs": 0}])
def test_client_flops_refuses(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(InputError, match=f"^{name} must be .* but is .*\\.$"):
        client_flops(**(COMPUTE | change))


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
@pytest.mark.parametrize("count", [rounds_without_replacement, expected_rounds])
def test_rounds_refuse_a_share_outside_zero_to_one(count: Callable[..., object], share: float) -> None:
    with pytest.raises(InputError, match="share must lie above 0 and be at most 1"):
        count(100, 10, share)


@pytest.mark.parametrize(
    ("clients", "sampled", "message"),
    [
        (0, 1, "clients must be"),
        (10, 0, "sampled must be"),
        (10, 11, "sampled must be at most the number of clients, 10"),
    ],
)
@pytest.mark.parametrize("count", [rounds_without_replacement, expected_rounds])
def test_rounds_refuse_impossible_sampling(
    count: Callable[..., object], clients: int, sampled: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        count(clients, sampled)


def test_other_numbers_are_checked_too() -> None:
    with pytest.raises(InputError, match="repetitions must be"):
        simulate_rounds(10, 2, repetitions=0, seed=0)
    with pytest.raises(InputError, match="rounds must be"):
        expected_flops(1.0, rounds=-1, sampled=1, clients=2)
    with pytest.raises(InputError, match="flops_per_round must be"):
        expected_flops(-1.0, rounds=1, sampled=1, clients=2)
    with pytest.raises(InputError, match="up_floats must be"):
        Cost("fedcof", uploads=1, up_floats=-1, down_floats=0)
    with pytest.raises(InputError, match="present_classes must be"):
        floats_of(["sums"], 8, [])


def test_unknown_names_are_answered_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownNameError, match="unknown one-shot method 'fedcov': did you mean 'fedcof'"):
        one_shot_cost(**(ONE_SHOT | {"method": "fedcov"}))
    with pytest.raises(UnknownNameError, match="unknown iterative method 'fedavg-pl': did you mean 'fedavg-lp'"):
        iterative_cost(**(ITERATIVE | {"method": "fedavg-pl"}))
    with pytest.raises(UnknownNameError, match="unknown method 'fed4r': did you mean 'fed3r'"):
        client_flops(**(COMPUTE | {"method": "fed4r"}))
    with pytest.raises(UnknownNameError, match="unknown moment 'grams': did you mean 'gram'"):
        floats_of(["grams"], 8, 3)
    with pytest.raises(UnknownNameError, match="unknown moment 'mean'"):
        flops_of(["mean"], 8, 3, 10)
    with pytest.raises(UnknownNameError, match="unknown kind of method 'oneshot': did you mean 'one-shot'"):
        known_methods("oneshot")  # type: ignore[arg-type]


def test_costs_of_different_widths_do_not_add() -> None:
    with pytest.raises(InputError, match="different number widths"):
        one_shot_cost(**ONE_SHOT) + one_shot_cost(**ONE_SHOT, bytes_per_number=2)
