"""Nobody steers who is with whom: laws of the draw of cohorts, and what happens to a server that tries."""

import secrets
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.cohort_draw import Roster, commitment_to, deal_cohorts, join_nonces, merge_small
from fedmoments.privacy.secure.cohort_helper import CohortHelper
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import read_envelope, write_envelope
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.parties import SIMULATED, LocalParties
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey, seal
from fedmoments.wire import IdentityKey

LAYOUT = DenseLayout(StatisticsSpec(), 2, 2)
NAMES = [f"site {i}" for i in range(9)]
KEY = HelperKey.generate()
OTHER = Context("simulation", 1, "simulation")


class Draw:
    """Nine clients, a helper, and a leader's nonce."""

    def __init__(self, path: Any = None) -> None:
        self.parties = LocalParties(NAMES, 2)
        self.roster = Roster.of(self.parties.public)
        self.path = path
        self.restart()
        self.nonce = secrets.token_bytes(32)

    def restart(self) -> None:
        rules: dict[str, Any] = {"size": 3, "batch": 2, "contributors": 1}
        self.helper = CohortHelper(self.parties.helper, LAYOUT, path=self.path, **rules)

    def commit(self, nonce: bytes | None = None, context: Context = SIMULATED) -> bytes:
        return commitment_to(nonce or self.nonce, context, self.roster)

    def envelopes(self, names: list[str], context: Context = SIMULATED) -> list[bytes]:
        vectors = {name: np.zeros(LAYOUT.size, np.uint64) for name in names}
        return [sealed for _, sealed in self.parties.report(vectors, context).request().reports]


# ---------------------------------------------------------------------------------------------------- who tries


def test_changing_the_nonce_after_seeing_the_helpers_is_detected() -> None:
    draw = Draw()
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    for _ in range(3):
        with pytest.raises(PrivacyError, match="not the one that it committed to"):
            draw.helper.reveal(SIMULATED, secrets.token_bytes(32))
    assert len(draw.helper.reveal(SIMULATED, draw.nonce)) == 3


def test_a_second_draw_of_a_round_is_refused(tmp_path: Any) -> None:
    draw = Draw(tmp_path / "helper.db")
    own = draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    assert draw.helper.draw(SIMULATED, draw.roster, draw.commit()) == own  # the answer was lost: the same again
    for _ in range(2):
        with pytest.raises(PrivacyError, match="drawn already, with another commitment"):
            draw.helper.draw(SIMULATED, draw.roster, draw.commit(bytes(32)))
        draw.helper.close()
        draw.restart()  # a restart does not help
    elsewhere = Context("other", 0, "simulation")
    assert draw.helper.draw(elsewhere, draw.roster, draw.commit(context=elsewhere)) != own


def test_drawing_in_round_after_round_until_the_cohorts_please_is_refused(tmp_path: Any) -> None:
    draw = Draw(tmp_path / "helper.db")
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    draw.helper.reveal(SIMULATED, draw.nonce)
    for _ in range(2):
        with pytest.raises(PrivacyError, match="drawn already, for another round than 1"):
            draw.helper.draw(OTHER, draw.roster, draw.commit(context=OTHER))
        draw.helper.close()
        draw.restart()
    with pytest.raises(PrivacyError, match="drawn already, for another round than 1"):
        draw.helper.admit(OTHER, draw.envelopes(NAMES, OTHER))


def test_envelopes_that_a_leader_made_itself_do_not_stand_in_for_admitted_ones() -> None:
    """Also where the helper has no list of members: with seeds that it knows, a leader could read one client."""
    draw = Draw()
    helper = CohortHelper(Helper(KEY, minimum=2), LAYOUT, size=9, batch=2, contributors=1)
    helper.draw(SIMULATED, draw.roster, draw.commit())
    helper.reveal(SIMULATED, draw.nonce)
    leader = draw.parties.report({name: np.zeros(LAYOUT.size, np.uint64) for name in NAMES}, SIMULATED)
    honest = leader.request().reports
    helper.admit(SIMULATED, [sealed for _, sealed in honest])
    victim, *others = honest
    forged = [victim]
    for name, sealed in others:
        found = read_envelope(sealed, SIMULATED)
        seed = seal(bytes(32), KEY.public, found.info)
        forged.append((name, write_envelope(found.info, seed, bytes(32), IdentityKey.generate())))
    masked = np.zeros(LAYOUT.n_classes, np.uint64)
    with pytest.raises(PrivacyError, match="not the one that was admitted"):
        helper.learn(SumRequest(SIMULATED, forged, [(0, LAYOUT.n_classes)]), masked)
    with pytest.raises(PrivacyError, match="not the one that was admitted"):
        helper.open(SumRequest(SIMULATED, forged, [(2, LAYOUT.size)]))


