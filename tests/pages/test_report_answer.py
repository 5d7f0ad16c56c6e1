"""The two sentences at the top say what the rows say."""

import html
import re
from collections.abc import Callable
from typing import Any

from fedmoments.pages import render

Make = Callable[..., dict[str, Any]]


def sentences(*rows: dict[str, Any], test: int | None = None, seeds: int = 1) -> tuple[str, str]:
    page = render({"data": {"classes": 3, "test": test}, "seeds": seeds, "rows": list(rows)})
    found = re.search(r"<h1>(.*?)</h1><p class=\"answer\">(.*?)</p>", page, re.S)
    assert found
    plain = [html.unescape(re.sub("<[^>]+>", "", part)).replace("\u202f", " ") for part in found.groups()]
    return plain[0], plain[1]


def test_best_of_the_cheapest_and_best_of_all(make_row: Make) -> None:
    asked, answered = sentences(
        make_row("fedncm", 0.807, 5242.1), make_row("fedcof", 0.92, 5242.1), make_row("gh-qda", 0.951, 524_210.0)
    )
    assert asked == "With 8 clients (Dirichlet 0.1), what can be learned from one upload?"
    assert answered == (
        "fedcof reaches 92.0 % with 5.2 kB per client, 11.3 points above fedncm at the same bytes; "
        "the best head, gh-qda, reaches 95.1 % with 524 kB (100 times as much)."
    )


def test_cheapest_is_best_of_all(make_row: Make) -> None:
    _, answered = sentences(make_row("fedcof", 0.92, 100.0), make_row("gh-qda", 0.9, 900.0))
    assert (
        answered
        == "fedcof reaches 92.0 % with 100 B per client; no other head that was run does better, whatever it sends."
    )


def test_baseline_is_best_of_the_cheapest(make_row: Make) -> None:
    _, answered = sentences(make_row("fedncm", 0.92, 100.0), make_row("fedcof", 0.9, 100.0))
    assert "fedncm reaches 92.0 % with 100 B per client, the most of all heads that send as little" in answered


def test_equal_heads_are_called_equal(make_row: Make) -> None:
    _, answered = sentences(make_row("lda-free", 0.92, 100.0), make_row("fedncm", 0.92, 100.0))
    assert "as fedncm does at the same bytes" in answered


def test_one_head(make_row: Make) -> None:
    assert sentences(make_row("fed3r", 0.5, 100.0))[1] == "fed3r reaches 50.0 % with 100 B per client."


def test_no_fitted_head(make_row: Make) -> None:
    _, answered = sentences(make_row("gh-qda", None, 100.0, reason="memory is short"))
    assert answered == "No head could be fitted: memory is short."


def test_no_rows() -> None:
    assert sentences()[1] == "No head could be fitted."


def test_unknown_bytes(make_row: Make) -> None:
    _, answered = sentences(make_row("fedcof", 0.5, 0.0), make_row("fed3r", 0.6, 0.0))
    assert answered == "fed3r is the best head and reaches 60.0 %."


def test_sweep_names_the_range_and_the_setting(make_row: Make) -> None:
    rows = [make_row("fedcof", 0.9, 100.0, clients=k, split=s) for s in ("iid", "dirichlet:0.1") for k in (10, 100)]
    asked, answered = sentences(*rows)
    assert asked == "With 10 to 100 clients (IID and Dirichlet 0.1), what can be learned from one upload?"
    assert answered.startswith("In the first of 4 settings (10 clients, IID), fedcof reaches 90.0 %")


def test_clients_of_the_data_are_counted_by_their_uploads(make_row: Make) -> None:
    asked, _ = sentences(make_row("fedcof", 0.9, 100.0, clients=None, split="domain"))
    assert asked.startswith("With 8 clients (one domain each)")


def test_swept_clients_of_the_data_are_counted_by_their_uploads(make_row: Make) -> None:
    rows = [make_row("fedcof", 0.9, 100.0, clients=None, split="domain", means_per_client=k) for k in (1, 2)]
    asked, _ = sentences(*rows)
    assert asked.startswith("With 8 clients (one domain each)")


# -------------------------------------------------------------------------------------------------- noise


def test_a_gain_within_the_noise_is_no_win(make_row: Make) -> None:
    """Of 1000 samples at 92 %, two standard errors are 1.7 points."""
    rows = make_row("fedcof", 0.925, 100.0), make_row("fedncm", 0.915, 100.0)
    assert sentences(*rows, test=1000)[1].startswith(
        "fedcof reaches 92.5 % with 100 B per client, as fedncm does at the same bytes within the noise of 1,000 test "
        "samples"
    )
    assert "1.0 point above fedncm at the same bytes;" in sentences(*rows, test=10_000)[1]
    assert "noise" not in sentences(*rows)[1], "not known how many test samples"


