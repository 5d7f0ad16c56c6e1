"""Rounds until clients were seen: against exact fractions, closed forms, simulation and Fed3R's Table 7."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest

from fedmoments.core.costs import (
    expected_participations,
    expected_rounds,
    rounds_without_replacement,
    simulate_rounds,
)

SHARES = (0.25, 0.5, 0.75, 1.0)

# Fed3R, Table 7: (K, κ) → mean and standard deviation of the rounds for 25, 50, 75 and 100 % of the clients, from one
# thousand simulations each.
FED3R_TABLE_7 = {
    (1262, 10): ((37, 1), (88, 2), (175, 4), (970, 155)),
    (1262, 20): ((19, 1), (44, 1), (87, 2), (483, 79)),
    (1262, 50): ((8, 0), (18, 1), (35, 1), (191, 32)),
    (9275, 10): ((267, 2), (643, 5), (1286, 12), (9020, 1189)),
    (9275, 20): ((134, 1), (322, 3), (643, 6), (4494, 596)),
    (9275, 50): ((54, 1), (129, 1), (257, 2), (1809, 247)),
    (100, 10): ((3, 0), (7, 1), (14, 1), (50, 12)),
    (100, 20): ((2, 0), (4, 0), (7, 1), (24, 5)),
    (100, 50): ((1, 0), (1, 0), (3, 0), (8, 2)),
}
NOT_REACHED = (100, 50, 0.75)


def exact_moments(clients: int, sampled: int, target: int) -> tuple[Fraction, Fraction]:
    """Mean and second moment of the rounds by first-step analysis, in exact fractions."""
    first = [Fraction(0)] * (clients + 1)
    second = [Fraction(0)] * (clients + 1)
    draws = math.comb(clients, sampled)
    for seen in range(target - 1, -1, -1):
        steps = {
            new: Fraction(math.comb(clients - seen, new) * math.comb(seen, sampled - new), draws)
            for new in range(max(0, sampled - seen), min(sampled, clients - seen) + 1)
        }
        stay = steps.pop(0, Fraction(0))
        first[seen] = (1 + sum(p * first[seen + new] for new, p in steps.items())) / (1 - stay)
        onward = stay * first[seen] + sum(p * first[seen + new] for new, p in steps.items())
        second[seen] = (1 + 2 * onward + sum(p * second[seen + new] for new, p in steps.items())) / (1 - stay)
    return first[0], second[0]


@pytest.mark.parametrize(
    ("clients", "sampled"), [(1, 1), (2, 1), (5, 5), (7, 3), (12, 1), (20, 6), (30, 29), (40, 10), (60, 25)]
)
@pytest.mark.parametrize("share", SHARES)
def test_expected_rounds_equal_first_step_analysis_in_fractions(clients: int, sampled: int, share: float) -> None:
    result = expected_rounds(clients, sampled, share)
    mean, second = exact_moments(clients, sampled, result.target)
    assert result.mean == pytest.approx(float(mean), rel=1e-13)
    assert result.standard_deviation == pytest.approx(math.sqrt(second - mean**2), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("clients", "sampled"), [(10, 3), (60, 7), (100, 20)])
def test_expected_rounds_to_see_everyone_equal_inclusion_and_exclusion(clients: int, sampled: int) -> None:
    draws = math.comb(clients, sampled)
    mean = sum(
        (-1) ** (missing + 1)
        * math.comb(clients, missing)
        / (1 - Fraction(math.comb(clients - missing, sampled), draws))
        for missing in range(1, clients + 1)
    )
    assert expected_rounds(clients, sampled).mean == pytest.approx(float(mean), rel=1e-13)


@pytest.mark.parametrize("share", SHARES)
def test_one_client_a_round_is_the_classical_coupon_collector(share: float) -> None:
    clients = 9275
    result = expected_rounds(clients, 1, share)
    chance = 1 - np.arange(result.target) / clients
    assert result.mean == pytest.approx(np.sum(1 / chance), rel=1e-12)
    assert result.standard_deviation == pytest.approx(np.sqrt(np.sum((1 - chance) / chance**2)), rel=1e-12)


@pytest.mark.parametrize(
    ("clients", "sampled", "share"), [(100, 10, 1.0), (100, 50, 0.75), (60, 4, 0.5), (317, 25, 1.0)]
)
def test_expected_rounds_agree_with_simulation(clients: int, sampled: int, share: float) -> None:
    result = expected_rounds(clients, sampled, share)
    rounds = simulate_rounds(clients, sampled, share, repetitions=600, seed=20240711)
    error = result.standard_deviation / math.sqrt(len(rounds))
    assert rounds.mean() == pytest.approx(result.mean, abs=4 * error)
    assert rounds.std() == pytest.approx(result.standard_deviation, rel=0.2)


def test_simulation_with_other_sampling_does_not_agree() -> None:
    """The comparison above has teeth: eleven clients a round instead of ten are told apart."""
    result = expected_rounds(100, 10)
    rounds = simulate_rounds(100, 11, repetitions=600, seed=20240711)
    assert abs(rounds.mean() - result.mean) > 4 * result.standard_deviation / math.sqrt(len(rounds))


@pytest.mark.parametrize(
    ("clients", "sampled", "share", "printed"),
    [
        (clients, sampled, share, printed)
        for (clients, sampled), row in FED3R_TABLE_7.items()
        for share, printed in zip(SHARES, row, strict=True)
        if (clients, sampled, share) != NOT_REACHED
    ],
)
def test_fed3r_table_7(clients: int, sampled: int, share: float, printed: tuple[int, int]) -> None:
    """Half a unit for rounding, plus three standard errors of the paper's thousand simulations.

    The standard error of a mean is σ/√1000; that of a standard deviation is σ·√((kurtosis − 1)/4000), which for the
    Gumbel-like law of the last client (kurtosis 5.4) is 3.3 % of σ.
    """
    result = expected_rounds(clients, sampled, share)
    sigma = result.standard_deviation
    assert printed[0] == pytest.approx(result.mean, abs=0.5 + 3 * sigma / math.sqrt(1000))
    assert printed[1] == pytest.approx(sigma, abs=0.5 + 3 * sigma * math.sqrt(4.4 / 4000))


def test_fed3r_table_7_cell_that_needs_more_than_three_quarters() -> None:
    """K = 100, κ = 50, 75 %: printed 3 ± 0. Seeing 75 clients takes 2.42 rounds; 76 take 2.58, which rounds to 3."""
    assert FED3R_TABLE_7[100, 50][2] == (3, 0)
    assert expected_rounds(100, 50, 0.75).mean == pytest.approx(2.421, abs=5e-4)
    assert round(expected_rounds(100, 50, 0.76).mean) == 3


@pytest.mark.parametrize(("clients", "printed"), [(1262, 127), (9275, 928), (100, 10)])
def test_fed3r_rounds_without_replacement(clients: int, printed: int) -> None:
    assert rounds_without_replacement(clients, 10) == printed


def test_rounds_without_replacement_do_not_suffer_from_binary_fractions() -> None:
    assert [rounds_without_replacement(100, 1, percent / 100) for percent in range(1, 101)] == list(range(1, 101))
    assert rounds_without_replacement(100, 10, 0.25) == 3


def test_sampling_with_replacement_never_takes_fewer_rounds() -> None:
    for sampled in (1, 7, 50, 99, 100):
        for share in SHARES:
            assert expected_rounds(100, sampled, share).mean >= rounds_without_replacement(100, sampled, share) - 1e-12


def test_a_federation_of_inaturalist_size_is_solved_in_seconds() -> None:
    start = time.perf_counter()
    expected_rounds(9275, 50)
    assert time.perf_counter() - start < 5


def test_blocks_of_the_transition_matrix_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = expected_rounds(300, 20)
    monkeypatch.setattr("fedmoments.core.costs.rounds._BLOCK", 64)
    assert expected_rounds(300, 20) == whole


def test_expected_participations() -> None:
    assert expected_participations(9275, 10, 5000) == pytest.approx(5.3908, abs=1e-4)


def test_rounds_print_with_their_spread() -> None:
    assert str(expected_rounds(9275, 10)) == ("9,004 ± 1,189 rounds until 9,275 of 9,275 clients were seen, 10 a round")