def test_another_roster_after_the_draw_is_refused() -> None:
    draw = Draw()
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    fewer = Roster(draw.roster.members[1:])
    with pytest.raises(PrivacyError, match="another roster"):
        draw.helper.draw(SIMULATED, fewer, draw.commit())


def test_a_commitment_is_bound_to_roster_and_context() -> None:
    draw = Draw()
    fewer = Roster(draw.roster.members[1:])
    texts = {draw.commit(), draw.commit(context=OTHER), commitment_to(draw.nonce, SIMULATED, fewer)}
    assert len(texts) == 3


def test_nobody_is_admitted_before_the_nonces_are_open() -> None:
    draw = Draw()
    envelopes = draw.envelopes(NAMES)
    with pytest.raises(PrivacyError, match="no cohorts were drawn"):
        draw.helper.admit(SIMULATED, envelopes)
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    with pytest.raises(PrivacyError, match="has not revealed its nonce"):
        draw.helper.admit(SIMULATED, envelopes)


def test_the_leader_cannot_name_others_as_present_later() -> None:
    draw = Draw()
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    draw.helper.reveal(SIMULATED, draw.nonce)
    envelopes = draw.envelopes(NAMES)
    groups = draw.helper.admit(SIMULATED, envelopes)
    assert draw.helper.admit(SIMULATED, envelopes[::-1]) == groups
    with pytest.raises(PrivacyError, match="who is present is said once"):
        draw.helper.admit(SIMULATED, envelopes[1:])


def test_clients_that_are_not_on_the_roster_or_did_not_sign_are_refused() -> None:
    draw = Draw()
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    draw.helper.reveal(SIMULATED, draw.nonce)
    stranger, forger = LocalParties(["stranger", "lab"], 2), LocalParties(NAMES, 2)
    zeros = np.zeros(LAYOUT.size, np.uint64)
    unknown = [sealed for _, sealed in stranger.report({"stranger": zeros, "lab": zeros}, SIMULATED).request().reports]
    with pytest.raises(PrivacyError, match="not on the roster"):
        draw.helper.admit(SIMULATED, unknown)
    forged = forger.report(dict.fromkeys(NAMES, zeros), SIMULATED).request().reports
    with pytest.raises(RefusedError, match="signed with the key that it enrolled with"):
        draw.helper.admit(SIMULATED, [sealed for _, sealed in forged])
    twice = draw.envelopes(NAMES[:3])
    with pytest.raises(PrivacyError, match="named twice"):
        draw.helper.admit(SIMULATED, [*twice, twice[0]])


def test_sums_are_taken_inside_cohorts_only() -> None:
    draw = Draw()
    draw.helper.draw(SIMULATED, draw.roster, draw.commit())
    draw.helper.reveal(SIMULATED, draw.nonce)
    leader = draw.parties.report({name: np.zeros(LAYOUT.size, np.uint64) for name in NAMES}, SIMULATED)
    groups = draw.helper.admit(SIMULATED, [sealed for _, sealed in leader.request().reports])
    mixed = [groups[0][0], *groups[1][1:]]
    for ids in (mixed, groups[0][:2], [*groups[0], *groups[1]]):
        with pytest.raises(PrivacyError, match="are no cohort"):
            draw.helper.learn(leader.request(ids, [(0, 2)]), np.zeros(2, np.uint64))


# ---------------------------------------------------------------------------------------------------- the deal


