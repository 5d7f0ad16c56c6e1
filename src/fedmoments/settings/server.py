"""What a server decides for itself: of a collection, and of a tuning.

What the terms of a federation are drawn up from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from fedmoments.errors import InputError
from fedmoments.settings.files import FromFile, from_values
from fedmoments.settings.option import option
from fedmoments.settings.plan import RANDOM, TuningPlan
from fedmoments.settings.samples import Columns, EncoderChoice

__all__ = ["ServerSettings", "TermsSettings", "TuningSettings", "read_plan"]


_federation = partial(option, group="Federation")


@dataclass(frozen=True)
class TermsSettings(EncoderChoice, Columns, FromFile):
    """A federation to be: what its clients are requested.

    Parameters
    ----------
    data
        Data like the clients', which tell class names and the dimension of features; empty: the settings do.
    classes
        File with one class a line, or names separated by commas, in order; empty: the data tell.
    after
        Ledger of a federation with the same encoder and classes, in whose Fisher directions this one measures.
    privacy
        What is agreed on: rules of :class:`fedmoments.privacy.protection.Agreed`.
    """

    sources: ClassVar[tuple[str, ...]] = ("data",)

    data: str = option("", "Take class names and the feature dimension from data like the clients'.", common=1)
    table: str | None = option(
        None,
        "Clients' samples are rows of raw tables: draft (types are detected in --data), a file of "
        "'fedmoments table', or after (the table of a first exchange, --after, standardised by its sums).",
        metavar="draft|FILE|after",
        group="Data",
    )
    name: str = option("", "Name of the federation.", common=1)
    heads: tuple[str, ...] = option(
        (),
        "Heads to serve, separated by commas; clients are requested the fewest moments that these need.",
        shown="auto; fedcof where privacy or --rows allow no sketch",
        common=3,
    )
    classes: str = option(
        "", "File with one class per line, or names separated by commas, in order.", metavar="FILE|NAME,…", common=3
    )
    dim: int | None = _federation(None, "Dimensions of the features, if clients have features.", metavar="D")
    means_per_client: int = _federation(1, "Means that a client sends per class.", metavar="N")
    names: bool = _federation(
        False, "Add each class name, encoded as a sentence, as one sample of its class: for text and few samples."
    )
    feature_map: str = _federation(
        "",
        "none, power (√x, then unit length: for features after a ReLU), length (unit length) or auto (the "
        "encoder's own; for given features, what their signs, skewness and lengths call for).",
        "--map",
        metavar="MAP",
        shown="auto if auto is the only head, else none",
    )
    normalize: bool = _federation(False, "Then scale every sample to length 1.", "--normalize")
    project: int | None = _federation(
        None, "Then apply a random projection, drawn from the seed, to K dimensions.", metavar="K"
    )
    fourier: int | None = _federation(
        None,
        "Then map to D random Fourier features; parties must allow it (--maps any). 5,000 for the head fed3r-rf.",
        metavar="D",
    )
    bandwidth: float | None = _federation(
        None,
        "Kernel width of --fourier, in feature units; from the norms of a first exchange (--after) by default.",
        metavar="SIGMA",
    )
    budget: str | None = _federation(
        None,
        "means, means/8, gram, 50KB …: bytes that a client's means and scatter sketch may take, for heads on sketches.",
        metavar="BYTES",
    )
    after: str = _federation(
        "",
        "Ledger of a first exchange: run a second one in its Fisher directions (--heads gh-qda), or on "
        "Fourier features of a width that fits it (--heads fed3r-rf; the first with --heads gh-nb).",
        metavar="LEDGER",
    )
    norm_bound: float = _federation(1024.0, "Largest norm of a sample's features.", metavar="NORM")
    max_samples: int = _federation(2**24, "Upper bound on the samples of the whole federation.", metavar="N")
    rows: str = _federation(
        "int64", "Format in which means are sent: int64, float32, float16, bfloat16 or int8.", metavar="TYPE"
    )
    seed: int = _federation(0, "Public seed that assigns samples to several means of a class.", metavar="N")
    privacy: Mapping[str, Any] = option({}, "What is agreed on.", group="Privacy")


_server = partial(option, group="Server")


class _Rounds(FromFile):
    """What both servers check of their rounds."""

    ledger: str
    deadline: float
    ttl: float
    wait: float
    poll: float
    max_client_samples: int

    @classmethod
    def load_whole(cls, path: str) -> Self:
        """Read a settings file that names its ledger itself."""
        settings = cls.load(path)
        if not settings.ledger:
            raise InputError(f'{path} names no ledger: write ledger = "FILE" into it')
        return settings

    def _check(self, *counts: str) -> None:
        if self.max_client_samples < 0:
            raise InputError(
                f"max_client_samples must be 1 or more, or 0 for any number, not {self.max_client_samples}"
            )
        if not 0 < self.deadline < self.ttl:
            raise InputError(
                f"a round must close before its messages die: deadline is {self.deadline} s, ttl is {self.ttl} s"
            )
        for name in counts:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.wait < 0 or self.poll <= 0:
            raise InputError("wait must be 0 or more, and poll above 0")


@dataclass(frozen=True)
class ServerSettings(_Rounds):
    """The server's own settings.

    Parameters
    ----------
    ledger
        File of the durable ledger, which also holds the terms and who is enrolled.
    out
        Folder for classifiers, results and report; empty writes none.
    rounds, per_round, seed
        Rounds of collection, how many nodes are asked in each (0: all that are not done), and what draws them.
    deadline, ttl
        Seconds after which a round is closed, and for which a message lives; the first must be less than the second.
    again
        Whether to ask for contributions that were acknowledged before: after an older ledger was restored.
    robust
        ``mad``: clients whose means lie far from the others' are left out of what is fitted; empty: nobody is.
    max_client_samples
        Clients that say they have more samples than this are left out of what is fitted; 0: any number.
    place
        Home of Flower's processes, where a run says what it is doing; empty: nowhere.
    """

    #: Key of a run's configuration that holds the path of the file.
    config_key: ClassVar[str] = "server-config"
    paths: ClassVar[tuple[str, ...]] = ("ledger", "out", "place")

    ledger: str = ""
    out: str = option("", "Folder for classifiers, federation.json and report.html.", "-o", metavar="FOLDER", common=9)
    heads: tuple[str, ...] = option(("fedcof",), "Names, separated by commas.", common=3)
    hyper: Mapping[str, Mapping[str, Any]] = option(
        {},
        "A hyper-parameter of a head; may be repeated.",
        "--set",
        metavar="HEAD.NAME=VALUE",
        kind="hyper",
        group="Heads",
    )
    quorum: int = _federation(1, "Clients that must have contributed before heads are fitted.", metavar="N")
    nodes: int = option(1, "Client nodes to wait for before the first round.", metavar="N", common=5)
    wait: float = _federation(120.0, "Seconds to wait for --nodes.", metavar="SECONDS")
    rounds: int = _federation(1, "Rounds of collection.", metavar="N")
    per_round: int = _federation(0, "Nodes asked per round.", metavar="N", shown="all that are not done")
    seed: int = _federation(0, "Seed that draws the nodes of a round.", metavar="N")
    deadline: float = _federation(600.0, "Seconds until a round ends.", metavar="SECONDS")
    ttl: float = _federation(
        900.0, "Seconds until an unanswered message expires.", metavar="SECONDS", shown="1.5 times the deadline"
    )
    poll: float = _federation(0.5, "Seconds between two polls for replies.", metavar="SECONDS")
    bundle_bytes: int = _federation(2**26, "Largest reply of a node, in bytes.", metavar="BYTES")
    fit_each_round: bool = _federation(False, "Fit heads after every round.")
    half_life: float = _federation(
        0.0,
        "Days after which a contribution has half the weight; for heads on sums.",
        metavar="DAYS",
        shown="all weigh the same",
    )
    evaluate: bool = _federation(True, "Ask clients to test the heads.")
    again: bool = _federation(False, "After a restore: also ask for contributions that were already acknowledged.")
    robust: str = option(
        "", "mad: exclude clients whose means lie far from the others'.", metavar="FILTER", group="Privacy"
    )
    max_client_samples: int = option(
        0, "Largest number of samples accepted from one client.", metavar="N", group="Privacy", shown="any number"
    )
    place: str = ""

    def __post_init__(self) -> None:
        self._check("quorum", "nodes", "rounds", "bundle_bytes")
        if self.per_round < 0:
            raise InputError(f"per_round must be 0 or more, not {self.per_round}")
        if not self.half_life >= 0:
            raise InputError(f"half_life must be 0 days or more, not {self.half_life}")


@dataclass(frozen=True)
class TuningSettings(_Rounds):
    """The server's settings of a tuning.

    Parameters
    ----------
    ledger
        File of the durable ledger, which holds the terms, who is enrolled, and what the start is fitted from.
    plan
        What is trained and how, as in :class:`~fedmoments.settings.plan.TuningPlan`. Unless it says otherwise, clients
        are asked to test the start and the last round only.
    start
        A head that is fitted from the ledger, ``random``, or the path of a saved classifier.
    deadline, ttl
        Seconds after which a round is closed, and for which a message lives; the first must be less than the second.
    max_client_samples
        Clients that say they have more samples than this to train on, which are their weight, take no part; 0: any
        number.

    Examples
    --------
    >>> TuningSettings("trial.ledger", "out", {"rounds": 3, "fraction": 0.5}).tuning_plan.rounds
    3
    """

    #: Key of a run's configuration that holds the path of the file.
    config_key: ClassVar[str] = "tuning-config"
    paths: ClassVar[tuple[str, ...]] = ("ledger", "out")

    ledger: str = ""
    out: str = option(
        "tuned", "Folder for the tuned models, and for resuming after a stop.", "-o", metavar="FOLDER", common=9
    )
    plan: Mapping[str, Any] = option({}, "What is trained and how.", group="Tuning")
    start: str = option("fedcof", "A head to fit from the ledger, random, or a classifier file.", common=3)
    hyper: Mapping[str, Any] = option({}, "Hyper-parameters of the start's head.")
    nodes: int = option(1, "Client nodes to wait for before the first round.", metavar="N", common=5)
    wait: float = _federation(120.0, "Seconds to wait for --nodes.", metavar="SECONDS")
    minimum: int = _federation(1, "Fewest updates per round; with fewer the round fails.", metavar="N")
    deadline: float = _federation(600.0, "Seconds until a round ends.", metavar="SECONDS")
    ttl: float = _federation(
        900.0, "Seconds until an unanswered message expires.", metavar="SECONDS", shown="1.5 times the deadline"
    )
    poll: float = _federation(0.5, "Seconds between two polls for replies.", metavar="SECONDS")
    evaluate: bool = _federation(True, "Ask clients to test on their test samples.")
    max_client_samples: int = option(
        0, "Largest number of samples accepted from one client.", metavar="N", group="Privacy", shown="any number"
    )

    def __post_init__(self) -> None:
        if not self.out:
            raise InputError("tuning needs a folder for its results (out): a stopped run continues from there")
        if self.tuning_plan.has_grid:
            raise InputError(
                "a deployment trains with one learning rate, since every trial would be rounds of its clients: choose "
                "it in a simulation (fedmoments tune --lr 0.01,0.1), and give the best"
            )
        if self.hyper and (self.start == RANDOM or _is_path(self.start)):
            raise InputError(f"hyper-parameters are for a start that is a head, not for '{self.start}'")
        self._check("nodes", "minimum")

    @property
    def tuning_plan(self) -> TuningPlan:
        """The plan, checked."""
        plan = read_plan(self.plan, "these settings")
        return read_plan({"test_every": max(plan.rounds, 1), **self.plan}, "these settings")

    def placed(self, base: Path) -> Self:
        """Return the settings with relative paths made absolute; a start is a path if it looks like one."""
        there = super().placed(base)
        if not _is_path(self.start):
            return there
        return there.changed({"start": str(base / Path(self.start).expanduser())})


def _is_path(start: str) -> bool:
    return "/" in start or start.endswith(".safetensors")


def read_plan(table: Mapping[str, Any], whose: str) -> TuningPlan:
    """Return the plan that a table holds; what is not in it has its default.

    Parameters
    ----------
    table
        By field of :class:`~fedmoments.settings.plan.TuningPlan`, as TOML or JSON gives them.
    whose
        Where it came from, for messages.

    Raises
    ------
    InputError
        When a field is unknown, of another type, or out of range.

    Examples
    --------
    >>> read_plan({"stage": "lp", "rounds": 3}, "the server").rounds
    3
    >>> read_plan({"epochs": "many"}, "the server")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the plan of the server: 'epochs' must be of type int; 'many' arrived
    """
    if not isinstance(table, Mapping):
        raise InputError(f"the plan of {whose} must be a table, not {table!r}")
    return from_values(TuningPlan, table, f"the plan of {whose}")
