"""Networks of one's own: torch:, timm:, onnx:, and the export between them."""

import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from tests.waiting import HANG
from torch import Tensor, nn

from fedmoments.errors import FedMomentsError, FileFormatError, InputError, MissingExtraError
from fedmoments.samples.encoders import IMAGENET, ImagePreprocessing, export_onnx, load_encoder
from fedmoments.samples.encoders.onnx_file import read_description
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.sources.registry import load_data

SOURCE = """
import torch
from torch import nn
from fedmoments.samples.encoders import ImagePreprocessing

def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.ReLU())

def other_weights():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.ReLU())

def flat():
    return nn.Sequential(convolution(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def dropout():
    return nn.Sequential(convolution(), nn.Dropout(0.5))

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = convolution()
    def forward(self, x):
        return self.convolution(x).flatten(2).transpose(1, 2)

class Pair(nn.Module):
    def forward(self, x):
        return x, x

class Deep(nn.Module):
    def forward(self, x):
        return x[None]

def with_preparation():
    return convolution(), ImagePreprocessing(size=40, channels="BGR", mean=(0, 0, 0), scale=(255, 255, 255))

def number():
    return 7

constant = 7
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "my_networks.py"
    path.write_text(SOURCE)
    return path


def pixels(size: int, n: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n, 3, size, size)).astype(np.uint8)


def convolved(batch: NDArray[np.uint8], images: ImagePreprocessing) -> NDArray[np.float32]:
    """The referee: maps (n, 5, h, w) of the convolution above."""
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 5, 3, stride=2)
    with torch.inference_mode():
        maps: NDArray[np.float32] = torch.relu(layer(torch.from_numpy(images.normalize(batch)))).numpy()
    return maps


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
@pytest.mark.parametrize(
    ("function", "pooling"),
    [
        ("convolution", "mean"),
        ("convolution", "max"),
        ("flat", None),
        ("dropout", None),
        ("Tokens", "cls"),
        ("Tokens", "max"),
    ],
)
def test_any_module_is_an_encoder(function: str, pooling: str | None, runtime: Any, source: Path) -> None:
    encoder = load_encoder(
        f"torch:{source}:{function}", size=48, pooling=pooling, runtime=runtime, threads=1, cache=source.parent
    )
    maps = convolved(pixels(48), ImagePreprocessing(size=48))
    expected = {"max": maps.max((2, 3)), "cls": maps[:, :, 0, 0]}.get(pooling or "", maps.mean((2, 3)))
    np.testing.assert_allclose(encoder.encode(list(pixels(48))), expected, atol=1e-4)
    assert encoder.dim == 5


def test_a_module_is_found_by_import_too(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(source.parent)
    by_name = load_encoder("torch:my_networks:convolution", size=48)
    assert by_name.fingerprint == load_encoder(f"torch:{source}:convolution", size=48).fingerprint
    monkeypatch.delitem(sys.modules, "my_networks")


def test_a_function_may_say_how_images_are_prepared(source: Path) -> None:
    encoder = load_encoder(f"torch:{source}:with_preparation")
    assert encoder.preprocessing["size"] == 40
    assert encoder.preprocessing["channels"] == "BGR"
    images = ImagePreprocessing.from_description(encoder.preprocessing)
    expected = convolved(pixels(40), images).mean((2, 3))
    np.testing.assert_allclose(encoder.encode(list(pixels(40))), expected, atol=1e-5)
    with pytest.raises(InputError, match="no classification layer"):
        encoder.classify(pixels(40))  # type: ignore[attr-defined]


def test_the_fingerprint_follows_weights_and_normalisation(source: Path) -> None:
    base = load_encoder(f"torch:{source}:convolution", size=48)
    grey = ImagePreprocessing(mean=(127, 127, 127), scale=(128, 128, 128))
    others = [
        load_encoder(f"torch:{source}:other_weights", size=48),
        load_encoder(f"torch:{source}:convolution", size=48, images=grey),
        load_encoder(f"torch:{source}:convolution", size=64),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert load_encoder(f"torch:{source}:dropout", size=48).dim == base.dim


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch:{}", "torch:MODULE:FUNCTION"),
        ("torch:{}:none", "no 'none' to call"),
        ("torch:{}:constant", "no 'constant' to call"),
        ("torch:{}:number", "returned int"),
        ("torch:{}:Pair", "returned tuple"),
        ("torch:{}:Deep", "2, 3 or 4 axes"),
        ("torch:no_such_module:function", "cannot be imported"),
        ("torch:no_such_file.py:function", "does not exist"),
        ("torch:", "torch:MODULE:FUNCTION"),
    ],
)
def test_what_gives_no_network_is_refused(name: str, reason: str, source: Path) -> None:
    with pytest.raises(InputError, match=reason):
        load_encoder(name.format(str(source).removesuffix(".py") if name == "torch:{}" else source))


def test_cls_pooling_of_a_map_is_refused(source: Path) -> None:
    with pytest.raises(InputError, match="pooling 'cls' does not fit"):
        load_encoder(f"torch:{source}:convolution", pooling="cls")


def test_an_exported_file_is_the_encoder(source: Path, tmp_path: Path) -> None:
    encoder = load_encoder(f"torch:{source}:with_preparation", pooling="max")
    path = export_onnx(encoder, tmp_path / "folder" / "export.onnx")
    again = load_encoder(f"onnx:{path}", threads=1)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_allclose(again.encode(list(pixels(40))), encoder.encode(list(pixels(40))), atol=1e-4)
    onnx.checker.check_model(onnx.load(path))
    assert [entry.name for entry in path.parent.iterdir()] == ["export.onnx"]
    with pytest.raises(InputError, match="exported for size 40"):
        load_encoder(f"onnx:{path}", size=64)
    with pytest.raises(FedMomentsError, match="cannot be exported"):
        export_onnx(again, path)


def test_a_damaged_export_is_refused_by_name_and_made_again_in_the_cache(source: Path, tmp_path: Path) -> None:
    name = f"torch:{source}:convolution"
    encoder = load_encoder(name, size=48, runtime="onnx", cache=tmp_path)
    (path,) = (tmp_path / "onnx").iterdir()
    sound = path.read_bytes()
    for place in (100, len(sound) // 2, len(sound) - 3):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="damaged"):
            load_encoder(f"onnx:{path}")
    again = load_encoder(name, size=48, runtime="onnx", cache=tmp_path)
    assert read_description(path) is not None
    np.testing.assert_array_equal(again.encode(list(pixels(48))), encoder.encode(list(pixels(48))))


def test_the_cache_is_where_the_environment_says(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "here"))
    encoder = load_encoder(f"torch:{source}:flat", size=48, runtime="onnx")
    assert [path.name for path in (tmp_path / "here" / "onnx").iterdir()] == [f"{encoder.fingerprint}-2.onnx"]


def test_two_processes_may_export_at_once(source: Path, tmp_path: Path) -> None:
    program = f"""
