"""What protects a federation, as one value: the client's rules, the form of the sums, the noise, the server's checks.

A deployed federation agrees on the middle part in its terms (:class:`Agreed`); clients and server each decide their
own part. A simulation plays all three (:class:`Protection`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.option import option

if TYPE_CHECKING:
    from fedmoments.privacy.modes import Mode

__all__ = ["BUDGETS", "NEIGHBOURS", "NOISES", "UNITS", "Agreed", "Protection"]

#: What differential privacy hides: one sample, or everything that one client sent.
UNITS = ("sample", "client")
#: Neighbouring data differ by one sample (client) that is there or not, or by one that is another.
NEIGHBOURS = ("add-remove", "replace")
#: Who adds noise: the server to the sums of all clients, or every client to its own, so that nobody need be trusted.
NOISES = ("central", "local")
#: How the budget is shared between counts, sums and second moments; see fedmoments.privacy.dp.
BUDGETS = ("automatic", "equal")
#: A promise that fails more often is none.
MOST_DELTA = 0.01

_rule = partial(option, group="Privacy")


@dataclass(frozen=True)
class Agreed:
    """The part that all parties agree on, in the terms of a federation.

    Parameters
    ----------
    secure
        How contributions are added up: None in the clear; ``sums``, ``two-phase`` or ``cohorts`` by two servers.
    batch
        Fewest reports that a sum may be over.
    cohort
        Clients in a cohort, for ``cohorts``.
    contributors
        With ``secure``: fewest clients that a class of a sum must be held by; classes of fewer are pooled (``cohorts``)
        or suppressed. Not with an epsilon: there noise hides who holds a class.
    parties
        Fewest parties that a head is fitted from, however contributions are added up.
    helper
        Public key of the helper's HPKE pair, 64 hexadecimal digits; empty in a simulation, which makes one.
    epsilon, delta
        Budget of central differential privacy for all releases together; no noise without an epsilon.
    unit, neighbours
        What it hides, and from which data it cannot be told: see `UNITS` and `NEIGHBOURS`.
    clip
        Public bound R on the norm of a feature vector; None: features are scaled to length 1 by the feature map.
    client_norm
        For the unit client: public bound S on the norm of the whole (weighted) contribution of a client.
    budget
        How the noise is shared: ``automatic``, ``equal``, or weights such as ``counts=0.1,sums=1,second=0.5``.
    noise
        Who adds it: see `NOISES`.
    mean_clip
        Public bound on how far a client mean may lie from its class mean, for heads on client means; None: 0.06 of
        the norm that features have.
    releases
        How many releases the budget is planned for.

    Examples
    --------
    >>> Agreed(secure="cohorts", cohort=20).to_dict()
    {'secure': 'cohorts', 'cohort': 20}
    >>> Agreed.from_dict({"epsilon": 2.0}).delta
    1e-05
    """

    secure: str | None = _rule(
        None,
        "sums, two-phase or cohorts: two servers add up without seeing any client's values.",
        metavar="MODE",
        common=9,
        entries="fedmoments.privacy",
    )
    batch: int = _rule(3, "Fewest clients in a secure sum.", metavar="N", needs="secure")
    cohort: int = _rule(10, "Clients in a cohort, with --secure cohorts.", metavar="N", needs="secure")
    contributors: int = _rule(
        3, "Fewest clients that must hold a class for it to be opened.", metavar="N", needs="secure"
    )
    parties: int = _rule(1, "Fewest parties that a head is fitted from.", metavar="N")
    helper: str = _rule(
        "",
        "With --secure: the helper's card, of 'fedmoments keys helper'.",
        metavar="CARD",
        kind="helper card",
        needs="secure",
    )
    epsilon: float | None = _rule(
        None,
        "Budget of central differential privacy: heads are fitted from noised sums.",
        metavar="EPSILON",
        swept="0.5,2,8,inf sweeps; inf means no scaling and no noise.",
        common=9,
    )
    delta: float = _rule(1e-5, "δ of the budget, well below 1 / number of samples.", metavar="DELTA", needs="epsilon")
    unit: str = _rule(
        "sample",
        "What the noise hides: one sample, or all data of one client.",
        metavar="sample|client",
        needs="epsilon",
    )
    neighbours: str = _rule(
        "add-remove",
        "Neighbouring data: one unit added or removed, or one replaced.",
        metavar="add-remove|replace",
        needs="epsilon",
    )
    clip: float | None = _rule(
        None,
        "Public norm that features are clipped to; without it they are scaled to length 1.",
        metavar="NORM",
        needs="epsilon",
    )
    client_norm: float | None = _rule(
        None, "Public norm of all that a client sends, with --unit client.", metavar="NORM", needs="epsilon"
    )
    budget: str = _rule(
        "automatic",
        "automatic, equal or counts=0.1,sums=1,second=0.5: how the budget is divided.",
        "--noise-shares",
        metavar="SHARES",
        needs="epsilon",
    )
    noise: str = _rule(
        "central",
        "Who adds noise: the server to sums (central), or every client to its own (local).",
        metavar="central|local",
        needs="epsilon",
    )
    mean_clip: float | None = _rule(
        None,
        "Public norm that client means are clipped to around class means; 0.06 of the features' without it.",
        metavar="NORM",
        needs="epsilon",
    )
    releases: int = _rule(1, "Number of releases that the budget must cover.", metavar="N", needs="epsilon")

    def __post_init__(self) -> None:
        for name, known in (("unit", UNITS), ("neighbours", NEIGHBOURS), ("noise", NOISES)):
            if getattr(self, name) not in known:
                raise UnknownNameError(f"value of '{name}'", str(getattr(self, name)), known)
        self._check_numbers()
        self.mode.check_agreed()
        if (self.unit == "client") != (self.client_norm is not None):
            raise InputError(
                "hiding a whole client (unit 'client') needs a public bound on the norm of what it sends (client_norm),"
                f" and nothing else does: unit is '{self.unit}', client_norm is {self.client_norm}"
            )

    def _check_numbers(self) -> None:
        self._check_whole_numbers()
        self._check_positive_numbers()
        for name in ("helper", "budget"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a text, not {getattr(self, name)!r}")
        delta: object = self.delta  # as TOML and JSON give it
        if not isinstance(delta, float) or not 0 < delta <= MOST_DELTA:
            raise InputError(
                "delta is the chance that the promise fails, so it must be above 0, well below one over the samples "
                f"and at most {MOST_DELTA:g}, not {self.delta!r}"
            )

    def _check_whole_numbers(self) -> None:
        for name, least in (("batch", 2), ("cohort", 2), ("contributors", 1), ("parties", 1), ("releases", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} must be a whole number of {least} or more, not {value!r}")

    def _check_positive_numbers(self) -> None:
        for name in ("epsilon", "clip", "client_norm", "mean_clip"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a finite number above 0, not {value!r}")

    @cached_property
    def mode(self) -> "Mode":
        """How contributions are added up and noised: what all else asks."""
        from fedmoments.privacy.modes import mode_of  # modes are made of an agreement

        return mode_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, ready for JSON and TOML."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Agreed":
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            When a name or a value in it is wrong: a protection that was mistyped must not be one that is not there.
        """
        known = [f.name for f in fields(cls)]
        for name in table:
            if name not in known:
                raise UnknownNameError("rule of privacy", str(name), known)
        return cls(**table)


