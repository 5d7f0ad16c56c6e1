"""The exact configuration of a job, as one value that can be written to a TOML file and read back."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from fedmoments.baselines import Baseline
from fedmoments.data import parse_split
from fedmoments.errors import InputError
from fedmoments.gaussian import Shrinkage
from fedmoments.jobs.protections import read_protections
from fedmoments.jobs.settings import parse_toml, read_toml, to_toml, with_values
from fedmoments.privacy.protection import Protection
from fedmoments.simulation.methods import all_names, choose_methods
from fedmoments.simulation.projection import parse_projection
from fedmoments.simulation.rounds import Participation
from fedmoments.statistics import SketchPlan

__all__ = ["JobConfig"]


@dataclass(frozen=True)
class JobConfig:
    """What to run. Every random choice follows from ``seed``.

    Parameters
    ----------
    data
        ``digits``, ``folder:PATH``, ``csv:PATH``, ``parquet:PATH``, ``npz:PATH`` or ``hf:NAME``.
    encoder
        Name, path or id; by default the one for the data's modality.
    size, pooling
        Of the encoder's preprocessing, where it has them; its own by default.
    runtime, device, threads, batch_size, readers
        How it runs; none of these changes the features by more than rounding.
    text, image, label, client, domain, test, domains
        Where a table or folder holds what; see the data source.
    test_share
        Share of samples held out for testing when the data come in one part.
    strict
        Stop at the first sample that cannot be read.
    heads
        Names of heads, and of baselines to compare them with; ``all`` are the heads, ``baselines`` all baselines.
    hyper
        Name -> hyper-parameters.
    clients, splits, shrinkages, means_per_client
        Values to sweep; all combinations are run.
    projections
        Dimensions behind a public random projection, or ``full``: to be swept, too. Without any, features are measured
        as they are.
    budgets
        Bytes that a client's rows may take, for heads on scatter sketches: ``means``, ``means/8``, ``gram``, ``50KB``;
        to be swept, too.
    budget_curve
        Draw accuracy against bytes, from an eighth of FedNCM's payload to Fed3R's, for all heads.
    participation
        ``KAPPA`` or ``KAPPA:replacement``: accuracy after each round of so many clients, too. Heads only.
    privacy
        What protects the federation, and what attacks it (:func:`fedmoments.jobs.protections.read_protections`); lists
        of ε and of obfuscations are swept, too.
    seeds, seed
        How many seeds, and the first of them.
    memory_limit
        Gigabytes that the statistics of one head may take.

    Examples
    --------
    >>> config = JobConfig(data="digits", clients=(10, 100))
    >>> JobConfig.from_toml(config.to_toml()) == config
    True
    """

    data: str = "digits"
    encoder: str | None = None
    size: int | None = None
    pooling: str | None = None
    runtime: str = "torch"
    device: str = "cpu"
    threads: int | None = None
    batch_size: int | None = None
    readers: int = 2
    text: str | None = None
    image: str | None = None
    label: str | None = None
    client: str | None = None
    domain: str | None = None
    test: str | None = None
    domains: bool | None = None
    test_share: float | None = None
    strict: bool = False
    heads: tuple[str, ...] = ("all",)
    hyper: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    splits: tuple[str, ...] = ("dirichlet:0.1",)
    shrinkages: tuple[str, ...] = ()
    means_per_client: tuple[int, ...] = (1,)
    projections: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    budget_curve: bool = False
    participation: tuple[str, ...] = ()
    privacy: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    seed: int = 0
    memory_limit: float = 4.0

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of heads and baselines, each once; ``all`` stands for all heads that share one upload."""
        return all_names(self.heads)

    @property
    def dimensions(self) -> tuple[int | None, ...]:
        """Dimensions behind each projection; None for the features as they are."""
        return tuple(parse_projection(word) for word in self.projections) or (None,)

    @property
    def protections(self) -> tuple[Protection, ...]:
        """What protects the federation: one value for each point of a sweep."""
        return read_protections(self.privacy)

    def check(self) -> None:
        """Refuse what cannot be run, before any work is done."""
        self._check_heads()
        _ = self.dimensions, self.protections
        for scheme in self.splits:
            parse_split(scheme)
        for shrinkage in self.shrinkages:
            Shrinkage.parse(shrinkage)
        for budget in self.budgets:
            SketchPlan(budget)
        for participation in self.participation:
            Participation.parse(participation)
        for name in ("clients", "means_per_client"):
            for number in getattr(self, name):
                if number < 1:
                    raise InputError(f"{name} must be 1 or more, not {number}")
        if self.seeds < 1 or self.seed < 0:
            raise InputError(f"seeds must be 1 or more and seed 0 or more, not {self.seeds} and {self.seed}")
        if not self.splits or not self.means_per_client:
            raise InputError("there is nothing to simulate: give at least one split and number of means")

    def _check_heads(self) -> None:
        methods = choose_methods(self.head_names, self.hyper)
        self._check_rounds([name for name, method in methods.items() if isinstance(method, Baseline)])

    def _check_rounds(self, baselines: list[str]) -> None:
        """Refuse rounds of participation of what is not fitted anew from whoever was seen."""
        if self.participation and baselines:
            raise InputError(
                f"rounds of participation are for heads, which are fitted anew from whoever was seen; "
                f"{', '.join(baselines)} cannot take part: leave out the participation, or the baselines"
            )
        if self.participation and any(each.acts_after_measuring for each in self.protections):
            raise InputError(
                "rounds of participation are simulated in the clear: leave out the participation, or all of [privacy] "
                "but min_count"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from "not given", ready for JSON or TOML."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        plain["hyper"] = {head: dict(settings) for head, settings in self.hyper.items()}
        plain["privacy"] = {name: _written(value) for name, value in self.privacy.items()}
        return {name: value for name, value in plain.items() if value is not None and value not in ({}, [])}

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        return to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str, whose: str = "the configuration") -> Self:
        """Read a configuration, or say what is wrong with it."""
        return cls().changed(parse_toml(text, whose), whose)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a configuration file."""
        return cls().changed(read_toml(path), str(path))

    def changed(self, values: Mapping[str, Any], whose: str = "the configuration") -> Self:
        """Return the configuration with some values replaced, checked against the types of the fields."""
        if isinstance(values.get("projections"), list | tuple):  # 128 and "128" are the same
            words = [str(each) if type(each) is int else each for each in values["projections"]]
            values = {**values, "projections": words}
        return with_values(self, values, whose)


def _written(value: Any) -> Any:
    """Return a value of a table as JSON can hold it: infinity as a word."""
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return "inf" if value == math.inf else value
