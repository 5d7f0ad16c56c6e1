"""What a study runs: which heads, on which federations, over which seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedmoments.settings.files import FromFile
from fedmoments.settings.measuring import Computing
from fedmoments.settings.option import option
from fedmoments.settings.plan import RANDOM, TuningPlan
from fedmoments.settings.samples import Encoding, SampleSource
from fedmoments.settings.setting import with_swept_options

__all__ = ["DEFAULT_HEAD", "StudySettings", "TuningStudy"]

#: The head where nobody names one.
DEFAULT_HEAD = "auto"
_federation = partial(option, group="Federation")
_tuning = partial(option, group="Tuning")


@dataclass(frozen=True)
@with_swept_options
class StudySettings(Computing, Encoding, SampleSource, FromFile):
    """A study: all combinations of its lists are run. Every random choice follows from ``seed``.

    Parts of a setting that are typed (:class:`~fedmoments.settings.setting.Swept`) are lists of it, too: shrinkages.

    Parameters
    ----------
    projections
        Dimensions behind a public random projection, or ``full``: to be swept, too. Without any, features are measured
        as they are.
    budgets
        Bytes that a client's rows may take, for heads on scatter sketches: ``means``, ``means/8``, ``gram``, ``50KB``;
        to be swept, too.
    participation
        ``KAPPA`` or ``KAPPA:replacement``: accuracy after each round of so many clients, too. Heads only.
    privacy
        What protects the federation, and what attacks it (:func:`fedmoments.privacy.sweep.read_protections`); lists of
        ε and of obfuscations are swept, too.

    Examples
    --------
    >>> settings = StudySettings(data="digits", clients=(10, 100))
    >>> StudySettings.from_toml(settings.to_toml()) == settings
    True
    """

    heads: tuple[str, ...] = option(
        ("fedncm", "fedcof", DEFAULT_HEAD, "gh-lda"),
        "Names, separated by commas. 'all' means all heads that share one upload: not fed3r-rf, fisher-rf, "
        "deep-ridge and qda-exchange, which measure behind maps of their own; 'all,fed3r-rf' adds one, and --set "
        "fed3r-rf.n_features=1000 makes it smaller. The list may include baselines; 'baselines' means all "
        "of them (see 'fedmoments heads').",
        common=3,
    )
    hyper: Mapping[str, Mapping[str, Any]] = option(
        {},
        "A hyper-parameter of a head; may be repeated.",
        "--set",
        metavar="HEAD.NAME=VALUE",
        kind="hyper",
        group="Heads",
    )
    clients: tuple[int, ...] = option(
        (), "Numbers of clients: 10,100.", common=4, shown="100, or what domain and id say"
    )
    splits: tuple[str, ...] = option(
        ("dirichlet:0.1",), "Splits: dirichlet:0.1,iid,… (see 'fedmoments split --help').", "--split", common=5
    )
    means_per_client: tuple[int, ...] = _federation((1,), "1,2: means that a client sends per class.")
    projections: tuple[str, ...] = _federation(
        (),
        "full,256,128: apply a public random projection to this many dimensions, drawn from the seed, "
        "before measuring.",
        "--project",
        metavar="K,…",
        kind="numbers or words",
    )
    duplicates: str = option(
        "warn",
        "What to do with test samples that are exact or near duplicates of training samples: warn, drop "
        "or keep (no search).",
        metavar="warn|drop|keep",
        group="Data",
    )
    names: bool = _federation(
        False, "Add each class name, encoded as a sentence, as one sample of its class: for text and few samples."
    )
    feature_map: str = _federation(
        "",
        "none, power (√x, then unit length: for features after a ReLU), length (unit length) or auto (the "
        "encoder's own; for given features, what their signs, skewness and lengths call for).",
        "--map",
        metavar="MAP",
        shown="auto for the head auto, none for the others",
    )
    budgets: tuple[str, ...] = _federation(
        (),
        "means, means/8, gram, 50KB …: bytes that a client's means and scatter sketch may take, for heads on "
        "sketches; the client picks precision, projection and rank (see docs/sketch.md).",
        "--budget",
        metavar="BYTES",
    )
    budget_curve: bool = _federation(
        False, "Measure accuracy against bytes, from an eighth of FedNCM's payload to Fed3R's, for all heads."
    )
    participation: tuple[str, ...] = _federation(
        (),
        "10 or 10:replacement: measure accuracy after each round of this many clients, until all were seen.",
        metavar="KAPPA",
    )
    privacy: Mapping[str, Any] = option({}, "Rules of privacy.", group="Privacy")
    seeds: int = option(5, "Number of seeds; splits differ between seeds, features do not.", common=7)
    memory_limit: float = option(
        4.0,
        "Memory limit for the statistics of one head; a head that needs more is skipped and reported.",
        metavar="GB",
        group="Heads",
    )
    jobs: int = option(
        1,
        "Number of local processes that share settings and seeds; results do not change.",
        metavar="N",
        group="Output",
        least=1,
    )
    cluster: str | None = option(
        None,
        "A Dask scheduler, tcp://… or tls://…, whose workers replace local processes.",
        metavar="ADDRESS",
        group="Output",
    )


@dataclass(frozen=True)
class TuningStudy(StudySettings):
    """A study of tuning: every combination of start, optimiser and seed is one run.

    Data, encoder, clients, split, seeds and the hyper-parameters of heads are those of :class:`StudySettings`; there is
    one number of clients and one split.

    Parameters
    ----------
    plan
        Fields of :class:`~fedmoments.settings.plan.TuningPlan`, for all runs.
    runs
        Fields of a plan for some runs, by ``START``, ``OPTIMISER`` or ``START/OPTIMISER``; the narrowest wins.
    encoder_flops
        FLOPs of the encoder for one sample, where they cannot be counted (features that are given).

    Examples
    --------
    >>> study = TuningStudy(data="digits", plan={"rounds": 5}, runs={"random": {"lr": 1.0}})
    >>> study.plan_of("random", "fedavg", seed=3).lr, study.plan_of("fedcof", "fedavg", seed=3).lr
    (1.0, 'auto')
    """

    heads: tuple[str, ...] = option((), "More one-shot heads to compare curves with.", group="Heads")
    starts: tuple[str, ...] = option(
        (RANDOM, "fedncm", "fed3r", "fedcof"), "random, names of heads, files of classifiers.", common=3
    )
    optimisers: tuple[str, ...] = option(
        ("fedavg",),
        "fedavg, fedavgm, fedadam, fedyogi, fedprox, feddyn, scaffold, mimelite, mime.",
        metavar="NAME,…",
        common=3,
    )
    plan: Mapping[str, Any] = option({}, "Settings of all runs.", group="Tuning")
    runs: Mapping[str, Mapping[str, Any]] = _tuning(
        {},
        "A setting for some runs only, by start, optimiser or START/OPTIMISER: random.lr=0.1, "
        "fedcof/fedadam.server_lr=0.001; may be repeated.",
        "--for",
        metavar="RUN.NAME=VALUE",
        kind="runs",
    )
    refit: tuple[str, ...] = _tuning(
        ("fed3r",), "Heads to refit after ft and feat; none for no head.", kind="list or none"
    )
    encoder_flops: float | None = _tuning(
        None, "FLOPs of the encoder per sample, if features are given.", metavar="FLOPS"
    )
    seeds: int = option(3, "Number of seeds; splits differ between seeds, features do not.", common=7)

    @property
    def stage(self) -> str:
        """What is trained: one stage a study."""
        return str(self.plan.get("stage", TuningPlan.stage))

    def plan_of(self, start: str, optimiser: str, seed: int) -> TuningPlan:
        """Return the plan of one run."""
        numbers = dict(self.plan)
        for key in (optimiser, start, f"{start}/{optimiser}"):
            numbers |= self.runs.get(key, {})
        return TuningPlan(**{**numbers, "optimiser": optimiser, "seed": seed})
