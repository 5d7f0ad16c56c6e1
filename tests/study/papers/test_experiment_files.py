"""Files of experiments: what they hold, and what is refused."""

import math
import re

import pytest

from fedmoments.cli.reproduce import _changes, _pair
from fedmoments.core.heads import make_head
from fedmoments.core.observations import Observation
from fedmoments.errors import FedMomentsError, FileFormatError, InputError, UnknownNameError
from fedmoments.study.papers import PAPERS, experiment, experiments, find
from fedmoments.study.papers.claims import compare_claims
from fedmoments.study.papers.engines import ENGINES, load_engine
from fedmoments.study.papers.experiment import read_experiment

TEXT = """
title = "Bytes"
source = "Table 1"
about = "What is sent."
needs = "nothing"
engine = "communication"
rows = [{ name = "A", where = { method = "fedncm" } }, { name = "B", where = { method = "fed3r" } }]
columns = [{ name = "x", where = { quantity = "floats" } }]
reference = "A"

[[paper]]
name = "one"
values = [[1], [2.5]]

[[misprints]]
block = "one"
row = "B"
column = "x"
printed = 2.5
right = 3.0
why = "the formula gives 3"

[[claims]]
id = "more"
text = "B sends more"
left = { method = "fed3r", quantity = "floats" }
right = { method = "fedncm", quantity = "floats" }
"""


