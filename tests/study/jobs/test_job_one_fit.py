"""The row of the table, its details and the saved classifier are one fit, from statistics that are measured once."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples.splits.scheme import SplitRecipe
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import JobResult, details, run_job
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.sweep import Held


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often all clients were measured and samples split, and how often a federation fitted a head."""
    counted: Counter[str] = Counter()

    def count(what: str, function: Any) -> Any:
        def counting(*given: Any, **more: Any) -> Any:
            counted[what] += 1
            return function(*given, **more)

        return counting

    monkeypatch.setattr(fm.Ledger, "of", staticmethod(count("measured", fm.Ledger.of)))
    monkeypatch.setattr(SplitRecipe, "apply", count("split", SplitRecipe.apply))
    monkeypatch.setattr(Federation, "_fit", count("fitted", Federation._fit))
    return counted


def test_one_head_in_one_setting_is_measured_split_and_fitted_once(features_file: str, calls: Counter[str]) -> None:
    config = StudySettings(data=features_file, heads=("fedcof",), clients=(10,), seeds=1)
    found = run_job(config, Path("out"))
    assert calls == {"measured": 1, "split": 1, "fitted": 1}
    assert found.document["diagnosis"]["diagnostics"]["measured"]
    assert found.document["bias"]["overall"] is not None
    assert found.document["details"][0]["digest"] == found.classifiers["fedcof"].digest()


def test_heads_rounds_and_details_share_one_measurement(features_file: str, calls: Counter[str]) -> None:
    config = StudySettings(
        data=features_file, heads=("fedcof", "gh-lda"), clients=(10,), seeds=1, participation=("10",), splits=("iid",)
    )
    found = run_job(config)
    assert calls["measured"] == calls["split"] == 1, "all clients take part in the first round"
    last = {curve["head"]: curve["points"][-1]["accuracy"] for curve in found.document["rounds"]}
    assert last == {row.head: row.accuracy for row in found.report.rows}
    for row in found.report.rows:
        [observed] = found.results.at(head=row.head, quantity="accuracy by round", seen=10).observations
        assert (observed.mean, observed.where["participation"]) == (row.accuracy, "10")
        assert observed.place["clients"] == row.setting.clients


def accuracy_of(found: JobResult, head: str) -> tuple[float | None, float, float]:
    """Accuracy in the table, in the confusion matrix, and of the saved classifier."""
    row = next(row for row in found.report.rows if row.head == head)
    detail = next(each for each in found.document["details"] if each["head"] == head)
    table = np.array(detail["confusion"])
    arrays = np.load("features.npz")
    saved = fm.load(Path(f"out/heads/{head}.safetensors"))
    return row.accuracy, float(np.trace(table) / table.sum()), float(
        (saved.predict(arrays["x_test"]) == arrays["y_test"]).mean()
    )  # fmt: skip


@pytest.mark.parametrize("privacy", [{}, {"epsilon": [1.0]}, {"secure": "sums", "batch": 2}])
def test_table_confusion_and_saved_classifier_are_one_fit(features_file: str, privacy: dict[str, Any]) -> None:
    """Under an epsilon the noise is drawn once: each of the three shows the same draw."""
    config = StudySettings(
        data=features_file, heads=("fedncm", "gh-lda"), clients=(10,), splits=("iid",), seeds=1, privacy=privacy
    )
    for _ in range(2):  # the second time what is remembered is of another draw, and is not shown
        found = run_job(config, Path("out"))
        for head in config.heads:
            table, confusion, saved = accuracy_of(found, head)
            assert table == pytest.approx(confusion)
            assert table == pytest.approx(saved)
            row = next(row for row in found.report.rows if row.head == head)
            assert row.outcomes[0].digest == fm.load(Path(f"out/heads/{head}.safetensors")).digest()


