"""Jobs of tuning: curves, resuming, files, starts, refits on a tuned encoder, refusals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.classifier import load
from fedmoments.errors import InputError, MergeError, UnknownNameError
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.families.identity import IdentityEncoder
from fedmoments.settings.study import TuningStudy
from fedmoments.study.checks import check_tuning
from fedmoments.study.jobs import tuning as job_module
from fedmoments.study.jobs.encoding import encode_data
from fedmoments.study.jobs.tuning import run_tuning
from fedmoments.study.jobs.tuning_world import World
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.loop import run_rounds


@pytest.fixture
def data(tmp_path: Path) -> str:
    rng = np.random.default_rng(3)
    centres = rng.normal(scale=1.1, size=(5, 8))
    mixing = rng.normal(size=(8, 8)) / 2

    def draw(n: int) -> tuple[Any, Any]:
        y = rng.integers(5, size=n)
        return (centres[y] + rng.normal(size=(n, 8)) @ mixing).astype(np.float32), y

    (x, y), (x_test, y_test) = draw(500), draw(200)
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    np.savez(tmp_path / "toy.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, classes=names)
    return str(tmp_path / "toy.npz")


def config(data: str, **more: Any) -> TuningStudy:
    plan = {"rounds": 4, "temperature": "auto", "fraction": 0.5, **more.pop("plan", {})}
    given = {"starts": ("random", "fedncm", "fedcof"), "clients": (12,), "splits": ("dirichlet:0.5",), "seeds": 2}
    return TuningStudy(data=data, plan=plan, **{**given, **more})


def test_every_start_optimiser_and_seed_is_a_curve(data: str) -> None:
    found = run_tuning(config(data, optimisers=("fedavg", "scaffold"), encoder_flops=100.0)).document["tuning"]
    runs = [(curve["start"], curve["optimiser"], curve["seed"]) for curve in found["curves"]]
    assert len(runs) == len(set(runs)) == 3 * 2 * 2
    assert all([point["round"] for point in curve["points"]] == [0, 1, 2, 3, 4] for curve in found["curves"])
    heads = {(head["head"], head["seed"]): head for head in found["heads"]}
    for curve in found["curves"]:
        first = curve["points"][0]
        if curve["start"] != "random":  # the first point is the head's own accuracy, and what the head cost
            assert first["accuracy"] == heads[curve["start"], curve["seed"]]["accuracy"]
            assert first["up"] == heads[curve["start"], curve["seed"]]["up"]
            assert first["flops"] == heads[curve["start"], curve["seed"]]["flops"]
            assert min(curve["temperatures"].values()) == curve["temperatures"][f"{curve['temperature']:g}"]
        else:
            assert (first["up"], first["down"], first["flops"]) == (0, 0, 0.0)
    assert {each["start"] for each in found["reached"]} == {"random", "fedncm", "fedcof"}
    assert found["per_round"] == 6


def test_seeds_give_other_splits_and_the_same_seed_the_same_curve(data: str) -> None:
    once, again = (run_tuning(config(data)).document["tuning"]["curves"] for _ in range(2))
    assert once == again
    assert once[0]["points"] != once[3]["points"]


def test_an_interrupted_job_goes_on_in_the_middle_of_a_run(data: str, tmp_path: Path, monkeypatch: Any) -> None:
    wanted = config(data, optimisers=("fedadam",), seeds=1)
    whole = run_tuning(wanted).document["tuning"]
    calls = 0

    def stop(done: int, total: int, told: str) -> None:
        nonlocal calls
        calls += "round" in told
        if calls == 6:  # in the second round of the second run
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_tuning(wanted, out, progress=stop)
    kept = sorted(path.name for path in (out / "curves").iterdir())
    assert kept == ["lp-fedncm-fedadam-0.checkpoint", "lp-random-fedadam-0.json"]
    begun = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        found = run_rounds(*args, **kwargs)
        begun.append(found.resumed)
        return found

    monkeypatch.setattr(job_module, "run_rounds", spy)
    found = run_tuning(wanted, out)
    assert begun == [2, None]
    assert found.resumed == 1
    assert found.document["tuning"] == whole
    assert not list((out / "curves").glob("*.checkpoint"))
    again = run_tuning(wanted, out)
    assert again.resumed == 3
    assert again.document["tuning"] == whole


@pytest.mark.filterwarnings("ignore:the first round lost")
def test_other_settings_in_the_same_folder_run_anew(data: str, tmp_path: Path) -> None:
    run_tuning(config(data, seeds=1), tmp_path / "run")
    changed = run_tuning(config(data, seeds=1, plan={"lr": 0.5}), tmp_path / "run")
    assert changed.resumed == 0
    assert changed.document["tuning"] == run_tuning(config(data, seeds=1, plan={"lr": 0.5})).document["tuning"]


@pytest.mark.parametrize(
    "change", [{"encoder_flops": 100.0}, {"refit": ("fedncm",)}, {"hyper": {"fed3r": {"ridge": 3.0}}}]
)
def test_curves_that_would_say_something_else_now_are_not_kept(
    change: dict[str, Any], data: str, tmp_path: Path
) -> None:
    wanted = config(data, seeds=1, starts=("random",))
    run_tuning(wanted, tmp_path / "run")
    again = run_tuning(replace(wanted, **change), tmp_path / "run")
    assert again.resumed == 0
    assert again.document["tuning"] == run_tuning(replace(wanted, **change)).document["tuning"]


def test_progress_ends_at_the_end_also_when_runs_were_kept(data: str, tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    run_tuning(config(data, seeds=1, starts=("random",)), tmp_path / "run")
    more = config(data, seeds=1, starts=("random", "fedncm"))
    found = run_tuning(more, tmp_path / "run", progress=lambda done, total, told: said.append((done, total)))
    assert found.resumed == 1
    assert said[-1] == (8, 8)


def test_files_hold_what_was_found(data: str, tmp_path: Path) -> None:
    found = run_tuning(config(data), tmp_path / "run")
    document = json.loads((tmp_path / "run" / "results.json").read_text("utf-8"))
    assert document == json.loads(json.dumps(found.document))
    assert TuningStudy.load(tmp_path / "run" / "config.toml") == config(data)
    assert "fedcof" in (tmp_path / "run" / "report.html").read_text("utf-8")
    names = sorted(path.name for path in (tmp_path / "run" / "tuned").iterdir())
    assert names == ["lp-fedcof-fedavg-0", "lp-fedncm-fedavg-0", "lp-random-fedavg-0"]
    head = load(tmp_path / "run" / "tuned" / "lp-fedcof-fedavg-0" / "head.safetensors")
    arrays = np.load(data)
    curve = next(c for c in document["tuning"]["curves"] if (c["start"], c["seed"]) == ("fedcof", 0))
    assert (head.predict(arrays["x_test"]) == arrays["y_test"]).mean() == curve["points"][-1]["accuracy"]
    assert head.class_names == ("ant", "bee", "cat", "dog", "eel")
    assert (head.info["start"], head.info["stage"]) == ("fedcof", "lp")


def test_a_saved_classifier_is_a_start(data: str, tmp_path: Path) -> None:
    arrays = np.load(data)
    head = fm.fit("gh-qda", {"a": (arrays["x_train"], arrays["y_train"])})
    head.save(tmp_path / "mine.safetensors")
    start = str(tmp_path / "mine.safetensors")
    curve = run_tuning(config(data, starts=(start,), seeds=1)).document["tuning"]["curves"][0]
    assert curve["points"][0]["accuracy"] == (head.predict(arrays["x_test"]) == arrays["y_test"]).mean()


def test_two_files_of_one_name_are_refused_before_one_overwrites_the_other(data: str, tmp_path: Path) -> None:
    arrays = np.load(data)
    starts = [tmp_path / folder / "head.safetensors" for folder in ("a", "b")]
    for start in starts:
        start.parent.mkdir()
        fm.fit("fedncm", {"a": (arrays["x_train"], arrays["y_train"])}).save(start)
    with pytest.raises(InputError, match="would write the same files"):
        run_tuning(config(data, starts=tuple(map(str, starts))))


def test_a_saved_classifier_of_other_classes_is_refused(data: str, tmp_path: Path) -> None:
    arrays = np.load(data)
    head = fm.fit("fedncm", {"a": (arrays["x_train"], arrays["y_train"])})
    start = tmp_path / "mine.safetensors"
    head.named(["ant", "cat", "bee", "dog", "eel"]).save(start)
    with pytest.raises(InputError, match="calls class 1 'cat', but the data call it 'bee'"):
        run_tuning(config(data, starts=(str(start),), seeds=1))


def test_a_saved_classifier_of_another_encoder_is_refused(data: str, tmp_path: Path) -> None:
    arrays = np.load(data)
    head = fm.fit("fedncm", {"a": (arrays["x_train"], arrays["y_train"])})
    start = str(tmp_path / "mine.safetensors")
    does = IdentityEncoder(head.dim).behaviour.to_text()
    head.noting(encoder={"name": "squeezenet-1.1", "fingerprint": "a" * 64, "behaviour": does}).save(start)
    wanted = config(data, starts=(start,))
    plan, encoded = wanted.plan_of(start, "fedavg", 0), encode_data(wanted)

    def basis(fingerprint: str) -> str:
        encoder = IdentityEncoder(encoded.features.dim)
        encoder.name, encoder.fingerprint = "squeezenet-1.1", fingerprint
        return World(wanted, replace(encoded, encoder=encoder), 0).basis(start, plan)

    assert World(wanted, encoded, 0).basis(start, plan)  # features that were given: nobody knows whose they are
    assert basis("a" * 64)
    with pytest.raises(MergeError, match=r"fitted behind the encoder squeezenet-1\.1 with fingerprint aaaa"):
        basis("b" * 64)


def test_a_start_has_not_seen_the_validation_shares(data: str) -> None:
    wanted = config(data, starts=("fed3r",), splits=("iid",), plan={"validation": 0.4})
    plan, encoded = wanted.plan_of("fed3r", "fedavg", 0), encode_data(wanted)

    def digests() -> tuple[str, str]:
        world = World(wanted, encoded, 0)
        return world.prepare("fed3r", plan).start.classifier.digest(), world.federation().fitted(
            world.methods["fed3r"]
        ).digest()

    start, whole = digests()
    for name, rows in World(wanted, encoded, 0).holders.items():
        held = rows[held_out(len(rows), 0.4, seed=0, client=name)[1]]
        encoded.features.train.y[held] = np.random.default_rng(1).integers(5, size=len(held))
    again, changed = digests()
    assert start == again
    assert whole != changed


def test_the_narrowest_number_of_a_run_wins() -> None:
    runs = {"random": {"lr": 2.0}, "fedadam": {"lr": 3.0, "epochs": 2}, "random/fedadam": {"lr": 4.0}}
    wanted = TuningStudy(optimisers=("fedavg", "fedadam"), plan={"lr": 1.0}, runs=runs)
    check_tuning(wanted)
    assert [wanted.plan_of(s, o, 0).lr for s in ("fedcof", "random") for o in ("fedavg", "fedadam")] == [1, 3, 2, 4]
    assert wanted.plan_of("random", "fedadam", 0).epochs == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"starts": ("fedcov",)}, "file of a classifier. 'fedcov': did you mean 'fedcof'"),
        ({"starts": ("none.safetensors",)}, "is not a file"),
        ({"optimisers": ("adam",)}, "unknown optimiser 'adam'"),
        ({"plan": {"lrr": 1.0}}, "unknown number of a plan 'lrr'"),
        ({"plan": {"lr": -1.0}}, "lr must be 0 or more"),
        ({"runs": {"fedprox": {"mu": 1.0}}}, "unknown start or optimiser of this job 'fedprox'"),
        ({"runs": {"random": {"stage": "ft"}}}, "unknown number of a plan 'stage'"),
        ({"clients": (10, 20)}, "one number of clients"),
        ({"starts": ()}, "at least one start"),
        ({"refit": ("ridge9",)}, "unknown head 'ridge9'"),
        ({"starts": ("random", "fedcof", "random")}, "'random' and 'random' would write the same files"),
        ({"starts": ("all",)}, "'all' is not a start"),
        ({"optimisers": ("fedavg", "fedavg")}, "every optimiser is run once"),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_work(change: dict[str, Any], told: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=told):
        check_tuning(replace(TuningStudy(data="nowhere.npz"), **change))


def test_features_have_no_encoder_to_train(data: str) -> None:
    with pytest.raises(InputError, match="these data are features already"):
        run_tuning(config(data, plan={"stage": "ft"}))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ft", "feat"])
def test_an_encoder_is_tuned_saved_and_probed(stage: str, tmp_path: Path) -> None:
    wanted = TuningStudy(
        data="digits",
        encoder="squeezenet-1.1",
        size=32,
        threads=1,
        clients=(60,),
        splits=("iid",),
        starts=("fedcof",),
        plan={"stage": stage, "rounds": 1, "fraction": 0.05, "lr": 1e-4, "temperature": "auto", "batch_size": 8},
        refit=("fed3r", "fedncm"),
        seeds=1,
    )
    found = run_tuning(wanted, tmp_path / "run", cache_dir=tmp_path / "cache").document["tuning"]
    (curve,), (head,) = found["curves"], found["heads"]
    assert curve["points"][0]["accuracy"] == head["accuracy"]
    assert curve["probe"]["after"] == curve["refit"]["fed3r"]
    assert curve["probe"]["before"] != curve["probe"]["after"]
    folder = tmp_path / "run" / "tuned" / f"{stage}-fedcof-fedavg-0"
    classifier, encoder = (
        load(folder / "head.safetensors"),
        load_encoder(f"tuned:{folder}/encoder.safetensors", threads=1),
    )
    assert classifier.info["encoder"]["fingerprint"] == encoder.fingerprint
    if stage == "feat":  # the head is that of the start, bit for bit
        start = World(wanted, encode_data(wanted, cache_dir=tmp_path / "cache"), 0)
        assert classifier.digest() == start.federation().fitted(start.methods["fedcof"]).digest()
    b, head_numbers = 722_496, 512 * 10 + 10
    numbers = 3 * (b + (head_numbers if stage == "ft" else 0))
    before = curve["points"][0]["up_formula"]
    assert curve["points"][1]["up_formula"] - before == 4 * numbers


def test_a_classifier_of_any_file_name_is_a_start(data: str, tmp_path: Path) -> None:
    arrays = np.load(data)
    fm.fit("gh-lda", {"a": (arrays["x_train"], arrays["y_train"])}).save(tmp_path / "mine.classifier")
    found = run_tuning(config(data, starts=(str(tmp_path / "mine.classifier"),), seeds=1)).document["tuning"]
    assert found["curves"][0]["points"][0]["accuracy"] > 0.5
    assert found["heads"] == []


def test_replaced_runs_are_counted(data: str, tmp_path: Path) -> None:
    run_tuning(config(data, seeds=1), tmp_path / "run")
    assert run_tuning(config(data, seeds=1, runs={"random": {"lr": 1.0}}), tmp_path / "run").replaced == 1


def test_the_start_that_everybody_tests_is_charged_before_the_first_round(data: str) -> None:
    plans: list[dict[str, Any]] = [{}, {"validation": 0.3}]
    first = [
        run_tuning(config(data, starts=("gh-qda",), seeds=1, plan=plan)).document["tuning"]["curves"][0]["points"]
        for plan in plans
    ]
    base = 12 * 4 * (8 + 5 * 8 * 8 + 5 * 8 + 5)
    assert first[0][0]["down"] == 0
    assert first[0][1]["down"] > base
    assert base < first[1][0]["down"] < 2 * base
