"""``fedmoments heads NAME`` explains one head or baseline; every hyper-parameter is documented."""

import json
import shlex
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

from fedmoments.cli.heads import hyper_example, hyper_table
from fedmoments.cli.hyper import hyper_of_heads, hyper_parameters
from fedmoments.core.heads import Preset, head_names, make_head, presets
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.heads.parameters import meanings_of, plain_text
from fedmoments.core.heads.ridge import FourierRidge, Ridge
from fedmoments.study.baselines import baseline_names, baselines

EVERY: dict[str, Any] = {**presets(), **baselines()}


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", EVERY)
def test_every_hyper_parameter_has_a_meaning_in_plain_words(name: str) -> None:
    rows = hyper_table(EVERY[name])
    assert [row["name"] for row in rows] == [field.name for field in fields(EVERY[name].head)]
    assert {row["name"]: row["default"] for row in rows} == EVERY[name].make().settings()
    for row in rows:
        meaning = row["meaning"]
        assert meaning, f"'{row['name']}' of '{name}' is not in the section Parameters of {EVERY[name].head.__name__}"
        assert "`" not in meaning
        assert not meaning.startswith("As in ")
        assert meaning == squeezed(meaning)


@pytest.mark.parametrize("name", EVERY)
def test_one_is_explained_for_people_and_as_json(name: str, run: Any) -> None:
    text = run("heads", name).stdout
    found = json.loads(run("heads", name, "--json").stdout)
    assert text.splitlines()[0].startswith(name)
    for key in ("summary", "paper", "sends"):
        assert found[key] in text
    assert found["summary"] == EVERY[name].summary
    assert found["paper"] == EVERY[name].paper
    assert found["baseline"] == (name in baseline_names())
    assert found["parameters"] == hyper_table(EVERY[name])
    lines = {line.split()[0]: line.split()[1] for line in text.splitlines() if line and not line.startswith(" ")}
    for row in found["parameters"]:
        default = row["default"]
        assert lines[row["name"]] == (str(default).lower() if isinstance(default, bool) else str(default))
    for command, option in found["examples"].items():
        assert f"fedmoments {command} … {option}" in text


@pytest.mark.parametrize("name", EVERY)
def test_the_example_sets_what_the_head_takes_and_the_upload_stays(name: str, run: Any) -> None:
    examples = json.loads(run("heads", name, "--json").stdout)["examples"]
    assert list(examples) == (["simulate"] if name in baseline_names() else ["simulate", "fit"])
    flag, pair = shlex.split(examples["simulate"])
    assert flag == "--set"
    hyper = hyper_of_heads([pair])[name]
    usual, other = EVERY[name].make(), EVERY[name].make(**hyper)
    assert other.settings() != usual.settings()
    if name in head_names():
        assert hyper_parameters(name, [examples["fit"].removeprefix("--set ")]) == hyper
        assert other.needs == usual.needs


def test_the_examples_work_in_simulate_and_fit(run: Any, features: str) -> None:
    run("measure", features, "--head", "gh-lda", "-o", "a.stats")
    option = json.loads(run("heads", "gh-lda", "--json").stdout)["examples"]
    run("fit", "a.stats", "--head", "gh-lda", *shlex.split(option["fit"]), "-o", "a.classifier")
    given = ("--heads", "gh-lda", "--clients", "5", "--seeds", "1", "--json")
    found = json.loads(run("simulate", features, *given, *shlex.split(option["simulate"])).stdout)
    assert found["rows"][0]["hyper"]["shrinkage"] == "blend:0.05"


def test_the_example_of_fishermix() -> None:
    assert hyper_example(EVERY["fishermix"]) == "tau=0.8"


def test_the_price_is_that_of_the_list(run: Any) -> None:
    size = ("--dim", "64", "--classes", "10", "--json")
    listed = {each["name"]: each for each in json.loads(run("heads", *size).stdout)["heads"]}
    for name in ("fed3r", "fedcof", "fed3r-rf"):
        found = json.loads(run("heads", name, *size).stdout)
        assert {key: found[key] for key in listed[name]} == listed[name]
        assert found["classes"] == 10
    assert "the server keeps clients apart" in run("heads", "fedcof").stdout
    assert "the server keeps clients apart" not in run("heads", "fed3r").stdout
    assert "C·d + d(d+1)/2 floats, 10.9 kB for d = 64, C = 10" in run("heads", "fed3r", *size[:-1]).stdout


