"""TOML is written so that it reads back the same."""

import tomllib

from fedmoments.settings.files import to_toml


def test_toml_says_the_same() -> None:
    config = {
        "seed": 0,
        "share": 1e-9,
        "strict": True,
        "name": 'a "b"\n\\ é \x7f',
        "heads": [f"a-rather-long-head-{i}" for i in range(9)],
        "hyper": {"fed3r": {"ridge": 0.5}, "odd key!": {"x": [[1, 2], [{"y": "z"}]]}},
        "empty": {},
    }
    assert tomllib.loads(to_toml(config)) == config


def test_toml_leaves_out_what_is_not_set() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": [1, None]}})) == {"b": {"d": [1]}}
