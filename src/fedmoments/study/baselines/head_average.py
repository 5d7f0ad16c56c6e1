"""One-shot parameter averaging: one round of FedAvg (McMahan et al. 2017) on linear heads.

    W = Σ_k (n_k/N) W_k,   b = Σ_k (n_k/N) b_k

with heads that every client has fitted to the end. Heads are linear, so averaging parameters is averaging scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload
from fedmoments.study.baselines.sent_heads import SentHeads, average_head

__all__ = ["PRESETS", "HeadAverage"]


@dataclass(frozen=True)
class HeadAverage(SentHeads):
    """The average of local linear heads.

    Parameters
    ----------
    decay
        Penalty of the local heads; see :mod:`fedmoments.study.baselines.local_head`.
    weighting
        By ``samples`` as in FedAvg, or ``uniform``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = HeadAverage()
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    weighting: str = "samples"

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        return average_head(uploads, self.weighting)


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("head-average", HeadAverage, "averaged local linear heads: one round of FedAvg", "McMahan et al. 2017"),
)
