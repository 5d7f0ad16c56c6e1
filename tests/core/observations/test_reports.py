"""Every kind of result by the same means: frames, pivots, LaTeX, paired comparisons, files; from the public names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import FileFormatError, InputError
from fedmoments.settings.setting import SWEPT
from fedmoments.settings.study import StudySettings, TuningStudy
from fedmoments.study.jobs import run_job
from fedmoments.study.jobs.personal_simulation import simulate_personalisation
from fedmoments.study.jobs.run import COLUMNS
from fedmoments.study.jobs.tuning import run_tuning


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(5)
    means = rng.normal(size=(4, 12))
    y = rng.integers(4, size=420)
    X = means[y] + rng.normal(size=(420, 12))
    path = tmp_path_factory.mktemp("reports") / "toy.npz"
    np.savez(path, x_train=X[:300], y_train=y[:300], x_test=X[300:], y_test=y[300:])
    return f"npz:{path}"


@pytest.fixture(scope="module")
def reports(data: str) -> dict[str, fm.Report]:
    """Return a report of every kind: a table with rounds and a budget curve, tuning, personal heads."""
    common: dict[str, Any] = {"data": data, "clients": (6,), "splits": ("iid",), "seeds": 3}
    study = StudySettings(**common, heads=("fedncm", "fedcof", "sketch"), participation=("3",), budget_curve=True)
    tuning = TuningStudy(**common, starts=("random", "fedncm"), optimisers=("fedavg", "fedadam"), plan={"rounds": 3})
    return {
        "simulation": run_job(study, cache_dir=False).report,
        "tuning": run_tuning(tuning, cache_dir=False).report,
        "personal": simulate_personalisation(StudySettings(**common, heads=("fedncm", "gh-lda")), cache_dir=False),
    }


#: Of every kind: the quantity, two keys that tell its observations apart, and two methods to compare.
KINDS = [
    ("simulation", "accuracy", ("head", "clients"), ("fedcof", "fedncm")),
    ("simulation", "accuracy by budget", ("head", "budget"), ("sketch", "fedcof")),
    ("simulation", "accuracy by round", ("head", "round"), ("fedcof", "fedncm")),
    ("tuning", "accuracy", ("head", "optimiser"), ("fedncm", "random")),
    ("tuning", "accuracy by round", ("head", "round"), ("fedncm", "random")),
    ("personal", "accuracy", ("head", "variant"), ("gh-lda", "fedncm")),
]


@pytest.mark.parametrize(("kind", "quantity", "keys", "methods"), KINDS, ids=str)
def test_frames_pivots_latex_and_comparisons_work_for_every_kind(
    reports: dict[str, fm.Report], kind: str, quantity: str, keys: tuple[str, str], methods: tuple[str, str]
) -> None:
    results = reports[kind].results
    where: dict[str, Any] = {"quantity": quantity}
    if (kind, quantity) == ("tuning", "accuracy by round"):
        where["optimiser"] = "fedavg"
    pandas = pytest.importorskip("pandas")
    frame = results.to_frame()
    mine = frame[frame["quantity"] == quantity]
    assert set(methods) <= set(mine["head"])
    assert pandas.api.types.is_numeric_dtype(mine["value"])
    table = results.pivot(*keys, **where)
    for (row, column), cell in table.cells.items():
        shown = mine[(mine["head"] == row) & (mine[keys[1]].isna() if column is None else mine[keys[1]] == column)]
        for key, value in where.items():
            shown = shown[shown[key] == value]
        assert cell.mean == pytest.approx(shown["value"].mean())
    text = table.to_latex()
    assert text.startswith(r"\begin{tabular}")
    assert text.count(r"\\") == len(table.row_values) + 1
    compared = results.compare(*methods, **where)
    assert compared
    for comparison in compared:
        pair = [
            next(each for each in results.at(**where, head=name).observations if each.place == comparison.place)
            for name in methods
        ]
        apart = [one - other for one, other in zip(pair[0].values, pair[1].values, strict=True) if one and other]
        assert comparison.differences == pytest.approx(apart)
        assert (comparison.interval is None) == (len(apart) < 2)


@pytest.mark.parametrize("kind", ["simulation", "tuning", "personal"])
def test_a_report_that_was_written_is_read_back_with_the_same_observations(
    reports: dict[str, fm.Report], kind: str, tmp_path: Path
) -> None:
    reports[kind].write(tmp_path / "results.json")
    again = fm.read_report(tmp_path / "results.json")
    assert again.results == reports[kind].results
    assert again.to_dict() == reports[kind].to_dict()


def test_points_of_tuning_and_budgets_are_those_of_the_curves(reports: dict[str, fm.Report]) -> None:
    tuning, curves = reports["tuning"].tuning, reports["simulation"].budget_curve
    assert tuning is not None
    assert curves is not None
    for curve in tuning.curves:
        for point in curve.points:
            place = {"head": curve.start, "optimiser": curve.optimiser, "round": point.round}
            [observed] = reports["tuning"].results.at(**place, quantity="accuracy by round").observations
            assert observed.values[observed.seeds.index(curve.seed)] == point.accuracy
    [row] = [row for row in reports["simulation"].rows if row.head == "fedncm"]
    published = next(point for curve in curves.curves if curve.head == "fedncm" for point in curve.points if point.own)
    assert published.accuracies == tuple(row.accuracies)  # the same federation, measured twice


def test_a_swept_part_is_one_field(reports: dict[str, fm.Report]) -> None:
    setting = reports["simulation"].rows[0].setting
    assert set(SWEPT) == set(setting.to_dict()) < set(COLUMNS)
    assert set(SWEPT) < set(reports["simulation"].rows[0].to_dict())
    for key, part in SWEPT.items():
        assert part.name
        assert setting.word(key)
        assert setting.spelled([key])


def test_what_is_no_report_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"rows": [')
    with pytest.raises(FileFormatError, match=r"results\.json is not JSON of ours"):
        fm.read_report(path)
    path.write_text('{"rows": [], "format": 1}')
    with pytest.raises(InputError, match="format 1, but this release reads format 2"):
        fm.read_report(path)
    path.write_text(json.dumps({"rows": [], "tuning": {"stage": 5}}))
    with pytest.raises(FileFormatError, match=r"results\.json holds 5 as Tuning\.stage"):
        fm.read_report(path)
