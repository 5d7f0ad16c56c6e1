"""Files that run a federation unattended: every command in them is one of ours, and nothing runs as root."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.federation.living import Party, ask, enrol, new_ledger, write_features

from fedmoments.cli.app import app
from fedmoments.errors import InputError
from fedmoments.federation.deploy.servers import _require_plain_path
from fedmoments.federation.store import FederationStore

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))


def options_of(words: list[str]) -> set[str]:
    """Return the options that a command of ours has, once its words lead to one."""
    import click

    command: Any = app
    context = click.Context(app)
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, word)
        assert command is not None, words
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


def check_command(words: list[str]) -> None:
    typed = {word for word in words if word.startswith("--")}
    assert typed <= options_of(words), typed - options_of(words)


def documents() -> list[Any]:
    return [
        part
        for path in sorted(DEPLOY.glob("kubernetes/*.yaml"))
        for part in yaml.safe_load_all(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_run_our_commands_as_a_user_of_their_own(unit: Path) -> None:
    text = unit.read_text("utf-8")
    assert re.search(r"^User=fedmoments$", text, re.MULTILINE)
    assert "NoNewPrivileges=yes" in text
    command = re.search(r"^ExecStart=/opt/fedmoments/bin/fedmoments (.*)$", text, re.MULTILINE)
    if command:
        check_command(shlex.split(command[1]))
    if shutil.which("systemd-analyze"):
        said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
        wrong = [line for line in said.stderr.splitlines() if unit.name in line and "not executable" not in line]
        assert not wrong


def test_the_nightly_backup_is_one_that_restore_takes(tmp_path: Path) -> None:
    """What the unit's own line copies is brought back as docs/operating.md says."""
    home, backups = tmp_path / "home", tmp_path / "backups"
    home.mkdir()
    new_ledger(home / "fed.ledger", ("cat", "dog"))
    clinic = Party("clinic", tmp_path / "clinic", str(write_features(tmp_path / "a.npz", {"cat": 6, "dog": 7}, 1)))
    enrol(home / "fed.ledger", clinic)
    ask(home / "fed.ledger", clinic)
    (line,) = [line for line in (DEPLOY / "systemd" / "fedmoments-backup.service").read_text("utf-8").splitlines()
               if line.startswith("ExecStart=")]  # fmt: skip
    (script,) = shlex.split(line.removeprefix("ExecStart=/bin/sh -ec "))
    script = script.replace("$$", "$").replace("%%", "%").replace("/var/backups/fedmoments", str(backups))
    script = script.replace("/opt/fedmoments/bin/fedmoments", f"{sys.executable} -m fedmoments")
    subprocess.run(["/bin/sh", "-ec", script], cwd=home, check=True, capture_output=True)
    (night,) = backups.iterdir()
    place = tmp_path / "again"
    place.mkdir()
    for part in ("journal", "key"):
        shutil.copy(night / f"fed.ledger.{part}", place)
    with FederationStore.restore(night / "fed.ledger", place / "fed.ledger") as store:
        assert [each.client for each in store.status().contributors] == ["clinic"]
        assert store.verify().whole


def test_compose_runs_our_commands_without_privileges() -> None:
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert set(content["services"]) == {"server", "helper", "party"}
    for service in content["services"].values():
        check_command(service["command"])
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]


def test_kubernetes_runs_our_commands_without_privileges() -> None:
    pods = [part["spec"]["template"]["spec"] for part in documents() if part["kind"] == "StatefulSet"]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            check_command(container["args"])
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted - {"data"} <= {volume["name"] for volume in pod["volumes"]}


def test_the_image_is_pinned_not_root_and_watched() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert all(":" in line and ":latest" not in line for line in stages)
    last = lines[lines.index(stages[-1]) :]
    assert any(line.startswith("USER ") and line.split()[1] not in ("0", "root") for line in last)
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    assert not any("sudo" in line or line.startswith("ADD ") for line in lines)
    assert all("--no-cache-dir" in line for line in lines if "pip install" in line)


def test_a_path_that_flower_cannot_use_is_named() -> None:
    for path in ("/srv/a,b/lib", "/srv/a b/lib"):
        with pytest.raises(InputError, match="comma or a space"):
            _require_plain_path(path)
    _require_plain_path("/srv/a-b/lib")
