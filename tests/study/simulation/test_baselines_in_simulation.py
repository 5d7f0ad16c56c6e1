"""Baselines in the same harness as heads: same splits and seeds, counted bytes, resumed, and never taken for heads."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.heads import Preset
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.errors import FitWarning, InputError, NotEnoughDataError
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.baselines import Baseline, Upload, baseline_names
from fedmoments.study.baselines.baseline import BASELINES
from fedmoments.study.checks import check_study
from fedmoments.study.jobs import run_job
from fedmoments.study.simulation import simulate
from fedmoments.study.simulation.fit import client_seed, fit_notes
from fedmoments.study.simulation.methods import all_names, choose_methods, require_head, standard_heads

CLASSES, DIM, CLIENTS, SPLIT = 4, 6, 9, "dirichlet:0.2"


@dataclass(frozen=True)
class Prototypes(Baseline):
    """Clients send class means with noise of their own; the server takes their plain mean, whoever held how many."""

    noise: float = 0.1
    fails: bool = False

    sends: ClassVar[str] = "class means, unweighted"

    def local(self, X: Any, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:
        assert len(y) > 0
        assert X.dtype == np.float64
        counts = np.bincount(y, minlength=n_classes)
        means = np.stack([X[y == label].mean(axis=0) for label in np.flatnonzero(counts)])
        return Upload({"means": means + self.noise * np.random.default_rng(seed).normal(size=means.shape)}, counts)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:
        del seed
        if self.fails:
            raise NotEnoughDataError("these clients know too little")
        totals, holders = np.zeros((CLASSES, dim)), np.zeros(CLASSES)
        for upload in uploads:
            here = np.flatnonzero(upload.counts)
            totals[here] += upload.arrays["means"]
            holders[here] += 1
        means = totals / np.maximum(holders, 1)[:, None]
        return LinearClassifier(weights=means.T, bias=-0.5 * (means**2).sum(axis=1), present=holders > 0)


PRESETS = {
    "protos": Preset("protos", Prototypes, "means of means", "nobody"),
    "protos-loud": Preset("protos-loud", Prototypes, "means of noisy means", "nobody", {"noise": 2.0}),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Put two small baselines in the place of the real ones."""
    monkeypatch.setattr(BASELINES, "_all", lambda: PRESETS)
    return PRESETS


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(2)
    means = rng.normal(scale=1.3, size=(CLASSES, DIM))

    def draw(n: int) -> Samples:
        y = rng.integers(CLASSES, size=n)
        return Samples((means[y] + rng.normal(size=(n, DIM))).astype(np.float32), y)

    return Features("toy", CLASSES, draw(300), draw(200))


@pytest.fixture
def config(features: Features, tmp_path: Path) -> StudySettings:
    train, test = features.train, features.test
    np.savez(tmp_path / "toy.npz", x_train=train.X, y_train=train.y, x_test=test.X, y_test=test.y)
    heads = ("gh-lda", "protos", "fedncm")
    return StudySettings(data=f"npz:{tmp_path / 'toy.npz'}", heads=heads, clients=(CLIENTS,), splits=(SPLIT,), seeds=2)


def by_hand(features: Features, seed: int, baseline: Baseline) -> tuple[Classifier, list[Upload]]:
    split = parse_split(SPLIT).apply(features.train.y, n_clients=CLIENTS, seed=seed)
    uploads = [
        baseline.local(
            features.train.X[mine].astype(np.float64),
            features.train.y[mine],
            n_classes=CLASSES,
            seed=client_seed(seed, client),
        )
        for client, mine in enumerate(split)
        if len(mine)
    ]
    return baseline.combine(uploads, dim=DIM, seed=seed), uploads


