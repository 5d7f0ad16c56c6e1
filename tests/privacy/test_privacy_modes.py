"""Every privacy mode, through the one contract that simulations, servers, clients and helpers speak with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError, RefusedError, UnknownNameError
from fedmoments.federation.terms import Terms
from fedmoments.privacy.modes import MODES, Mode
from fedmoments.privacy.modes.opened import Opened
from fedmoments.privacy.modes.parties import Crowd, Ledger, Sitting
from fedmoments.privacy.modes.sums import Sums
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import HelperKey
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.parties import LocalParties
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey, Withheld

C, D, CLIENTS = 3, 4, [f"client-{k:02d}" for k in range(12)]
MEANS, SUMS = StatisticsSpec.of("client_means"), StatisticsSpec.of("gram")
AGREED = {
    "clear": Agreed(),
    "noise": Agreed(epsilon=4.0),
    "sums": Agreed(secure="sums"),
    "noised sums": Agreed(secure="sums", epsilon=4.0),
    "two-phase": Agreed(secure="two-phase"),
    "cohorts": Agreed(secure="cohorts", cohort=4),
}
MASKED = [name for name in AGREED if AGREED[name].secure]


def serves(agreed: Agreed) -> StatisticsSpec:
    """Return the moments that a mode is for in a deployed federation, where noise is on sums alone."""
    if agreed.epsilon is not None:
        return SUMS
    try:
        agreed.mode.check(MEANS)
    except (InputError, PrivacyError):
        return SUMS
    return MEANS


def terms_of(agreed: Agreed) -> Terms:
    noised = agreed.epsilon is not None
    helper = HelperKey.generate().public if agreed.secure else ""
    fingerprint = Fingerprint("none", "none", Normalize() if noised else None, tuple("abc"))
    form = FixedPoint(1.0 if noised else 16.0, 10**5)
    encoder = {"name": "identity", "options": {}}
    return Terms("toy", encoder, fingerprint, D, serves(agreed), form, privacy=replace(agreed, helper=helper))


def measured(terms: Terms) -> dict[str, Statistics]:
    rng, parts = np.random.default_rng(7), {}
    for client in CLIENTS:
        y = rng.integers(0, C, 60)
        X = np.eye(C, D)[y] + 0.1 * rng.normal(size=(60, D))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        parts[client] = Statistics.of(X, y, terms.spec, n_classes=C, fixed_point=terms.fixed_point)
    return parts


@dataclass
class Table:
    """Leader and helper in one process, with every question to the helper as bytes: a sitting."""

    terms: Terms
    parts: Mapping[str, Statistics]

    def __post_init__(self) -> None:
        self.mode = self.terms.privacy.mode
        self.parties = LocalParties(CLIENTS, self.terms.privacy.batch)
        self.gate = self.mode.gate(self.parties.helper, self.terms, minimum=self.terms.privacy.batch)
        self.helper = self.mode.remote(self.terms, self.ask, 2**20)
        self.bytes = 0
        self.acknowledged, self.said = False, ""
        vectors = {client: self.terms.layout.pack(part) for client, part in self.parts.items()}
        self.reports = self.parties.report(vectors, self.terms.context)

    def ask(self, step: str, data: bytes, most_bytes: int) -> bytes:
        self.mode.check_step(step)
        answer = self.mode.answer(self.gate, self.terms, step, data)
        assert len(answer) <= most_bytes
        self.bytes += len(data) + len(answer)
        return answer

    def cohort_draw(self) -> tuple[bytes, dict[str, str]]:
        return bytes(32), self.parties.public

    def say(self, what: str) -> None:
        self.said = what

    def second(self, broadcast: Broadcast, clients: frozenset[str]) -> "Table":
        vectors = {name: broadcast.vector(self.parts[name].restricted(StatisticsSpec())) for name in clients}
        self.leader: Leader = self.parties.report(vectors, broadcast.context(self.terms.context))
        self.down = len(broadcast.to_bytes())
        return self

    def acknowledge(self) -> None:
        self.acknowledged = True


def opened(table: Table) -> Opened:
    ledger = cast("Ledger", table)
    sitting = Sitting(table.terms, ledger, table.reports, table.helper, table.second, table.say)
    table.mode.prepare(sitting)
    return table.mode.open(sitting)


@pytest.mark.parametrize("name", MASKED)
def test_what_a_server_opens_is_what_a_simulation_opens(name: str) -> None:
    terms = terms_of(AGREED[name])
    parts = measured(terms)
    deployed = opened(Table(terms, parts)).statistics
    simulated = terms.privacy.mode.simulated(Crowd(terms, parts, lambda: Statistics.merge(parts.values()))).statistics
    exact = Statistics.merge(parts.values())
    if terms.privacy.mode.is_repeatable:
        assert deployed == simulated
    if terms.privacy.mode.noise.is_on:
        assert deployed != simulated
        assert np.allclose(deployed.counts, exact.counts, atol=100)
    else:
        assert np.array_equal(deployed.counts, exact.counts)
        assert np.array_equal(simulated.counts, exact.counts)
        assert np.array_equal(deployed.sums, exact.sums)


@pytest.mark.parametrize("name", MASKED)
def test_costs_are_those_of_the_bytes_that_travel(name: str) -> None:
    terms = terms_of(AGREED[name])
    parts, mode = measured(terms), terms.privacy.mode
    client = CLIENTS[0]
    report = mode.pack(parts[client], terms, client=client, version=1, key=IdentityKey.generate(), withheld=Withheld())
    table = Table(terms, parts)
    result = opened(table)
    cost = mode.cost(terms, clear=0, clients=len(CLIENTS))
    assert cost.up == len(report) + getattr(result, "second_bytes", 0)
    assert cost.down <= getattr(table, "down", 0) <= cost.down + 1000
    assert (cost.down > 0) == hasattr(table, "down")
    # Names of cohorts, headers of requests and a repetition of the envelopes are not counted.
    assert cost.helper <= table.bytes <= 4 * cost.helper


def test_a_clear_contribution_costs_what_it_has() -> None:
    terms = terms_of(Agreed())
    stats, key = measured(terms)[CLIENTS[0]], IdentityKey.generate()
    data = terms.privacy.mode.pack(stats, terms, client="a", version=3, key=key, withheld=Withheld())
    assert terms.privacy.mode.cost(terms, clear=len(data)).up == len(data)
    assert terms.privacy.mode.sender(data, terms) == ("a", 3)


@pytest.mark.parametrize("name", MASKED)
def test_the_sender_of_a_report_can_be_told_and_a_damaged_one_cannot(name: str) -> None:
    terms = terms_of(AGREED[name])
    stats, mode, key = measured(terms)[CLIENTS[0]], terms.privacy.mode, IdentityKey.generate()
    data = mode.pack(stats, terms, client="a", version=3, key=key, withheld=Withheld())
    assert mode.sender(data, terms) == ("a", 3)
    with pytest.raises(RefusedError):
        mode.sender(b"x" + data[1:], terms)


@pytest.mark.parametrize("name", MASKED)
def test_a_helper_does_the_steps_of_its_mode_and_no_other(name: str) -> None:
    table = Table(terms_of(AGREED[name]), measured(terms_of(AGREED[name])))
    for step in {step for mode in MODES.values() for step in mode.steps} - set(table.mode.steps):
        with pytest.raises(PrivacyError, match=f"{table.mode.promise} have the steps .* but not '{step}'"):
            table.ask(step, b"", 0)


@pytest.mark.parametrize("name", AGREED)
def test_terms_in_the_clear_ask_for_the_same_without_masks(name: str) -> None:
    terms = terms_of(AGREED[name])
    clear = replace(terms, privacy=terms.privacy.mode.unmasked)
    assert clear.privacy.mode.reads_contributions
    assert (clear.spec, clear.privacy.epsilon) == (terms.spec, terms.privacy.epsilon)
    assert clear.fixed_point == terms.fixed_point


def test_rules_of_masks_are_left_out_of_terms_in_the_clear() -> None:
    agreed = Agreed(secure="cohorts", cohort=20, contributors=5, batch=4)
    assert agreed.mode.unmasked == Agreed()


def test_every_mode_takes_rules_that_there_are_and_is_known_by_its_name() -> None:
    for name, mode in MODES.items():
        assert mode.name == name
        assert set(mode.takes) <= set(Agreed.__dataclass_fields__)
    with pytest.raises(UnknownNameError, match="did you mean 'sums'"):
        Agreed(secure="summs")
    with pytest.raises(UnknownNameError):
        Agreed(secure="clear")  # terms that name no mode are clear, and have one form only


def test_a_mode_of_ones_own_is_agreed_on_like_any_other() -> None:
    class Larger(Sums):
        """Sums of twice the batch."""

        name, title = "larger", "secure sums of twice the batch"

        def sees(self) -> list[tuple[str, str]]:
            return [("The leader", "sums of twice the batch")]

        def check_clients(self, clients: int) -> None:
            super().check_clients(clients // 2)

    MODES.register(Larger)
    try:
        terms = terms_of(Agreed(secure="larger"))
        parts = measured(terms)
        assert isinstance(terms.privacy.mode, Mode)
        assert opened(Table(terms, parts)).statistics == Statistics.merge(parts.values())
        with pytest.raises(InputError, match="over 3 clients or more"):
            terms.privacy.mode.check_clients(5)
    finally:
        MODES.remove("larger")
    with pytest.raises(InputError, match="is not a privacy mode"):
        MODES.register(cast("Any", dict))
