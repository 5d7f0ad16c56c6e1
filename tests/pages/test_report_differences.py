"""The section of paired differences: its numbers are those of the results, and what is not there is not claimed."""

from fedmoments.core.observations import Outcome, Report, Row, Setting
from fedmoments.pages.sections.differences import differences_section

ACCURACIES = {"auto": (0.9, 0.92, 0.91), "fedncm": (0.8, 0.83, 0.81), "fed3r": (0.91, 0.91, 0.91)}


def report(*settings: Setting, seeds: int = 3) -> Report:
    rows = [
        Row(
            head,
            setting,
            "counts",
            {},
            tuple(Outcome(seed, each, 10, 4, 1, 0.1) for seed, each in enumerate(values[:seeds])),
        )
        for setting in settings
        for head, values in ACCURACIES.items()
    ]
    return Report(rows=tuple(rows), seeds=seeds)


def test_the_advised_head_is_compared_with_each_other_one_with_its_interval() -> None:
    shown = str(differences_section(report(Setting(10, "iid"))))
    [comparison] = report(Setting(10, "iid")).results.compare("auto", "fedncm")
    assert comparison.interval is not None
    low = comparison.interval.mean - comparison.interval.reach
    assert ">auto compared with the other heads" in shown
    assert f">{100 * comparison.interval.mean:+.1f}<" in shown
    assert f">{100 * low:+.1f}<" in shown
    assert shown.index("fed3r") < shown.index("fedncm")
    assert shown.count(">yes<") == 1, "fed3r is within the noise of auto, fedncm is not"


def test_one_seed_gives_no_interval_and_no_table() -> None:
    assert differences_section(report(Setting(10, "iid"), seeds=1)) is None
    assert differences_section(Report()) is None


def test_one_swept_setting_gives_heads_by_setting() -> None:
    shown = str(differences_section(report(Setting(10, "iid"), Setting(20, "iid"))))
    assert "10 clients" in shown
    assert "20 clients" in shown
    assert "Accuracy by" in shown
