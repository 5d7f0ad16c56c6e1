"""Pages of tuning: the answer, curves against rounds, bytes and compute, tables, whatever is missing or strange."""

import contextlib
import copy
import html
import re
from html.parser import HTMLParser
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.pages.conftest import read_unless_refused

from fedmoments.core.observations import Report
from fedmoments.core.observations.tuning import Tuning
from fedmoments.errors import FileFormatError, InputError
from fedmoments.pages import render
from fedmoments.pages.markup import join
from fedmoments.pages.sections.curves import curves_section, tuning_answer, tuning_question
from fedmoments.pages.sections.run import run_section
from fedmoments.pages.sections.starts import starts_section

STRANGE: list[Any] = [None, "text", -1.5, {}, float("nan")]
ATTACK = '</script><img src=x onerror="window.hit=1">" onmouseover="window.hit=1'


@pytest.fixture(scope="module")
def whole(world: Any) -> dict[str, Any]:
    made: dict[str, Any] = world.document()
    return made


@pytest.fixture
def small(world: Any) -> dict[str, Any]:
    """Return two starts, two seeds, few points: quick to render many times."""
    made: dict[str, Any] = world.document(("random", "fedcof"), ("fedavg",), seeds=2, rounds=4, every=2)
    made["tuning"]["heads"] = [each for each in made["tuning"]["heads"] if each["head"] == "fedcof"]
    made["tuning"]["curves"][0] |= {"refit": {"fed3r": 0.91}, "probe": {"before": 0.9, "after": 0.92}}
    return made


