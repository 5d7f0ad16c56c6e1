"""Client ensemble: every client fits a head of its own, the server averages their probabilities.

    p(c | x) = Σ_k π_k softmax(x·W_k + b_k)_c,   π_k = 1/K or n_k/N

The oldest one-shot method (Guha, Talwalkar and Smith 2019) and a baseline of GH-OFL (Table 4). Every head is sure of
its own classes wherever it looks, also where it has never seen a sample: with few classes a client, the surest wins,
not the right one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload, counts_of
from fedmoments.study.baselines.sent_heads import SentHeads, client_shares, ensemble_of

__all__ = ["PRESETS", "ClientEnsemble"]


@dataclass(frozen=True)
class ClientEnsemble(SentHeads):
    """An ensemble of local linear heads.

    Parameters
    ----------
    decay
        Penalty of the local heads; see :mod:`fedmoments.study.baselines.local_head`.
    weighting
        ``uniform``, every client's voice counts the same, or ``samples``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = ClientEnsemble()
    >>> uploads = [method.local(X[k::2], y[k::2], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:  # noqa: ARG002
        return ensemble_of(uploads, client_shares(counts_of(uploads), self.weighting))


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("ensemble", ClientEnsemble, "averaged probabilities of local linear heads", "Guha et al. 2019"),
)
