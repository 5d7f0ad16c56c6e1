"""The feature-quality probe, and the closed-form refit after tuning.

Fed3R (Fanì et al., 2024, section 5.4) measures an encoder by ridge regression on its features: a solution in closed
form, which depends on the features alone and not on how a softmax head was trained. From a federation's merged
statistics it is the same as from all samples in one place, however clients hold them. Table 3 of the paper compares,
for a tuned model, the softmax head that was trained with it and the ridge head on the same features; where the ridge
head is better, it is worth taking as the final one. So a probe is a refit before and a refit after:

    before    heads fitted and tested on features of the encoder that tuning began with,
    after     the same heads on features of the tuned encoder,
    softmax   the head that was trained, on the features of the tuned encoder.

Heads from sums (fed3r, fedncm, gh-lda …) do not depend on who holds which sample; fedcof and others from client means
do, and are fitted for the split that is given.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.study.simulation import Federation, evaluate

__all__ = ["PROBE", "ProbeResult", "ProbeRow", "Refit", "one_client", "probe", "refit"]

#: The head that measures features in the paper.
PROBE = "fed3r"


class Refit(NamedTuple):
    """A head that was fitted anew, and how well it does on the test samples.

    Parameters
    ----------
    classifier
        None where the head could not be fitted.
    accuracy
        Share of test samples that it gets right; None likewise, and without test samples.
    reason
        Why it could not be fitted.
    """

    classifier: Classifier | None
    accuracy: float | None
    reason: str | None = None


@dataclass(frozen=True)
class ProbeRow:
    """What a head says of two sets of features."""

    head: str
    before: float | None
    after: float | None
    reason: str | None = None

    @property
    def gain(self) -> float | None:
        """Accuracy after less accuracy before."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Accuracy before and after tuning, and the heads that were fitted on the tuned features.

    Parameters
    ----------
    rows
        One a head.
    softmax
        Accuracy of the head that was trained, on the tuned features; None if there is none.
    refits
        Head name -> classifier on the tuned features, where it could be fitted.
    """

    rows: tuple[ProbeRow, ...]
    softmax: float | None = None
    refits: Mapping[str, Classifier] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the classifiers, ready for JSON."""
        rows = [
            {"head": row.head, "before": row.before, "after": row.after, "gain": row.gain, "reason": row.reason}
            for row in self.rows
        ]
        return {"rows": rows, "softmax": self.softmax}


def one_client(n_samples: int) -> Split:
    """Return the split in which one client holds everything: as good as any other for heads from sums.

    Examples
    --------
    >>> one_client(3).sizes
    array([3])
    """
    return Split(np.zeros(n_samples, np.int64), n_clients=1, scheme="one client")


def refit(
    features: Features,
    split: Split | None = None,
    heads: Iterable[str] = (PROBE,),
    *,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    memory_limit: float = 4e9,
) -> dict[str, Refit]:
    """Fit heads in closed form from the merged statistics of a federation, and test them.

    Parameters
    ----------
    features
        Training samples, and test samples if there are any.
    split
        Who holds which training sample; one client holds all by default, which is the same for heads from sums.
    heads
        Names.
    hyper
        Name -> hyper-parameters.
    seed
        Deals samples to shares, where a head needs several means a client.
    memory_limit
        Bytes that the statistics of one head may take.

    Examples
    --------
    >>> from fedmoments.samples.features import Samples
    >>> y = np.arange(40) % 2
    >>> part = Samples(np.eye(2)[y] + np.arange(40)[:, None] / 1000, y)
    >>> refit(Features("toy", 2, part, part))["fed3r"].accuracy
    1.0
    """
    chosen = choose_heads(heads, hyper or {})
    held = one_client(len(features.train)) if split is None else split
    if len(held.clients) != len(features.train):
        raise InputError(
            f"the split deals out {len(held.clients)} samples, but there are {len(features.train)} to train on"
        )
    federation = Federation(
        features, held, list(chosen.values()), seed=seed, memory_limit=memory_limit, fixed_point=None
    )
    refits: dict[str, Refit] = {}
    for name, head in chosen.items():
        try:
            fitted = federation.fitted(head).noting(head=name, settings=head.settings(), refit=True)
        except FedMomentsError as error:
            refits[name] = Refit(None, None, str(error))
            continue
        named = fitted.named(features.class_names) if features.class_names else fitted
        refits[name] = Refit(named, _accuracy(named, features))
    return refits


