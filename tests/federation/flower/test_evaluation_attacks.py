"""A server that crafts the heads it wants tested: what it reads of held-out samples, and what rules leave of that."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from flwr.app import Message
from tests.federation.flower.secure_trials import COHORTS, HEADS, MEANS, SUMS, TWO_PHASES, run, spoiled

from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.maps import Normalize
from fedmoments.core.observations.federated import Spread
from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import InputError, PolicyError
from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower import testing
from fedmoments.federation.flower.grid import InProcessGrid, _identify
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.messages import content_of, read_content
from fedmoments.federation.flower.node import Node, identity_of
from fedmoments.federation.flower.testing import Examiner, heads_digest, signed_results
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import OVERHEAD_BYTES, make_report
from fedmoments.settings.client import ClientSettings
from fedmoments.wire import pack_bundle, unpack_bundle

Made = Callable[..., LocalFederation]
Ask = Callable[[list[LinearClassifier]], list[dict[str, NDArray[np.int64]]]]

ONE = 2.0**32
#: Along which the server orders samples, how steep its heads are, and where the isolated sample lands on a head.
DIRECTION, STEEP, PLACE = np.array([1.0, 0.3, -0.2, 0.5, 0.1, -0.4]), 4000.0, 4.0


class RefusedAnswerError(Exception):
    """The node answered with a reason."""


def party(plan: LocalFederation, **policy: Any) -> tuple[ClientSettings, Terms]:
    """Return the settings of the only node, with these rules and a folder, and the terms."""
    settings = ClientSettings.load(plan.shared_settings)
    folder = Path(plan.shared_settings).parent / "box"
    settings = replace(settings, policy=policy, folder=str(folder))
    with FederationStore.open(plan.server.ledger) as store:
        return settings, store.terms


def line_to(settings: ClientSettings, terms: Terms) -> Ask:
    """Return what sends heads to a node by Flower's message and returns the arrays of its reply, whatever they are."""
    path = Path(settings.folder).parent / "asked.toml"
    path.write_text(settings.to_toml())
    _identify()
    grid = InProcessGrid(real.app, [{"client-config": str(path)}])

    def ask(heads: list[LinearClassifier]) -> list[dict[str, NDArray[np.int64]]]:
        data = pack_bundle([head.to_bytes() for head in heads])
        content = content_of({"terms": terms.to_json(), "over": False}, data)
        (reply,) = grid.send_and_receive([Message(content, 1, "query.evaluate")])
        if reply.has_error():
            raise RefusedAnswerError(reply.error.reason)
        _, bundle = read_content(reply.content, most_bytes=2**30)
        return [load(bytes(part)) for part in unpack_bundle(bundle, max_bytes=2**30, max_items=1000)]

    return ask


def head(terms: Terms, weights: NDArray[Any], bias: float) -> LinearClassifier:
    """A head that answers class 1 where weights·x + bias > 0, class 0 elsewhere, and class 2 never."""
    W = np.zeros((len(weights), 3))
    W[:, 1] = weights
    present = np.array([True, True, False])
    return LinearClassifier(
        weights=W, bias=np.array([0.0, bias, -np.inf]), present=present, class_names=terms.classes
    )  # fmt: skip


def read(tensors: dict[str, NDArray[np.int64]]) -> float:
    """Return weights·x + bias of the one sample that is not far below 0, from the sum of all confidences."""
    sure = (float(tensors["confidences"].sum()) - ONE * (float(tensors["counts"].sum()) - 1)) / ONE
    sure = min(max(sure, 0.5 + 1e-9), 1 - 2.0**-33)
    return float(np.log(sure / (1 - sure)))


def isolated(ask: Ask, terms: Terms, thresholds: NDArray[Any]) -> float:
    """Round 1: return the largest threshold that a sample is above, along the direction."""
    answers = ask([head(terms, STEEP * DIRECTION, -STEEP * t) for t in thresholds])
    above = [sum(n for c, n in zip(a["cells"], a["cell_counts"], strict=True) if c % 3 == 1) for a in answers]
    return float(thresholds[np.flatnonzero(above)[-1]])


def features(ask: Ask, terms: Terms, top: float) -> NDArray[Any]:
    """Round 2: return the features of the sample at the top, one head a coordinate and one to begin with."""
    rows = [np.zeros(6), *(0.2 * np.eye(6))]
    answers = ask([head(terms, 200.0 * DIRECTION + row, PLACE - 200.0 * top) for row in rows])
    values = [read(answer) for answer in answers]
    return (np.array(values[1:]) - values[0]) / 0.2


def held_out(settings: ClientSettings, terms: Terms) -> NDArray[Any]:
    holdings = Holdings(settings, terms)
    return np.concatenate([holdings.test(client).X for client in holdings.clients]).astype(float)