def test_seeds_that_differ_are_noise_and_more_seeds_are_less(make_row: Make) -> None:
    rows = [make_row(head, p, 100.0, accuracy_std=0.02) for head, p in (("fedcof", 0.925), ("fedncm", 0.905))]
    assert "within the noise of 100,000 test samples" in sentences(*rows, test=100_000, seeds=2)[1]
    assert "2.0 points above fedncm" in sentences(*rows, test=100_000, seeds=10)[1]


def test_a_runner_up_within_the_noise_is_named_beside_the_gain(make_row: Make) -> None:
    rows = make_row("fedcof", 0.92, 100.0), make_row("lda-free", 0.915, 100.0), make_row("fedncm", 0.8, 100.0)
    _, answered = sentences(*rows, test=500)
    assert (
        "12.0 points above fedncm at the same bytes (lda-free, 91.5 %, is within the noise of 500 test samples);"
        in (answered)
    )


def test_the_best_of_all_may_be_within_the_noise(make_row: Make) -> None:
    rows = make_row("fedcof", 0.92, 100.0), make_row("gh-qda", 0.93, 1000.0)
    assert sentences(*rows, test=500)[1].endswith(
        "the best head, gh-qda, reaches 93.0 % with 1.0 kB (10 times as much), within the noise of 500 test samples."
    )
    assert sentences(*rows, test=50_000)[1].endswith("with 1.0 kB (10 times as much).")


# -------------------------------------------------------------------------------------------------- baselines


def baseline(make_row: Make, head: str, accuracy: float, size: float) -> dict[str, Any]:
    return make_row(head, accuracy, size, baseline=True)


def test_a_baseline_that_does_better_for_no_more_bytes_is_named_with_its_accuracy(make_row: Make) -> None:
    rows = [make_row("fedcof", 0.8, 100.0), make_row("gh-qda", 0.95, 9000.0)]
    rows += [baseline(make_row, name, p, size) for name, p, size in (("a", 0.82, 90.0), ("b", 0.9, 100.0))]
    _, answered = sentences(*rows, baseline(make_row, "c", 0.94, 103.0))
    assert answered.endswith("(90 times as much). For no more bytes, the baseline b reaches 90.0 %.")
    assert "baseline" not in sentences(rows[0], baseline(make_row, "a", 0.8, 90.0))[1], "it does not do better"


def test_a_baseline_that_does_better_than_all_for_no_more_bytes_is_named_once(make_row: Make) -> None:
    rows = make_row("fedcof", 0.8, 100.0), baseline(make_row, "b", 0.9, 100.0)
    assert sentences(*rows)[1] == (
        "fedcof reaches 80.0 % with 100 B per client. For no more bytes, the baseline b reaches 90.0 %, more than any "
        "head."
    )
    assert sentences(*rows, test=20)[1].endswith("more than any head, within the noise of 20 test samples.")


def test_two_baselines_that_do_better_are_both_named(make_row: Make) -> None:
    rows = make_row("fedcof", 0.8, 100.0), baseline(make_row, "b", 0.9, 100.0), baseline(make_row, "c", 0.96, 900.0)
    assert sentences(*rows)[1].endswith(
        " For no more bytes, the baseline b reaches 90.0 %. A baseline, c, reaches 96.0 % with 900 B per client."
    )


def test_a_fitted_head_that_nobody_tested_is_not_called_unfitted(make_row: Make) -> None:
    _, answered = sentences(make_row("fedcof", None, 100.0, reason="no client evaluated it"))
    assert answered == "1 head fitted, not tested: no client evaluated it."


def test_a_federation_says_who_tested_and_how_far_its_accuracy_is_known(make_row: Make) -> None:
    federation = {"name": "wards", "spread": {"fedcof": {"nodes": 1, "lowest": 1.0, "median": 1.0, "highest": 1.0}}}
    data = {"classes": 3, "test": 20}
    page = render({"data": data, "seeds": 1, "rows": [make_row("fedcof", 1.0, 100.0)], "federation": federation})
    said = html.unescape(re.sub("<[^>]+>", "", page)).replace("\u202f", " ")
    assert "1 node tested fedcof on 20 samples held out" in said
    assert "lies between 83.9 % and 100.0 % (95 % interval)" in said
