"""What a leader, a helper or a client could try against secure sums, and that it fails."""

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.secure_workshop import CONTEXT, SIZE, Workshop, asked, secure_sum

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure import (
    Context,
    Helper,
    HelperKey,
    Leader,
    SumRequest,
    make_report,
    read_report,
)
from fedmoments.privacy.secure.envelope import read_envelope
from fedmoments.privacy.secure.stream import stream
from fedmoments.wire import IdentityKey

FORM = FixedPoint(norm_bound=2.0, max_samples=1000)


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def refused(shop: Workshop, request: SumRequest, words: str) -> None:
    """Assert that the helper refuses, and remembers nothing of it."""
    before = shop.helper.batches
    with pytest.raises(PrivacyError, match=words):
        shop.helper.sum(request)
    assert shop.helper.batches == before


# -------------------------------------------------------------------------------------------------- small batches


def test_a_batch_of_one_or_two_is_refused(shop: Workshop) -> None:
    refused(shop, shop.request("a"), "3 reports or more, but 1 was")
    refused(shop, shop.request("ab"), "3 reports or more, but 2 were")
    with pytest.raises(PrivacyError, match="3 different reports"):
        shop.leader("ab").request()


def test_no_helper_has_a_minimum_below_two() -> None:
    for minimum in (1, 0, -3, True, 2.0):
        with pytest.raises(InputError, match="2 or more"):
            Helper(HelperKey.generate(), minimum=minimum)  # type: ignore[arg-type]


def test_the_same_report_twice_is_no_batch_of_two(shop: Workshop) -> None:
    a, b = shop.report("a"), shop.report("b")
    refused(shop, asked([a, a, b]), "report '.*' is in it 2 times")
    with pytest.raises(PrivacyError, match="2 of them different"):
        shop.leader("abc").request([a.id, a.id, b.id])


def test_two_reports_of_one_client_are_no_batch_of_two(shop: Workshop) -> None:
    older, newer = shop.report("a", version=1), shop.report("a", version=2)
    refused(shop, asked([older, newer, shop.report("b")]), "client 'a' is in it 2 times")


def test_clients_that_the_leader_invented_are_refused(shop: Workshop) -> None:
    """Two fakes of known numbers around a victim would show the victim."""
    fakes = Workshop(["fake 1", "fake 2"])
    fakes.helper = shop.helper
    request = asked([shop.report("a"), fakes.report("fake 1"), fakes.report("fake 2")])
    with pytest.raises(RefusedError, match="knows no client 'fake") as caught:
        shop.helper.sum(request)
    assert caught.value.reason == "unknown-client"
    forged = [shop.report("a")]
    for name in "bc":
        data = shop.data(name, key=fakes.keys["fake 1"])
        forged.append(read_report(data, CONTEXT, SIZE, lambda client: fakes.keys["fake 1"].public))
    with pytest.raises(RefusedError, match="bad-signature"):
        shop.helper.sum(asked(forged))
    assert shop.helper.batches == 0


def test_one_key_under_two_names_is_refused(shop: Workshop) -> None:
    key = shop.keys["a"].public.hex
    with pytest.raises(InputError, match="counted as two"):
        Helper(HelperKey.generate(), minimum=3, members={"a": key, "z": key})


def test_without_a_list_of_members_invented_clients_do_isolate_one() -> None:
    """The documented weakness of a helper that does not know who enrolled."""
    shop = Workshop("abc", known=False)
    batch = "abc"  # b and c are the leader's own
    total = shop.unmasked(batch, shop.helper.sum(shop.request(batch)))
    assert np.array_equal(total - shop.vectors["b"] - shop.vectors["c"], shop.vectors["a"])


# -------------------------------------------------------------------------------------------------- differences


def test_the_same_batch_plus_one_is_refused(shop: Workshop) -> None:
    shop.helper.sum(shop.request("abc"))
    refused(shop, shop.request("abcd"), "unmasked before")


def test_a_subset_of_a_collected_batch_is_refused(shop: Workshop) -> None:
    shop.helper.sum(shop.request("abcdef"))
    refused(shop, shop.request("abcde"), "unmasked before")
    refused(shop, shop.request("abc"), "unmasked before")


