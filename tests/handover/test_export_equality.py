"""Each export gives the probabilities of ours, in a process that cannot import fedmoments."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import (
    Classifier,
    DiagonalClassifier,
    EnsembleClassifier,
    LinearClassifier,
    LowRankClassifier,
    MixtureClassifier,
    QuadraticClassifier,
)
from fedmoments.core.maps import (
    Chain,
    Clip,
    FeatureMap,
    Identity,
    Normalize,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
)
from fedmoments.errors import InputError
from fedmoments.handover.export import EXPORTS, export

DIM, N_CLASSES = 6, 4


def arrays(rng: np.random.Generator, dim: int, kind: str) -> Classifier:
    """Return a classifier of that kind with random parameters; its last class has no sample."""
    present = np.array([True] * (N_CLASSES - 1) + [False])
    common: dict[str, Any] = {"present": present, "temperature": 0.7}
    means, bias, offset = rng.normal(size=(N_CLASSES, dim)), rng.normal(size=N_CLASSES), rng.normal(size=dim)
    bias[-1] = np.nan  # what a class without a sample holds must not reach anybody
    precisions = rng.uniform(0.5, 2.0, size=(N_CLASSES, dim))
    if kind == "linear":
        return LinearClassifier(weights=means.T, bias=bias, offset=offset, **common)
    if kind == "diagonal":
        return DiagonalClassifier(offset=offset, means=means, precisions=precisions, bias=bias, **common)
    if kind == "quadratic":
        whiteners = np.tril(rng.normal(size=(N_CLASSES, dim, dim)))
        return QuadraticClassifier(offset=offset, means=means, whiteners=whiteners, bias=bias, **common)
    if kind == "low-rank":
        projections = 0.3 * rng.normal(size=(N_CLASSES, 2, dim))
        return LowRankClassifier(
            offset=offset, means=means, precisions=precisions, projections=projections, bias=bias, **common
        )
    if kind == "mixture":
        labels = np.array([0, 0, 1, 2, 2, 2])
        return MixtureClassifier(
            weights=rng.normal(size=(dim, 6)), bias=rng.normal(size=6), labels=labels, offset=offset, **common
        )
    return EnsembleClassifier(
        weights=rng.normal(size=(dim, 5)),
        bias=rng.normal(size=5),
        labels=np.array([0, 1, -1, 2, -1]),
        starts=np.array([0, 3]),
        mixing=np.array([0.25, 0.75]),
        **common,
    )


READERS = {
    "onnx": """
import onnxruntime
def read(model, X):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    label, shares, scores = session.run(["label", "probabilities", "scores"], {"features": X})
    assert (label == shares.argmax(1)).all()
    return shares
""",
    "torch": """
import torch
def read(model, X):
    shares, scores = torch.export.load(model).module()(torch.from_numpy(X))
    return shares.numpy()
""",
    "sklearn": """
import joblib
def read(model, X):
    return joblib.load(model).predict_proba(X)
""",
}
BEFORE = """
import sys
from pathlib import Path
import numpy as np
sys.modules["fedmoments"] = None
"""
AFTER = """
for given in sorted(Path(sys.argv[1]).glob("*.npy")):
    model = next(path for path in given.parent.glob(given.stem + ".*") if path != given)
    np.save(given.with_suffix(".answer"), read(str(model), np.load(given)), allow_pickle=False)
