"""What the run that made a classifier says of it: the report beside the classifier's file."""

import os
from dataclasses import dataclass
from pathlib import Path

from fedmoments.core.classifier import Classifier
from fedmoments.core.observations import Report, read_report
from fedmoments.core.observations.parts import HeadDetail
from fedmoments.errors import FedMomentsError

__all__ = ["Evidence", "evidence_of"]

#: Reports that runs write, in the folder of ``heads`` or beside a single head.
REPORTS = ("federation.json", "results.json")


@dataclass(frozen=True, eq=False)
class Evidence:
    """A run's report, and its part on one classifier."""

    report: Report
    detail: HeadDetail

    @property
    def sites(self) -> tuple[tuple[int, int], ...]:
        """Right answers and samples of each site that tested it, where the report tells them."""
        federation = self.report.federation
        spread = federation.spread.get(self.detail.head) if federation else None
        return tuple((round(site.accuracy * site.samples), site.samples) for site in (spread.sites if spread else ()))

    @property
    def alone(self) -> tuple[float | None, ...]:
        """Accuracy at each of these sites of a head that was fitted from its own samples alone; None where not told."""
        federation = self.report.federation
        spread = federation.spread.get(self.detail.head) if federation else None
        return tuple(site.alone for site in (spread.sites if spread else ()))

    @property
    def is_rounded(self) -> bool:
        """Whether figures of classes are sums of what clients rounded, as those of a federation are."""
        return self.report.federation is not None

    @property
    def outcome(self) -> tuple[int, int]:
        """Right answers and samples in all: those of sites, whose tables leave out what would tell of few samples."""
        outcomes = (int(self.detail.found.sum()), int(self.detail.tested.sum()))
        both = (sum(right for right, _ in self.sites), sum(samples for _, samples in self.sites))
        return max(outcomes, both, key=lambda pair: pair[1])


def evidence_of(classifier: Classifier, file: str | os.PathLike[str]) -> Evidence | None:
    """Return what the report beside a classifier's file says of it, or None where there is no such report.

    A report counts only if it names the digest of this very classifier.
    """
    folder = Path(file).resolve().parent
    digest = classifier.digest()
    for place in (folder.parent, folder):
        for name in REPORTS:
            try:
                report = read_report(place / name)
            except (FedMomentsError, OSError):
                continue
            for detail in report.details:
                if detail.digest == digest:
                    return Evidence(report, detail)
    return None
