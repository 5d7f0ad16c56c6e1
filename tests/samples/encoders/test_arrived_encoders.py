"""Nothing that arrives names code: terms, model files and tuned encoders lead to no import, path or download.

Each attack leaves a file behind if a single line of the module ran that it names.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError, PolicyError
from fedmoments.samples.encoders.registry import encoders, load_encoder, require_trusted

CODE = """
from pathlib import Path
Path({mark!r}).write_text("the module was imported")

def network():
    raise SystemExit("and called")
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it shows that code ran which a file named."""
    path = tmp_path / "mark"
    (tmp_path / "arrived_code.py").write_text(CODE.format(mark=str(path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.fixture
def attacks(tmp_path: Path) -> list[str]:
    file = tmp_path / "arrived_code.py"
    return [
        "torch:arrived_code:network",
        f"torch:{file}:network",
        "untrained:torch:arrived_code:network",
        f"untrained:torch:{file}:network:3",
        "torch:os:abort",
        "onnx:/etc/passwd",
        "sentence-transformers:/tmp",
        "transformers:somebody/model",
        "timm:hf_hub:somebody/model",
        "tuned:/etc/passwd",
        "no-such-encoder",
        "torch:",
    ]


def test_only_plain_names_and_what_the_user_named_may_arrive(attacks: list[str]) -> None:
    for name in encoders():
        if not name.endswith(":"):
            assert require_trusted(name, (), "the terms") == name
    for name in attacks:
        with pytest.raises(PolicyError, match="nothing of it was loaded"):
            require_trusted(name, (), "the terms")
        assert require_trusted(name, [name], "the terms") == name
    for odd in (None, 7, ["minilm"], {"name": "minilm"}):
        with pytest.raises(InputError, match="a text was expected"):
            require_trusted(odd, (), "the terms")
    with pytest.raises(PolicyError) as told:
        require_trusted("torch:\x1b[2J:x", (), "the terms")
    assert "\x1b" not in str(told.value)


def test_terms_that_name_code_run_none_at_a_client_that_read_them(
    attacks: list[str], mark: Path, tmp_path: Path
) -> None:
    pytest.importorskip("flwr")
    from fedmoments.federation.deploy.local import prepare_local
    from fedmoments.federation.flower.holdings import Holdings
    from fedmoments.federation.flower.node import Node
    from fedmoments.federation.store import FederationStore
    from fedmoments.settings.client import ClientSettings
    from fedmoments.settings.server import ServerSettings
    from fedmoments.settings.study import StudySettings

    data = tmp_path / "data.npz"
    y = np.arange(12) % 2
    np.savez(data, x_train=np.ones((12, 3)) + y[:, None], y_train=y, x_test=np.ones((2, 3)), y_test=[0, 1])
    config = StudySettings(data=f"npz:{data}", clients=(2,), splits=("iid",))
    plan = prepare_local(tmp_path / "plan", config, ServerSettings("l", heads=("fedncm",)), nodes=1, engine="memory")
    with FederationStore.open(plan.server.ledger) as store:
        sound = store.terms
    own = ClientSettings.load(plan.shared_settings)
    for name in attacks:
        terms = replace(sound, encoder={**sound.encoder, "name": name})
        bound = replace(own, federation=terms.id)  # as if its user had read and accepted these very terms
        offer = Node(bound).contribute(terms, most_bytes=2**20)
        assert not offer.clients
        assert "nothing of it was loaded" in offer.declined[0]["why"]
        with pytest.raises(PolicyError, match="nothing of it was loaded"):
            Holdings(bound, terms)
    assert not mark.exists()


@pytest.mark.parametrize("options", [{}, {"cache": "/tmp/elsewhere"}, {"device": "cuda"}, [], "size"])
def test_a_model_file_that_names_code_runs_none(mark: Path, attacks: list[str], options: Any) -> None:
    from fedmoments.core.classifier import LinearClassifier, load_bytes
    from fedmoments.handover.model import encoder_of

    for name in attacks if options == {} else ["squeezenet-1.1"]:
        note = {"name": name, "fingerprint": "ab" * 32, "options": options}
        head = LinearClassifier(weights=np.ones((3, 2)), bias=np.zeros(2), present=np.ones(2, bool)).noting(
            encoder=note
        )
        with pytest.raises((PolicyError, InputError)):
            encoder_of(load_bytes(head.to_bytes()))
    assert not mark.exists()


def test_a_tuned_encoder_that_names_code_runs_none(mark: Path, attacks: list[str], tmp_path: Path) -> None:
    from fedmoments.files import write_tensors

    path = tmp_path / "tuned.safetensors"
    for name in attacks:
        header = {"base": name, "options": {}, "weights": "ab" * 32, "preprocessing": {}}
        write_tensors(path, "encoder", {"bias": np.zeros(3, np.float32)}, header)
        with pytest.raises((PolicyError, InputError, FileFormatError)):
            load_encoder(f"tuned:{path}")
    assert not mark.exists()


def test_terms_as_a_file_run_no_code_in_plan_and_audit(mark: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from click.testing import CliRunner

    from fedmoments.cli.app import app

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, [str(part) for part in arguments])

    data, ledger = str(tmp_path / "d.npz"), tmp_path / "trial.ledger"
    y = np.arange(20) % 2
    np.savez(data, x_train=np.ones((20, 3)) + y[:, None], y_train=y)
    assert run("server", "create", str(ledger), "--name", "t", "--data", data, "--heads", "fedncm").exit_code == 0
    assert run("keys", "client", str(tmp_path / "keys"), "--name", "clinic").exit_code == 0
    terms = Path(f"{ledger}.terms.json")
    document = json.loads(terms.read_text())
    document["encoder"]["name"] = "torch:arrived_code:network"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    own = ("--keys", str(tmp_path / "keys"), "--data", data, "--folder", str(tmp_path / "clinic"))
    planned = run("client", "clinic", *own, "--plan", "--terms", str(bad))
    assert planned.exit_code != 0
    assert "nothing of it was loaded" in planned.output.replace("\n", " ")
    audited = run("audit", "--config", str(tmp_path / "clinic" / "client.toml"), "--terms", str(bad))
    assert audited.exit_code not in (0, None)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["transformers", "transformers-image", "sentence-transformers"])
def test_a_folder_of_a_model_brings_no_code(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings name a module beside them, and whoever sits at the terminal says yes to whatever is asked."""
    pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    folder, mark = tmp_path / "model", tmp_path / "mark"
    folder.mkdir()
    (folder / "evil.py").write_text(CODE.format(mark=str(mark)) + "\nclass C: ...\nclass M: ...\nclass T: ...\n")
    mapped = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoTokenizer": ["evil.T", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": mapped}))
    (folder / "preprocessor_config.json").write_text("{}")
    if kind == "sentence-transformers":
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.M"}]))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(f"{kind}:{folder}")
    assert not mark.exists()


def test_pickled_weights_of_a_model_are_not_run(tmp_path: Path) -> None:
    torch, mark = pytest.importorskip("torch"), tmp_path / "mark"
    pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 6,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"], **sizes}))
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    (tmp_path / "tokenizer_config.json").write_text("{}")

    class Attack:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    torch.save({"weight": Attack()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(f"transformers:{tmp_path}")
    assert not mark.exists()
