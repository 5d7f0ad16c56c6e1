"""A folder that any web server can serve: a page that classifies in the browser, on the user's own device.

The page runs the graph of the ``onnx`` format on onnxruntime for browsers, with one thread, so no server needs to send
special headers. Images are decoded by the browser, cropped and resized as Pillow does it; sentences become token ids
where the tokenizer is a WordPiece. Its content security policy forbids every other address.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.files import write_whole
from fedmoments.handover.answers import Asked
from fedmoments.handover.export import Export
from fedmoments.handover.formats.onnx_graph import model_graph
from fedmoments.handover.model import Model
from fedmoments.handover.web_runtime import runtime_files
from fedmoments.pages.markup import Html, tag
from fedmoments.samples.encoders.onnx_export import Exportable

__all__ = ["EXPORTS"]

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
SCRIPTS = ("page.js", "model.js", "pixels.js", "tokens.js", "page.css")


def _write(
    model: Model,
    place: Path,
    *,
    runtime_folder: Path | None = None,
    abstain: float | None = None,
    coverage: float | None = None,
) -> list[Path]:
    asked = Asked(abstain, coverage)
    asked.require_of(model)
    beside = _tokenizer(model) if model.takes == "text" else {}
    runtime = runtime_files(runtime_folder)
    graph = model_graph(model).SerializeToString()
    own = files("fedmoments.handover.page")
    contents = {
        "index.html": _page(model).encode(),
        **{name: own.joinpath(name).read_bytes() for name in SCRIPTS},
        "model.json": json.dumps(_notes(model, asked), ensure_ascii=False).encode(),
        "model.onnx": graph,
        "README.md": model.card().encode(),
        **{name: path.read_bytes() for name, path in {**beside, **runtime}.items()},
    }
    place.mkdir()
    for name, content in contents.items():
        write_whole(place / name, content)
    return [place / name for name in contents]


def _tokenizer(model: Model) -> Mapping[str, Path]:
    """Return the file of a tokenizer that the page can run, or say that it cannot."""
    encoder: Any = model.encoder
    beside: Mapping[str, Path] = encoder.onnx_parts().beside if isinstance(encoder, Exportable) else {}
    described = json.loads(beside["tokenizer.json"].read_bytes()) if "tokenizer.json" in beside else {}
    kind = described.get("model", {}).get("type", "unknown")
    rules = (described.get("normalizer") or {}).get("type")
    if (kind, rules) != ("WordPiece", "BertNormalizer"):
        raise InputError(
            "a page makes token ids by WordPiece of the BERT family alone, and the tokenizer of the encoder "
            f"'{encoder.name}' is of the kind '{kind}': serve this model ('fedmoments serve'), or fit behind minilm"
        )
    return beside


def _notes(model: Model, asked: Asked) -> dict[str, Any]:
    classifier = model.classifier
    width = classifier.feature_map.required_dim() if classifier.feature_map else None
    sets: dict[str, float] | None = None
    if asked.coverage is not None and classifier.ranks is not None:
        least = classifier.ranks.threshold(asked.coverage)
        sets = {"coverage": asked.coverage, "temperature": classifier.ranks.temperature, "leastProbability": least}
    return {
        "abstainBelow": asked.abstain,
        "sets": sets,
        "classNames": list(classifier.class_names),
        "takes": model.takes,
        "dim": width or classifier.dim,
        "preprocessing": dict(model.encoder.preprocessing) if model.encoder else {},
        "digest": classifier.digest(),
    }


def _page(model: Model) -> str:
    title = f"{model.classifier.info.get('head', model.classifier.kind)}, {model.classifier.n_classes} classes"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="page.css"),
        tag("title", title),
        tag("script", type="module", src="page.js"),
    )
    body = tag(
        "body",
        tag("h1", title),
        tag("p", "Loading the model …", id="status", role="status"),
        tag("div", _inputs(model.takes), id="samples"),
        tag("ol", id="answers", aria_live="polite"),
        tag("details", tag("summary", "Model card"), tag("pre", model.card())),
        data_state="loading",
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _inputs(takes: str) -> Html:
    """Return the place where samples are given."""
    if takes == "image":
        several = tag("input", type="file", accept="image/*", multiple=True, disabled=True)
        photo = tag("input", type="file", accept="image/*", capture="environment", disabled=True)
        return Html(
            tag("p", "Drop images here, paste one, or")
            + tag(
                "div",
                tag("label", "Choose images", several, class_="button"),
                tag("label", "Take a photo", photo, class_="button"),
                class_="buttons",
            )
        )
    what = "One sentence a line" if takes == "text" else "The numbers of one sample a line"
    return tag(
        "form",
        tag("label", what, for_="text"),
        tag("textarea", id="text"),
        tag("button", "Classify", type="submit", disabled=True),
    )


EXPORTS = (Export("web", "a folder with a page that classifies in the browser (onnxruntime-web)", _write),)