@pytest.mark.usefixtures("tiny")
def test_a_baseline_gets_the_clients_of_the_heads(features: Features) -> None:
    rows = simulate(features, ["protos", "gh-lda"], clients=[CLIENTS], splits=[SPLIT], seeds=3, first_seed=5).rows
    compared, head = rows
    assert (compared.baseline, head.baseline) == (True, False)
    assert (compared.sends, compared.hyper) == ("class means, unweighted", {"noise": 0.1, "fails": False})
    for ours, theirs in zip(compared.outcomes, head.outcomes, strict=True):
        classifier, uploads = by_hand(features, ours.seed, Prototypes())
        assert ours.accuracy == (classifier.predict(features.test.X) == features.test.y).mean()
        assert (ours.seed, ours.clients) == (theirs.seed, theirs.clients)
        assert ours.up_floats == sum(upload.arrays["means"].size for upload in uploads)
        assert ours.up_counts == sum(int((upload.counts > 0).sum()) for upload in uploads) == theirs.up_counts
        assert ours.client_seconds is not None
        assert ours.client_seconds > 0
        assert ours.fit_seconds is not None
        assert theirs.client_seconds is None


@pytest.mark.usefixtures("tiny")
def test_clients_without_a_sample_do_nothing(features: Features) -> None:
    (row,) = simulate(features, ["protos"], clients=[200], splits=["dirichlet:0.05"], seeds=1).rows
    assert row.accuracy is not None
    assert row.outcomes[0].clients < 200


def test_every_client_has_a_seed_of_its_own() -> None:
    seeds = [client_seed(seed, client) for seed in range(20) for client in range(50)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.usefixtures("tiny")
def test_a_baseline_behind_a_projection_sends_fewer_numbers(features: Features) -> None:
    full, projected = simulate(features, ["protos"], clients=[4], splits=["iid"], projections=[None, 3], seeds=1).rows
    assert projected.up_bytes_total == full.up_bytes_total / 2
    assert projected.accuracy is not None
    assert projected.accuracy > 0.3


@pytest.mark.usefixtures("tiny")
def test_hyper_parameters_and_other_settings(features: Features) -> None:
    sweep: dict[str, Any] = {"clients": [3], "splits": ["iid"], "shrinkages": ["none", "absolute:1"], "seeds": 1}
    rows = simulate(features, ["protos", "gh-lda"], **sweep, hyper={"protos": {"noise": 0.0}}).rows
    compared = [row for row in rows if row.baseline]
    assert [row.hyper["noise"] for row in compared] == [0.0, 0.0]
    assert compared[0].outcomes == compared[1].outcomes, "a shrinkage does not concern it, and it is run once"
    with pytest.raises(InputError, match="baseline 'protos' has no hyper-parameter 'rank': it takes noise, fails"):
        simulate(features, ["protos"], hyper={"protos": {"rank": 3}})


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"hyper": {"protos": {"fails": True}}}, "these clients know too little"),
        ({"memory_limit": 100.0}, "what its first 1 clients send takes"),
    ],
)
def test_a_baseline_that_cannot_be_run_has_a_row_with_the_reason(
    features: Features, how: dict[str, Any], words: str
) -> None:
    (row,) = simulate(features, ["protos"], clients=[3], splits=["iid"], seeds=1, **how).rows
    assert (row.accuracy, row.fit_seconds) == (None, None)
    assert words in row.reasons[0]


# -------------------------------------------------------------------------------------------------- names


@pytest.mark.usefixtures("tiny")
def test_words_for_many() -> None:
    assert all_names(["all"]) == standard_heads()
    assert all_names(["gh-lda", "baselines", "protos"]) == ("gh-lda", "protos", "protos-loud")
    assert set(choose_methods(all_names(["all", "baselines"]), {})) == {*standard_heads(), *PRESETS}


@pytest.mark.usefixtures("tiny")
def test_where_only_a_head_will_do_a_baseline_is_refused_as_one() -> None:
    with pytest.raises(InputError, match="'protos' is a baseline, for comparison in simulations only"):
        require_head("protos")
    with pytest.raises(InputError, match="unknown head 'protos'"):
        choose_heads(["gh-lda", "protos"], {})
    with pytest.raises(InputError, match="unknown head 'proto'"):
        choose_methods(["proto"], {})


@pytest.mark.usefixtures("tiny")
def test_rounds_of_participation_are_for_heads(config: StudySettings) -> None:
    with pytest.raises(InputError, match=r"rounds of participation are for heads.* protos cannot take part"):
        check_study(replace(config, participation=("2",)))
    check_study(replace(config, participation=("2",), heads=("gh-lda",)))


# -------------------------------------------------------------------------------------------------- jobs


