"""Settings arrive at Flower as they were given; its processes see nothing of the user's own Flower."""

import os
import socket
import tomllib
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.deploy import ConfigValue, FlowerHome
from fedmoments.federation.deploy.home import to_toml
from fedmoments.federation.deploy.network import choose_port

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts


@given(st.dictionaries(texts, values, max_size=5))
def test_any_setting_comes_back_from_toml(config: dict[str, ConfigValue]) -> None:
    again = tomllib.loads(to_toml(config))
    assert again == config
    assert [type(value) for value in again.values()] == [type(value) for value in config.values()]


def test_flower_reads_what_its_own_syntax_cannot_say(tmp_path: Path) -> None:
    config: dict[str, ConfigValue] = {"a.b": 1, "note": 'it\'s "this" = [7] #.toml', "path": "/a b/c.toml", "x": 1e-3}
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert parse_config_args([str(path)]) == config


@pytest.mark.parametrize("value", [2**63, None, [1], "\ud800"])
def test_what_flower_cannot_carry_is_refused(value: ConfigValue) -> None:
    with pytest.raises(InputError, match="setting"):
        to_toml({"key": value})


def test_each_process_has_a_home_of_its_own_without_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", "/somewhere/else")
    monkeypatch.setenv("FLWR_DATABASE", "/somewhere/state.db")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("NO_PROXY", "intranet")
    home = FlowerHome(tmp_path / "home")
    one, two = home.environment("one"), home.environment("two")
    assert one["FLWR_HOME"] != two["FLWR_HOME"]
    assert Path(one["FLWR_HOME"]).parent == home.folder
    assert "FLWR_DATABASE" not in one
    assert one["FLWR_TELEMETRY_ENABLED"] == "0"
    assert one["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert one["RAY_USAGE_STATS_ENABLED"] == "0"
    assert one["NO_PROXY"] == "intranet,localhost,127.0.0.1,::1"
    assert one["PATH"].split(os.pathsep)[0] == str(home.executable("flwr").parent)
    assert home.executable("flwr").exists()
    assert home.folder.stat().st_mode & 0o077 == 0
    assert Path(one["FLWR_HOME"]).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".x", "a\\b"])
def test_a_process_cannot_escape_its_home(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name that can be a folder's"):
        FlowerHome(tmp_path).of(name)


def test_a_port_that_is_taken_is_not_given(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(DeploymentError, match=rf"cannot listen at 127.0.0.1:{taken} .*choose another"):
            choose_port("127.0.0.1", taken)
    assert choose_port("127.0.0.1", taken) == taken
    ports = [choose_port("127.0.0.1") for _ in range(50)]
    assert len(set(ports)) == 50


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a" * 70 + ".org"])
def test_a_host_that_is_not_ours_has_no_ports(host: str) -> None:
    with pytest.raises(DeploymentError, match=rf"{host}.*choose an address of this machine"):
        choose_port(host)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(DeploymentError, match=rf"127.0.0.1:{port} .*choose another"):
        choose_port("127.0.0.1", port)
