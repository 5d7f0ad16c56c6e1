"""Tuning by the two apps in one process: the same parameters as in a simulation, for every optimiser; going on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from tests.federation.flower.tuning_trials import PLAN, Made, collected, notes, run, settings_of, spoiled

from fedmoments import load
from fedmoments.errors import InputError
from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.messages import content_size
from fedmoments.federation.flower.tuning_report import tuning_report
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.pages import render
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.server import TuningSettings
from fedmoments.tuning import OPTIMISERS, TuningPlan
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.loop import Tuned, run_rounds
from fedmoments.tuning.prices import Prices
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import Start
from fedmoments.tuning.temperature import choose_temperature

MOVING = {**PLAN, "momentum": 0.5, "epochs": 2}


def held(plan: LocalFederation) -> dict[str, Any]:
    with FederationStore.open(plan.server.ledger) as store:
        holdings = Holdings(ClientSettings.load(plan.shared_settings), store.terms)
    parts = {client: holdings.train(client) for client in sorted(holdings.clients)}
    return {client: (each.X, each.y) for client, each in parts.items()}


def simulated(plan: LocalFederation, start: Start, tuning: TuningPlan) -> Tuned:
    """Return what one process finds that holds all clients' features."""
    engine = FeatureEngine(tuning, start, held(plan), None)
    return run_rounds(tuning, engine, start.arrays(), prices=Prices(start.width, len(start.present)))


def require_same(one: Arrays, other: Arrays) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_law_a_deployment_finds_the_parameters_of_a_simulation(make: Made, tmp_path: Path, optimiser: str) -> None:
    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", plan={**MOVING, "optimiser": optimiser, "rounds": 5})
    found = run(plan, settings)
    simulation = simulated(plan, found.start, settings.tuning_plan)
    for name, array in simulation.arrays.items():
        np.testing.assert_allclose(found.tuned.arrays[name], array, rtol=0, atol=1e-6, err_msg=name)
        assert np.abs(array - found.start.arrays()[name]).max() > 1e-3
    assert [p.participants for p in found.tuned.points] == [0, 6, 6, 6, 6, 6]
    assert not found.failures


@pytest.mark.parametrize("nodes", [1, 5, 12])
def test_law_how_clients_are_spread_over_nodes_changes_nothing(make: Made, tmp_path: Path, nodes: int) -> None:
    found = []
    for number, count in enumerate((4, nodes)):
        plan = collected(make, nodes=count)
        found.append(run(plan, settings_of(plan, tmp_path / str(number), plan={**MOVING, "optimiser": "scaffold"})))
    require_same(found[0].tuned.arrays, found[1].tuned.arrays)
    assert found[0].classifier.digest() == found[1].classifier.digest()