def probe(
    before: Features,
    after: Features,
    heads: Iterable[str] = (PROBE,),
    *,
    split: Split | None = None,
    softmax: Classifier | None = None,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    memory_limit: float = 4e9,
) -> ProbeResult:
    """Measure two encoders of the same samples by heads in closed form.

    Parameters
    ----------
    before, after
        Features of the same samples, in the same order, from the encoder that tuning began with and from the tuned
        one. Their dimensions may differ. The same object twice (nothing but a head was tuned) is fitted once.
    heads
        Names; ridge regression on the total scatter by default, as in the paper.
    split
        Who holds which training sample; only heads from client means depend on it.
    softmax
        The head that was trained with the tuned encoder.
    hyper, seed, memory_limit
        As in :func:`refit`.

    Examples
    --------
    >>> from fedmoments.samples.features import Samples
    >>> y = np.arange(60) % 3
    >>> clear, vague = np.eye(3)[y], np.ones((60, 3)) + np.arange(180).reshape(60, 3) % 7
    >>> sets = [Features("toy", 3, Samples(X, y), Samples(X, y)) for X in (vague, clear)]
    >>> row = probe(*sets).rows[0]
    >>> row.head, row.after, row.before < 1
    ('fed3r', 1.0, True)
    """
    names = list(heads)
    _require_same_samples(before, after)
    options: dict[str, Any] = {"hyper": hyper, "seed": seed, "memory_limit": memory_limit}
    now = refit(after, split, names, **options)
    then = now if after is before else refit(before, split, names, **options)
    rows = tuple(
        ProbeRow(name, then[name].accuracy, now[name].accuracy, then[name].reason or now[name].reason) for name in now
    )
    trained = None if softmax is None else _softmax_accuracy(softmax, after)
    return ProbeResult(
        rows,
        trained,
        {name: entry.classifier for name, entry in now.items() if entry.classifier},
    )


def _accuracy(classifier: Classifier, features: Features) -> float | None:
    return evaluate(classifier, features.test).accuracy if len(features.test) else None


def _softmax_accuracy(softmax: Classifier, after: Features) -> float | None:
    """Return the accuracy of the head that was trained, refusing one of other classes or dimensions."""
    if softmax.n_classes != after.n_classes:
        raise InputError(
            f"the trained head separates {softmax.n_classes} classes, but the data have {after.n_classes}: was it "
            "trained on other data?"
        )
    numbers = tuple(str(label) for label in range(softmax.n_classes))
    if after.class_names and softmax.class_names not in (numbers, after.class_names):
        raise InputError("the trained head and the data have different class names, or the same in another order")
    return _accuracy(softmax, after)


def _require_same_samples(before: Features, after: Features) -> None:
    """Refuse features that are not of the same samples, as far as labels tell."""
    for part in ("train", "test"):
        ours, theirs = (getattr(samples, part).y for samples in (before, after))
        if not _equal(ours, theirs) or before.n_classes != after.n_classes:
            raise InputError(
                f"features before and after tuning must be of the same samples, but the labels of their {part} parts "
                f"differ ({len(ours)} and {len(theirs)} samples, {before.n_classes} and {after.n_classes} classes): "
                "encode the same data twice"
            )


def _equal(ours: ArrayLike, theirs: ArrayLike) -> bool:
    return bool(np.array_equal(np.asarray(ours), np.asarray(theirs)))