"""


def read_elsewhere(to: str, cases: dict[str, tuple[Classifier, NDArray[Any]]], folder: Path) -> dict[str, Any]:
    """Return the probabilities of every case from one process in which fedmoments cannot be imported."""
    for name, (classifier, X) in cases.items():
        export(classifier, to, folder / f"{name}{EXPORTS[to].suffix}")
        np.save(folder / f"{name}.npy", X)
    command = [sys.executable, "-c", f"{BEFORE}{READERS[to]}{AFTER}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    return {name: np.load(folder / f"{name}.answer.npy") for name in cases}


MAPS: dict[str, Callable[[], FeatureMap]] = {
    "centred": lambda: Normalize() | Offset(np.zeros(DIM)),
    "clip": lambda: Clip(1.5),
    "fourier": lambda: RandomFourier(DIM, 9, 2.0, 3),
    "power": lambda: Power() | Normalize(),
    "projection": lambda: RandomProjection(DIM, 4, 3) | Offset(np.linspace(-1, 1, 4)) | Normalize(),
}
KINDS = ("linear", "diagonal", "quadratic", "low-rank", "mixture", "ensemble")


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_every_kind_of_classifier_and_every_map_is_the_same_elsewhere(to: str, tmp_path: Path) -> None:
    X = np.random.default_rng(2).normal(size=(200, DIM)).astype(np.float32)
    X[0] = 0.0  # a row of zeros stays one
    cases = {kind: (arrays(np.random.default_rng(1), DIM, kind), X) for kind in KINDS}
    for name, make in MAPS.items():
        given = make()
        cases[name] = (arrays(np.random.default_rng(1), given.output_dim(DIM), "linear").mapped(given), X)
    answers = read_elsewhere(to, cases, tmp_path)
    for name, (classifier, _) in cases.items():
        ours = classifier.predict_proba(X)
        np.testing.assert_array_equal(answers[name].argmax(1), ours.argmax(1), err_msg=name)
        assert np.abs(answers[name] - ours).max() < 2e-6, name
        assert (answers[name][:, -1] == 0).all(), name  # a class without a sample is never predicted


def test_every_kind_of_classifier_that_is_known_is_tried_here() -> None:
    from fedmoments.handover.scoring import KINDS as RULES
    from fedmoments.handover.scoring import MAPS as STEPS

    assert set(RULES) == set(KINDS)
    tried = {stage for make in MAPS.values() for stage in map(type, getattr(make(), "maps", (make(),)))}
    assert set(STEPS) == tried | {Chain, Identity}


def test_scikit_learn_says_the_same_of_present_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    cases: dict[str, tuple[Classifier, NDArray[Any]]] = {}
    names = {2: ["zebra", "ant"], 3: ["zebra", "ant", "lion"]}  # not sorted, as scikit-learn wants them
    for key in ("centred", "fourier", "projection"):
        for n_classes, class_names in names.items():
            labels = np.arange(60) % n_classes
            X = rng.normal(size=(60, DIM)) + labels[:, None]
            parties = {"a": (X, labels)}
            fitted = fm.fit("fedcof-oracle", parties, class_names=class_names, feature_map=MAPS[key]())
            cases[f"{key}{n_classes}"] = (fitted, X)
    answers = read_elsewhere("sklearn", cases, tmp_path)
    for name, (classifier, X) in cases.items():
        ours = classifier.predict_proba(X)[:, np.argsort(classifier.class_names)]
        assert np.abs(answers[name] - ours).max() < 1e-9, name


def test_heads_that_scikit_learn_cannot_hold_are_refused(tmp_path: Path) -> None:
    classifier = arrays(np.random.default_rng(1), DIM, "quadratic")
    with pytest.raises(InputError, match="only linear heads are exported to it; 'onnx' and 'torch' take every head"):
        export(classifier, "sklearn", tmp_path / "model.joblib")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    place.write_text("precious")
    with pytest.raises(InputError, match="exports do not overwrite"):
        export(arrays(np.random.default_rng(1), DIM, "linear"), "onnx", place)
    assert place.read_text() == "precious"


def test_metadata_hold_class_names_and_the_card(tmp_path: Path) -> None:
    import onnx

    classifier = arrays(np.random.default_rng(1), DIM, "linear").named(["a", "b", "ç", "\x1b[31md"])
    model = onnx.load(export(classifier, "onnx", tmp_path / "model.onnx")[0])
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["class_names"]) == list(classifier.class_names)
    assert notes["digest"] == classifier.digest()
    assert notes["model_card"].startswith("# Model card")


def test_a_map_without_a_rule_is_named(tmp_path: Path) -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Doubled(FeatureMap):
        kind = "doubled"

        def _apply(self, X: Any) -> Any:
            return 2 * X

    classifier = arrays(np.random.default_rng(1), DIM, "linear").mapped(Doubled())
    with pytest.raises(InputError, match="the feature map 'doubled' has no rule for export"):
        export(classifier, "onnx", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_the_folder_is_read_with_safetensors_and_numpy_alone(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    classifier = arrays(np.random.default_rng(1), DIM, "linear").named(["a", "b", "c", "d"])
    files = export(classifier, "huggingface", tmp_path / "model")
    config = json.loads(files[0].read_text("utf-8"))
    tensors = load_file(files[1])
    X = np.random.default_rng(2).normal(size=(20, DIM))
    scores = ((X - tensors["offset"]) @ tensors["weights"] + tensors["bias"])[:, tensors["present"].astype(bool)]
    shares = np.exp(scores / config["temperature"])
    shares /= shares.sum(1, keepdims=True)
    assert np.abs(shares - classifier.predict_proba(X)[:, :-1]).max() < 1e-12
    assert [config["id2label"][str(label)] for label in range(4)] == ["a", "b", "c", "d"]
