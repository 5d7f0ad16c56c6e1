"""Diagnostics of a data set in one federation, of statistics files, and the page and file that they leave."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmoments.core.diagnostics import NEEDS, Diagnostics, diagnose
from fedmoments.core.maps.projection import make_projection
from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import Diagnosis
from fedmoments.core.observations.report import Written
from fedmoments.core.statistics import Ledger, StatisticsSpec
from fedmoments.errors import NotEnoughDataError
from fedmoments.pages import write_report
from fedmoments.samples import Split
from fedmoments.samples.features import Features
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study, dimensions_of
from fedmoments.study.jobs.encoding import encode_data
from fedmoments.study.simulation.methods import map_features
from fedmoments.study.simulation.points import Point, make_split

__all__ = [
    "MOST_DIM",
    "DiagnosisResult",
    "about_federation",
    "diagnose_data",
    "diagnose_features",
    "write_diagnosis",
]

#: Dimensions up to which a simulation diagnoses by the way: eigenvalues of a larger covariance take longer than heads.
MOST_DIM = 2048

#: Settings of a job that a diagnosis does not have.
_OF_HEADS = ("heads", "hyper", "shrinkages", "participation", "seeds", "memory_limit")

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class DiagnosisResult(Written):
    """The report of a diagnosis, and the files that were written."""

    @property
    def diagnosis(self) -> Diagnosis:
        """Which federation was diagnosed, and what was found."""
        return self.report.diagnosis or Diagnosis()


def diagnose_features(features: Features, split: Split, setting: Point, *, seed: int = 0) -> Diagnostics:
    """Measure a federation of everybody's features, and diagnose it with the test samples.

    Parameters
    ----------
    features, split
        Everybody's samples, and who holds what.
    setting
        Of the federation: how many means a client sends of a class, and behind which projection.
    seed
        Deals samples to those means, and draws the projection.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples.features import Samples
    >>> y = np.arange(60) % 2
    >>> part = Samples(np.random.default_rng(0).normal(size=(60, 3)) + 9 * y[:, None], y)
    >>> features = Features("toy", 2, part, part)
    >>> diagnostics = diagnose_features(features, make_split(features, 5, "iid", 0), Point(5, "iid"))
    >>> diagnostics.curves["free"].full_accuracy
    1.0
    """
    if not split.sizes.any():
        raise NotEnoughDataError("there is nothing to diagnose: no client of this split holds a sample")
    projection = make_projection(setting.projection, features.dim, seed)
    features = map_features(features, split, projection) if projection else features
    spec = NEEDS | StatisticsSpec.of("client_means", means_per_client=setting.means_per_client)
    train, test = features.train, features.test
    ledger = Ledger.of(train.X, train.y, split.clients, spec, n_classes=features.n_classes, seed=seed, fold=True)
    return diagnose(ledger, test=(test.X, test.y) if len(test) else None)


def about_federation(split: Split, setting: Point, seed: int) -> Diagnosis:
    """Return which federation diagnostics are of."""
    return Diagnosis(split.n_clients, setting.split, setting.means_per_client, setting.projection, seed)


def diagnose_data(
    config: StudySettings,
    out: Path | None = None,
    *,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
) -> DiagnosisResult:
    """Encode data, split them over clients as the first setting of a job says, and diagnose what clients would send.

    Parameters
    ----------
    config
        Data, encoder, split, number of clients, means per client, projection and seed; the first of each is taken, and
        what concerns heads is not used.
    out
        Folder for report.html and diagnostics.json; nothing is written without one.
    command
        What the user typed, for the report.
    cache_dir
        Folder of the feature cache; the user's by default, False does without.
    progress
        Called before every step.
    """
    firsts = {name: getattr(config, name)[:1] for name in ("splits", "clients", "means_per_client", "projections")}
    config = replace(config, **firsts, seeds=1)
    check_study(config)
    encoded = encode_data(config, cache_dir=cache_dir, progress=progress)
    config = replace(config, encoder=encoded.encoder.name)
    scheme = config.splits[0]
    clients = config.clients[0] if config.clients else None if finds_clients(scheme) else CLIENTS
    setting = Point(clients, scheme, config.means_per_client[0], projection=dimensions_of(config)[0])
    split = make_split(encoded.features, clients, scheme, config.seed)
    if progress:
        progress(0, 1, "diagnosing")
    diagnostics = diagnose_features(encoded.features, split, setting, seed=config.seed)
    about = replace(about_federation(split, setting, config.seed), diagnostics=diagnostics)
    kept = {name: value for name, value in config.to_dict().items() if name not in _OF_HEADS}
    splits = (split.report(config.seed),)
    report = Report(
        (), encoded.describe(), splits=splits, diagnosis=about, bias=diagnostics.bias, config=kept, command=command
    )
    return DiagnosisResult(report, write_diagnosis(out, report) if out else [])


def write_diagnosis(folder: Path, report: Report) -> list[Path]:
    """Write ``diagnostics.json`` and ``report.html``; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    report.write(folder / "diagnostics.json")
    write_report(folder / "report.html", report)
    return [folder / "report.html", folder / "diagnostics.json"]
