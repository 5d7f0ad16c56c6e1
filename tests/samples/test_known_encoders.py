"""Terms are drawn up without torch: what is bundled of the named encoders is what these encoders say themselves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedmoments.errors import InputError
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.known import SIZES, known_encoder, known_names, known_sizes, written
from fedmoments.samples.encoders.registry import encoders
from fedmoments.samples.fingerprint import Fingerprint

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "sentence_transformers", "efficientnet_lite_pytorch", "onnxruntime"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import runpy
sys.argv[0] = "fedmoments"
runpy.run_module("fedmoments", run_name="__main__")
"""


def test_every_named_encoder_with_weights_is_known() -> None:
    assert set(known_names()) == {name for name, entry in encoders().items() if entry.files and name[-1] != ":"}


def test_image_encoders_are_known_at_the_usual_sizes_and_their_own() -> None:
    assert {name: len(known_sizes(name)) for name in known_names() if encoders()[name].modality == "image"} == {
        "efficientnet-lite0": 6,
        "efficientnet-lite2": 7,
        "mobilenet-v2": 6,
        "squeezenet-1.1": 6,
    }
    assert all(set(SIZES) <= set(known_sizes(name)) for name in known_names() if known_sizes(name))
    assert known_encoder("minilm", size=96) is None


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in known_names() for size in (None, *known_sizes(name))]
)
def test_what_is_known_is_what_the_encoder_says(name: str, size: int | None) -> None:
    if not encoders()[name].installed:
        pytest.skip(f"{name} is not installed")
    known, loaded = known_encoder(name, size), load_encoder(name, size=size)
    assert known is not None
    assert known.fingerprint == loaded.fingerprint
    assert json.loads(written([known]))[name]["preprocessing"] == json.loads(written([loaded]))[name]["preprocessing"]
    Fingerprint.of(known, None, ("cat", "dog")).require_same(Fingerprint.of(loaded, None, ("cat", "dog")))


def test_a_known_encoder_encodes_nothing() -> None:
    known = known_encoder("minilm")
    assert known is not None
    with pytest.raises(InputError, match=r"'minilm' is only known here.*fedmoments\[text\]"):
        known.encode(["a sentence"])


@pytest.mark.parametrize(("name", "size"), [("efficientnet-lite0", 96), ("efficientnet-lite0", None), ("minilm", None)])
def test_a_server_is_created_where_torch_cannot_be_imported(tmp_path: Path, name: str, size: int | None) -> None:
    ledger = tmp_path / "fed.ledger"
    typed = [
        "server",
        "create",
        ledger,
        "--name",
        "pets",
        "--classes",
        "cat,dog",
        "--encoder",
        name,
        "--heads",
        "fedcof",
        *(["--size", size] if size else []),
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *map(str, typed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    terms = Terms.from_json(Path(f"{ledger}.terms.json").read_text("utf-8"))
    assert terms.encoder["fingerprint"] == load_encoder(name, size=size).fingerprint
    other = subprocess.run(
        [sys.executable, "-c", WITHOUT, "server", "create", tmp_path / "b", *map(str, typed[3:]), "--size", "97"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert other.returncode != 0, "another size must be loaded, or it would get a fingerprint of its own size"
