"""Image models of transformers, small and made here: CLIP, SigLIP, DINOv2, ViT, a ResNet; and what open_clip lacks."""

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

import torch

from fedmoments.errors import FedMomentsError, InputError, MissingExtraError
from fedmoments.samples.encoders import load_encoder

SIDE = 32
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 40, 48, 3), np.uint8)
SAID = {
    "size": {"shortest_edge": SIDE},
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
SMALL = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE,
    "patch_size": 8,
}  # fmt: skip
TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}


def tiny(kind: str, folder: Path, said: dict[str, Any] | None = None) -> Path:
    """Write a model of random weights with the settings of its images."""
    library: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    if kind in {"CLIP", "Siglip"}:
        configuration = getattr(library, f"{kind}Config")(text_config=TEXT, vision_config=SMALL)
        if kind == "CLIP":
            configuration.projection_dim = 12
        model = getattr(library, f"{kind}Model")(configuration)
    elif kind == "ResNet":
        model = library.ResNetModel(
            library.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        )
    else:
        model = getattr(library, f"{kind}Model")(getattr(library, f"{kind}Config")(**SMALL))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SAID if said is None else said))
    return folder


def reference(kind: str, folder: Path, images: Any) -> Any:
    """Return what the library's own model says of prepared images."""
    library: Any = importlib.import_module("transformers")
    model = library.AutoModel.from_pretrained(folder).eval()
    mean, std = (255 * torch.tensor(SAID[name]).reshape(1, 3, 1, 1) for name in ("image_mean", "image_std"))
    with torch.inference_mode():
        pixels = (torch.from_numpy(images).float() - mean) / std
        if kind in {"CLIP", "Siglip"}:
            features = model.get_image_features(pixel_values=pixels)
            return (features if isinstance(features, torch.Tensor) else features.pooler_output).numpy()
        states = model(pixel_values=pixels).last_hidden_state
        return (states.mean((2, 3)) if kind == "ResNet" else states[:, 0]).numpy()


@pytest.mark.parametrize(("kind", "dim"), [("CLIP", 12), ("Siglip", 16), ("Dinov2", 16), ("ViT", 16), ("ResNet", 16)])
def test_features_are_those_of_the_library(tmp_path: Path, kind: str, dim: int) -> None:
    folder = tiny(kind, tmp_path)
    encoder = load_encoder(f"transformers-image:{folder}", batch_size=5, threads=1)
    assert (encoder.dim, encoder.modality) == (dim, "image")
    prepared = [encoder.prepare(image) for image in PIXELS]
    wanted = reference(kind, folder, np.stack(prepared))
    np.testing.assert_allclose(encoder.encode(prepared), wanted, rtol=2e-4, atol=2e-5)
    assert np.ptp(wanted, axis=0).max() > 1e-4  # images differ in what they give
    again = load_encoder(f"transformers-image:{folder}", batch_size=5)
    assert again.fingerprint == encoder.fingerprint


def test_images_are_prepared_as_the_model_says(tmp_path: Path) -> None:
    folder = tiny("Dinov2", tmp_path, {**SAID, "size": {"shortest_edge": 64}, "resample": 2})
    said = load_encoder(f"transformers-image:{folder}").preprocessing
    assert (said["size"], said["crop"], said["interpolation"]) == (SIDE, 0.5, "bilinear")
    assert said["mean"] == pytest.approx([255 * value for value in SAID["image_mean"]])  # type: ignore[attr-defined]
    whole = {"size": {"height": SIDE, "width": SIDE}, "do_normalize": False}
    folder = tiny("Dinov2", tmp_path / "other", whole)
    said = load_encoder(f"transformers-image:{folder}").preprocessing
    assert (said["size"], said["crop"], said["mean"], said["scale"]) == (SIDE, 1.0, [0.0] * 3, [255.0] * 3)


def test_pooling_is_chosen_among_what_a_model_gives(tmp_path: Path) -> None:
    folder = tiny("ViT", tmp_path)
    one, other = (load_encoder(f"transformers-image:{folder}", pooling=pooling) for pooling in ("cls", "mean"))
    assert one.fingerprint != other.fingerprint
    with pytest.raises(InputError, match="must be cls or mean or max"):
        load_encoder(f"transformers-image:{folder}", pooling="sum")


@pytest.mark.parametrize("change", [{"size": None, "crop_size": None}, {"rescale_factor": 0.5}])
def test_settings_that_cannot_be_obeyed_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = tiny("ViT", tmp_path, {**SAID, **change})
    with pytest.raises(InputError, match="transformers-image"):
        load_encoder(f"transformers-image:{folder}")


def test_models_of_texts_and_folders_of_nothing_are_refused(tmp_path: Path) -> None:
    library: Any = importlib.import_module("transformers")
    library.BertModel(library.BertConfig(**TEXT)).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(SAID))
    with pytest.raises(InputError, match="not images: texts are transformers:NAME"):
        load_encoder(f"transformers-image:{tmp_path}")
    with pytest.raises(FedMomentsError):
        load_encoder(f"transformers-image:{tmp_path / 'nothing'}")


@pytest.mark.skipif(importlib.util.find_spec("open_clip") is not None, reason="open_clip is here")
def test_open_clip_says_what_it_lacks() -> None:
    with pytest.raises(MissingExtraError, match="open_clip"):
        load_encoder("open_clip:ViT-B-32/laion2b_s34b_b79k")
