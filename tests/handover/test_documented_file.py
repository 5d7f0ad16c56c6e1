"""The reader and the formulas of docs/export.md, in plain numpy, give the scores of every kind of classifier."""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.handover.test_export_equality import DIM, KINDS, arrays

import fedmoments as fm
from fedmoments.core.maps import Chain, Clip, Directions, FeatureMap, Normalize, Offset, Power
from fedmoments.errors import InputError
from fedmoments.handover.export import EXPORTS, export

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"


def documented_reader() -> Any:
    """Return the function ``read`` as the document has it, with numpy and the standard library alone."""
    text = DOCUMENT.read_text("utf-8")
    (code,) = re.findall(r"^TYPES = .*?^    return notes, arrays$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 20
    names: dict[str, Any] = {}
    exec(f"import json, struct\nfrom pathlib import Path\nimport numpy as np\n{code}", names)
    return names["read"]


def documented_map(description: dict[str, Any] | None, x: Any) -> Any:
    """Return rows behind a feature map by the document's table of maps."""
    if description is None:
        return x
    kind, lengths = description["kind"], np.linalg.norm(x, axis=1, keepdims=True)
    if kind == "chain":
        for stage in description["maps"]:
            x = documented_map(stage, x)
        return x
    if kind == "normalize":
        return x / np.where(lengths > 0, lengths, 1.0)
    if kind == "power":
        return np.sign(x) * np.abs(x) ** description["exponent"]
    if kind == "clip":
        return x * np.minimum(1.0, description["norm"] / np.where(lengths > 0, lengths, 1.0))
    if kind == "offset":
        return x - np.array(description["vector"])
    assert kind == "directions"
    shape = description["input_dim"], description["n_components"]
    return x @ np.frombuffer(base64.b64decode(description["columns"]), "<f4").reshape(shape).astype(float)


def summed(scores: Any) -> Any:
    """Return log sum exp of the last axis."""
    return np.log(np.exp(scores).sum(-1))


def documented_scores(kind: str, a: dict[str, Any], X: Any) -> Any:
    """Return the scores (n, C) by the formulas of the document's table; classes without samples are not looked at."""
    z = X - a.get("offset", 0.0)
    z = z @ a["basis"] if "basis" in a else z
    if kind in ("linear", "mixture", "ensemble"):
        columns = z @ a["weights"] + a["bias"]
    if kind == "linear":
        return columns
    classes = range(len(a["present"]))
    if kind == "mixture":
        return np.stack([summed(columns[:, a["labels"] == c]) for c in classes if (a["labels"] == c).any()], 1)
    if kind == "ensemble":
        total = 0.0
        for k, own in enumerate(np.split(np.arange(len(a["labels"])), a["starts"][1:].astype(int))):
            labels = a["labels"][own]
            place = [own[labels == (c if (labels == c).any() else -1)][0] if (labels == c).any() or (labels == -1).any()
                     else own[0] for c in classes]  # fmt: skip
            shares = np.exp(columns[:, place] - summed(columns[:, place])[:, None])
            total = total + a["mixing"][k] * shares
        return np.log(total)
    away = z[:, None, :] - a["means"]
    if kind == "quadratic":
        return a["bias"] - 0.5 * (np.einsum("cij,ncj->nci", a["whiteners"], away) ** 2).sum(-1)
    given = a["bias"] - 0.5 * (away**2 * a["precisions"]).sum(-1)
    if kind == "low-rank":
        given = given + 0.5 * (np.einsum("crd,ncd->ncr", a["projections"], away) ** 2).sum(-1)
    return given


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_in_plain_numpy_gives_our_scores(kind: str, tmp_path: Path) -> None:
    classifier = arrays(np.random.default_rng(1), DIM, kind)
    classifier.save(tmp_path / "head.safetensors")
    notes, read = documented_reader()(tmp_path / "head.safetensors")
    assert (notes["classifier"], notes["temperature"]) == (kind, classifier.temperature)
    assert f"| `{kind}` |" in DOCUMENT.read_text("utf-8")
    X = np.random.default_rng(2).normal(size=(50, DIM))
    present = read["present"].astype(bool)
    scores = documented_scores(kind, read, X)
    scores = scores if scores.shape[1] == present.sum() else scores[:, present]
    np.testing.assert_allclose(scores, classifier.scores(X)[:, present], rtol=1e-12, atol=1e-12)
    shares = np.exp(scores / notes["temperature"])
    shares /= shares.sum(1, keepdims=True)
    np.testing.assert_allclose(shares, classifier.predict_proba(X)[:, present], rtol=1e-9)


@pytest.mark.parametrize(
    "feature_map",
    [
        Normalize(),
        Power(0.5),
        Power(0.3),
        Clip(0.7),
        Offset(np.arange(DIM) / 3.0),
        Directions.of(np.random.default_rng(3).normal(size=(DIM, 3))),
        Chain((Power(0.5), Normalize(), Offset(np.ones(DIM)), Directions.of(np.eye(DIM, 2)))),
    ],
    ids=lambda given: given.kind,
)
def test_maps_by_their_documented_formulas_give_our_probabilities(feature_map: FeatureMap, tmp_path: Path) -> None:
    made = arrays(np.random.default_rng(1), feature_map.output_dim(DIM), "linear").mapped(feature_map)
    made.save(tmp_path / "head.safetensors")
    notes, read = documented_reader()(tmp_path / "head.safetensors")
    text = DOCUMENT.read_text("utf-8")
    assert f"| `{feature_map.kind}` |" in text
    X = np.random.default_rng(2).normal(size=(50, DIM))
    X[0] = 0.0
    scores = documented_scores("linear", read, documented_map(notes["feature_map"], X))[:, read["present"]]
    np.testing.assert_allclose(scores, made.scores(X)[:, read["present"]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("head", ["ridge-regression", "multi-label"])
def test_models_of_targets_are_read_by_their_documented_formulas_and_refused_by_exports(
    head: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, DIM)) + 2.0
    targets = X[:, :2] @ np.array([[1.0, -1.0], [0.5, 2.0]]) + 0.1 * rng.normal(size=(80, 2))
    model = fm.fit(head, {"a": (X, targets > 0.0 if head == "multi-label" else targets)})
    model.save(tmp_path / "model.safetensors")
    notes, read = documented_reader()(tmp_path / "model.safetensors")
    assert f"| `{notes['classifier']}` |" in DOCUMENT.read_text("utf-8")
    values = (X - read["offset"]) @ read["weights"] + read["bias"]
    found = values > read["thresholds"] if head == "multi-label" else values
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9)
    for name in EXPORTS:
        with pytest.raises(InputError, match="has values, not probabilities of classes, and no format"):
            export(model, name, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors"]