from fedmoments.samples.encoders import load_encoder
print(load_encoder("torch:{source}:flat", size=48, runtime="onnx", threads=1, cache={str(tmp_path)!r}).fingerprint)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=HANG) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert len(list((tmp_path / "onnx").iterdir())) == 1


class Unfaithful(nn.Module):
    """Tracing keeps what it saw: this one is larger at every call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.mean((2, 3)) + self.calls


def test_an_export_that_is_not_faithful_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("unfaithful")
    module.make = Unfaithful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unfaithful", module)
    with pytest.raises(FedMomentsError, match="not faithful"):
        load_encoder("torch:unfaithful:make", size=32, runtime="onnx", cache=tmp_path)
    assert not list(tmp_path.rglob("*.onnx"))


def foreign(path: Path, batch: int | None = None, size: int | None = 48) -> nn.Module:
    """Write an ONNX file as others do: float input, fixed or free batch."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.ReLU()).eval()
    axes = {} if batch else {0: "n"}
    axes.update({} if size else {2: "h", 3: "w"})
    torch.onnx.export(
        network,
        (torch.zeros(batch or 2, 3, size or 48, size or 48),),
        path,
        dynamo=False,
        opset_version=17,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": axes},
    )
    return network


# The exporter that needs no further package is deprecated.
deprecated_exporter = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@deprecated_exporter
@pytest.mark.parametrize("batch", [None, 2])
def test_a_foreign_onnx_file_is_normalised_pooled_and_filled_up(batch: int | None, tmp_path: Path) -> None:
    foreign(tmp_path / "model.onnx", batch)
    encoder = load_encoder(f"onnx:{tmp_path / 'model.onnx'}", threads=1)
    assert encoder.preprocessing["size"] == 48
    assert encoder.batch_size == (batch or 32)
    expected = convolved(pixels(48), ImagePreprocessing(size=48)).mean((2, 3))
    np.testing.assert_allclose(encoder.encode(list(pixels(48))), expected, atol=1e-4)
    with pytest.raises(InputError, match=r"images of \[48, 48\] pixels, but size is 64"):
        load_encoder(f"onnx:{tmp_path / 'model.onnx'}", size=64)


@deprecated_exporter
def test_a_foreign_onnx_file_of_free_size_takes_a_size(tmp_path: Path) -> None:
    foreign(tmp_path / "model.onnx", size=None)
    name = f"onnx:{tmp_path / 'model.onnx'}"
    assert load_encoder(name).preprocessing["size"] == IMAGENET.size
    encoder = load_encoder(name, size=64, pooling="max", images=ImagePreprocessing(channels="BGR"))
    expected = convolved(pixels(64), ImagePreprocessing(size=64, channels="BGR")).max((2, 3))
    np.testing.assert_allclose(encoder.encode(list(pixels(64))), expected, atol=1e-4)


