"""The table that tuning prints: figures of the document, plain lines in a pipe, whatever is missing."""

import math
import re
from statistics import fmean, stdev
from typing import Any

import pytest

from fedmoments.cli.tune import show_tuning
from fedmoments.core.observations import Report

#: Accuracy before tuning and its limit, rounds in which the rest falls to 1/e, bytes of the head.
STARTS = {"random": (0.02, 0.85, 8.0, 0.0), "fedncm": (0.80, 0.88, 6.0, 2e6), "fedcof": (0.90, 0.91, 5.0, 2e6)}
MESSAGE = 1.5e6


def accuracy(start: str, seed: int, number: int) -> float:
    first, limit, pace, _ = STARTS[start]
    return limit - (limit - first) * math.exp(-number / pace) + 0.004 * seed


def curve(start: str, optimiser: str, seed: int, rounds: int) -> dict[str, Any]:
    points = [
        {
            "round": number,
            "accuracy": accuracy(start, seed, number),
            "up": STARTS[start][3] + number * MESSAGE,
            "down": number * MESSAGE,
            "flops": None,
        }
        for number in range(rounds + 1)
    ]
    return {"start": start, "optimiser": optimiser, "seed": seed, "points": points, "best_round": None, "stopped": None}


@pytest.fixture
def document() -> dict[str, Any]:
    """Return three starts, two optimisers, two seeds and twenty rounds."""
    curves = [curve(start, how, seed, 20) for seed in (0, 1) for start in STARTS for how in ("fedavg", "fedadam")]
    about = {
        "stage": "lp",
        "clients": 40,
        "split": "dirichlet:0.1",
        "per_round": 12,
        "replacement": False,
        "rounds": 20,
    }
    heads = [{"head": name, "seed": 0, "accuracy": 0.893, "up": 9e6} for name in ("fedcof", "gh-lda")]
    return {
        "data": {"name": "letters", "train": 2000, "test": 500, "dim": 16, "classes": 26},
        "rows": [],
        "seconds": 3.25,
        "tuning": about | {"batchnorm": None, "curves": curves, "heads": heads},
    }


def show(document: dict[str, Any]) -> None:
    show_tuning(Report.from_dict(document))


def rounds_to_random(start: str, seed: int) -> int:
    """Return the first round in which a start is as accurate as the random one ends."""
    return next(n for n in range(21) if accuracy(start, seed, n) >= accuracy("random", seed, 20))


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a pipe has no width; some runners of tests set one


def cells(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the table's cells by start and optimiser."""
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return {(row[0], row[1]): row[2:] for row in rows if row[0] in STARTS and len(row) > 2}


def test_figures_are_those_of_the_document(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    show(document)
    text = capsys.readouterr().out
    rows = cells(text)
    assert set(rows) == {(start, how) for start in STARTS for how in ("FedAvg", "FedAdam")}
    for start, (*_, head) in STARTS.items():
        firsts, ends = ([100 * accuracy(start, seed, n) for seed in (0, 1)] for n in (0, 20))
        rounds = fmean(rounds_to_random(start, seed) for seed in (0, 1))
        assert rows[start, "FedAvg"] == [
            f"{fmean(firsts):.2f} ± {stdev(firsts):.2f}",
            f"{fmean(ends):.2f} ± {stdev(ends):.2f}",
            "20",
            f"{rounds:.1f}".removesuffix(".0"),
            f"{(head + 2 * MESSAGE * rounds) / 1e6:.1f} MB",
            f"{(head + 40 * MESSAGE) / 1e6:.1f} MB",
        ]
    assert rows["fedcof", "FedAvg"][3] == "0"
    assert "letters: 2,000 training samples, 500 test samples, d = 16, 26 classes" in text
    assert "linear probing (head only); 40 clients, split dirichlet:0.1; 12 a round, without replacement" in text
    assert "one-shot heads for comparison, accuracy %: gh-lda 89.30" in text
    assert "3.25 s in all" in text


def test_a_pipe_gets_plain_lines(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    show(document)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert not re.search("[─│┃]", text)
    assert max(map(len, text.splitlines())) <= 200


def test_a_start_that_never_got_there(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for each in document["tuning"]["curves"]:
        if each["start"] == "fedncm" or (each["start"], each["seed"]) == ("fedcof", 1):
            for point in each["points"]:
                point["accuracy"] = 0.1
    show(document)
    rows = cells(capsys.readouterr().out)
    assert rows["fedncm", "FedAvg"][3:5] == ["never", "–"]
    assert rows["fedcof", "FedAvg"][3] == "0 (1 of 2 seeds)"


def test_the_end_is_what_validation_chose(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for each in document["tuning"]["curves"]:
        each |= {"best_round": 5 + 2 * each["seed"], "stopped": "no better validation"}
    show(document)
    text = capsys.readouterr().out
    row = cells(text)["fedcof", "FedAvg"]
    assert row[1].startswith(f"{100 * fmean([accuracy('fedcof', 0, 5), accuracy('fedcof', 1, 7)]):.2f} ±")
    assert row[2] == "5–7"
    assert "note: 12 runs stopped early; the end is the round that validation chose" in text


def test_a_run_that_diverged_is_told_and_not_ascribed_to_validation(
    document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    document["tuning"]["curves"][0]["stopped"] = "diverged: a learning rate of 9 is too high"
    show(document)
    text = capsys.readouterr().out
    assert "note: random, FedAvg, seed 0 diverged: a learning rate of 9 is too high" in text
    assert "note: 1 run stopped early" in text
    assert "validation" not in text


def test_without_a_random_start_nothing_is_compared(
    document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    about = document["tuning"]
    about["curves"] = [each for each in about["curves"] if each["start"] != "random" and each["seed"] == 0]
    show(document)
    text = capsys.readouterr().out
    assert "random" not in text
    assert "±" not in text
    assert len(cells(text)["fedcof", "FedAdam"]) == 4


def test_nothing_tuned_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show({"rows": [], "tuning": {"stage": "ft", "curves": []}})
    assert capsys.readouterr().out.splitlines() == ["fine-tuning (encoder and head)", "", "nothing was tuned"]
