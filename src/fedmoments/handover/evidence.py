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