def test_a_file_is_read() -> None:
    found = read_experiment("fedcof/table1", TEXT)
    assert found.paper[0].values == ((1.0,), (2.5,))
    assert found.misprints[0].right == 3.0
    assert found.claims[0].relation == "above"
    assert found.is_free


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "Bytes"\n', "", "lacks title"),
        ('needs = "nothing"', 'needs = "imagse"', "did you mean 'images'"),
        ("values = [[1], [2.5]]", "values = [[1, 2], [2.5, 3]]", "2 rows of 1 numbers"),
        ("values = [[1], [2.5]]", "values = [[1]]", "2 rows of 1 numbers"),
        ("values = [[1], [2.5]]", "values = [1, 2.5]", "rows of columns"),
        ("values = [[1], [2.5]]", 'values = [["1"], [2.5]]', "rows of columns"),
        ("values = [[1], [2.5]]", "valeus = [[1], [2.5]]", "a name and values"),
        ('name = "B"', 'name = "A"', "the same name"),
        ('reference = "A"', 'reference = "C"', "unknown row"),
        ("printed = 2.5", "printed = 2.4", "2.4 is printed, but the block has 2.5"),
        ('row = "B"', 'row = "C"', "not a cell"),
        ('block = "one"', 'block = "two"', "unknown part"),
        ('id = "more"', 'id = "more"\nrelation = "abvoe"', "did you mean 'above'"),
        ('id = "more"', 'id = "more"\nvalue = 1.0', "not both"),
        ('id = "more"', 'id = "more"\nmargine = 1.0', "did you mean 'margin'"),
        ("right = 3.0", 'right = "3"', "must be of type float"),
        ("title =", "titel =", "did you mean 'title'"),
        ("[[claims]]", "[[claims]", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_and_the_message_says_what_is_wrong(old: str, new: str, told: str) -> None:
    assert old in TEXT
    with pytest.raises(FedMomentsError, match=told.replace("[", r"\[")):
        read_experiment("fedcof/table1", TEXT.replace(old, new, 1))


def test_wrong_files_are_format_errors() -> None:
    with pytest.raises(FileFormatError, match="the file of fedcof/table1"):
        read_experiment("fedcof/table1", TEXT.replace('source = "Table 1"\n', ""))


@pytest.mark.parametrize("each", experiments(), ids=lambda each: each.name)
def test_every_file_of_the_library_can_be_run_and_shown(each) -> None:  # type: ignore[no-untyped-def]
    assert each.name.partition("/")[0] in PAPERS
    assert each.engine in ENGINES
    assert callable(load_engine(each.engine))
    assert each.rows or each.figures, "it shows nothing"
    assert each.about.endswith(".")
    for block in each.paper:
        assert any(not math.isnan(value) for row in block.values for value in row), f"{block.name} holds no number"
        if each.is_free:
            assert block.settings or each.settings
    for figure in each.figures:
        assert figure.title


TYPED = re.compile(r"--set ([\w.-]+=[^\s`);,…]+)")
NOTED = [
    (each, typed)
    for each in experiments()
    for note in each.notes
    for typed in TYPED.findall(note)
    if "..." not in typed
]


@pytest.mark.parametrize(("each", "typed"), NOTED, ids=[f"{each.name} {typed}" for each, typed in NOTED])
def test_settings_that_notes_say_how_to_change_exist(each, typed: str) -> None:  # type: ignore[no-untyped-def]
    path, value = _pair(typed.rstrip("."))
    changed = _changes(each.settings, [(path, value)])
    assert changed != each.settings
    if path[0] == "hyper":
        make_head(path[1], **{path[2]: value})


def test_the_papers_tables_and_figures_are_there() -> None:
    """All that the four papers print and our software covers."""
    wanted = {
        "fedcof": "table1 table2 table3 table4 table5 table6 table7 table8 table9 table3-communication "
        "table5-communication table6-communication table7-communication prop1 prop2 prop3 eq24 eq25 unbiasedness "
        "figure3 figure4 figure5-left figure5-right figure6 figure7 figure8-left figure8-middle figure8-right "
        "figure9 figure10 figure3-rounds figure4-rounds",
        "fedncm": "table1 table2 figure2",
        "fed3r": "appendix-d table1 table2 table3 table5 table6 table7 figure1 figure3 figure8 eq5",
        "gh-ofl": "table1 table2 table3 table4 table5 table6 table7 table8 table9 table10 eq5",
    }
    names = {each.name for each in experiments()}
    missing = [f"{paper}/{name}" for paper, words in wanted.items() for name in words.split()]
    assert not [name for name in missing if name not in names]


def test_find() -> None:
    assert [each.name for each in find(["fedcof/table3", "fedcof/table3"])] == ["fedcof/table3"]
    assert {each.name.partition("/")[0] for each in find(["fed3r/*"])} == {"fed3r"}
    assert find(["all"]) == experiments()
    assert find(["free"])
    assert all(each.needs == "nothing" for each in find(["free"]))
    with pytest.raises(UnknownNameError, match="did you mean 'fedcof/table3'"):
        find(["fedcof/tabel3"])
    written = ["FedCOF Table 3", "fed3r fig. 12", "GH-OFL/Table8", "fedcof Figure 5, left", "Fed3R Appendix D"]
    named = ["fedcof/table3", "fed3r/figure12", "gh-ofl/table8", "fedcof/figure5-left", "fed3r/appendix-d"]
    assert [each.name for each in find(written)] == named
    with pytest.raises(InputError, match="give fed3r/table3 or fedcof/table3 or gh-ofl/table3"):
        find(["Table 3"])
    with pytest.raises(InputError, match=r"'GH-OFL' is a paper: 'gh-ofl/\*' runs all"):
        find(["GH-OFL"])
    with pytest.raises(UnknownNameError, match="unknown table or figure 'fedavg/'"):
        experiment("fedavg/")


def test_tables_are_listed_in_the_order_of_their_numbers() -> None:
    names = [each.name for each in experiments() if each.name.startswith("gh-ofl/table")]
    assert names.index("gh-ofl/table2") < names.index("gh-ofl/table10")


#: Claims that the paper's own numbers do not keep on some of its data, which their texts say.
NOT_KEPT = {
    ("fedncm/table2", "CIFAR-10, SqueezeNet", "training-free-beats-few-rounds"),
    ("fed3r/table2", "Landmark-Users-160K, MobileNetV2", "feat-beats-ft"),
    ("fed3r/table3", "iNaturalist-Users-120K, MobileNetV2", "refit-shows-better-features"),
    ("gh-ofl/table1", "CIFAR-10, ResNet-18", "fishermix-above-lda"),
    ("gh-ofl/table1", "CIFAR-10, ResNet-18", "qda-above-lda"),
    ("gh-ofl/table1", "SVHN, ResNet-18", "fishermix-above-lda"),
    ("gh-ofl/table1", "SVHN, ResNet-18", "qda-above-lda"),
    ("gh-ofl/table3", "CIFAR-100", "lda-above-qda"),
    ("gh-ofl/table3", "CIFAR-100-C", "lda-above-qda"),
    ("gh-ofl/table5", "AG_NEWS, DistilBERT", "dlr-tracks-qda"),
}


def test_a_claim_asks_for_no_more_than_the_papers_own_numbers_keep() -> None:
    broken = set()
    for each in experiments():
        for block in () if each.is_free else each.paper:
            right = {(slip.row, slip.column): slip.right for slip in each.misprints if slip.block == block.name}
            printed = []
            for i, row in enumerate(each.rows):
                for j, column in enumerate(each.columns):
                    value = right.get((row.name, column.name), block.values[i][j])
                    where = {**row.where, **column.where}
                    quantity = where.pop("quantity", "accuracy")
                    if not math.isnan(value):
                        value /= 100 if quantity == "accuracy" else 1
                        printed.append(Observation(where, (value,), quantity))
            told = compare_claims(each.claims, printed)
            broken |= {(each.name, block.name, one["id"]) for one in told if one["verdict"] in ("fails", "in part")}
    assert broken == NOT_KEPT