rosters = st.integers(1, 40).map(lambda n: Roster.of({f"{i}": f"{i + 2:064x}" for i in range(n)}))


@given(rosters, st.binary(min_size=32, max_size=32), st.integers(1, 12))
def test_every_client_is_in_one_cohort_of_the_size_that_was_agreed(roster: Roster, word: bytes, size: int) -> None:
    cohorts = deal_cohorts(roster, SIMULATED, word, size)
    assert sorted(client for cohort in cohorts for client in cohort) == sorted(roster.clients)
    sizes = [len(cohort) for cohort in cohorts]
    assert max(sizes) - min(sizes) <= 1
    assert len(roster.clients) < size or min(sizes) >= size
    assert max(sizes) < 2 * size


def test_cohorts_depend_on_nonces_context_name_and_key() -> None:
    roster = Roster.of({f"{i}": f"{i + 2:064x}" for i in range(30)})
    rekeyed = Roster.of({f"{i}": f"{i + 40:064x}" for i in range(30)})
    one, two = join_nonces(bytes(32), bytes(32)), join_nonces(bytes(32), bytes([1] * 32))
    deals = {
        deal_cohorts(roster, SIMULATED, one, 5),
        deal_cohorts(roster, SIMULATED, two, 5),
        deal_cohorts(roster, OTHER, one, 5),
        deal_cohorts(rekeyed, SIMULATED, one, 5),
    }
    assert len(deals) == 4
    assert join_nonces(bytes(32), bytes([1] * 32)) != join_nonces(bytes([1] * 32), bytes(32))


def test_every_pair_is_together_as_often_as_chance_says() -> None:
    roster = Roster.of({f"{i}": f"{i + 2:064x}" for i in range(6)})
    n_draws, together = 3000, np.zeros((6, 6))
    for number in range(n_draws):
        for cohort in deal_cohorts(roster, SIMULATED, number.to_bytes(32, "big"), 3):
            places = [int(client) for client in cohort]
            together[np.ix_(places, places)] += 1
    share = 2 / 5  # two of the five others
    z = (together[np.triu_indices(6, 1)] - n_draws * share) / np.sqrt(n_draws * share * (1 - share))
    assert np.abs(z).max() < 4.5


@given(rosters, st.integers(1, 6), st.integers(2, 5), st.data())
def test_small_cohorts_are_merged_by_a_public_rule(roster: Roster, size: int, batch: int, data: st.DataObject) -> None:
    cohorts = deal_cohorts(roster, SIMULATED, bytes(32), size)
    present = data.draw(st.sets(st.sampled_from(roster.clients)))
    if len(present) < batch:
        with pytest.raises(PrivacyError, match=f"fewer than {batch} clients, but only {len(present)} reported"):
            merge_small(cohorts, present, batch)
        return
    merged = merge_small(cohorts, present, batch)
    assert sorted(client for group in merged for client in group) == sorted(present)
    assert min(len(group) for group in merged) >= batch
    for cohort in cohorts:  # a cohort is never split
        assert len({number for number, group in enumerate(merged) if set(cohort) & set(group)}) <= 1
    if all(len(set(cohort) & present) >= batch for cohort in cohorts):
        assert len(merged) == len(cohorts)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "one or more clients"),
        ({"a": "11" * 32, "b": "11" * 32}, "each key once"),
        ({"a": "xyz"}, "64 hexadecimal digits"),
        ({"a/b": "11" * 32}, "without slashes"),
    ],
)
def test_rosters_that_are_none_are_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Roster.of(keys)


@pytest.mark.parametrize("data", [b"", b"[]", b'[["a"]]', b"[1]", b"{", b'[["b","' + b"1" * 64 + b'"],["a","x"]]'])
def test_rosters_that_cannot_be_read_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        Roster.from_bytes(data)


def test_nonces_have_a_length() -> None:
    with pytest.raises(InputError, match="32 bytes"):
        join_nonces(b"short", bytes(32))
    with pytest.raises(InputError, match="a commitment has 32 bytes"):
        Draw().helper.draw(SIMULATED, Roster.of({"a": "11" * 32}), b"")
