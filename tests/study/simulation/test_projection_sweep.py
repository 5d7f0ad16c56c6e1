"""Random projection in a simulation: what the library gives behind the same public map, and GH-OFL's bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import fedmoments as fm
from fedmoments.core.costs import kibibytes
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import RandomProjection
from fedmoments.core.statistics import Accumulator, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study, dimensions_of
from fedmoments.study.jobs import run_job
from fedmoments.study.simulation import simulate, upload_size
from fedmoments.study.simulation.methods import parse_projection

DIM, CLASSES, CLIENTS, SPLIT = 40, 5, 7, "dirichlet:0.5"
HEADS = ("fedncm", "fedcof", "fed3r", "gh-nb", "gh-lda", "gh-qda")


def draw(rng: np.random.Generator, means: Any, n: int) -> Samples:
    y = rng.integers(len(means), size=n)
    return Samples((means[y] + rng.normal(size=(n, means.shape[1]))).astype(np.float32), y)


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(8)
    means = rng.normal(scale=0.6, size=(CLASSES, DIM))
    return Features("toy", CLASSES, draw(rng, means, 350), draw(rng, means, 250))


@pytest.fixture
def file(features: Features, tmp_path: Path) -> str:
    train, test = features.train, features.test
    np.savez(tmp_path / "toy.npz", x_train=train.X, y_train=train.y, x_test=test.X, y_test=test.y)
    return f"npz:{tmp_path / 'toy.npz'}"


@pytest.fixture
def job(file: str) -> Callable[..., Any]:
    def run(out: Path | None = None, **changes: Any) -> Any:
        values = {"heads": HEADS, "clients": (CLIENTS,), "splits": (SPLIT,), "seeds": 1, "seed": 3, **changes}
        return run_job(StudySettings(data=file, **values), out, cache_dir=False)

    return run


def parties(features: Features, seed: int) -> dict[Any, Any]:
    split = parse_split(SPLIT).apply(features.train.y, n_clients=CLIENTS, seed=seed)
    return {k: (features.train.X[mine], features.train.y[mine]) for k, mine in enumerate(split)}


@pytest.mark.parametrize("head", [*HEADS, "fed3r-rf"])
def test_every_head_gets_the_accuracy_of_fit_behind_the_same_map(features: Features, head: str) -> None:
    hyper: dict[str, Any] = {"n_features": 30} if head == "fed3r-rf" else {}
    sweep: dict[str, Any] = {"clients": [CLIENTS], "splits": [SPLIT], "projections": [None, 12, 5]}
    rows = simulate(features, [head], **sweep, seeds=2, first_seed=4, hyper={head: hyper}).rows
    assert [row.setting.projection for row in rows] == [None, 12, 5]
    for row in rows:
        for outcome in row.outcomes:
            k, seed = row.setting.projection, outcome.seed
            feature_map = RandomProjection(DIM, k, seed) if k else None
            direct = fm.fit(head, parties(features, seed), n_classes=CLASSES, feature_map=feature_map, **hyper)
            expected = (direct.predict(features.test.X) == features.test.y).mean()
            assert outcome.accuracy == pytest.approx(expected)


def test_the_spread_over_seeds_holds_the_luck_of_the_projection(features: Features) -> None:
    rows = simulate(features, ["gh-lda"], clients=[CLIENTS], splits=[SPLIT], projections=[None, 4], seeds=3).rows
    full, projected = rows
    assert full.accuracy_std == 0.0
    assert projected.accuracy_std is not None
    assert projected.accuracy_std > 0.0
    assert projected.accuracy is not None
    assert full.accuracy is not None
    assert projected.accuracy < full.accuracy


def test_sketch_then_aggregate_is_aggregate_then_sketch(features: Features) -> None:
    """B^z = RᵀBR and A^z = AR: the statistics of a projected federation are those of the full one, projected."""
    from fedmoments.study.simulation import Federation

    split = parse_split(SPLIT).apply(features.train.y, n_clients=CLIENTS, seed=0)
    projection = RandomProjection(DIM, 9, 0)
    head = fm.make_head("gh-lda")
    full = Federation(features, split, [head], fixed_point=None).received(head)
    sketched = Federation(features, split, [head], feature_map=projection, fixed_point=None).received(head)
    R = projection.matrix
    np.testing.assert_allclose(sketched.sums, full.sums @ R, atol=1e-9)
    np.testing.assert_allclose(sketched.gram, R.T @ full.gram @ R, atol=1e-8)


# -------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("k", [512, 256, 128, 64])
def test_an_upload_of_all_classes_has_the_size_of_the_formulas(k: int) -> None:
    """NB C(1+2k), LDA C(1+k)+k(k+1)/2, QDA C(1+k+k(k+1)/2) numbers a client, counts included."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    part = Samples(rng.normal(size=(24, 520)), y)
    wide = Features("wide", 3, part, part)
    heads = ["gh-nb", "gh-lda", "gh-qda"]
    rows = simulate(wide, heads, clients=[2], splits=["iid"], projections=[k], seeds=1).rows
    C = 3
    formulas = [C * (1 + 2 * k), C * (1 + k) + k * (k + 1) // 2, C * (1 + k + k * (k + 1) // 2)]
    for row, numbers in zip(rows, formulas, strict=True):
        (outcome,) = row.outcomes
        assert (outcome.clients, outcome.up_counts) == (2, 2 * C), "every client holds every class"
        assert outcome.up_counts + outcome.up_floats == 2 * numbers
        assert row.up_bytes_per_client == 4 * (numbers - C)


@pytest.mark.parametrize(
    ("moments", "k", "classes", "kib"),
    [
        (("gram", "class_squares"), 512, 100, 913.4),
        (("gram", "class_squares"), 512, 4, 529.0),
        (("class_squares",), 256, 100, 200.4),
        (("class_squares",), 256, 4, 8.0),
        ((), 128, 100, 50.4),
        ((), 128, 4, 2.0),
    ],
)
def test_gh_ofl_table_8_bytes_of_ten_clients(moments: tuple[str, ...], k: int, classes: int, kib: float) -> None:
    size = upload_size(StatisticsSpec.of(*moments), k, csr_array(np.ones((10, classes), np.int64)))
    assert round(kibibytes(4 * size.numbers) / 10, 1) == kib


# -------------------------------------------------------------------------------------------------- jobs


def test_saved_classifiers_carry_the_map_and_predict_as_simulated(job: Any, features: Features, tmp_path: Path) -> None:
    found = job(tmp_path / "out", projections=("11", "full"))
    by_head = {row.head: row for row in found.report.rows if row.setting.projection == 11}
    for name in HEADS:
        loaded = fm.load(tmp_path / "out" / "heads" / f"{name}.safetensors")
        assert loaded.feature_map == RandomProjection(DIM, 11, 3)
        accuracy = (loaded.predict(features.test.X) == features.test.y).mean()
        assert accuracy == pytest.approx(by_head[name].outcomes[0].accuracy)
    fingerprints = {loaded.info["fingerprint"], found.document["data"]["fingerprint"]}
    assert len(fingerprints) == 2, "a classifier behind a map has the fingerprint of that map"


def test_digests_are_those_of_a_federation_behind_the_same_map(job: Any, features: Features) -> None:
    """Every client maps its own samples a block at a time and measures them in fixed point, as a node does."""
    projection = RandomProjection(DIM, 11, 3)
    spec = fm.spec_for(*HEADS)
    parts = []
    for X, y in parties(features, 3).values():
        if len(y):
            accumulator = Accumulator(spec, n_classes=CLASSES, dim=11, seed=3)
            for block in blocks(len(y)):
                accumulator.update(projection(X[block]), y[block])
            parts.append(accumulator.statistics().quantized(fm.FixedPoint()))
    merged = fm.Statistics.merge(parts)
    details = job(projections=("11",)).document["details"]
    assert [detail["head"] for detail in details] == list(HEADS)
    for detail in details:
        head = fm.make_head(detail["head"])
        assert detail["digest"] == head.fit(merged.restricted(head.needs)).mapped(projection).digest()
        assert detail["digest_reason"] is None


def test_a_job_is_resumed_by_its_projection(job: Any, tmp_path: Path) -> None:
    job(tmp_path, heads=("fedncm",), projections=("full", "8"))
    assert job(tmp_path, heads=("fedncm",), projections=("8",)).resumed == 1
    assert job(tmp_path, heads=("fedncm",)).resumed == 1
    assert job(tmp_path, heads=("fedncm",), projections=("9",)).resumed == 0


def test_the_last_round_is_one_shot_behind_the_projection(job: Any) -> None:
    found = job(heads=("fedcof", "gh-lda"), projections=("8",), participation=("3",), seeds=2)
    once = {(row.head, each.seed): each.accuracy for row in found.report.rows for each in row.outcomes}
    assert len(found.document["rounds"]) == 4
    for curve in found.document["rounds"]:
        assert curve["points"][-1]["accuracy"] == pytest.approx(once[curve["head"], curve["seed"]])


def test_bias_is_that_of_what_is_measured(job: Any) -> None:
    assert job(heads=("fedcof",), projections=("8",)).document["bias"] != job(heads=("fedcof",)).document["bias"]


# -------------------------------------------------------------------------------------------------- refusals


def test_a_projection_to_more_dimensions_is_refused(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(features, ["fedncm"], clients=[2], projections=[DIM], seeds=1)
    monkeypatch.setattr(fm.Ledger, "of", None)
    with pytest.raises(
        InputError, match=f"have {DIM}; {DIM + 1} were requested: ask for 1 to {DIM}, or ask for 'full'"
    ):
        simulate(features, ["fedncm"], clients=[2], projections=[4, DIM + 1])


@pytest.mark.parametrize("word", ["0", "-3", "many", "", "1.5", "²", "Full"])
def test_what_is_no_projection_is_refused(word: str) -> None:
    with pytest.raises(InputError, match=r"a projection is typed as full or as a number of dimensions from 1"):
        parse_projection(word)
    with pytest.raises(InputError, match="a projection is typed as"):
        check_study(StudySettings(data="nowhere", projections=("full", word)))


def test_numbers_in_a_configuration_are_dimensions() -> None:
    config = StudySettings.from_toml("projections = ['full', 128]")
    assert (config.projections, dimensions_of(config)) == (("full", "128"), (None, 128))
    assert StudySettings.from_toml(config.to_toml()) == config
    with pytest.raises(InputError, match="'projections' must be of type str; True arrived"):
        StudySettings.from_toml("projections = [true]")
