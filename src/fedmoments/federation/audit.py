"""What a client's contribution would reveal without its policy, and what is left of that with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.leaks import LeakReport
from fedmoments.privacy.map_leaks import MapOutline
from fedmoments.privacy.outline import Outline
from fedmoments.wire import Withheld

__all__ = ["Audit"]


@dataclass(frozen=True)
class Audit:
    """A contribution before and after a policy.

    Parameters
    ----------
    before, after
        What it would reveal with all samples, and with those that the policy lets out.
    withheld
        What the policy withholds, whether or not the server learns of it.
    policy
        The client's rules.

    Examples
    --------
    >>> audit = Audit.of([0, 1, 1, 2, 2, 2, 2, 2], StatisticsSpec(), dim=64)
    >>> audit.before.exposes, audit.after.exposes, audit.withheld
    (True, False, Withheld(classes=2, samples=3))
    """

    before: LeakReport
    after: LeakReport
    withheld: Withheld
    policy: ClientPolicy

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        spec: StatisticsSpec,
        dim: int,
        policy: ClientPolicy = ClientPolicy(),  # noqa: B008 - frozen
        class_names: Sequence[str] | None = None,
        *,
        features: ArrayLike | None = None,
        shown: ArrayLike | None = None,
        behind: MapOutline | None = None,
    ) -> "Audit":
        """Audit one client's samples before anything is encoded or measured.

        Parameters
        ----------
        labels
            (n,) the class of every sample, in the client's order.
        spec, dim
            What is requested, in how many dimensions.
        policy
            The client's rules.
        class_names
            Of all classes.
        features
            (n, d) of the same samples behind the feature map, where they are at hand: what a scatter sketch tells of
            them is then measured. None: only what follows from counts is told.
        shown
            The same without the rare values that the policy hides; None: as they are.
        behind
            The feature map, where there is one.

        Examples
        --------
        >>> X, y = np.random.default_rng(0).normal(size=(90, 64)), np.repeat([0, 1], 45)
        >>> audit = Audit.of(y, StatisticsSpec.of("scatter_sketch"), 64, features=X)
        >>> sketch = audit.after.outline.sketches[0]
        >>> sketch.rank, sketch.spare, round(sketch.exposure.worst, 2)
        (10, 88, 0.62)
        """
        given = np.asarray(labels)
        mask, _ = policy.select(given, spec.means_per_client, behind=behind, moments=spec.moments)
        if _refused(given[mask], spec, policy):
            mask[:] = False
        before = asked_for(given, spec, dim, policy, class_names, features=features, behind=behind)
        rest = features if shown is None else shown
        kept = None if rest is None else np.asarray(rest)[mask]
        after = leaving(given[mask], spec, dim, policy, class_names, features=kept, behind=behind)
        return cls(before, after, _kept_back(given, mask), policy)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit, ready for JSON."""
        return {
            "policy": self.policy.to_dict(),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "withheld": {"classes": self.withheld.classes, "samples": self.withheld.samples},
        }


def fewest(policy: ClientPolicy) -> int:
    """Return below how many samples a mean is reported: a policy that sends smaller ones makes none of them safer.

    Examples
    --------
    >>> fewest(ClientPolicy(min_count=1)), fewest(ClientPolicy(min_count=20))
    (5, 20)
    """
    return max(policy.min_count, ClientPolicy().min_count)


def asked_for(
    labels: ArrayLike,
    spec: StatisticsSpec,
    dim: int,
    policy: ClientPolicy,
    class_names: Sequence[str] | None = None,
    *,
    features: ArrayLike | None = None,
    behind: MapOutline | None = None,
) -> LeakReport:
    """Report on all samples of a client, labels (n,) and features (n, d) where these are at hand, without its policy.

    Examples
    --------
    >>> asked_for([0] * 9, StatisticsSpec.of("scatter_sketch"), 64, ClientPolicy()).outline.sketches
    (SketchOutline(rank=2, spare=8, energy=None, exposure=None, label=-1),)
    """
    outline = replace(Outline.of_labels(labels, spec, dim), behind=behind)
    if features is not None:
        outline = outline.measured(features, labels)
    return LeakReport.of(outline, min_count=fewest(policy), class_names=class_names)


def leaving(
    labels: ArrayLike,
    spec: StatisticsSpec,
    dim: int,
    policy: ClientPolicy,
    class_names: Sequence[str] | None = None,
    *,
    features: ArrayLike | None = None,
    behind: MapOutline | None = None,
) -> LeakReport:
    """Report on samples that a policy lets out, labels (n,) and features (n, d) where these are at hand.

    Examples
    --------
    >>> spec = StatisticsSpec.of("client_means", means_per_client=4)
    >>> leaving([0] * 9, spec, 64, ClientPolicy(small_classes="merge")).outline.rows
    {0: (9,)}
    """
    given = np.asarray(labels)
    if _refused(given, spec, policy):
        return LeakReport.of(Outline(spec, dim, {}, {}), min_count=fewest(policy), class_names=class_names)
    outline = Outline.of_labels(given, spec, dim, fewest=policy.min_count if policy.merges else 1)
    outline = replace(outline.limited(policy.sketch_share, policy.sketch_spare), behind=behind)
    if features is not None:
        outline = outline.measured(features, labels, policy.sketch_share, policy.sketch_spare)
    return LeakReport.of(outline, min_count=fewest(policy), class_names=class_names)


def _refused(labels: Any, spec: StatisticsSpec, policy: ClientPolicy) -> bool:
    """Whether a policy sends nothing, for there are too few samples for a sketch."""
    spare = len(labels) - len(np.unique(labels))
    return spec.has_sketch and policy.small_sketches == "refuse" and spare < policy.sketch_spare


def _kept_back(labels: Any, mask: Any) -> Withheld:
    gone = set(labels[~mask].tolist()) - set(labels[mask].tolist())
    return Withheld(classes=len(gone), samples=int((~mask).sum()))