@dataclass(frozen=True)
class Protection:
    """Everything that protects a simulated federation, and what attacks it.

    Parameters
    ----------
    agreed
        What all parties agree on.
    min_count
        Clients withhold classes of fewer samples.
    sketch_spare
        Clients with fewer spare samples n − |C| send no row of a scatter sketch.
    obfuscation
        What clients do to their counts: ``uniform:E``, ``gaussian:E`` or ``laplace:E`` with 0 < E < 1; None: nothing.
    max_samples
        Most samples that the server believes one client to have; None: any number.
    robust
        ``mad``: the server leaves out clients whose means lie far from the others'; None: no filter.
    attack
        What some clients do: see :mod:`fedmoments.privacy.robust`; None: all are honest.

    Examples
    --------
    >>> Protection(Agreed(secure="sums"), min_count=5).description
    'secure=sums, min_count=5'
    >>> Protection().description
    ''
    """

    agreed: Agreed = field(default_factory=Agreed)
    min_count: int = _rule(1, "Clients withhold a class with fewer samples.", metavar="N")
    sketch_spare: int = _rule(
        0, "Clients with fewer samples beyond one per class send no sketch rows (in deployment: 20).", metavar="N"
    )
    obfuscation: str | None = _rule(
        None,
        "laplace:0.5, gaussian:0.5, uniform:0.5: clients add noise to their counts; no differential privacy.",
        "--obfuscate",
        metavar="KIND:E",
        swept="none,laplace:0.5 sweeps.",
    )
    max_samples: int | None = _rule(
        None, "Largest number of samples accepted from one client.", "--max-client-samples", metavar="N"
    )
    robust: str | None = _rule(None, "mad: exclude clients whose means lie far from the others'.", metavar="FILTER")
    attack: str | None = _rule(
        None,
        "flip:0.1:100, junk:0.01, …: attack by a share of the clients (see docs/privacy/poison.md).",
        metavar="ATTACK",
    )

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_texts()
        if self.robust not in (None, "mad"):
            raise UnknownNameError("robust filter", str(self.robust), ("mad",))
        if not self.agreed.mode.reads_contributions and (self.robust or self.max_samples):
            self.agreed.mode.check_filter(
                f"robust = {self.robust}" if self.robust else f"max_samples = {self.max_samples}"
            )

    def _check_counts(self) -> None:
        for name in ("min_count", "max_samples"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and (value is not None or name == "min_count"):
                raise InputError(f"{name} must be a whole number of 1 or more, not {value!r}")
        if type(self.sketch_spare) is not int or self.sketch_spare < 0:
            raise InputError(f"sketch_spare must be a whole number of 0 or more, not {self.sketch_spare!r}")

    def _check_texts(self) -> None:
        """Refuse texts that name nothing; their readers are imported here, for fields are read to show a help."""
        from fedmoments.privacy.obfuscation import parse_obfuscation
        from fedmoments.privacy.robust.attacks import parse_attack

        if self.obfuscation is not None:
            parse_obfuscation(self.obfuscation)
        if self.attack is not None:
            parse_attack(str(self.attack))

    def check_rules(self) -> None:
        """Refuse rules that the noise does not account for: :mod:`fedmoments.privacy.dp.budget`.

        Examples
        --------
        >>> Protection(Agreed(epsilon=2.0), robust="mad").check_rules()
        Traceback (most recent call last):
        fedmoments.errors.PrivacyError: the robust filter 'mad' and differential privacy exclude each other: ...
        """
        names = ("min_count", "obfuscation", "max_samples", "robust")
        self.agreed.mode.noise.check_rules(**{name: getattr(self, name) for name in names})

    @property
    def acts_after_measuring(self) -> bool:
        """Whether anything is done to what clients measured: all rules but those on how much a client must have."""
        return replace(self, min_count=1, sketch_spare=0) != Protection()

    @property
    def description(self) -> str:
        """What differs from no protection at all, as text: the same for the same protection."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "agreed"}
        defaults = {f.name: f.default for f in fields(self)}
        given = {**self.agreed.to_dict(), **{k: v for k, v in own.items() if v != defaults[k]}}
        return ", ".join(f"{name}={value}" for name, value in given.items())
