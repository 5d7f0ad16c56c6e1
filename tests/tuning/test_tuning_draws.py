"""Draws of clients, batches and validation shares: complete, seeded, independent of what was drawn before."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import shuffle
from fedmoments.tuning.draws import batches, drawn_clients, held_out, stream


@given(n=st.integers(1, 30), data=st.data(), seed=st.integers(0, 2**32))
def test_without_replacement_nobody_is_drawn_twice_before_everybody_was_drawn(
    n: int, data: st.DataObject, seed: int
) -> None:
    kappa = data.draw(st.integers(1, n))
    times = np.zeros(n, int)
    for number in range(1, 2 * n + 1):
        chosen = drawn_clients(n, kappa, number, replacement=False, seed=seed)
        assert len(set(chosen.tolist())) == kappa
        times[chosen] += 1
        # A round that is filled up from the next deal may hold somebody of that deal while another still waits.
        assert times.max() - times.min() <= 1 + (number * kappa % n != 0)
        if number * kappa % n == 0 and number % n == 0:
            assert (times == number * kappa // n).all()


@given(n=st.integers(1, 40), seed=st.integers(0, 1000))
def test_when_rounds_divide_the_clients_every_pass_is_exactly_everybody(n: int, seed: int) -> None:
    for kappa in (each for each in range(1, n + 1) if n % each == 0):
        rounds = n // kappa
        for first in range(1, 2 * rounds, rounds):
            seen = [drawn_clients(n, kappa, t, replacement=False, seed=seed) for t in range(first, first + rounds)]
            assert sorted(np.concatenate(seen).tolist()) == list(range(n))


def test_with_replacement_rounds_are_independent_and_fair() -> None:
    draws = [tuple(drawn_clients(10, 3, t, replacement=True, seed=0)) for t in range(1, 2001)]
    times = np.bincount(np.concatenate(draws), minlength=10)
    assert np.abs(times / 2000 - 0.3).max() < 0.04  # four standard deviations
    both = np.mean([0 in one and 0 in two for one, two in pairwise(draws)])
    assert abs(both - 0.09) < 0.03


def test_a_round_can_be_drawn_without_those_before_it() -> None:
    for replacement in (False, True):
        forward = [drawn_clients(17, 5, t, replacement=replacement, seed=4).tolist() for t in range(1, 60)]
        backward = [drawn_clients(17, 5, t, replacement=replacement, seed=4).tolist() for t in range(59, 0, -1)]
        assert forward == backward[::-1]
        other = [drawn_clients(17, 5, t, replacement=replacement, seed=5).tolist() for t in range(1, 60)]
        assert forward != other


def dealt_one_by_one(n: int, kappa: int, round_number: int, seed: int) -> list[int]:
    """Deal round after round, as the words of ``drawn_clients`` have it."""
    block, place = divmod(round_number - 1, n)
    chosen: list[int] = []
    left: list[int] = []
    deals = 0
    for _ in range(place + 1):
        chosen, left = left[:kappa], left[kappa:]
        if len(chosen) < kappa:
            dealt = shuffle(stream(seed, "clients", block, deals), n).tolist()
            deals += 1
            fresh = [each for each in dealt if each not in chosen]
            late = [each for each in dealt if each in chosen]
            missing = kappa - len(chosen)
            chosen, left = chosen + fresh[:missing], fresh[missing:] + late
    return sorted(chosen)


def test_the_draw_of_a_round_is_that_of_dealing_round_after_round() -> None:
    for n in range(1, 12):
        for kappa in range(1, n + 1):
            for number in range(1, 2 * n + 2):
                found = drawn_clients(n, kappa, number, replacement=False, seed=n)
                assert found.tolist() == dealt_one_by_one(n, kappa, number, n)


def test_a_late_round_of_ten_thousand_clients_is_drawn_in_no_time() -> None:
    begun = time.perf_counter()
    drawn_clients(10_000, 3_000, 200, replacement=False, seed=0)
    assert time.perf_counter() - begun < 5  # a tenth of a second; by going through everybody for everybody, minutes


@pytest.mark.parametrize("kappa", [0, 6])
def test_a_round_of_nobody_or_of_too_many_is_refused(kappa: int) -> None:
    with pytest.raises(InputError, match="from 1 to 5 clients"):
        drawn_clients(5, kappa, 1, replacement=False, seed=0)


@given(n=st.integers(0, 50), size=st.integers(0, 20), epochs=st.integers(1, 3), seed=st.integers(0, 99))
def test_every_epoch_visits_every_sample_once(n: int, size: int, epochs: int, seed: int) -> None:
    found = batches(n, size, seed=seed, round_number=3, client="clinic", epochs=epochs)
    joined = np.concatenate([*found, np.zeros(0, np.int64)])
    for epoch in range(epochs):
        assert sorted(joined[epoch * n : (epoch + 1) * n].tolist()) == list(range(n))
    assert all(len(rows) == (size or n) for rows in found[: len(found) // epochs - 1])
    assert len(found) == (epochs * -(-n // size) if size else epochs * bool(n))


def test_batches_differ_by_round_client_and_seed() -> None:
    def order(seed: int = 0, round_number: int = 1, client: str = "a") -> tuple[int, ...]:
        return tuple(np.concatenate(batches(40, 8, seed=seed, round_number=round_number, client=client)))

    assert order() == order()
    assert len({order(), order(1), order(0, 2), order(0, 1, "b")}) == 4


@given(n=st.integers(0, 60), share=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_validation_shares_and_the_rest_are_everything_once(n: int, share: float, seed: int) -> None:
    train, held = held_out(n, share, seed=seed, client="clinic")
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(n))
    assert len(held) == int(share * n)
    assert len(train) >= min(n, 1)