def test_one_collected_report_among_new_ones_is_refused(shop: Workshop) -> None:
    shop.helper.sum(shop.request("abc"))
    refused(shop, shop.request("cdefg"), "client 'c' was unmasked before")
    assert np.array_equal(shop.unmasked("defg", shop.helper.sum(shop.request("defg"))), shop.plain("defg"))


def test_a_new_version_of_a_collected_report_is_refused(shop: Workshop) -> None:
    """Otherwise clients that report the same data again give the leader two sums to subtract."""
    shop.helper.sum(shop.request("abc"))
    again = [shop.report(name, version=2) for name in "abc"]
    refused(shop, asked([*again, shop.report("d")]), "another report of client")
    refused(shop, asked([again[0], shop.report("d"), shop.report("e")]), "another report of client 'a'")


def test_the_same_batch_plus_one_in_another_round_is_refused(shop: Workshop) -> None:
    """Reports of the same data in a later round: the difference of two releases would be the newcomer's data."""
    later = replace(CONTEXT, round=4)
    shop.helper.sum(shop.request("abc"))
    refused(shop, shop.request("abcd", context=later), "1 clients that were in no batch before \\('d'\\)")
    refused(shop, shop.request("abcde", context=later), "difference of two batches must be 3 clients")
    shop.helper.sum(shop.request("abc", context=later))
    shop.helper.sum(shop.request("abcdef", context=replace(CONTEXT, round=5)))


def test_the_same_batch_less_one_in_another_round_is_refused(shop: Workshop) -> None:
    shop.helper.sum(shop.request("abcdefgh"))
    refused(shop, shop.request("abcdefg", context=replace(CONTEXT, round=4)), "of a group of 8")
    shop.helper.sum(shop.request("abcde", context=replace(CONTEXT, round=4)))
    refused(shop, shop.request("cdefgh", context=replace(CONTEXT, round=5)), "of a group of 5 that were always")


def test_moments_that_belong_together_are_not_asked_of_batches_that_differ_by_one(shop: Workshop) -> None:
    """Counts of three, traces of four: the fourth client's trace is its count, if features have length 1."""
    shop.helper.sum(shop.request("abc", [(0, 10)]))
    refused(shop, shop.request("abcd", [(10, 20)]), "in no batch before")
    shop.helper.sum(shop.request("abc", [(10, 20)]))


def test_a_second_federation_shows_nobody_who_stays_away_from_it(shop: Workshop) -> None:
    """A second exchange is linear in the first: the difference of both sums would be what the fourth client sent."""
    other = replace(CONTEXT, federation="2f" * 32)
    shop.helper.sum(shop.request("abcd"))
    refused(shop, shop.request("abc", context=other), "in whatever federations they are")
    refused(shop, shop.request("abcde", context=other), "in no batch before")
    shop.helper.sum(shop.request("abcd", context=other))
    shop.helper.sum(shop.request("efg", context=other))
    shop.helper.sum(shop.request("abc", context=CONTEXT.testing("3a" * 32)))  # of other samples
    refused(shop, shop.request("abcd", context=other.testing("3a" * 32)), "in no batch before")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=3), min_size=1, max_size=6))
def test_whatever_is_asked_nothing_over_fewer_than_the_minimum_can_be_computed(batches: list[set[str]]) -> None:
    """Clients that no answered batch tells apart are at least three: the naive referee of the rule of company."""
    shop = _CACHED
    with Helper(shop.secret, minimum=3) as helper:
        answered: list[set[str]] = []
        for number, batch in enumerate(batches):
            context = replace(CONTEXT, round=number, federation=f"federation {number % 2}")
            patterns = {n: tuple(n in other for other in [*answered, batch]) for n in "abcdefgh"}
            groups = [sum(p == q for q in patterns.values()) for p in patterns.values() if any(p)]
            try:
                helper.sum(shop.request(sorted(batch), context=context))
            except PrivacyError:
                assert min(groups) < 3
            else:
                assert min(groups) >= 3
                answered.append(batch)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.sampled_from("abcdefgh"), min_size=1)), min_size=1, max_size=9))
