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
from fedmoments.core.classifier.familiar import Familiar
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.core.maps import (
    Categories,
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Numbers,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
    ReluBeside,
    ReluResidual,
    TableMap,
)
from fedmoments.core.maps.cells import MISSING, category_code
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


def doubting(kind: str, feature_map: FeatureMap | None = None) -> Classifier:
    """Return a classifier with random parameters that knows what is new to it and was tested at another temperature."""
    rng = np.random.default_rng(5)
    dim = feature_map.output_dim(DIM) if feature_map else DIM
    seen = Familiar(rng.normal(size=(N_CLASSES, dim)), rng.uniform(0.2, 1.0, dim), np.array([0.5, 0.3, 0.2, 0.0]))
    ranks = Ranks(np.array([60, 20, 10, 5, 0, 3, 1, 1] + [0] * 40), 1.3)
    return arrays(np.random.default_rng(1), dim, kind).knowing(seen).ranked(ranks).mapped(feature_map)


READERS = {
    "onnx": """
import onnxruntime
def read(model, X):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"features": X})))
    assert (found["label"] == found["probabilities"].argmax(1)).all()
    return [found[name] for name in ("probabilities", "scores", "familiarity") if name in found]
def notes(model):
    return onnxruntime.InferenceSession(model).get_modelmeta().custom_metadata_map
""",
    "torch": """
import torch
def read(model, X):
    return [found.numpy() for found in torch.export.load(model).module()(torch.from_numpy(X))]
def notes(model):
    kept = dict.fromkeys(["abstain_below.txt", "prediction_sets.txt"], "")
    torch.export.load(model, extra_files=kept)
    return {name.removesuffix(".txt"): text for name, text in kept.items()}
""",
    "sklearn": """
import joblib
def read(model, X):
    return [joblib.load(model).predict_proba(X)]
def notes(model):
    pipeline = joblib.load(model)
    return {name: json.dumps(value) for name, value in pipeline.doubts_.items()}
""",
}
BEFORE = """
import json
import sys
from pathlib import Path
import numpy as np
sys.modules["fedmoments"] = None
"""
AFTER = """
for given in sorted(Path(sys.argv[1]).glob("*.npy")):
    model = next(path for path in given.parent.glob(given.stem + ".*") if path != given)
    found = dict(zip(("probabilities", "scores", "familiarity"), read(str(model), np.load(given))))
    kept = notes(str(model))
    told = {name: json.loads(kept[name]) for name in ("abstain_below", "prediction_sets") if kept.get(name)}
    if "familiarity" in found:
        found["unknown"] = found["familiarity"] < told["abstain_below"]
        below = found["scores"] - found["scores"].max(1, keepdims=True)
        powers = np.exp(below / told["prediction_sets"]["temperature"])
        powers /= powers.sum(1, keepdims=True)
        for coverage, least in told["prediction_sets"]["least_probability"].items():
            held = (powers >= least) & (powers > 0)
            held[np.arange(len(held)), powers.argmax(1)] = True
            found["set " + coverage] = held
    np.savez(given.with_suffix(".npz"), **found)
"""


def read_elsewhere(to: str, cases: dict[str, tuple[Classifier, NDArray[Any]]], folder: Path) -> dict[str, Any]:
    """Return the probabilities of every case, see :func:`all_read_elsewhere`."""
    return {name: found["probabilities"] for name, found in all_read_elsewhere(to, cases, folder).items()}


