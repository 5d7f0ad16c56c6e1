"""A folder as on the Hugging Face hub: config.json, model.safetensors, preprocessor_config.json, README.md.

``model.safetensors`` is the classifier file that docs/export.md specifies. With an encoder the folder also has
``encoder.onnx``, which takes what ``preprocessor_config.json`` describes, and the tokenizer of a text encoder.
"""

import json
from pathlib import Path
from typing import Any

from fedmoments.files import write_whole
from fedmoments.handover.export import Export
from fedmoments.handover.model import Model
from fedmoments.samples.encoders.onnx_export import Exportable, export_onnx

__all__ = ["EXPORTS"]


def _config(model: Model) -> dict[str, Any]:
    classifier = model.classifier
    names = dict(enumerate(classifier.class_names))
    return {
        "model_type": "fedmoments",
        "classifier": classifier.kind,
        "hidden_size": classifier.dim,
        "id2label": {str(label): name for label, name in names.items()},
        "label2id": {name: label for label, name in names.items()},
        "temperature": classifier.temperature,
        **model.doubts(),
        "takes": model.takes,
        "encoder": model.encoder.name if model.encoder else None,
        "feature_map": classifier.feature_map.describe() if classifier.feature_map else None,
        "digest": classifier.digest(),
    }


def _front_matter(model: Model) -> str:
    tag = {"image": "image-classification", "text": "text-classification"}.get(model.takes, "tabular-classification")
    return f"---\nlibrary_name: fedmoments\npipeline_tag: {tag}\ntags: [federated-learning, one-shot]\n---\n\n"


def _write(model: Model, place: Path) -> list[Path]:
    place.mkdir()
    texts = {"config.json": json.dumps(_config(model), indent=2, ensure_ascii=False) + "\n"}
    if model.encoder is not None:
        described = {"takes": model.takes, **model.encoder.preprocessing}
        texts["preprocessor_config.json"] = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    texts["README.md"] = _front_matter(model) + model.card()
    for name, text in texts.items():
        write_whole(place / name, text.encode())
    model.classifier.save(place / "model.safetensors")
    names = ["config.json", "model.safetensors", *(name for name in texts if name != "config.json")]
    if model.encoder is not None:
        export_onnx(model.encoder, place / "encoder.onnx")
        beside = model.encoder.onnx_parts().beside if isinstance(model.encoder, Exportable) else {}
        for name, file in beside.items():
            write_whole(place / name, file.read_bytes())
        names += ["encoder.onnx", *beside]
    return [place / name for name in names]


EXPORTS = (Export("huggingface", "a folder as on the Hugging Face hub, with a model card", _write),)