@deprecated_exporter
def test_weights_beside_an_onnx_file_count(tmp_path: Path) -> None:
    foreign(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    apart = tmp_path / "apart.onnx"
    onnx.save_model(model, apart, save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = load_encoder(f"onnx:{apart}").weights_hash
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    assert load_encoder(f"onnx:{apart}").weights_hash != before


def test_onnx_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_encoder(f"onnx:{tmp_path / 'none.onnx'}")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(FileFormatError, match="cannot load"):
        load_encoder(f"onnx:{tmp_path / 'text.onnx'}")
    helper, kinds = onnx.helper, onnx.TensorProto
    for kind, shape, reason in (
        (kinds.FLOAT, [1, 5, 2], "one input of images"),
        (kinds.DOUBLE, [1, 3, 32, 32], "double"),
    ):
        inputs = [helper.make_tensor_value_info("x", kind, shape)]
        outputs = [helper.make_tensor_value_info("y", kind, shape)]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, tmp_path / "odd.onnx")
        with pytest.raises(InputError, match=reason):
            load_encoder(f"onnx:{tmp_path / 'odd.onnx'}")


def test_a_model_of_rows_of_one_size_of_batch_is_filled_up(tmp_path: Path) -> None:
    helper, shape = onnx.helper, [3, 5]
    inputs, outputs = ([helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, shape)] for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "graph", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n.onnx")
    encoder = load_encoder(f"onnx:{tmp_path / 'n.onnx'}", threads=1)
    X = np.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(encoder.encode([encoder.prepare(row) for row in X]), -X.astype(np.float32))


def test_timm_is_asked_for_by_name_and_prepares_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for timm, which needs torchvision and is not among the test requirements."""
    asked: dict[str, Any] = {}

    def create_model(name: str, **settings: Any) -> nn.Module:
        if name == "none":
            raise RuntimeError("Unknown model (none)")
        asked.update(settings, name=name)
        return nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    config = {
        "input_size": (3, 64, 64),
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": (0, 0, 0),
        "std": (1, 1, 1),
    }
    timm = ModuleType("timm")
    timm.create_model = create_model  # type: ignore[attr-defined]
    timm.data = SimpleNamespace(resolve_model_data_config=lambda network: config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    encoder = load_encoder("timm:some_net", crop=1.0)
    assert asked == {"name": "some_net", "pretrained": True, "num_classes": 0}
    assert encoder.dim == 4
    said = encoder.preprocessing
    assert (said["size"], said["crop"], said["interpolation"], said["scale"]) == (64, 1.0, "bicubic", [255.0] * 3)
    with pytest.raises(InputError, match="Unknown model"):
        load_encoder("timm:none")


def test_without_timm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"fedmoments\[timm\]"):
        load_encoder("timm:resnet18")


def test_timm_itself() -> None:
    timm = pytest.importorskip("timm", reason="timm needs torchvision, which is not among the test requirements")
    name = timm.list_models()[0]
    assert timm.create_model(name, pretrained=False, num_classes=0) is not None


@pytest.fixture(name="rows")
def fixture_rows(tmp_path: Path) -> Path:
    """A network of tables as an ONNX file: four columns to seven features."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 7), nn.Tanh()).eval()
    torch.save(network.state_dict(), tmp_path / "rows.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, 4),), tmp_path / "rows.onnx", dynamo=False, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        )  # fmt: skip
    return tmp_path / "rows.onnx"


def test_an_onnx_file_of_rows_is_an_encoder_of_tables(rows: Path, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 7), nn.Tanh())
    network.load_state_dict(torch.load(rows.with_suffix(".pt")))
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    encoder = load_encoder(f"onnx:{rows}", threads=1, batch_size=7)
    assert (encoder.modality, encoder.dim) == ("features", 7)
    with torch.inference_mode():
        wanted = network(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(encoder.encode([encoder.prepare(row) for row in X]), wanted, atol=1e-6)
    assert encoder.behaviour.agrees(load_encoder(f"onnx:{rows}").behaviour)
    with pytest.raises(InputError, match="takes rows of numbers: leave pooling out"):
        load_encoder(f"onnx:{rows}", pooling="mean")
    with pytest.raises(InputError, match=r"features must have shape \(4,\)"):
        encoder.prepare([1.0, 2.0])
    y = (X[:, 0] > 0).astype(int)
    lines = ["a,b,c,d,label", *(",".join(map(str, [*row, ["no", "yes"][k]])) for row, k in zip(X, y, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    data = load_data(f"csv:{tmp_path / 't.csv'}", features="a,b,c,d", test_share=0.0)
    encoded = encode_samples(encoder, data.train)
    np.testing.assert_allclose(encoded.features, wanted, atol=1e-6)
