"""What CI installs is locked file by file, and the bill of materials says so."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedmoments

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("sbom") / "dist" / "bill.json"
    subprocess.run([sys.executable, ROOT / ".ci" / "sbom.py", target], check=True)
    document: dict[str, Any] = json.loads(target.read_text())
    return document


def test_every_pin_has_the_hash_of_its_file_and_nothing_else_has() -> None:
    lock = script("lock")
    pins, hashes = lock.read_pins(), lock.read_hashes()
    assert {name: version for name, version in pins.items() if name not in lock.LOCAL} == {
        name: version for name, (version, _) in hashes.items()
    }, "run `make lock`"
    assert sorted(lock.LOCAL) == ["torch"]
    lines = (ROOT / "hashes.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_ci_installs_by_hash() -> None:
    assert "export HASHES=hashes.txt" in (ROOT / ".ci" / "run").read_text()
    dry = subprocess.run(
        ["make", "--dry-run", "--always-make", "HASHES=hashes.txt", "lint"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = dry.stdout.splitlines()
    (hashed,) = [place for place, line in enumerate(commands) if "--require-hashes -r hashes.txt" in line]
    own = next(place for place, line in enumerate(commands) if "-e '.[dev]'" in line)
    assert hashed < own
    assert "--no-deps" in commands[hashed]


def test_pip_refuses_a_file_that_was_changed(tmp_path: Path) -> None:
    """The attack: the index hands out another file under the same name and version."""
    wheel = tmp_path / "index" / "honest-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what was locked")
    wanted = tmp_path / "hashes.txt"
    wanted.write_text(f"honest==1.0 --hash=sha256:{'ab' * 32}\n")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", str(wheel.parent)]
    command += ["--target", str(tmp_path / "site"), "--no-deps", "--require-hashes", "-r", str(wanted)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr


def test_the_bill_names_every_pin_with_its_hash(bill: dict[str, Any]) -> None:
    lock = script("lock")
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"]["version"] == fedmoments.__version__
    components = {part["name"]: part for part in bill["components"]}
    assert {name: part["version"] for name, part in components.items()} == lock.read_pins()
    for name, (_, digest) in lock.read_hashes().items():
        assert components[name]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert "hashes" not in components["torch"]
    assert "built on the machine" in components["torch"]["properties"][0]["value"]


def test_the_bill_says_what_needs_what(bill: dict[str, Any]) -> None:
    graph = {part["ref"]: part["dependsOn"] for part in bill["dependencies"]}
    references = {part["bom-ref"] for part in bill["components"]}
    assert all(needed in references for part in graph.values() for needed in part)
    pins = script("lock").read_pins()
    assert f"pkg:pypi/numpy@{pins['numpy']}" in graph[f"pkg:pypi/scipy@{pins['scipy']}"]


def test_the_same_pins_give_the_same_bill(bill: dict[str, Any]) -> None:
    again = subprocess.run([sys.executable, ROOT / ".ci" / "sbom.py"], capture_output=True, text=True, check=True)
    assert json.loads(again.stdout) == bill
