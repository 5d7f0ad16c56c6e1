"""A configuration: what is written is what is read, and what is wrong is said by name before any work."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.errors import FileFormatError, InputError, UnknownNameError
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study
from fedmoments.study.jobs import run_job

TEXT = st.text(max_size=12)
MAYBE_TEXT = st.none() | TEXT
COUNT = st.integers(0, 2**40)
NUMBER = st.floats(allow_nan=False)


def several(values: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(values, min_size=least, max_size=3).map(tuple)


BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "str | None": MAYBE_TEXT,
    "int": COUNT,
    "int | None": st.none() | COUNT,
    "float": NUMBER,
    "float | None": st.none() | NUMBER,
    "bool": st.booleans(),
    "bool | None": st.none() | st.booleans(),
    "tuple[str, ...]": several(TEXT, 1),
    "tuple[int, ...]": several(COUNT, 1),
    "collections.abc.Mapping[str, typing.Any]": st.dictionaries(
        TEXT, COUNT | st.floats(allow_nan=False, allow_infinity=False) | TEXT, max_size=3
    ),
}


def kind(field: Any) -> str:
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


HYPER = st.dictionaries(TEXT, st.dictionaries(TEXT, st.booleans() | COUNT | NUMBER | TEXT, max_size=3), max_size=3)
ANY_CONFIG = st.builds(
    StudySettings,
    **{field.name: HYPER if field.name == "hyper" else BY_TYPE[kind(field)] for field in fields(StudySettings)},
)


@given(ANY_CONFIG)
def test_a_configuration_survives_toml(config: StudySettings) -> None:
    assert StudySettings.from_toml(config.to_toml()) == config


@given(ANY_CONFIG)
def test_toml_and_the_dictionary_say_the_same(config: StudySettings) -> None:
    read = tomllib.loads(config.to_toml())
    nothing: dict[str, Any] = {"hyper": {}, "privacy": {}}
    assert nothing | read == nothing | config.to_dict()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = StudySettings(
        data="folder:Füße 🦶\u2028\t\U000e0001", hyper={"fed3r": {"ridge": "relative:0.1"}}, clients=(3, 9)
    )
    (tmp_path / "run.toml").write_bytes(config.to_toml().encode())
    assert StudySettings.load(tmp_path / "run.toml") == config


def test_a_single_value_stands_for_a_list_of_one() -> None:
    config = StudySettings.from_toml("heads = 'fedcof'\nclients = 10\nmemory_limit = 2")
    assert (config.heads, config.clients, config.memory_limit) == (("fedcof",), (10,), 2.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size = 'large'", "'size' must be of type int; 'large' arrived"),
        ("size = 9.5", "'size' must be of type int; 9.5 arrived"),
        ("size = true", "'size' must be of type int; True arrived"),
        ("data = 3", "'data' must be of type str; 3 arrived"),
        ("strict = 'yes'", "'strict' must be of type bool; 'yes' arrived"),
        ("test_share = 'half'", "'test_share' must be of type float; 'half' arrived"),
        ("test_share = false", "'test_share' must be of type float; False arrived"),
        ("clients = [10, 'many']", "'clients' must be of type int; 'many' arrived"),
        ("heads = [['fedcof']]", "'heads' must be of type str"),
        ("splits = {a = 1}", "'splits' must be of type str"),
        ("hyper = 'fedcof'", "'hyper' must be a table of tables"),
        ("[hyper]\nfedcof = 3", "'hyper' must be a table of tables"),
    ],
)
def test_values_of_another_type_are_refused_with_the_key_and_the_file(text: str, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        StudySettings.from_toml(text, "run.toml")
    assert words in str(refusal.value)
    assert str(refusal.value).startswith("run.toml: ")


def test_unknown_keys_are_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown key of run\.toml 'encodr': did you mean 'encoder'"):
        StudySettings.from_toml("encodr = 'minilm'", "run.toml")
    with pytest.raises(FileFormatError, match=r"run\.toml is not TOML"):
        StudySettings.from_toml("seeds = ", "run.toml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": ("nothing",)}, "unknown head"),
        ({"heads": ()}, "no head"),
        ({"splits": ("somehow",)}, "unknown split"),
        ({"splits": ("dirichlet:-1",)}, "ALPHA"),
        ({"splits": ()}, "nothing to simulate"),
        ({"shrinkages": ("much",)}, "shrinkage is one of"),
        ({"clients": (0,)}, "clients must be 1 or more"),
        ({"means_per_client": (0,)}, "means_per_client must be 1 or more"),
        ({"means_per_client": ()}, "nothing to simulate"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"seed": -1}, "seed 0 or more"),
        ({"participation": ("0",)}, "1 or more"),
        ({"participation": ("many",)}, "KAPPA"),
        ({"heads": ("fedncm",), "hyper": {"fed3r": {}}}, "not among the heads"),
        ({"hyper": {"fedncm": {"metric": "far"}}}, "metric must be"),
        ({"hyper": {"fedncm": {"rank": 1}}}, "rank"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_data_are_looked_at(change: dict[str, Any], words: str) -> None:
    config = StudySettings(data="nowhere", **change)
    with pytest.raises(InputError, match=words):
        check_study(config)
    with pytest.raises(InputError, match=words):
        run_job(config, Path("out"))
    assert not Path("out").exists()