class Reader(HTMLParser):
    """Checks nesting, and collects visible words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        if tag not in ("meta", "link", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


def words_of(page: str) -> str:
    return " ".join(html.unescape("".join(read(page).words)).replace("\u202f", " ").split())


def tuning_of(document: dict[str, Any]) -> Tuning:
    return Report.from_dict(document).tuning or Tuning()


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def table(page: str, place: int) -> list[list[str]]:
    """Return the words of the cells of a table of the section on starts."""
    body = page.split('<section id="starts"')[1].partition("</section>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", re.findall(r"<tbody>(.*?)</tbody>", body)[place])
    return [[words_of(cell) for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", row)] for row in rows]


# ---------------------------------------------------------------------------------------------- what the page says


def test_a_page_of_tuning_asks_and_answers_its_own_question(world: Any, whole: dict[str, Any]) -> None:
    page = render(whole)
    words = words_of(page)
    assert sections(page) == ["curves", "starts", "run", "reproduce"]
    assert "With 100 clients (Dirichlet 0.1), what is a one‑shot head worth as a start of linear probing?" in words
    mine = {
        start: fmean(world.accuracy(start, "fedavg", seed, 200) for seed in range(3)) for start in ("random", "fedcof")
    }
    assert f"A random start reaches {100 * mine['random']:.1f} % after 200 rounds of FedAvg (1.4 GB)." in words
    assert "From fedcof, it is there before its first round (6.2 MB), and ends" in words
    gain = 100 * (mine["fedcof"] - mine["random"])
    assert f"and ends {gain:.1f} points higher, at {100 * mine['fedcof']:.1f} %" in words
    assert "<title>banking77: what tuning adds to a head</title>" in page
    for wrong in ("None", "No head could be fitted", "what one upload teaches"):
        assert wrong not in words
    assert "nan" not in words.lower().split()


def test_rounds_and_bytes_of_the_answer_are_those_of_the_document(world: Any) -> None:
    made = world.document(("random", "fedncm"), ("fedavg",))
    entry = next(each for each in world.reached(made["tuning"]["curves"]) if each["start"] == "fedncm")
    assert entry["rounds"] > 1
    words = words_of(render(made))
    assert f"From fedncm, it is there after {entry['rounds']:.1f} rounds ({entry['bytes'] / 1e6:.0f} MB)" in words


def test_a_difference_within_the_noise_is_called_so(whole: dict[str, Any]) -> None:
    def answer_of(document: dict[str, Any]) -> str:
        report = Report.from_dict(document)
        assert report.tuning is not None
        return words_of(str(tuning_answer(report, report.tuning)))

    assert "noise" not in answer_of(whole)
    few = copy.deepcopy(whole)
    few["data"]["test"] = 50
    answer = answer_of(few)
    assert "within the noise of 50 test samples" in answer
    assert "points higher" not in answer


def test_a_start_that_never_gets_there_is_said_so(world: Any) -> None:
    made = world.document(("random", "fedncm"), ("fedavg",))
    for each in made["tuning"]["curves"]:
        if each["start"] == "fedncm":
            for point in each["points"]:
                point["accuracy"] -= 0.1
    page = render(made)
    assert "From fedncm, it never gets there, and ends" in words_of(page)
    assert re.search(r"ends \d\.\d points lower", words_of(page))
    row = next(row for row in table(page, 0) if row[0] == "fedncm")
    assert row[-2:] == ["never", "–"]


def test_seeds_that_got_there_are_counted(small: dict[str, Any]) -> None:
    accuracies = {0: (0.0, 0.99, 0.99), 1: (0.0, 0.0, 0.0)}
    for curve in small["tuning"]["curves"]:
        if curve["start"] == "fedcof":
            for point, accuracy in zip(curve["points"], accuracies[curve["seed"]], strict=True):
                point["accuracy"] = accuracy
    page = render(small)
    assert "(1 of 2 seeds)" in words_of(page)
    assert "it is there after 2 rounds" in words_of(page)
    assert ", on 1 of 2 seeds, and ends" in words_of(page)


def test_the_table_has_means_and_deviations_over_seeds(world: Any, whole: dict[str, Any]) -> None:
    rows = {(row[0], row[1]): row for row in table(render(whole), 0)}
    assert len(rows) == 8
    for start in world.starts:
        ends = [100 * world.accuracy(start, "fedadam", seed, 200) for seed in range(3)]
        firsts = [100 * world.accuracy(start, "fedadam", seed, 0) for seed in range(3)]
        row = rows[start, "FedAdam"]
        assert row[2] == f"{fmean(firsts):.1f} % ± {stdev(firsts):.1f}"
        assert row[3] == f"{fmean(ends):.1f} % ± {stdev(ends):.1f}"
        highest = [max(100 * world.accuracy(start, "fedadam", seed, n) for n in range(201)) for seed in range(3)]
        assert row[4].startswith(f"{fmean(highest):.1f} % (")
    assert rows["fedcof", "FedAvg"][5:] == ["0", "6.2 MB"]


def test_bytes_are_compared_with_the_formula(world: Any, whole: dict[str, Any]) -> None:
    for row in table(render(whole), 1):
        last = next(each["points"][-1] for each in whole["tuning"]["curves"] if each["start"] == row[0])
        ratio = (last["up"] + last["down"]) / (last["up_formula"] + last["down_formula"]) - 1
        assert row[5] == f"+{100 * ratio:.2f} %"
        assert row[7:] == (["1", "1"] if row[0] == "random" else ["0.1", "0.1"])
    exact = world.document(("fedcof",), ("fedavg",), seeds=1, rounds=2)
    for point in exact["tuning"]["curves"][0]["points"]:
        point["up"] = point["up_formula"]
    assert table(render(exact), 1)[0][5] == "equal"


def test_refits_and_probes_are_shown_where_there_are_any(small: dict[str, Any]) -> None:
    page = render(small)
    assert table(page, 2)[0][-3:] == ["91.0 %", "90.0 %", "92.0 %"]
    assert "fed3r, refitted" in words_of(page)
    small["tuning"]["curves"][0] |= {"refit": {}, "probe": None}
    assert "After tuning" not in words_of(render(small))


def test_what_was_run_is_said(world: Any, whole: dict[str, Any]) -> None:
    words = words_of(str(run_section(Report.from_dict(whole))))
    for said in (
        "the head alone is trained",
        "100 clients, Dirichlet 0.1",
        "30 clients take part; each drawn once before any is drawn again; at most 200 rounds",
        "FedAvg (server step 1); FedAdam (server step 0.01, β₁ 0.9, β₂ 0.999, τ 0.001)",
        "SGD, batches of 32, 1 pass over its samples, momentum 0.9, weight decay 0.0001",
        "1 from random, 0.1 from fedncm, fed3r and fedcof",
        "not used: the encoder is not trained",
        "none: every round is run",
        "0, 1 and 2",
    ):
        assert said in words
    other = world.document(("fedcof",), ("scaffold",), stage="ft")
    assert "frozen: the encoder’s own running means and variances" in words_of(render(other))


def test_the_end_is_what_validation_chose_and_early_stops_are_named(world: Any) -> None:
    made = world.document(("random", "fedcof"), ("fedavg",), seeds=2, stop=60)
    page = render(made)
    row = next(row for row in table(page, 0) if row[0] == "fedcof")
    assert row[3].startswith(f"{100 * fmean(world.accuracy('fedcof', 'fedavg', seed, 35) for seed in (0, 1)):.1f} %")
    words = words_of(page)
    assert "4 curves stopped early" in words
    assert "(FedAvg, seed 1, after round 60): no better validation in 5 checks in a row; round 35 is kept" in words
    assert "A seed that stopped early keeps its last point." in words


def test_a_seed_that_stopped_keeps_its_last_point(world: Any) -> None:
    made = world.document(("fedcof",), ("fedavg",), seeds=2, rounds=10)
    del made["tuning"]["curves"][1]["points"][4:]
    (run,) = tuning_of(made).runs
    trail = {waypoint.round: waypoint for waypoint in run.trail}
    assert [*trail] == [*range(11)]
    late = [world.accuracy("fedcof", "fedavg", 0, 9), world.accuracy("fedcof", "fedavg", 1, 3)]
    assert trail[9].accuracy.mean == pytest.approx(fmean(late))
    first, second = (each["points"] for each in made["tuning"]["curves"])
    assert trail[9].bytes == pytest.approx(
        fmean([first[9]["up"] + first[9]["down"], second[3]["up"] + second[3]["down"]])
    )


def test_nothing_tested_is_said(small: dict[str, Any]) -> None:
    for each in small["tuning"]["curves"]:
        for point in each["points"]:
            point["accuracy"] = None
    small["tuning"] |= {"heads": []}
    page = render(small)
    assert "No accuracy was measured" in words_of(page)
    assert sections(page) == ["starts", "run", "reproduce"]
    assert {row[3] for row in table(page, 0)} == {"not tested"}


def test_sections_stand_beside_heads(results: dict[str, Any], small: dict[str, Any]) -> None:
    before = sections(render(results))
    page = render({**results, "tuning": small["tuning"]})
    place = before.index("holders")
    assert sections(page) == [*before[:place], "curves", "starts", "run", *before[place:]]
    assert "what can be learned from one upload?" in words_of(page)


# ---------------------------------------------------------------------------------------------- strange documents


def test_any_key_of_any_depth_that_is_missing_or_strange_is_drawn_or_refused_by_name(small: dict[str, Any]) -> None:
    def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        entries = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
        return [place for key, inner in entries for place in [(*path, key), *paths(inner, (*path, key))]]

    refused = 0
    for path in paths(small["tuning"]):
        for strange in [*STRANGE, ...]:
            changed = copy.deepcopy(small)
            inner = changed["tuning"]
            for key in path[:-1]:
                inner = inner[key]
            if strange is ...:
                del inner[path[-1]]
            else:
                inner[path[-1]] = strange
            if "plan" in path and strange is not ...:  # numbers that no run can have are refused by the plan
                with contextlib.suppress(InputError):
                    Report.from_dict(changed)
                continue
            report = read_unless_refused(changed)
            if report is None:
                refused += 1
                continue
            assert report.tuning is not None
            opening = [tuning_question(report, report.tuning), tuning_answer(report, report.tuning)]
            parts = [*opening, curves_section(report)]
            made = str(join([*parts, starts_section(report), run_section(report)]))
            assert not re.search(r' (?:[cxy][xy12]?|d|points|data-value)="[^"]*nan|nan\u202f%', made)
    assert refused > 100


@pytest.mark.parametrize("strange", [None, {}, float("nan")])
def test_a_page_is_made_of_nothing_tuned(strange: Any) -> None:
    read(render({"rows": [], "tuning": strange}))


@pytest.mark.parametrize("strange", ["text", -1.5, []])
def test_what_is_no_tuning_is_refused(strange: Any) -> None:
    with pytest.raises(FileFormatError, match="where a Tuning belongs"):
        render({"rows": [], "tuning": strange})


def test_when_starts_reach_the_random_end_is_what_a_naive_count_says(world: Any) -> None:
    made = world.document(("random", "fedncm", "fedcof"))
    naive = {(each["start"], each["optimiser"]): each for each in world.reached(made["tuning"]["curves"])}
    for reached in tuning_of(made).reached:
        assert vars(reached) == pytest.approx(naive.pop((reached.start, reached.optimiser)))
    assert not naive


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "plan" else poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value}{ATTACK}" if isinstance(value, str) else value


def test_names_never_become_markup(small: dict[str, Any]) -> None:
    changed = poisoned(small)
    changed["tuning"]["curves"][0]["refit"] = {ATTACK: 0.5}
    changed["tuning"]["curves"][0]["stopped"] = ATTACK
    page = render(changed)
    assert "<img" not in page
    assert read(page).found.count("script") == 1
    assert "onmouseover=&quot;" in page
    assert not re.search(r'<[^>]* onmouseover="', page)


def test_a_fall_within_the_noise_is_called_a_fall() -> None:
    def curve(start: str, *found: float) -> dict[str, Any]:
        points = [{"round": t, "accuracy": a, "up": 10.0 * t, "down": 0.0} for t, a in enumerate(found)]
        return {"start": start, "optimiser": "fedavg", "seed": 0, "points": points}

    tuning = {"stage": "ft", "clients": 9, "curves": [curve("random", 0.1, 0.3), curve("fedcof", 0.636, 0.62)]}
    page = render({"rows": [], "data": {"name": "digits", "test": 497}, "tuning": tuning})
    assert "down from the head’s own 63.6" in page
    assert "within the noise of 497" in page
