"""Influence is what leaving a client out does to the head, found by leaving it out."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.classifier import Classifier
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.observations.federated import ClientInfluence, Dropped
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, LedgerError, NotEnoughDataError
from fedmoments.privacy.robust import Influence, Suspicion, influences, poison, robust_record
from fedmoments.privacy.robust.centres import stack
from fedmoments.privacy.robust.influence import mean_moves

C, D = 3, 6
FORM = FixedPoint(norm_bound=50.0, max_samples=10_000)


def data(clients: int = 8, per: int = 30, seed: int = 0) -> dict[Hashable, tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(C, D))
    found: dict[Hashable, tuple[Any, Any]] = {}
    for k in range(clients):
        y = np.concatenate([np.arange(C), rng.choice(C, per - C, p=rng.dirichlet(np.ones(C)))])
        found[f"c{k}"] = (means[y] + rng.normal(size=(per, D)), y)
    return found


def measured(samples: Any, spec: StatisticsSpec, form: FixedPoint | None = None) -> dict[Hashable, Statistics]:
    return {k: Statistics.of(X, y, spec, n_classes=C, fixed_point=form) for k, (X, y) in samples.items()}


@pytest.mark.parametrize("name", ["fedncm", "fed3r", "gh-lda", "fedcof", "gh-nb", "gh-qda", "qda-free"])
def test_law_influence_is_that_of_the_head_fitted_without_the_client(name: str) -> None:
    head, samples = fm.make_head(name), data()
    parties = measured(samples, head.needs)
    points = np.concatenate([X[y == c].mean(axis=0)[None] for c in range(C) for X, y in samples.values()])
    whole = head.fit(Statistics.merge(parties.values())).predict_proba(points)
    found = influences(parties, head)
    assert len(found) == len(parties)
    assert [each.change for each in found] == sorted((each.change for each in found), reverse=True)
    for each in found:
        rest = {k: v for k, v in samples.items() if k != each.client}
        fitted = head.fit(Statistics.merge(measured(rest, head.needs).values())).predict_proba(points)
        assert each.change == pytest.approx(np.abs(whole - fitted).sum(axis=1).mean() / 2, abs=1e-6)
        assert each.flips == pytest.approx((whole.argmax(axis=1) != fitted.argmax(axis=1)).mean())
        assert each.samples == 30
        assert each.share == pytest.approx(1 / 8)


@pytest.mark.parametrize("form", [None, FORM], ids=["float", "fixed"])
def test_a_ledger_and_a_mapping_tell_the_same(form: FixedPoint | None) -> None:
    head = fm.make_head("fedcof")
    parties = measured(data(), head.needs, form)
    ledger = Ledger(head.needs, n_classes=C, dim=D, fixed_point=form)
    for client, stats in parties.items():
        ledger.join(client, stats)
    assert influences(ledger, head) == influences(parties, head)
    folded = Ledger(head.needs | StatisticsSpec.of("gram"), n_classes=C, dim=D, fold=True)
    folded.join("a", Statistics.of(np.ones((1, D)), [0], folded.spec, n_classes=C))
    with pytest.raises(LedgerError, match="did not keep"):
        influences(folded, head)


def test_law_attackers_with_large_counts_are_the_most_influential() -> None:
    head = fm.make_head("gh-lda")
    sent, attackers = poison(measured(data(20), head.needs), "flip:0.1:20")
    assert {each.client for each in influences(sent, head, most=5)[:2]} == attackers


def test_of_many_clients_those_that_move_class_means_most_are_asked() -> None:
    head = fm.make_head("fedncm")
    parties = measured(data(12), head.needs)
    moves = mean_moves(stack(parties))
    some = {each.client for each in influences(parties, head, most=4)}
    assert some == {list(parties)[k] for k in np.argsort(-moves)[:4]}


def test_mean_moves_are_the_naive_ones() -> None:
    samples = data(6)
    X, y = (np.concatenate(part) for part in zip(*samples.values(), strict=True))
    for client, found in zip(samples, mean_moves(stack(measured(samples, StatisticsSpec()))), strict=True):
        rest = [samples[k] for k in samples if k != client]
        Z, v = (np.concatenate(part) for part in zip(*rest, strict=True))
        moves = [np.linalg.norm(X[y == c].mean(axis=0) - Z[v == c].mean(axis=0)) for c in range(C)]
        assert found == pytest.approx(sum(moves))


def test_the_only_holder_of_a_class_and_a_client_without_samples() -> None:
    head = fm.make_head("fedncm")
    X = np.ones((4, D)) * 3
    parties: dict[Hashable, Statistics] = {
        k: Statistics.of(X, [0, 1, 1, 1], head.needs, n_classes=C) for k in ("a", "b")
    }
    parties["alone"] = Statistics.of(X, [2, 2, 0, 1], head.needs, n_classes=C)
    parties["empty"] = Statistics.zero(head.needs, n_classes=C, dim=D)
    found = {each.client: each for each in influences(parties, head)}
    assert found["empty"].change == 0
    assert influences(parties, head, most=1)[0].client == "alone"


@dataclass(frozen=True)
class _Demanding(NearestMean):
    """A head that needs a hundred samples."""

    def solve(self, stats: Statistics) -> Classifier:
        if stats.n_samples < 100:
            raise NotEnoughDataError("a hundred samples are needed")
        return super().solve(stats)


def test_a_client_without_which_there_is_no_head_changes_everything() -> None:
    head = _Demanding()
    parties = measured(data(2, per=30) | {"large": data(1, per=60)["c0"]}, head.needs)
    found = {each.client: each.change for each in influences(parties, head)}
    assert found == {"large": 1.0, "c0": 1.0, "c1": 1.0}
    parties["more"] = measured(data(1, per=70), head.needs)["c0"]
    found = {each.client: each.change for each in influences(parties, head)}
    assert max(found.values()) < 1
    with pytest.raises(NotEnoughDataError):
        influences({k: parties[k] for k in ("c0", "c1")}, head)


def test_wrong_questions_are_refused() -> None:
    head = fm.make_head("fedncm")
    parties = measured(data(2), head.needs)
    for wrong in ({"most": 0}, {"points": 0}):
        with pytest.raises(InputError, match="1 or more"):
            influences(parties, head, **wrong)
    with pytest.raises(InputError, match="two clients"):
        influences({"c0": parties["c0"]}, head)


def test_fewer_points_give_nearly_the_same() -> None:
    head = fm.make_head("fedncm")
    parties = measured(data(30), head.needs)
    whole = {each.client: each.change for each in influences(parties, head, most=30)}
    some = {each.client: each.change for each in influences(parties, head, most=30, points=45)}
    assert np.corrcoef(list(whole.values()), [some[client] for client in whole])[0, 1] > 0.8


def test_the_record_is_plain_and_counts_who_was_found() -> None:
    found = [Influence("a", 0.5, 0.25, 10, 0.1)]
    record = robust_record(
        Suspicion({"a": "samples: many", "b": "places"}, untested=3),
        found,
        clients=9,
        head="fedncm",
        attack="flip:0.2",
        attackers={"a", "c"},
    )
    assert record.dropped[0] == Dropped("a", "samples: many")
    assert (record.caught, record.false, record.attackers) == (1, 1, ("a", "c"))
    assert record.influence == (ClientInfluence("a", 0.5, 0.25, 10, 0.1),)
    assert robust_record(None, clients=4).examined is False
    assert robust_record(None, clients=4).attack is None