def test_noise_that_was_drawn_anew_replaces_what_is_remembered(features_file: str) -> None:
    config = StudySettings(
        data=features_file, heads=("fedncm",), clients=(10,), splits=("iid",), seeds=2, privacy={"epsilon": [1.0]}
    )
    first = run_job(config, Path("out"))
    second = run_job(config, Path("out"))
    assert second.resumed == 1, "the second seed, which nobody looks at"
    assert first.report.rows[0].outcomes[1] == second.report.rows[0].outcomes[1]
    assert first.report.rows[0].outcomes[0].digest != second.report.rows[0].outcomes[0].digest


def test_a_remembered_outcome_of_another_classifier_is_dropped(
    features_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of threads, say, rounds otherwise: what is shown is of the classifier that is saved."""
    config = StudySettings(data=features_file, heads=("fedncm",), clients=(10,), seeds=1)
    really = Held.outcomes

    def other_bits(self: Held) -> Any:
        for method in self.methods.values():
            object.__setattr__(self.federation.fit(method), "digest", "of other bits")
        return really(self)

    with monkeypatch.context() as patch:
        patch.setattr(Held, "outcomes", other_bits)
        run_job(config, Path("out"))
    again = run_job(config, Path("out"))
    assert again.resumed == 0
    assert again.report.rows[0].outcomes[0].digest == again.classifiers["fedncm"].digest()


def test_float64_is_told_with_its_reason(features_file: str) -> None:
    found = run_job(StudySettings(data=features_file, heads=("fedncm",), clients=(10,), seeds=1))
    assert found.document["rows"][0]["seeds"][0]["float64"] is None
    arrays = dict(np.load("features.npz"))
    for name, factor, why in (("long", 1e3, "has the norm"), ("short", 1e-8, "vary by")):
        scaled = {key: factor * each if key[0] == "x" else each for key, each in arrays.items()}
        np.savez(f"{name}.npz", **scaled)
        other = run_job(StudySettings(data=f"npz:{name}.npz", heads=("fedncm", "gh-lda"), clients=(10,), seeds=1))
        for row in other.document["rows"]:
            assert why in row["seeds"][0]["float64"]
        assert other.report.rows[0].accuracy == pytest.approx(found.report.rows[0].accuracy)


@pytest.mark.filterwarnings("ignore::fedmoments.errors.FitWarning")
def test_equal_samples_too_small_for_fixed_point_are_measured_in_float64(features_file: str) -> None:
    """Where samples of a class are equal, no spread says that steps are too large: the size of features does."""
    arrays = dict(np.load("features.npz"))
    means = 1e-12 * np.eye(int(arrays["y_train"].max()) + 1, arrays["x_train"].shape[1])
    tiny: dict[str, Any] = {
        key: means[arrays[f"y{key[1:]}"]] if key[0] == "x" else array for key, array in arrays.items()
    }
    np.savez("tiny.npz", **tiny)
    row = run_job(StudySettings(data="npz:tiny.npz", heads=("fedncm",), clients=(10,), seeds=1)).report.rows[0]
    assert row.accuracy == 1.0
    assert "do not vary within classes" in str(row.outcomes[0].float64)


def test_without_a_reader_nothing_is_computed_for_a_report(
    features_file: str, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StudySettings(data=features_file, heads=("fedcof", "sketch"), clients=(10,), seeds=1)
    whole = run_job(config).document
    measured = calls["measured"]

    def refuse(*given: Any, **more: Any) -> Any:
        raise AssertionError("nobody reads it")

    for name in ("diagnose", "covariance_bias", "_trust"):
        monkeypatch.setattr(details, name, refuse)
    shown = run_job(config, for_report=False).document
    assert calls["measured"] == 2 * measured
    assert shown["privacy"] == whole["privacy"]
    told = ("head", "digest", "statistics_digest", "measured", "choice")
    assert [[one[n] for n in told] for one in shown["details"]] == [[one[n] for n in told] for one in whole["details"]]
    assert all(one["calibration"] is None for one in shown["details"])


def test_files_hold_what_a_report_shows_whatever_was_asked(features_file: str) -> None:
    config = StudySettings(data=features_file, heads=("fedcof",), clients=(10,), seeds=1)
    found = run_job(config, Path("out"), for_report=False)
    assert found.document["diagnosis"]["diagnostics"]["measured"]
    assert found.document["details"][0]["calibration"]
