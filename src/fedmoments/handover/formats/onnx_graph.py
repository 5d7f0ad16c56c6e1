"""ONNX: one graph from pixels, token ids or features to scores, probabilities and a label.

Decoding, cropping and resizing of images, and the tokenizer of sentences, stand before the graph: the metadata say how.
Normalisation of pixels is inside. Inputs are those of the encoder (``pixels`` (n, 3, size, size) uint8; ``input_ids``,
``attention_mask``, ``token_type_ids`` (n, t) int64), or ``features`` (n, d) float32. Outputs: ``label`` (n,) int64,
``probabilities`` (n, C) float32, ``scores`` (n, C) float32; and ``familiarity`` (n,) float32 of a classifier that knows
what is new to it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.extras import require
from fedmoments.files import write_whole
from fedmoments.handover.export import Export
from fedmoments.handover.model import Model
from fedmoments.handover.scoring import familiarity, probabilities, scores, taken
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.onnx_export import OPSET, traced

__all__ = ["EXPORTS", "head_graph", "model_graph"]

#: What of ONNX's own format number onnxruntime has read for years.
IR_VERSION = 8
WHAT = "Export to ONNX"


class _Nodes:
    """Tensors that are names of values in a graph; every step appends a node."""

    def __init__(self, helper: Any, numpy_helper: Any, element: Any) -> None:
        self._helper, self._numpy_helper, self._element = helper, numpy_helper, element
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"step_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, array: NDArray[Any]) -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(self._numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def cast(self, x: str, dtype: str, name: str = "") -> str:
        return self.node("Cast", x, name=name, to=self._element.FLOAT if dtype == "float32" else self._element.DOUBLE)

    def add(self, x: str, y: str) -> str:
        return self.node("Add", x, y)

    def subtract(self, x: str, y: str) -> str:
        return self.node("Sub", x, y)

    def multiply(self, x: str, y: str) -> str:
        return self.node("Mul", x, y)

    def divide(self, x: str, y: str) -> str:
        return self.node("Div", x, y)

    def minimum(self, x: str, y: str) -> str:
        return self.node("Min", x, y)

    def matmul(self, x: str, y: str) -> str:
        return self.node("MatMul", x, y)

    def cos(self, x: str) -> str:
        return self.node("Cos", x)

    def exp(self, x: str) -> str:
        return self.node("Exp", x)

    def sqrt(self, x: str) -> str:
        return self.node("Sqrt", x)

    def sum(self, x: str, axis: int, *, keep: bool) -> str:
        return self.node("ReduceSum", x, self.constant(np.array([axis])), keepdims=int(keep))

    def least(self, x: str, axis: int) -> str:
        return self.node("ReduceMin", x, axes=[axis], keepdims=0)

    def logsumexp(self, x: str, axis: int) -> str:
        return self.node("ReduceLogSumExp", x, axes=[axis], keepdims=0)

    def log_softmax(self, x: str) -> str:
        return self.node("LogSoftmax", x, axis=-1)

    def softmax(self, x: str) -> str:
        return self.node("Softmax", x, axis=-1)

    def ones_for_zeros(self, x: str) -> str:
        empty = self.node("Equal", x, self.constant(np.zeros(1)))
        return self.node("Where", empty, self.constant(np.ones(1)), x)

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        return self.node("Reshape", x, self.constant(np.array(shape)))

    def transpose(self, x: str) -> str:
        return self.node("Transpose", x, perm=[1, 0])


def head_graph(classifier: Classifier) -> Any:
    """Return the ONNX model of a classifier: features (n, d) to label, probabilities, scores and perhaps familiarity.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> graph = head_graph(fm.fit("fedncm", parties)).graph
    >>> [value.name for value in graph.output]
    ['label', 'probabilities', 'scores']
    """
    onnx = require("onnx", WHAT, "onnx")
    helper, element = require("onnx.helper", WHAT, "onnx"), onnx.TensorProto
    nodes = _Nodes(helper, require("onnx.numpy_helper", WHAT, "onnx"), element)
    mapped = taken(nodes, "features", classifier)
    given = scores(nodes, mapped, classifier)
    nodes.cast(given, "float32", name="scores")
    nodes.cast(probabilities(nodes, given, classifier), "float32", name="probabilities")
    nodes.node("ArgMax", given, name="label", axis=1, keepdims=0)
    outputs = [
        helper.make_tensor_value_info("label", element.INT64, ["n"]),
        helper.make_tensor_value_info("probabilities", element.FLOAT, ["n", classifier.n_classes]),
        helper.make_tensor_value_info("scores", element.FLOAT, ["n", classifier.n_classes]),
    ]
    if classifier.familiar is not None:
        nodes.cast(familiarity(nodes, mapped, classifier.familiar), "float32", name="familiarity")
        outputs.append(helper.make_tensor_value_info("familiarity", element.FLOAT, ["n"]))
    width = classifier.feature_map.required_dim() if classifier.feature_map else classifier.dim
    graph = helper.make_graph(
        nodes.nodes,
        "fedmoments",
        [helper.make_tensor_value_info("features", element.FLOAT, ["n", width or "d"])],
        outputs,
        nodes.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="fedmoments")
    model.ir_version = IR_VERSION
    return model


def model_graph(model: Model) -> Any:
    """Return the ONNX model of encoder, feature map and head in one graph, checked, with the notes as metadata."""
    onnx = require("onnx", WHAT, "onnx")
    joined = head_graph(model.classifier)
    if model.encoder is not None:
        joined = _behind(model.encoder, joined)
    require("onnx.helper", WHAT, "onnx").set_model_props(joined, dict(model.notes()))
    onnx.checker.check_model(joined)
    return joined


def _behind(encoder: Encoder, head: Any) -> Any:
    compose = require("onnx.compose", WHAT, "onnx")
    network = require("onnx", WHAT, "onnx").load_from_string(traced(encoder))
    network.ir_version = head.ir_version
    prefixed = compose.add_prefix(head, "head/", rename_inputs=False, rename_outputs=False)
    outputs = [value.name for value in head.graph.output]
    return compose.merge_models(network, prefixed, io_map=[("features", "features")], outputs=outputs)


def _write(model: Model, place: Path) -> list[Path]:
    write_whole(place, model_graph(model).SerializeToString())
    return [place]


EXPORTS = (Export("onnx", "one ONNX graph: pixels, token ids or features to label and probabilities", _write, ".onnx"),)