@pytest.mark.usefixtures("tiny")
def test_a_job_saves_resumes_and_says_why_there_is_no_digest(
    config: StudySettings, features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_job(config, tmp_path / "out", cache_dir=False)
    detail = found.document["details"][1]
    assert (detail["head"], detail["digest"], detail["statistics_digest"]) == ("protos", None, None)
    assert detail["digest_reason"].startswith("the clients of a baseline send what does not add up")
    assert found.document["details"][0]["digest"]
    row = found.document["rows"][1]
    assert (row["baseline"], row["sends"], row["detail"]) == (True, "class means, unweighted", 1)
    assert np.trace(detail["confusion"]) / 200 == pytest.approx(row["seeds"][0]["accuracy"])
    loaded = fm.load(tmp_path / "out" / "heads" / "protos.safetensors")
    assert (loaded.info["head"], loaded.info["baseline"]) == ("protos", True)
    assert (loaded.predict(features.test.X) == features.test.y).mean() == row["seeds"][0]["accuracy"]
    lines = (tmp_path / "out" / "results.csv").read_text("utf-8").splitlines()
    place = lines[0].split(",").index("baseline")
    assert [line.split(",")[place] for line in lines[3:5]] == ["True", "True"]
    monkeypatch.setattr("fedmoments.study.simulation.Federation.outcome", None)
    again = run_job(config, tmp_path / "out", cache_dir=False)
    assert again.resumed == 6
    assert again.document["rows"][1]["seeds"] == row["seeds"]


# -------------------------------------------------------------------------------------------------- notes


@pytest.fixture
def warning_head(monkeypatch: pytest.MonkeyPatch) -> None:
    really = NearestMean.solve

    def solve(self: NearestMean, stats: Any) -> Classifier:
        for _ in range(2):
            warnings.warn("the teacher teaches nothing: give class covariances", FitWarning, stacklevel=2)
        return really(self, stats)

    monkeypatch.setattr(NearestMean, "solve", solve)


@pytest.mark.usefixtures("warning_head", "tiny")
def test_what_a_head_warns_of_stands_in_its_row_once_and_survives_a_resumed_job(
    config: StudySettings, tmp_path: Path
) -> None:
    for resumed in (0, 6):
        found = run_job(config, tmp_path / "out", cache_dir=False)
        assert found.resumed == resumed
        rows = {row["head"]: row for row in found.document["rows"]}
        assert rows["fedncm"]["notes"] == ["the teacher teaches nothing: give class covariances"]
        assert [len(each["notes"]) for each in rows["fedncm"]["seeds"]] == [1, 1]
        assert (rows["gh-lda"]["notes"], rows["protos"]["notes"]) == ([], [])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count("the teacher teaches nothing: give class covariances") == 1


@pytest.mark.usefixtures("warning_head")
def test_rounds_do_not_warn_again(config: StudySettings) -> None:
    found = run_job(replace(config, heads=("fedncm",), participation=("2",)), cache_dir=False)
    assert len(found.document["rounds"]) == 2


def test_other_warnings_pass_and_errors_too() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with fit_notes() as notes:
            warnings.warn("numbers are odd", RuntimeWarning, stacklevel=1)
            warnings.warn("made do", FitWarning, stacklevel=1)
    assert notes == ["made do"]
    assert [(each.category, str(each.message)) for each in seen] == [(RuntimeWarning, "numbers are odd")]
    with pytest.raises(RuntimeWarning, match="as errors"), fit_notes():
        warnings.warn("as errors", RuntimeWarning, stacklevel=1)


# -------------------------------------------------------------------------------------------------- the real ones


@pytest.mark.parametrize("name", baseline_names())
def test_every_baseline_runs_in_the_harness(
    features: Features, name: str, config: StudySettings, tmp_path: Path
) -> None:
    job = replace(config, heads=("gh-lda", name), splits=("dirichlet:0.5",), seeds=1)
    found = run_job(job, tmp_path / "out", cache_dir=False)
    row = found.report.rows[1]
    assert row.baseline
    assert row.reasons == ()
    assert row.up_bytes_total > 0
    loaded = fm.load(tmp_path / "out" / "heads" / f"{name}.safetensors")
    assert (loaded.predict(features.test.X) == features.test.y).mean() == row.outcomes[0].accuracy