def test_law_clients_check_what_a_simulation_checks_and_stop_when_it_stops(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    tuning = {**PLAN, "rounds": 9, "validation": 0.3, "check_every": 2, "patience": 2, "lr": 2.0}
    settings = settings_of(plan, tmp_path / "out", plan=tuning)
    found = run(plan, settings)
    simulation = simulated(plan, found.start, settings.tuning_plan)
    assert found.tuned.stopped == simulation.stopped is not None
    assert found.tuned.best_round == simulation.best_round
    for mine, theirs in zip(found.tuned.points, simulation.points, strict=True):
        assert mine.validation == theirs.validation
        if theirs.validation_loss is not None:
            assert mine.validation_loss == pytest.approx(theirs.validation_loss, rel=1e-6)
    told = {
        client: each["validation"]
        for client, each in json.loads((found.folder / "run.json").read_text())["clients"].items()
    }
    assert told == {client: int(0.3 * len(y)) for client, (_, y) in held(plan).items()}


def test_the_first_point_is_the_heads_own_accuracy_and_the_files_hold_what_was_found(
    make: Made, tmp_path: Path
) -> None:
    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", start="fedncm", plan={**PLAN, "test_every": 1}))
    with FederationStore.open(plan.server.ledger) as store:
        head = fit_heads(store, ["fedncm"])["fedncm"].classifier
        assert store.verify().whole
        holdings = Holdings(ClientSettings.load(plan.shared_settings), store.terms)
    tests = [holdings.test(client) for client in holdings.clients]
    X, y = np.concatenate([each.X for each in tests]), np.concatenate([each.y for each in tests])
    assert found.tuned.points[0].accuracy == pytest.approx(float(np.mean(head.predict(X) == y)))
    saved = load(tmp_path / "out" / "tuned.safetensors")
    assert saved.digest() == found.classifier.digest() != head.digest()
    assert found.tuned.points[-1].accuracy == pytest.approx(float(np.mean(saved.predict(X) == y)))
    assert saved.info["start"] == "fedncm"
    assert saved.info["tuning"]["method"] == "fedavg-lp"
    document = json.loads((tmp_path / "out" / "tuning.json").read_text())
    assert document["classifier"] == saved.digest()
    assert [point["round"] for point in document["points"]] == [0, 1, 2, 3]
    assert document["clients"]["client-0003"]["train"] == len(held(plan)["client-0003"][1])
    assert [each["round"] for each in notes(plan, "tuning round")] == [1, 2, 3]


def test_bytes_of_a_round_are_those_of_its_messages(make: Made, tmp_path: Path) -> None:
    asked, answered = [], []

    def count(kind: str, message: Any, _: Any, honest: Any) -> Any:
        reply = honest()
        if kind == "tune":
            asked.append(content_size(message.content))
            answered.append(content_size(reply.content))
        return reply

    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", start="random", plan={**PLAN, "rounds": 1})
    found = run(plan, settings, spoiled(count))
    first, last = found.tuned.points
    assert len(asked) == len(answered) == 6
    assert max(asked) == min(asked)
    broadcast = 6 * (tmp_path / "out" / "start.safetensors").stat().st_size  # once to each client, when it is greeted
    assert (last.up - first.up, last.down - first.down) == (sum(answered), sum(asked) + broadcast)


def test_a_page_shows_the_curve_of_a_run(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    tuning = {**PLAN, "test_every": 1, "validation": 0.2, "check_every": 1, "optimiser": "fedavgm"}
    found = run(plan, settings_of(plan, tmp_path / "out", start="fedncm", plan=tuning))
    with FederationStore.open(plan.server.ledger) as store:
        terms = store.terms
    report = tuning_report(json.loads((tmp_path / "out" / "tuning.json").read_text()), terms)
    assert report.tuning is not None
    (shown,) = report.tuning.runs
    assert (shown.start, shown.optimiser) == ("fedncm", "fedavgm")
    (curve,) = shown.curves
    assert curve.best_round == found.tuned.best_round
    points = {point.round: (point.accuracy, point.up, point.down) for point in found.tuned.points}
    assert {point.round: (point.accuracy, point.up, point.down) for point in curve.points} == points
    told = json.loads((tmp_path / "out" / "tuning.json").read_text())
    assert report.data.train == sum(each["train"] for each in told["clients"].values())
    assert report.data.test == told["test_samples"] > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert page == render(report)
    accuracy = found.tuned.points[0].accuracy
    assert accuracy is not None
    for words in (terms.name, "With 12 clients", "FedAvgM", "fedncm", f"{100 * accuracy:.1f}"):
        assert words in page


def test_starts_are_a_head_of_the_ledger_a_random_one_or_a_saved_classifier(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    random = run(plan, settings_of(plan, tmp_path / "random", start="random"))
    assert random.start.name == "random"
    saved = run(plan, settings_of(plan, tmp_path / "saved", start=str(random.folder / "tuned.safetensors")))
    assert saved.start.classifier.digest() == random.classifier.digest()
    with pytest.raises(InputError, match="neither a head"):
        run(plan, settings_of(plan, tmp_path / "nowhere", start=str(tmp_path / "nothing.safetensors")))


def test_law_the_temperature_that_clients_choose_is_that_of_pooled_data(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", plan={**PLAN, "temperature": "auto"}))
    chosen = choose_temperature(found.start, held(plan).values())
    assert found.start.temperature == chosen.temperature != 0.1
    table = json.loads((tmp_path / "out" / "tuning.json").read_text())["temperatures"]
    assert list(table.values()) == pytest.approx(list(chosen.table.values()))
    fixed = run(plan, settings_of(plan, tmp_path / "fixed", plan={**PLAN, "temperature": chosen.temperature}))
    require_same(found.tuned.arrays, fixed.tuned.arrays)


# -------------------------------------------------------------------------------------------------- going on


class StoppedError(Exception):
    """The server was killed."""


def stop_after(last: int) -> Any:
    def progress(done: int, _: int, what: str) -> None:
        if what.startswith("round") and done >= last:
            raise StoppedError

    return progress


@pytest.mark.parametrize(
    ("optimiser", "folder"),
    [*((optimiser, "") for optimiser in OPTIMISERS), ("fedavg", "nodes"), ("scaffold", "nodes")],
)
def test_law_a_stopped_server_goes_on_bit_for_bit(make: Made, tmp_path: Path, optimiser: str, folder: str) -> None:
    plan = collected(make)
    if folder:
        own = ClientSettings.load(plan.shared_settings)
        plan.shared_settings.write_text(replace(own, folder=str(tmp_path / folder)).to_toml())
    tuning = {**MOVING, "optimiser": optimiser, "rounds": 4}
    whole = run(plan, settings_of(plan, tmp_path / "whole", plan=tuning))
    with pytest.raises(StoppedError):
        run(plan, settings_of(plan, tmp_path / "out", plan=tuning), progress=stop_after(2))
    resumed = run(plan, settings_of(plan, tmp_path / "out", plan=tuning))
    assert (resumed.tuned.resumed, whole.tuned.resumed) == (2, None)
    require_same(whole.tuned.arrays, resumed.tuned.arrays)
    assert whole.classifier.digest() == resumed.classifier.digest()
    assert [p.train_loss for p in whole.tuned.points] == [p.train_loss for p in resumed.tuned.points]


def test_law_a_round_whose_checkpoint_was_lost_is_asked_for_again_and_answered_alike(
    make: Made, tmp_path: Path
) -> None:
    plan = collected(make)
    tuning = {**MOVING, "optimiser": "scaffold", "rounds": 4, "fraction": 1.0}
    whole = run(plan, settings_of(plan, tmp_path / "whole", plan=tuning))
    out = tmp_path / "out"
    kept: list[bytes] = []

    def progress(done: int, _: int, what: str) -> None:
        if what.startswith("round 2"):
            kept.append((out / "checkpoint.safetensors").read_bytes())
        if what.startswith("round 3"):
            raise StoppedError

    with pytest.raises(StoppedError):
        run(plan, settings_of(plan, out, plan=tuning), progress=progress)
    (out / "checkpoint.safetensors").write_bytes(kept[0])  # clients have answered round 3, the server knows nothing
    resumed = run(plan, settings_of(plan, out, plan=tuning))
    assert resumed.tuned.resumed == 2
    require_same(whole.tuned.arrays, resumed.tuned.arrays)


def test_more_rounds_go_on_from_the_same_folder(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    long = run(plan, settings_of(plan, tmp_path / "long", plan={**PLAN, "rounds": 4}))
    run(plan, settings_of(plan, tmp_path / "out", plan={**PLAN, "rounds": 2}))
    more = run(plan, settings_of(plan, tmp_path / "out", plan={**PLAN, "rounds": 4}))
    assert more.tuned.resumed == 2
    require_same(long.tuned.arrays, more.tuned.arrays)


def test_a_folder_of_another_run_is_refused(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    run(plan, settings_of(plan, tmp_path / "out"))
    with pytest.raises(InputError, match="holds a run with another start"):
        run(plan, settings_of(plan, tmp_path / "out", start="fedncm"))
    with pytest.raises(InputError, match="holds a run with another plan"):
        run(plan, settings_of(plan, tmp_path / "out", plan={**PLAN, "lr": 0.25}))


def test_contributions_that_came_meanwhile_do_not_change_the_start_of_a_run(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    whole = run(plan, settings_of(plan, tmp_path / "whole"))
    with pytest.raises(StoppedError):
        run(plan, settings_of(plan, tmp_path / "out"), progress=stop_after(1))
    with FederationStore.open(plan.server.ledger) as store:
        store.leave("client-0000")
    resumed = run(plan, settings_of(plan, tmp_path / "out"))
    require_same(whole.tuned.arrays, resumed.tuned.arrays)


# -------------------------------------------------------------------------------------------------- settings


def test_settings_survive_their_file(tmp_path: Path) -> None:
    plan = {"rounds": 7, "temperature": "auto", "replacement": True, "server_lr": None}
    made = TuningSettings("a.ledger", "out", plan, start="gh-dlr-qda", hyper={"rank": 4}, minimum=3)
    (tmp_path / "tuning.toml").write_text(made.to_toml())
    read = TuningSettings.load(tmp_path / "tuning.toml")
    assert read.tuning_plan == made.tuning_plan
    assert (read.ledger, read.out) == (str(tmp_path / "a.ledger"), str(tmp_path / "out"))
    assert (read.start, read.hyper, read.minimum) == ("gh-dlr-qda", {"rank": 4}, 3)
    (tmp_path / "other.toml").write_text(replace(made, start="own.safetensors", hyper={}).to_toml())
    assert TuningSettings.load(tmp_path / "other.toml").start == str(tmp_path / "own.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"out": ""}, "folder"),
        ({"plan": {"round": 3}}, "unknown key of the plan"),
        ({"plan": {"rounds": 2.5}}, "'rounds' must be of type int"),
        ({"plan": {"replacement": 1}}, "'replacement' must be of type bool"),
        ({"plan": {"fraction": 0.0}}, "fraction must be above 0"),
        ({"hyper": {"rank": 4}, "start": "random"}, "not for 'random'"),
        ({"deadline": 900.0}, "close before its messages die"),
        ({"minimum": 0}, "minimum must be 1 or more"),
        ({"max_client_samples": -1}, "max_client_samples must be 1 or more, or 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(TuningSettings("a.ledger", "out"), **changes)