def test_whatever_attempts_are_opened_no_vector_and_no_difference_follows(asks: list[tuple[int, set[str]]]) -> None:
    """A leader asks for any batches in any attempts, each client reporting anew: the rank of all that it is told.

    Clients send the same numbers in every attempt. A combination of opened sums in which at most two clients are left
    exists when taking their columns away lowers the rank.
    """
    with Helper(_CACHED.secret, minimum=3) as helper:
        told: list[list[int]] = []
        for attempt, batch in asks:
            with contextlib.suppress(PrivacyError):
                helper.sum(_CACHED.request(sorted(batch), context=replace(CONTEXT, round=attempt)))
                told.append([int(name in batch) for name in "abcdefgh"])
    rows = np.array(told, float).reshape(-1, 8)
    rank = np.linalg.matrix_rank(rows) if len(rows) else 0
    for pair in itertools.combinations(range(8), 2):
        rest = np.delete(rows, pair, axis=1)
        assert (np.linalg.matrix_rank(rest) if len(rest) else 0) == rank


def test_not_promised_a_leader_that_knows_one_of_three_knows_the_sum_of_the_other_two(shop: Workshop) -> None:
    total = shop.unmasked("abc", shop.helper.sum(shop.request("abc")))
    assert np.array_equal(total - shop.vectors["a"], shop.plain("bc"))
    refused(shop, shop.request("bc"), "a batch must have 3 reports")  # and neither of the two


_CACHED = Workshop()


# -------------------------------------------------------------------------------------------------- blocks


def test_disjoint_blocks_of_the_same_reports_are_answered_and_overlapping_ones_refused_whole(shop: Workshop) -> None:
    first = shop.helper.sum(shop.request("abcdef", [(0, 10), (20, 30)]))
    for blocks in ([(9, 11)], [(5, 6)], [(0, SIZE)], [(10, 20), (29, 30)], [(25, 35)]):
        refused(shop, shop.request("abcdef", blocks), "unmasked before at a coordinate")
    parts = {names: shop.helper.sum(shop.request(names, [(10, 20), (30, SIZE)])) for names in ("abc", "def")}
    masked = {name: shop.report(name).masked for name in "abcdef"}
    total = first + sum(np.concatenate([m[:10], m[20:30]]) for m in masked.values())
    assert np.array_equal(total, np.concatenate([shop.plain("abcdef")[:10], shop.plain("abcdef")[20:30]]))
    for names, answer in parts.items():
        total = answer + sum(np.concatenate([masked[n][10:20], masked[n][30:]]) for n in names)
        assert np.array_equal(total, np.concatenate([shop.plain(names)[10:20], shop.plain(names)[30:]]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), min_size=1, max_size=3), max_size=6))
def test_a_coordinate_is_unmasked_once(asks: list[list[tuple[int, int]]]) -> None:
    """The naive referee: a set of coordinates."""
    shop = _CACHED
    with Helper(shop.secret, minimum=3) as helper:
        seen: set[int] = set()
        answered: set[tuple[tuple[int, int], ...]] = set()
        for ask in asks:
            blocks = [(start, start + n) for start, n in ask]
            places = [place for start, stop in blocks for place in range(start, stop)]
            if len(set(places)) < len(places):
                continue
            request = shop.request("abc", blocks)
            if seen & set(places) and request.blocks not in answered:
                with pytest.raises(PrivacyError, match="unmasked before"):
                    helper.sum(request)
            else:
                helper.sum(request)
                answered.add(tuple(request.blocks))
                seen |= set(places)


def test_coordinates_beyond_the_vector_and_no_coordinates_are_refused(shop: Workshop) -> None:
    refused(shop, shop.request("abc", [(0, SIZE + 1)]), f"has {SIZE}")
    refused(shop, shop.request("abc", []), "none arrived")
    leader = shop.leader("abc")
    for blocks in ([(0, SIZE + 1)], []):
        with pytest.raises(InputError, match="coordinates from 0 to"):
            leader.request(blocks=blocks)


def test_reports_of_different_sizes_are_no_batch(shop: Workshop) -> None:
    longer = shop.read(shop.data("a", vector=np.ones(SIZE + 1, np.uint64)), size=SIZE + 1)
    refused(shop, asked([longer, shop.report("b"), shop.report("c")]), "different sizes")


# -------------------------------------------------------------------------------------------------- other contexts


