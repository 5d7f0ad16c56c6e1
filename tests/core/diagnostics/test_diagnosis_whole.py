"""The whole diagnosis: from whatever was measured, ready for JSON, never NaN; and of the data of a job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.diagnostics import NEEDS, Diagnostics, diagnose
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import details, run_job
from fedmoments.study.jobs.diagnostics import diagnose_data, diagnose_features
from fedmoments.study.simulation import Point
from fedmoments.study.simulation.points import make_split

Array = npt.NDArray[Any]


def draw(seed: int = 0, n: int = 400, d: int = 5, n_classes: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    return rng.normal(size=(n, d)) + 3 * np.eye(n_classes, d)[y], y


def ledger(spec: StatisticsSpec, **options: Any) -> Ledger:
    X, y = draw(**options)
    return Ledger.of(X, y, np.arange(len(y)) % 9, spec, n_classes=4)


def strict(found: Diagnostics) -> dict[str, Any]:
    """Return what it is as JSON, which must hold no NaN and come back the same."""
    document: dict[str, Any] = to_plain(found)
    again: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    assert to_plain(from_plain(Diagnostics, again)) == document
    return again


def test_everything_is_known_from_what_is_said_to_be_needed() -> None:
    found = diagnose(ledger(NEEDS), test=draw(1))
    assert (found.unknown, found.missing) == ((), ())
    document = strict(found)
    assert {*document["spectra"]} == {*document["curves"]} == {"exact", "free"}
    assert document["curves"]["exact"]["accuracy"][-1] > 0.8
    columns = [*document["holdings"].values(), document["bias"]["relative"], *document["neighbours"].values()]
    assert all(len(column) == 4 for column in columns)
    assert found.holdings.rows == 36
    assert document["holdings"]["held_by"] == [9] * 4


def test_holdings_are_counted_cell_by_cell() -> None:
    rng = np.random.default_rng(4)
    y, clients = rng.integers(0, 3, size=60), rng.integers(0, 12, size=60)
    found = diagnose(Ledger.of(rng.normal(size=(60, 2)), y, clients, NEEDS, n_classes=4)).holdings
    cells = [[int(((y == c) & (clients == k)).sum()) for k in range(12)] for c in range(4)]
    assert found.counts.tolist() == [sum(row) for row in cells]
    assert found.held_by is not None
    assert found.singles is not None
    assert found.held_by.tolist() == [sum(n > 0 for n in row) for row in cells]
    assert found.singles.tolist() == [row.count(1) for row in cells]
    assert 0 < found.singles.sum() < found.held_by.sum()
    assert found.single_share == pytest.approx(found.singles.sum() / found.held_by.sum())
    assert found.imbalance == pytest.approx(found.counts[:3].max() / found.counts[:3].min())


@pytest.mark.parametrize(
    ("moments", "known", "missing"),
    [
        ((), set(), {"class_squares", "class_thirds", "class_fourths", "gram", "client_means", "class_norms"}),
        (("client_means",), {"free"}, {"class_squares", "class_thirds", "class_fourths", "gram", "class_norms"}),
        (("gram",), {"exact"}, {"class_squares", "class_thirds", "class_fourths", "client_means", "class_norms"}),
        (("class_grams",), {"exact"}, {"class_thirds", "class_fourths", "client_means"}),
        (("class_grams", "class_thirds", "class_fourths", "client_means"), {"exact", "free"}, set()),
    ],
)
def test_what_is_missing_is_named_and_the_rest_is_known(
    moments: tuple[str, ...], known: set[str], missing: set[str]
) -> None:
    found = diagnose(ledger(StatisticsSpec.of(*moments)))
    assert set(found.missing) == missing
    assert {*found.spectra} == {*found.curves} == known
    assert (found.neighbours is not None) == bool(known)
    assert (found.bias is None) == (not {"client_means", "class_norms"} <= found_moments(moments))
    strict(found)
    together = StatisticsSpec.of(*moments) | StatisticsSpec.of(*found.missing)
    assert diagnose(ledger(together)).missing == (), "what is said to be missing suffices"


def found_moments(moments: tuple[str, ...]) -> frozenset[str]:
    return StatisticsSpec.of(*moments).moments


def test_pooled_and_kept_apart_agree_on_what_both_know() -> None:
    whole = ledger(NEEDS)
    apart, pooled = diagnose(whole), diagnose(whole.pool())
    assert pooled.spectra["exact"] == apart.spectra["exact"]
    assert pooled.curves["exact"] == apart.curves["exact"]
    assert apart.gaussianity is not None
    assert pooled.gaussianity is not None
    assert pooled.gaussianity.kurtosis.mean == apart.gaussianity.kurtosis.mean
    assert (pooled.bias, pooled.holdings.held_by) == (None, None)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((1, 3)), [2]),  # one sample
        (np.eye(3), [0, 1, 2]),  # one sample a class: nothing inside classes
        (np.zeros((8, 3)), [0, 0, 1, 1, 2, 2, 3, 3]),  # nothing varies
        (np.random.default_rng(0).normal(size=(9, 3)), [1] * 9),  # one class
        (np.random.default_rng(0).normal(size=(9, 1)), [0, 1] * 4 + [3]),  # one dimension
    ],
)
def test_hardly_any_data_give_reasons_and_no_numbers_that_json_does_not_know(X: Array, y: list[int]) -> None:
    labels = np.array(y)
    found = diagnose(Ledger.of(X, labels, np.arange(len(y)) % 2, NEEDS, n_classes=4), test=(X, labels))
    document = strict(found)
    assert document["n_samples"] == len(y)
    assert all(each.why for each in found.unknown)


def test_no_sample_at_all_is_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="no sample"):
        diagnose(Statistics.zero(NEEDS, n_classes=3, dim=2))


def test_test_samples_of_another_space_are_refused() -> None:
    with pytest.raises(InputError, match=r"features \(n, 5\) and labels \(n,\)"):
        diagnose(ledger(NEEDS), test=(np.ones((4, 6)), np.zeros(4, int)))


# ---------------------------------------------------------------------------------------------- of a job


@pytest.fixture
def features() -> Features:
    return Features("toy", 4, Samples(*draw(0)), Samples(*draw(1)), class_names=("a", "b", "c", "d"))


def test_a_federation_is_measured_as_its_setting_says(features: Features) -> None:
    split = make_split(features, 6, "iid", 0)
    one = diagnose_features(features, split, Point(6, "iid"))
    two = diagnose_features(features, split, Point(6, "iid", 2))
    behind = diagnose_features(features, split, Point(6, "iid", projection=3), seed=1)
    assert one.holdings.rows == 24
    assert two.holdings.rows == 48
    assert (one.dim, behind.dim) == (5, 3)
    assert behind.curves["exact"].full_accuracy < one.curves["exact"].full_accuracy  # type: ignore[operator]


@pytest.fixture
def file(tmp_path: Path, features: Features) -> str:
    train, test = features.train, features.test
    np.savez(tmp_path / "f.npz", x_train=train.X, y_train=train.y, x_test=test.X, y_test=test.y)
    return str(tmp_path / "f.npz")


def test_a_simulation_skips_what_would_take_long_and_says_so(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StudySettings(data=file, heads=("fedncm",), clients=(6,), splits=("iid",), seeds=1)
    looked = run_job(config, cache_dir=False).document["diagnosis"]["diagnostics"]
    assert looked["spectra"]["exact"]
    monkeypatch.setattr(details, "MOST_DIM", 4)
    skipped = run_job(config, cache_dir=False).document
    assert "5 dimensions, more than the 4" in skipped["diagnosis"]["reason"]
    assert skipped["diagnosis"]["diagnostics"] is None
    assert skipped["bias"]["overall"] == pytest.approx(looked["bias"]["overall"])
    projected = run_job(replace(config, projections=("3",)), cache_dir=False).document["diagnosis"]
    assert projected["diagnostics"]["dim"] == 3


def test_a_simulation_and_a_diagnosis_find_the_same(file: str, tmp_path: Path) -> None:
    config = StudySettings(data=file, heads=("fedncm",), clients=(7,), splits=("iid",), seeds=1, seed=3)
    simulated = run_job(config, cache_dir=False).document["diagnosis"]
    found = diagnose_data(config, tmp_path / "out", command="fedmoments diagnose …", cache_dir=False)
    assert found.document["diagnosis"] == simulated
    written = json.loads((tmp_path / "out" / "diagnostics.json").read_text("utf-8"))
    assert written == json.loads(json.dumps(found.document))
    assert [path.name for path in found.files] == ["report.html", "diagnostics.json"]
    assert (tmp_path / "out" / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert written["rows"] == []
    assert "heads" not in written["config"]


def test_lda_of_a_diagnosis_is_the_preset_of_a_simulation_under_shift(tmp_path: Path) -> None:
    """Both sources: free covariances have balanced priors, exact ones those of the data."""
    rng = np.random.default_rng(5)
    y = np.concatenate([np.zeros(300, int), rng.integers(1, 4, size=100)])
    clients = np.arange(400) % 4
    X = rng.normal(size=(400, 5)) + 2 * np.eye(4, 5)[y] + 15 * rng.normal(size=(4, 5))[clients]
    half = rng.permutation(400)
    train, test = half[:300], half[300:]
    np.savez(
        tmp_path / "f.npz", x_train=X[train], y_train=y[train], domain_train=clients[train], x_test=X[test],
        y_test=y[test],
    )  # fmt: skip
    config = StudySettings(data=str(tmp_path / "f.npz"), heads=("gh-lda", "lda-free"), splits=("domain",), seeds=1)
    document = run_job(config, cache_dir=False).document
    fisher = document["diagnosis"]["diagnostics"]["curves"]
    for row, source, priors in zip(document["rows"], ("exact", "free"), ("data", "balanced"), strict=True):
        assert fisher[source]["full_accuracy"] == pytest.approx(row["accuracy"])
        assert fisher[source]["priors"] == priors


def test_only_the_first_of_swept_settings_is_diagnosed(file: str) -> None:
    config = StudySettings(data=file, clients=(5, 9), splits=("iid", "dirichlet:0.1"), means_per_client=(2, 1))
    about = diagnose_data(config, cache_dir=False).document["diagnosis"]
    assert (about["clients"], about["split"], about["means_per_client"]) == (5, "iid", 2)