def test_long_meanings_are_wrapped_to_the_width(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = run("heads", "gh-qda").stdout.split("\n\n")[1]
    assert max(map(len, table.splitlines())) <= 80
    for row in hyper_table(EVERY["gh-qda"]):
        assert row["meaning"].split()[-1] in table


def test_unknown_names_are_answered_with_the_known(run: Any) -> None:
    refused = run("heads", "fischermix", code=2).stderr
    assert refused.startswith("error: unknown head or baseline 'fischermix': did you mean 'fishermix'?")
    assert all(name in refused for name in EVERY)
    assert "did you mean 'ensemble'?" in run("heads", "ensembel", code=2).stderr


def test_the_list_says_how_to_ask_for_one(run: Any) -> None:
    assert run("heads").stdout.endswith("\n\n'fedmoments heads NAME' explains one and its hyper-parameters\n")


@dataclass(frozen=True)
class Typed(NearestMean):
    """Entries in other spellings.

    Parameters
    ----------
    tau, rank : float or int, optional
        Two fields, of ``one`` entry
        on two lines: with a colon.

        And a second paragraph about :class:`~fedmoments.core.heads.Preset`.
    scatter:
        As in :class:`fedmoments.core.heads.ridge.Ridge`.
    loop
        As in :class:`Typed`.
    lost
        As in :class:`nowhere.Nobody`.

    Notes
    -----
    bare
        No parameter, this.
    """

    tau: float = 1.0
    rank: int = 1
    scatter: str = "total"
    loop: int = 0
    lost: int = 0
    bare: int = 0


def test_docstrings_are_read_in_all_their_spellings() -> None:
    both = "Two fields, of one entry on two lines: with a colon. And a second paragraph about Preset."
    assert meanings_of(Typed) == {
        "metric": meanings_of(NearestMean)["metric"],
        "tau": both,
        "rank": both,
        "scatter": meanings_of(Ridge)["scatter"],
    }


def test_inherited_fields_and_references_are_answered_by_the_class_that_knows() -> None:
    found, base = meanings_of(FourierRidge), meanings_of(Ridge)
    assert {name: found[name] for name in base} == base
    assert found["map_seed"] == "Public seed of the map."


def test_markup_is_taken_off() -> None:
    marked = "``a``, `b`, :class:`c.D`, :meth:`~c.D.e`, :py:func:`text <c.f>` and `link`_"
    assert plain_text(marked) == "a, b, c.D, e, text and link"


def test_what_nobody_documents_is_said_to_be_undocumented(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    preset: Preset[Any] = Preset("typed", Typed, "for a test", "nowhere")
    monkeypatch.setattr("fedmoments.core.heads.presets", lambda: {**presets(), "typed": preset})
    text = run("heads", "typed").stdout
    assert "bare 0 not documented" in squeezed(text)
    by_name = {row["name"]: row["meaning"] for row in hyper_table(preset)}
    assert by_name["bare"] is None
    assert by_name["loop"] is None


@dataclass(frozen=True)
class Plain:
    """Nothing to set."""

    def settings(self) -> dict[str, Any]:
        return {}


def test_a_head_without_hyper_parameters_has_no_example(capsys: pytest.CaptureFixture[str]) -> None:
    from fedmoments.cli.heads import example_options, print_hyper

    preset = Preset("plain", Plain, "", "")
    assert hyper_table(preset) == []
    assert hyper_example(preset) is None
    print_hyper([], example_options("plain", None, baseline=True))
    assert capsys.readouterr().out == "It has no hyper-parameters.\n"


def test_every_example_can_be_fitted() -> None:
    import fedmoments as fm

    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + np.eye(3, 4)[y] * 4
    parties = {str(k): (X[k::6], y[k::6]) for k in range(6)}
    for name in head_names():
        if EVERY[name].make().has_own_map:
            continue
        example = hyper_example(EVERY[name])
        assert example is not None
        head = make_head(name, **hyper_parameters(name, [example]))
        assert np.mean(head.fit(fm.measure(parties, head.needs)).predict(X) == y) > 0.8, name
