"""Moments of features that are torch tensors, added up on the device where the features are.

A block Z of at most :data:`BLOCK` samples, less a fixed shift (the mean of the first batch), is multiplied in float32,
and the block's sums are folded into float64 (on the CPU, where the device has no float64). The shift is undone at the
end, in float64: A_c = S_c + n_c·s, D_c = Q_c + 2·s⊙S_c + n_c·s⊙s, B = G + s·Sᵀ + S·sᵀ + N·s·sᵀ.

**Law**: what differs from float64 is at most BLOCK·2⁻²⁴ of Σ‖z‖²: that of the scatter around the shift, not of B.
Nothing waits for the device before the end but class grams.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.arrays import as_array
from fedmoments.core.statistics import Accumulator, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["BLOCK", "DeviceSums"]

#: Samples that are multiplied at once in float32.
BLOCK = 4096
_MEASURED = frozenset({"sums", "client_means", "class_norms", "class_squares", "gram", "class_grams"})


def device_of(name: Any) -> Any:
    """Return torch's device of a name, refusing one that this machine does not have.

    Examples
    --------
    >>> device_of("cpu")
    device(type='cpu')
    """
    torch = require("torch", "Adding up on a device", "torch")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"torch has no device {name!r:.60} here: {said}; leave device out, or name another") from error
    return device


def _numbers(values: Any) -> NDArray[Any]:
    array = as_array(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"features and labels must be numbers; an array of type {array.dtype} arrived")
    return array


class DeviceSums:
    """Sums of one party's batches on a device.

    Parameters
    ----------
    spec
        What to measure, of :meth:`measures`.
    n_classes
        C.
    device
        Of torch; also ``meta``, where only shapes are computed.

    Examples
    --------
    >>> import torch
    >>> sums = DeviceSums(StatisticsSpec.of("gram"), 2, "cpu")
    >>> sums.update(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
    >>> sums.accumulator().statistics().gram
    array([[10., 14.],
           [14., 20.]])
    """

    def __init__(self, spec: StatisticsSpec, n_classes: int, device: Any) -> None:
        self._torch = require("torch", "Adding up on a device", "torch")
        self.spec, self.n_classes, self.device = spec, n_classes, device_of(device)
        self._shift: Any = None
        self._folded: dict[str, Any] = {}
        self._unsound: list[Any] = []

    @staticmethod
    def measures(spec: StatisticsSpec) -> bool:
        """Return whether all of a spec is measured here.

        Examples
        --------
        >>> DeviceSums.measures(StatisticsSpec.of("gram")), DeviceSums.measures(StatisticsSpec.of("scatter_sketch"))
        (True, False)
        """
        return set(spec.sent) <= _MEASURED and spec.means_per_client == 1

    @property
    def dim(self) -> int:
        """Dimension d of the features, once some have come."""
        return int(self._shift.shape[0])

    def update(self, X: Any, y: Any) -> None:
        """Add a batch, X (n, d) and y (n,), tensors on any device or arrays."""
        torch = self._torch
        features, labels = (
            torch.as_tensor(values if hasattr(values, "detach") else _numbers(values)).detach().to(self.device)
            for values in (X, y)
        )
        self._check(features, labels)
        if features.dtype not in (torch.float32, torch.float64):
            features = features.float()
        if self._shift is None:
            self._shift = features.mean(dim=0) if len(features) else None
        for start in range(0, len(features), BLOCK):
            rows, cells = features[start : start + BLOCK], labels[start : start + BLOCK]
            centred = (rows - self._shift.to(rows.dtype)).float()
            ones = torch.nn.functional.one_hot(cells.long().clamp(0, self.n_classes - 1), self.n_classes)
            self._fold(self.block_sums(centred, ones.float()))
            wrong = (cells < 0) | (cells >= self.n_classes)
            self._unsound.append(torch.stack([(~torch.isfinite(centred)).any(), wrong.any()]))

    def block_sums(self, Z: Any, ones: Any) -> dict[str, Any]:
        """Return the sums of a block Z (n, d) in float32, with ``ones`` (n, C) of its labels."""
        sums = {"counts": ones.sum(dim=0), "first": ones.T @ Z}
        sent = set(self.spec.sent)
        if "gram" in sent:
            sums["gram"] = Z.T @ Z
        if "class_squares" in sent:
            sums["squares"] = ones.T @ (Z * Z)
        if "class_norms" in sent:
            sums["norms"] = ones.T @ (Z * Z).sum(dim=1, keepdim=True)
        if "class_grams" in sent:
            order = ones.argmax(dim=1).argsort(stable=True)
            parts = Z[order].split([int(n) for n in sums["counts"].tolist()])
            sums["class_grams"] = self._torch.stack([part.T @ part for part in parts])
        return sums

    def _fold(self, sums: dict[str, Any]) -> None:
        where = "cpu" if self.device.type == "mps" else self.device
        for name, value in sums.items():
            wide = value.to(where, self._torch.float64)
            if name in self._folded:
                self._folded[name] += wide
            else:
                self._folded[name] = wide

    def _check(self, features: Any, labels: Any) -> None:
        shape, kind = tuple(features.shape), labels.dtype
        if len(shape) != 2 or not shape[1]:
            raise InputError(f"features must be a matrix (samples, dimensions); a tensor of shape {shape} arrived")
        if self._shift is not None and shape[1] != self.dim:
            raise InputError(
                f"features must have {self.dim} dimensions, but {shape[1]} arrived: was another encoder used?"
            )
        if tuple(labels.shape) != shape[:1] or kind.is_floating_point or kind.is_complex:
            raise InputError(
                f"labels must be one whole number a sample, ({shape[0]},); {kind} of shape {tuple(labels.shape)} "
                "arrived"
            )

    def accumulator(self, **options: Any) -> Accumulator:
        """Return an accumulator of all that was added, made with these options."""
        if self._shift is None:
            raise InputError("the stream has no sample: nothing can be measured of it")
        self._require_sound()
        held = {name: np.asarray(value.cpu().numpy()) for name, value in self._folded.items()}
        shift = self._shift.detach().cpu().double().numpy()
        made = Accumulator(self.spec, n_classes=self.n_classes, dim=self.dim, **options)
        made.restore(_state(held, shift, self.spec.sent))
        return made

    def _require_sound(self) -> None:
        for block, (infinite, wrong) in enumerate(self._torch.stack(self._unsound).cpu().tolist()):
            if infinite:
                raise InputError(f"features must be finite, but block {block} of the stream holds NaN or infinity")
            if wrong:
                raise InputError(
                    f"labels must be from 0 to {self.n_classes - 1}, but block {block} of the stream has others"
                )


def _state(held: dict[str, NDArray[Any]], s: NDArray[Any], sent: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the state of an accumulator: the classes that came, and their moments with the shift undone."""
    counts = np.rint(held["counts"]).astype(np.int64)
    classes = np.flatnonzero(counts)
    n, first = counts[classes], held["first"][classes]
    total = first.sum(axis=0)
    sums = first + n[:, None] * s

    def moved(gram: NDArray[Any], sum_: NDArray[Any], count: Any) -> NDArray[Any]:
        cross = np.outer(s, sum_)
        return np.asarray(gram + cross + cross.T + count * np.outer(s, s))

    made: dict[str, NDArray[Any]] = {"sums": sums, "client_means": sums}
    if "norms" in held:
        made["class_norms"] = held["norms"][classes] + (2 * first @ s + n * (s @ s))[:, None]
    if "squares" in held:
        made["class_squares"] = held["squares"][classes] + 2 * s * first + n[:, None] * s * s
    if "gram" in held:
        made["gram"] = moved(held["gram"], total, n.sum())
    if "class_grams" in held:
        made["class_grams"] = np.stack([moved(held["class_grams"][c], first[i], n[i]) for i, c in enumerate(classes)])
    state = {"classes": classes, "counts": n, "share_counts": n[:, None]}
    return state | {f"moment.{name}": made[name] for name in sent}