@pytest.mark.parametrize(
    "other", [replace(CONTEXT, round=9), replace(CONTEXT, federation="x"), replace(CONTEXT, fingerprint="x")]
)
def test_a_replay_in_another_context_is_refused(shop: Workshop, other: Context) -> None:
    reports = [shop.report(name) for name in "abc"]
    shop.helper.sum(asked(reports))
    with pytest.raises(RefusedError, match="for something else"):
        shop.helper.sum(asked(reports, context=other))
    assert shop.helper.batches == 1


def moved(sealed: bytes, change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(sealed)
    change(data)
    return bytes(data)


@pytest.mark.parametrize("known", [True, False])
def test_a_seed_moved_to_another_context_name_version_size_or_id_does_not_open(known: bool) -> None:
    """Also without signatures: the seal itself is bound."""
    shop = Workshop("abc", known=known)
    other = replace(CONTEXT, round=9)
    a, b, c = (shop.report(name).sealed for name in "abc")

    def put(start: int, new: bytes) -> bytes:
        return moved(a, lambda data: data.__setitem__(slice(start, start + len(new)), new))

    rounds = [moved(x, lambda data: data.__setitem__(slice(16, 88), other.to_bytes())) for x in (a, b, c)]
    cases = [(other, rounds)] + [
        (CONTEXT, [put(*change), b, c])
        for change in ((88, b"z"), (152, b"\2"), (160, bytes([SIZE + 1])), (168, bytes(16)))
    ]
    for context, sealed in cases:
        request = SumRequest(context, [(data[168:184].hex(), data) for data in sealed], [(0, SIZE)])
        with pytest.raises((RefusedError, PrivacyError), match=r"does not open|signature|no client|different sizes"):
            shop.helper.sum(request)
    assert shop.helper.batches == 0


def test_a_seed_of_one_report_under_another_does_not_open() -> None:
    shop = Workshop("abc", known=False)
    a, b, c = (shop.report(name) for name in "abc")
    swapped = a.sealed[:184] + b.sealed[184:264] + a.sealed[264:]
    with pytest.raises(RefusedError, match="does not open") as caught:
        shop.helper.sum(SumRequest(CONTEXT, [(a.id, swapped), (b.id, b.sealed), (c.id, c.sealed)], [(0, SIZE)]))
    assert caught.value.client == "a"


def test_a_report_sealed_for_another_helper_is_named_and_the_rest_can_be_summed(shop: Workshop) -> None:
    held = shop.held("abc")
    held.take(shop.report("d", helper=HelperKey.generate().public))
    leader = Leader(CONTEXT, SIZE, 3, held)
    with pytest.raises(RefusedError, match="does not open") as caught:
        shop.helper.sum(leader.request())
    assert caught.value.client == "d"
    request = leader.request([leader.present[name] for name in "abc"])
    assert np.array_equal(leader.finish(request, shop.helper.sum(request)), shop.plain("abc"))


# -------------------------------------------------------------------------------------------------- present and dropped


def test_a_client_named_both_present_and_dropped_is_not_revealed(shop: Workshop) -> None:
    """In pairwise masking this gives a client's masks away. Here there is one question, and its second form is refused.

    The leader asks for a batch with the victim, then claims that the victim dropped out, and the other way round.
    """
    with_victim = shop.unmasked("abcd", shop.helper.sum(shop.request("abcd")))
    refused(shop, shop.request("abc"), "unmasked before")
    assert np.array_equal(with_victim, shop.plain("abcd"))
    other = Workshop()
    other.helper.sum(other.request("abc"))
    refused(other, other.request("abcd"), "unmasked before")
    refused(other, other.request("d"), "3 reports or more")


# -------------------------------------------------------------------------------------------------- views


SAMPLE = [0.5, -0.25, 0.125, 1.0]


def single_sample() -> tuple[DenseLayout, Statistics]:
    layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=3, dim=4)
    X = np.array([SAMPLE, [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    return layout, Statistics.of(X, [1, 0, 0], layout.spec, n_classes=3, fixed_point=FORM)


def recovered(layout: DenseLayout, vector: np.ndarray) -> bool:
    """Attack: is there a class of one sample, and is its sum that sample?"""
    try:
        found = layout.unpack(vector, FORM)
    except InputError:
        return False
    return bool(found.counts[1] == 1 and np.array_equal(found.sums[1], SAMPLE))


def test_a_single_sample_is_read_from_a_clear_vector_but_from_neither_servers_view() -> None:
    layout, stats = single_sample()
    vector = layout.pack(stats)
    assert recovered(layout, vector)
    helper, key = HelperKey.generate(), IdentityKey.generate()
    for _ in range(200):
        data = make_report(vector, CONTEXT, client="a", version=1, helper=helper.public, key=key)
        report = read_report(data, CONTEXT, layout.size, lambda client: key.public)
        assert not recovered(layout, report.masked)  # the leader's view
        envelope = read_envelope(report.sealed, CONTEXT)
        mask = stream(helper.open(envelope.sealed, envelope.info), 0, layout.size)
        assert not recovered(layout, mask)  # all that the helper can compute
        assert not recovered(layout, np.zeros(layout.size, np.uint64) - mask)
        assert recovered(layout, report.masked + mask)  # both together: why they must not collude


def test_not_promised_a_class_that_one_client_of_the_batch_holds_is_that_clients() -> None:
    """Sums of all moments have no threshold on contributors: the documentation and the privacy card say so."""
    layout, stats = single_sample()
    others = Statistics.of(np.ones((9, layout.dim)) / 4, [0] * 9, layout.spec, n_classes=3, fixed_point=FORM)
    vectors = {"a": layout.pack(stats), **{name: layout.pack(others) for name in "bcd"}}
    total = secure_sum(vectors, CONTEXT, minimum=3)
    assert layout.contributors(total).tolist()[1] == 1
    assert recovered(layout, total)


def test_what_the_helper_gets_has_nothing_of_the_masked_vector(shop: Workshop) -> None:
    request = shop.request("abc").to_bytes()
    for name in "abc":
        masked = shop.report(name).masked
        assert not any(word.tobytes() in request for word in masked)
    sizes = {len(shop.report("a", version=n, vector=np.full(SIZE, n, np.uint64)).sealed) for n in range(1, 5)}
    assert sizes == {360}


def test_which_classes_a_client_holds_does_not_show_in_its_report() -> None:
    layout, stats = single_sample()
    empty = Statistics.of(np.zeros((0, 4)), [], layout.spec, n_classes=3, fixed_point=FORM)
    shop = Workshop("a")
    sizes = {len(shop.data("a", vector=layout.pack(part))) for part in (stats, empty)}
    assert len(sizes) == 1


# -------------------------------------------------------------------------------------------------- the leader's side


def test_a_later_version_replaces_a_report(shop: Workshop) -> None:
    """Until it is in a batch: that is for the ledger to say, which holds reports where versions can change."""
    held = shop.held("abc")
    assert not held.take(shop.report("a"))
    newer = shop.report("a", version=2, vector=shop.vectors["d"])
    assert held.take(newer)
    assert held.present["a"] == newer.id
    with pytest.raises(RefusedError, match="older version 1") as caught:
        held.take(shop.report("a"))
    assert caught.value.reason == "replayed"
    with pytest.raises(RefusedError, match="another report of the same version") as caught:
        held.take(shop.report("a", version=2))
    assert caught.value.reason == "conflict"
    assert not held.take(newer)
    leader = Leader(CONTEXT, SIZE, 3, held)
    request = leader.request()
    assert np.array_equal(leader.finish(request, shop.helper.sum(request)), shop.plain("dbc"))


def test_a_report_under_another_clients_id_is_refused(shop: Workshop) -> None:
    held = shop.held("a")
    with pytest.raises(RefusedError, match="conflict"):
        held.take(replace(shop.report("b"), id=shop.report("a").id))


def test_a_leader_adds_up_reports_that_it_has_with_answers_of_the_right_form(shop: Workshop) -> None:
    leader = shop.leader("abcd")
    request = leader.request()
    for answer in (np.zeros(SIZE - 1, np.uint64), np.zeros(SIZE), np.zeros((SIZE, 1), np.uint64)):
        with pytest.raises(InputError, match="helper's answer"):
            leader.finish(request, answer)
    with pytest.raises(InputError, match="no report"):
        leader.finish(shop.request("efg"), np.zeros(SIZE, np.uint64))
    with pytest.raises(InputError, match="no report"):
        leader.request(["00", "11", "22"])
    with pytest.raises(InputError, match="numbers"):
        Leader(CONTEXT, SIZE + 1, 3, shop.held("abc")).finish(shop.request("abc"), np.zeros(SIZE, np.uint64))
