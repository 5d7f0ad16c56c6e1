"""Every reason to refuse is provoked by name; ten thousand malformed payloads: none crashes, none is taken in."""

import gc
import re
import resource
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tests.wire.wire_impossible
import tests.wire.wire_malformed_numbers
import tests.wire.wire_malformed_sketches
import tests.wire.wire_other_encodings
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.wire_malformed import KINDS, bases, framed, split_body
from tests.wire.wire_workshop import WORKSHOP

from fedmoments.errors import RefusedError
from fedmoments.wire import Reason, decode

#: Reasons that only a ledger can have, which has seen other contributions before.
OF_THE_LEDGER = {Reason.REPLAYED, Reason.CONFLICT, Reason.OVERFLOW}
#: Reasons of contributions of which not even a name could be read.
NAMELESS = {
    *(Reason.OVERSIZED, Reason.TRUNCATED, Reason.NOT_A_CONTRIBUTION),
    *(Reason.ENDIANNESS, Reason.FORMAT_VERSION, Reason.CLIENT_ID),
}


class Refusal(NamedTuple):
    """What a RefusedError said, without the traceback that would keep everything alive."""

    reason: str
    sentence: str
    client: str | None


def refusal(name: str, rng: np.random.Generator) -> Refusal | None:
    """Return why a payload of some kind is refused; None if it is, by chance, byte for byte a sound one."""
    agreement, data = KINDS[name].make(rng)
    if any(data == WORKSHOP.sound(agreement, seed=seed) for seed in range(8)):
        return None
    try:
        decode(data, agreement, WORKSHOP.key_of)
    except RefusedError as error:
        return Refusal(error.reason, error.sentence, error.client)
    pytest.fail(f"a payload of the kind {name} was taken in: {data.hex()}")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_refused_for_its_reason(name: str) -> None:
    for seed in range(25):
        error = refusal(name, np.random.default_rng(seed))
        assert error is not None
        assert error.reason in KINDS[name].reasons, (seed, error)
        assert all(word in error.sentence for word in KINDS[name].words), (seed, error.sentence)
        assert error.client is not None or error.reason in NAMELESS, (seed, error)
        if error.client is not None:
            assert f"'{error.client}'" in error.sentence


def test_every_reason_has_a_kind_of_its_own() -> None:
    provoked = {next(iter(kind.reasons)) for kind in KINDS.values() if len(kind.reasons) == 1}
    assert provoked == set(Reason) - OF_THE_LEDGER
    assert len(KINDS) >= 20


def test_what_the_catalogue_starts_from_is_sound() -> None:
    sketches = tests.wire.wire_malformed_sketches.AGREEMENTS
    for agreement in (*bases(), tests.wire.wire_malformed_numbers.POWERS, *sketches):
        for seed in range(8):
            decode(WORKSHOP.sound(agreement, seed=seed), agreement, WORKSHOP.key_of)


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=700), keep=st.sampled_from([0, 8, 16, 144, 232, 296, 304]), seed=st.integers(0, 7))
def test_arbitrary_bytes_are_refused(data: bytes, keep: int, seed: int) -> None:
    agreement = bases()[seed]
    sound = WORKSHOP.sound(agreement)
    if sound[:keep] + data != sound:
        with pytest.raises(RefusedError) as caught:
            decode(sound[:keep] + data, agreement, WORKSHOP.key_of)
        assert caught.value.reason in set(Reason)
        assert caught.value.sentence


@settings(deadline=None, max_examples=300)
@given(body=st.binary(max_size=300), seed=st.integers(0, 7))
def test_arbitrary_signed_bodies_are_refused(body: bytes, seed: int) -> None:
    with pytest.raises(RefusedError) as caught:
        decode(WORKSHOP.signed(body, bases()[seed]), bases()[seed], WORKSHOP.key_of)
    assert caught.value.reason == Reason.BODY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(value=JSON, where=st.sampled_from(["", "classes", "dtype", "shape", "data_offsets", "__metadata__", "name"]))
def test_arbitrary_json_in_a_signed_body_is_refused(value: object, where: str) -> None:
    sound = WORKSHOP.sound(bases()[0])
    head, data = split_body(sound[296:])
    whole: object = head
    if where in ("dtype", "shape", "data_offsets"):
        head["classes"][where] = value
    elif where:
        head[where] = value
    else:
        whole = value
    body = framed(whole, data)
    if body != sound[296:]:
        with pytest.raises(RefusedError) as caught:
            decode(WORKSHOP.signed(body, bases()[0]), bases()[0], WORKSHOP.key_of)
        assert caught.value.reason in (Reason.BODY, Reason.DTYPE, Reason.SHAPE)
        assert caught.value.sentence.isprintable()


def refuse_many(count: int) -> tuple[Counter[tuple[str, str]], list[int], list[int]]:
    """Refuse payloads of all kinds in turn.

    Returns how many by kind and reason and, for every 1,000, the peak of Python's memory in bytes and the highest
    resident size of the process so far in kilobytes, which also knows what libraries took.
    """
    names, found = list(KINDS), Counter[tuple[str, str]]()
    peaks: list[int] = []
    resident: list[int] = []
    tracemalloc.start()
    try:
        for number in range(count):
            name = names[number % len(names)]
            error = refusal(name, np.random.default_rng([number, 7]))
            found[name, error.reason if error else "identical"] += 1
            assert error is None or (error.reason in set(Reason) and error.sentence)
            if (number + 1) % 1000 == 0:
                peaks.append(tracemalloc.get_traced_memory()[1])
                resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
                gc.collect()  # Python keeps freed tuples, thousands of each length, until then
                tracemalloc.reset_peak()
    finally:
        tracemalloc.stop()
    return found, peaks, resident


def test_five_hundred_malformed_payloads() -> None:
    found, _, _ = refuse_many(500)
    assert sum(found.values()) == 500
    assert {name for name, _ in found} == set(KINDS)


@pytest.mark.long
def test_ten_thousand_malformed_payloads_in_flat_memory() -> None:
    found, peaks, resident = refuse_many(10_000)
    for (name, reason), count in sorted(found.items()):
        print(f"{count:5d}  {name:40s} {reason}")  # noqa: T201 - shown with -s, and when this fails
    print(f"{len(KINDS)} kinds; peaks in kB by thousand: {[peak // 1000 for peak in peaks]}, {resident}")  # noqa: T201
    assert sum(found.values()) == 10_000
    assert sum(count for (_, reason), count in found.items() if reason == "identical") <= 10
    assert max(peaks[2:]) <= max(peaks[:2]) + 100_000
    assert resident[-1] <= resident[1] + 8_000


def test_the_page_lists_every_code_in_the_order_of_examination() -> None:
    page = Path(__file__).parents[2] / "docs" / "wire.md"
    section = page.read_text().partition("## Refusals")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(reason.value, reason.meaning) for reason in Reason]