def stolen(ask: Ask, terms: Terms, X: NDArray[Any]) -> float:
    """Return the largest error of the features that 664 heads in two rounds give of a sample."""
    along = X @ DIRECTION
    top = isolated(ask, terms, np.linspace(along.min(), along.max() + 0.01, 657))
    return float(np.abs(features(ask, terms, top) - X[along.argmax()]).max())


def test_664_crafted_heads_in_two_rounds_recover_no_sample(make: Made) -> None:
    settings, terms = party(make(nodes=1), min_count=5)
    with pytest.raises(RefusedAnswerError, match="max_heads: 657 classifiers are to be tested and 0 were before"):
        stolen(line_to(settings, terms), terms, held_out(settings, terms))


def test_a_server_that_knows_where_a_sample_lies_reads_nothing_of_it(make: Made) -> None:
    """The attack with 7 heads, within any account, if the server is told what 657 others would have found."""
    settings, terms = party(make(nodes=1), min_count=5)
    X = held_out(settings, terms)
    target = X[(X @ DIRECTION).argmax()]
    found = features(line_to(settings, terms), terms, float((X @ DIRECTION).max()))
    error, guess = np.abs(found - target).max(), np.abs(X.mean(axis=0) - target).max()
    assert error > 0.5 * guess, f"error {error:.1e}, of the mean of all samples {guess:.1e}"


def overflowing(terms: Terms, weights: NDArray[Any], largest: float) -> LinearClassifier:
    """A head whose scores overflow for the samples with more than ``largest`` along some weights."""
    W = np.zeros((len(weights), 3))
    W[:, 1] = weights * (float(np.finfo(np.float32).max) / largest)
    present = np.ones(3, np.bool_)
    return LinearClassifier(weights=W, bias=np.zeros(3), present=present, class_names=terms.classes)


def test_no_head_fails_for_one_sample_alone(make: Made) -> None:
    """A test that failed told a number of the sample and cost nothing: 3,847 of them gave all its features."""
    settings, terms = party(make(nodes=1), min_count=5)
    ask, along = line_to(settings, terms), held_out(settings, terms) @ DIRECTION
    for largest in (np.abs(along).max() * 0.9, np.abs(along).max() * 1.1):
        with pytest.raises(RefusedAnswerError, match="parameters beyond 1e"):
            ask([overflowing(terms, DIRECTION, float(largest))])
    cold = replace(head(terms, DIRECTION, 0.0), temperature=1e-300)
    with pytest.raises(RefusedAnswerError, match="parameters beyond 1e"):
        ask([cold])
    wild = [replace(head(terms, 1e30 * DIRECTION, bias), temperature=1e-10) for bias in (0.0, 1e30)]
    assert len(ask(wild)) == 2  # the wildest that are tested fail for nobody