def all_read_elsewhere(to: str, cases: dict[str, tuple[Classifier, NDArray[Any]]], folder: Path) -> dict[str, Any]:
    """Return what is found of every case by one process in which fedmoments cannot be imported."""
    for name, (classifier, X) in cases.items():
        export(classifier, to, folder / f"{name}{EXPORTS[to].suffix}")
        np.save(folder / f"{name}.npy", X)
    command = [sys.executable, "-c", f"{BEFORE}{READERS[to]}{AFTER}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    return {name: dict(np.load(folder / f"{name}.npz")) for name in cases}


MAPS: dict[str, Callable[[], FeatureMap]] = {
    "centred": lambda: Normalize() | Offset(np.zeros(DIM)),
    "clip": lambda: Clip(1.5),
    "deep": lambda: ReluResidual.of(ReluBeside(DIM, 7, 3), np.full((7, DIM), 0.1)) | ReluBeside(DIM, 5, 4),
    "directions": lambda: Directions.of(np.random.default_rng(3).normal(size=(DIM, 3))),
    "fourier": lambda: RandomFourier(DIM, 9, 2.0, 3),
    "power": lambda: Power() | Normalize(),
    "table": lambda: TableMap(
        (
            Categories("a", ("yes", "no")),
            Numbers("b", 0.5, 2.0),
            Categories("c", ("x",), other=False, missing=False),
            Numbers("d", 0.0, None),
            *(Numbers(f"n{place}", missing=False) for place in range(DIM - 4)),
        )
    ),
    "projection": lambda: RandomProjection(DIM, 4, 3) | Offset(np.linspace(-1, 1, 4)) | Normalize(),
}


def coded(X: NDArray[Any]) -> NDArray[Any]:
    """Return rows as a raw table has them for the map above: codes of categories, and gaps."""
    codes, rng = X.copy(), np.random.default_rng(3)
    codes[:, 0] = rng.choice([category_code(text) for text in ("yes", "no", "maybe")] + [MISSING], len(X))
    codes[:, 2] = rng.choice([category_code("x"), category_code("y"), MISSING], len(X))
    for place in range(1, X.shape[1]):
        codes[rng.random(len(X)) < 0.1, place] = MISSING
    return codes


KINDS = ("linear", "diagonal", "quadratic", "low-rank", "mixture", "ensemble")


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_every_kind_of_classifier_and_every_map_is_the_same_elsewhere(to: str, tmp_path: Path) -> None:
    X = np.random.default_rng(2).normal(size=(200, DIM)).astype(np.float32)
    X[0] = 0.0  # a row of zeros stays one
    cases = {kind: (arrays(np.random.default_rng(1), DIM, kind), X) for kind in KINDS}
    for name, make in MAPS.items():
        given = make()
        classifier = arrays(np.random.default_rng(1), given.output_dim(DIM), "linear").mapped(given)
        cases[name] = (classifier, coded(X) if name == "table" else X)
    answers = read_elsewhere(to, cases, tmp_path)
    for name, (classifier, samples) in cases.items():
        ours = classifier.predict_proba(samples)
        np.testing.assert_array_equal(answers[name].argmax(1), ours.argmax(1), err_msg=name)
        assert np.abs(answers[name] - ours).max() < 2e-6, name
        assert (answers[name][:, -1] == 0).all(), name  # a class without a sample is never predicted


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_unknown_samples_and_prediction_sets_are_the_same_elsewhere(to: str, tmp_path: Path) -> None:
    X = np.random.default_rng(2).normal(size=(400, DIM)).astype(np.float32)
    X[200:] *= np.linspace(1.0, 4.0, 200, dtype=np.float32)[:, None]
    X[-1] = 1e12  # so far away that its familiarity is 0, not NaN
    cases = {kind: (doubting(kind), X) for kind in ("linear", "quadratic")}
    rows = {name: coded(X[:-1]) if name == "table" else X[:-1] for name in MAPS}
    cases |= {name: (doubting("linear", make()), rows[name]) for name, make in MAPS.items()}
    one = doubting("linear")
    alone = Familiar(np.zeros((N_CLASSES, DIM)), np.ones(DIM), np.array([0.0, 1.0, 0.0, 0.0]))
    cases["one class"] = (one.knowing(alone), X)
    level = Familiar(np.full((N_CLASSES, DIM), 4.0), np.ones(DIM), np.array([0.5, 0.3, 0.2, 0.0]), np.array([2.0]))
    cases["level"] = (one.knowing(level), np.abs(X))
    rejected = 0
    for name, found in all_read_elsewhere(to, cases, tmp_path).items():
        classifier, given = cases[name]
        ours = classifier.familiarity(given)
        assert np.abs(found["familiarity"] - ours).max() < 1e-6, name
        unsure = np.abs(ours - 0.01) < 1e-8  # on the threshold itself, the last digits decide
        np.testing.assert_array_equal(found["unknown"] | unsure, classifier.unknown(given, 0.01) | unsure, err_msg=name)
        rejected += int(found["unknown"].sum())
        for coverage in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99):
            expected = classifier.prediction_sets(given, coverage)
            assert (found[f"set {coverage:g}"] != expected).mean() < 1e-3, (name, coverage)
        sizes = found["set 0.9"].sum(1)
        assert sizes.min() >= 1, name
    assert rejected > 100


def test_scikit_learn_carries_both_as_plain_values(tmp_path: Path) -> None:
    joblib: Any = pytest.importorskip("joblib")
    classifier = doubting("linear")
    pipeline = joblib.load(export(classifier, "sklearn", tmp_path / "head.joblib")[0])
    assert classifier.ranks is not None
    sets = pipeline.doubts_["prediction_sets"]
    assert pipeline.doubts_["abstain_below"] == 0.01
    assert sets["least_probability"]["0.95"] == classifier.ranks.threshold(0.95)
    assert set(pipeline.familiar_) == {"familiar.means", "familiar.variances", "familiar.shares"}
    config = json.loads(export(classifier, "huggingface", tmp_path / "model")[0].read_text("utf-8"))
    assert {name: config[name] for name in pipeline.doubts_} == pipeline.doubts_


def test_a_classifier_without_either_has_neither(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(export(arrays(np.random.default_rng(1), DIM, "linear"), "onnx", tmp_path / "model.onnx")[0])
    assert [output.name for output in model.graph.output] == ["label", "probabilities", "scores"]
    assert not {"abstain_below", "prediction_sets"} & {prop.key for prop in model.metadata_props}


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