def test_a_test_that_fails_is_charged_and_tells_nothing(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, terms = party(make(nodes=1), min_count=5, max_heads=2)
    ask = line_to(settings, terms)

    def fail(*_: Any, **__: Any) -> None:
        raise InputError("sample 7 is 3.25")

    monkeypatch.setattr(LocalEvaluation, "coarse", fail)
    for bias in (0.0, 0.0, 1.0):
        with pytest.raises(RefusedAnswerError, match="this client's own record says why") as refused:
            ask([head(terms, DIRECTION, bias)])
        assert "3.25" not in str(refused.value)
    monkeypatch.undo()
    with pytest.raises(RefusedAnswerError, match="own record says why"):
        ask([head(terms, DIRECTION, 1.0)])  # nor is it tried again
    with pytest.raises(RefusedAnswerError, match="1 classifiers are to be tested and 2 were before"):
        ask([head(terms, DIRECTION, 2.0)])


def test_only_heads_of_the_terms_are_tested(make: Made) -> None:
    settings, terms = party(make(nodes=1), min_count=5)
    ask, sound = line_to(settings, terms), head(terms, DIRECTION, 0.0)
    for wrong in (replace(sound, feature_map=Normalize()), replace(sound, class_names=("a", "b", "c"))):
        with pytest.raises(RefusedAnswerError, match="other classes or another map than the terms"):
            ask([wrong])
    assert len(ask([sound])) == 1


def test_the_account_outlives_restarts_and_federations(make: Made) -> None:
    settings, terms = party(make(nodes=1), min_count=5, max_heads=3)
    heads = [head(terms, DIRECTION, float(bias)) for bias in range(4)]
    first = line_to(settings, terms)(heads[:2])
    again = line_to(settings, terms)(heads[:2])  # another process: the same question costs nothing, and tells the same
    assert all((one[key] == other[key]).all() for one, other in zip(first, again, strict=True) for key in one)
    with pytest.raises(RefusedAnswerError, match="max_heads: 2 classifiers are to be tested and 2 were before"):
        line_to(settings, terms)(heads[2:])
    other = replace(terms, nonce="another federation")
    with pytest.raises(RefusedAnswerError, match="max_heads"):
        line_to(replace(settings, federation=""), other)(heads[2:])
    assert len(line_to(settings, terms)(heads[2:3])) == 1


@pytest.mark.parametrize("masked_first", [False, True])
def test_clear_and_masked_tests_are_of_one_account(make: Made, masked_first: bool) -> None:
    settings, terms = party(make(nodes=1, clients=1), min_count=5, max_heads=3, allow_evaluation=True)
    settings = replace(settings, federation="")
    terms = replace(terms, spec=StatisticsSpec.of("gram"))
    secure = replace(terms, privacy=Agreed(secure="sums", helper="07" * 32))
    heads = [head(terms, DIRECTION, float(bias)).to_bytes() for bias in range(6)]
    first, second = (secure, terms) if masked_first else (terms, secure)
    Examiner(Node(settings)).answer(first, heads[:2])
    with pytest.raises(PolicyError, match="max_heads: 2 classifiers are to be tested and 2 were before"):
        Examiner(Node(settings)).answer(second, heads[2:4])
    Examiner(Node(settings)).answer(second, heads[4:5])
    with pytest.raises(PolicyError, match="and 3 were before"):
        Examiner(Node(settings)).answer(first, heads[5:])


# -------------------------------------------------------------------------------------------------- one of many


def liar(message: Message, context: Any) -> Message:
    """Claim a billion samples, all of them right, where the node is the first; else tell the truth."""
    if int(context.node_config["partition-id"]):
        return real.evaluate(message, context)
    fields, data = read_content(message.content, most_bytes=2**30)
    node, terms = real.node_of(context), real._terms(fields["terms"])
    heads = [bytes(part) for part in unpack_bundle(data, max_bytes=2**30, max_items=100)]
    claim = LocalEvaluation.zero(3)
    claim.confusion[0, 0] = claim.counts[-1] = claim.hits[-1] = claim.totals[:] = 2**30
    claim.confidences[-1] = 2**62
    bundle = pack_bundle([claim.to_bytes()] * len(heads))
    text = signed_results(terms, heads_digest(heads), bundle)
    clients = Holdings(node.settings, terms).clients
    signatures = [identity_of(node.settings, client).sign(text).hex() for client in clients]
    return Message(content_of({"clients": clients, "signatures": signatures}, bundle), reply_to=message)


def test_one_node_of_four_cannot_set_the_accuracy(make: Made) -> None:
    honest, lied = run(make(), helper=False), run(make(), spoiled(evaluate=liar), helper=False)
    true, found = honest.evaluations["fedncm"], lied.evaluations["fedncm"]
    with FederationStore.open(make().server.ledger) as store:
        assert store.terms.fixed_point.max_samples < 2**30
    assert found.n_samples < 300  # what its clients contributed, and not a billion
    assert not lied.failures
    spread = lied.spread["fedncm"]
    known = (spread.lowest, spread.median, spread.highest, spread.largest_share)
    lowest, median, highest, share = (float("nan") if value is None else value for value in known)
    assert spread.nodes == 4
    assert lowest <= median <= highest == 1.0
    assert share < 0.75
    assert abs(median - true.accuracy) < 0.05


def test_results_of_strangers_and_of_clients_that_contributed_nothing_do_not_count(make: Made) -> None:
    def stolen_name(message: Message, context: Any) -> Message:
        reply = real.evaluate(message, context)
        fields, bundle = read_content(reply.content, most_bytes=2**30)
        fields["clients"] = [f"client-{11 - k:04d}" for k, _ in enumerate(fields["clients"])]
        return Message(content_of(fields, bundle), reply_to=message)

    found = run(make(), spoiled(evaluate=stolen_name), helper=False)
    assert not found.evaluations["fedncm"].n_samples
    assert {str(failure.reason).split(" by the")[0] for failure in found.failures} == {"its evaluation is not signed"}


# -------------------------------------------------------------------------------------------------- secure and noised


@pytest.mark.parametrize(("heads", "agreed"), [(HEADS, SUMS), (MEANS, COHORTS), (("fedcof",), TWO_PHASES)])
def test_results_are_masked_under_secure_sums(make: Made, heads: tuple[str, ...], agreed: Agreed) -> None:
    rules = {"min_count": 1, "allow_evaluation": True}
    plan = make(heads=heads, privacy=agreed, policy=rules)
    seen: list[bytes] = []

    def listen(message: Message, context: Any) -> Message:
        reply = real.evaluate(message, context)
        _, bundle = read_content(reply.content, most_bytes=2**30)
        seen.extend(bytes(part) for part in unpack_bundle(bundle, max_bytes=2**30, max_items=99))
        return reply

    found = run(plan, spoiled(evaluate=listen))
    assert not found.failures
    name = next(iter(found.fitted))
    assert (found.evaluations[name].n_samples, found.spread[name].clients) == (90, 12)
    assert found.spread[name] == Spread(clients=12, alone=found.spread[name].alone)
    assert found.evaluations[name].accuracy > 0.7
    assert len(seen) == 12
    numbers = np.concatenate([np.frombuffer(report[OVERHEAD_BYTES:], "<u8") for report in seen])
    assert np.unique(numbers >> np.uint64(56)).size > 200  # counts would have high bytes of 0
    again = run(plan, spoiled(evaluate=listen))
    assert seen[:12] == seen[12:]
    assert again.evaluations[name] == found.evaluations[name]


def test_too_few_masked_results_are_not_opened(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=Agreed(secure="sums", batch=4), policy={"min_count": 1})
    own = ClientSettings.load(plan.shared_settings)

    def some(message: Message, context: Any) -> Message:
        allowed = int(context.node_config["partition-id"]) == 0  # 3 of 12 clients
        rules = {"min_count": 1, "allow_evaluation": allowed}
        plan.shared_settings.write_text(replace(own, policy=rules).to_toml())
        return real.evaluate(message, context)

    found = run(plan, spoiled(evaluate=some))
    assert not found.evaluations["fedncm"].n_samples
    assert "a batch must have 4 different reports or more" in str(found.failures[-1].reason)


def test_more_masked_results_than_contributed_samples_are_thrown_away(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS, policy={"min_count": 1, "allow_evaluation": True})

    def lying(vector: Any, *arguments: Any, **facts: Any) -> bytes:
        claim = np.uint64(2**30 if facts["client"] == "client-0000" else 0)
        return make_report(vector + claim, *arguments, **facts)

    monkeypatch.setattr(testing, "make_report", lying)
    found = run(plan)
    assert not found.evaluations["fedncm"].n_samples
    assert "a client claims what cannot be" in str(found.failures[-1].reason)


@pytest.mark.parametrize("secure", [None, "sums"])
def test_with_an_epsilon_two_noised_numbers_are_told(make: Made, secure: str | None) -> None:
    pytest.importorskip("dp_accounting")
    agreed = Agreed(secure=secure, epsilon=50.0)
    rules = {"min_count": 1, "allow_evaluation": True, "max_heads": 1}
    plan = make(heads=("fedncm",), privacy=agreed, policy=rules)
    found = run(plan, helper=secure is not None)
    result = found.evaluations["fedncm"]
    assert not result.confusion.any()
    assert not result.counts.any()
    assert 60 < result.n_samples < 120
    assert not run(make(heads=("fedncm",), privacy=agreed), helper=secure is not None).evaluations["fedncm"].n_samples


def test_noise_of_results_keeps_the_budget_over_all_heads(make: Made) -> None:
    """σ of one of 20 tests is √20 times that of a single Gaussian release of two numbers that one sample changes."""
    accounting = pytest.importorskip("dp_accounting")
    plan = make(nodes=1, heads=("fedncm",), privacy=Agreed(epsilon=2.0))
    settings, terms = party(plan, min_count=1, allow_evaluation=True)
    scale = Examiner(Node(settings))._scale(terms)
    spent = accounting.get_epsilon_gaussian(scale / np.sqrt(2) / np.sqrt(20), 1e-5)
    assert spent == pytest.approx(2.0, abs=1e-6)
    draws = [LocalEvaluation.zero(3).noised(scale).totals for _ in range(300)]
    assert np.std(draws) == pytest.approx(scale, rel=0.15)


def test_a_raised_number_of_heads_does_not_renew_the_budget(make: Made) -> None:
    pytest.importorskip("dp_accounting")
    plan = make(nodes=1, heads=("fedncm",), privacy=Agreed(epsilon=2.0))
    settings, terms = party(plan, min_count=1, allow_evaluation=True, max_heads=1)
    heads = [replace(head(terms, DIRECTION, float(bias)), feature_map=terms.map_or_none) for bias in range(2)]
    first = line_to(settings, terms)(heads[:1])
    assert (line_to(settings, terms)(heads[:1])[0]["totals"] == first[0]["totals"]).all()  # the same noise
    more = replace(settings, policy={**settings.policy, "max_heads": 50})
    with pytest.raises(RefusedAnswerError, match="noised tests before spent so much of ε = 2"):
        line_to(more, terms)(heads[1:])


def test_nothing_is_tested_where_whole_clients_are_hidden(make: Made) -> None:
    plan = make(nodes=1, heads=("fedncm",), privacy=Agreed(epsilon=2.0, unit="client", client_norm=9.0))
    settings, terms = party(plan, min_count=1, allow_evaluation=True)
    with pytest.raises(RefusedAnswerError, match="hide whole clients"):
        line_to(settings, terms)([head(terms, DIRECTION, 0.0)])
