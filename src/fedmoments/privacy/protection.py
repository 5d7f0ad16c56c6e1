"""What protects a federation, as one value: the client's rules, the form of the sums, the noise, the server's checks.

A deployed federation agrees on the middle part in its terms (:class:`Agreed`); clients and server each decide their
own part. A simulation plays all three (:class:`Protection`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.obfuscation import parse_obfuscation
from fedmoments.privacy.robust.attacks import parse_attack

__all__ = ["BUDGETS", "NEIGHBOURS", "SECURE", "UNITS", "Agreed", "Protection"]

#: Ways to add up without anybody seeing a summand. two-phase and cohorts serve heads on client means.
SECURE = ("sums", "two-phase", "cohorts")
#: What differential privacy hides: one sample, or everything that one client sent.
UNITS = ("sample", "client")
#: Neighbouring data differ by one sample (client) that is there or not, or by one that is another.
NEIGHBOURS = ("add-remove", "replace")
#: How the budget is shared between counts, sums and second moments; see fedmoments.privacy.dp.
BUDGETS = ("automatic", "equal")
#: A promise that fails more often is none.
MOST_DELTA = 0.01


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
        For ``two-phase`` and ``cohorts``: fewest clients that a class of a sum must be held by; classes of fewer are
        pooled or suppressed. ``sums`` open all classes at once: one that a single client holds is that client's.
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
    releases
        How many releases the budget is planned for.

    Examples
    --------
    >>> Agreed(secure="cohorts", cohort=20).to_dict()
    {'secure': 'cohorts', 'cohort': 20}
    >>> Agreed.from_dict({"epsilon": 2.0}).delta
    1e-05
    """

    secure: str | None = None
    batch: int = 3
    cohort: int = 10
    contributors: int = 3
    helper: str = ""
    epsilon: float | None = None
    delta: float = 1e-5
    unit: str = "sample"
    neighbours: str = "add-remove"
    clip: float | None = None
    client_norm: float | None = None
    budget: str = "automatic"
    releases: int = 1

    def __post_init__(self) -> None:
        for name, known in (("secure", SECURE), ("unit", UNITS), ("neighbours", NEIGHBOURS)):
            value = getattr(self, name)
            if value not in known and not (name == "secure" and value is None):
                raise UnknownNameError(f"value of '{name}'", str(value), known)
        self._check_numbers()
        self._check_together()

    def _check_numbers(self) -> None:
        for name, least in (("batch", 2), ("cohort", 2), ("contributors", 1), ("releases", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} must be a whole number of {least} or more, not {value!r}")
        for name in ("epsilon", "clip", "client_norm"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a finite number above 0, not {value!r}")
        for name in ("helper", "budget"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a text, not {getattr(self, name)!r}")
        delta: object = self.delta  # as TOML and JSON give it
        if not isinstance(delta, float) or not 0 < delta <= MOST_DELTA:
            raise InputError(
                "delta is the chance that the promise fails, so it must be above 0, well below one over the samples "
                f"and at most {MOST_DELTA:g}, not {self.delta!r}"
            )

    def _check_together(self) -> None:
        if self.secure == "cohorts" and self.cohort < self.batch:
            raise InputError(
                f"cohorts of {self.cohort} clients can never be a batch of {self.batch}: raise cohort, or lower batch"
            )
        if self.contributors != type(self).contributors and self.secure not in ("two-phase", "cohorts"):
            raise InputError(
                f"a class can wait for {self.contributors} contributors where classes are opened one by one (secure "
                "'two-phase' and 'cohorts'); all other sums hold every class: choose one of these, or leave "
                "contributors out"
            )
        if self.epsilon is not None and self.secure in ("two-phase", "cohorts"):
            raise InputError(
                f"noise cannot protect client means ({self.secure}): what one sample changes there depends on the "
                "data. Choose secure sums of second moments (secure='sums') with an epsilon"
            )
        if (self.unit == "client") != (self.client_norm is not None):
            raise InputError(
                "hiding a whole client (unit 'client') needs a public bound on the norm of what it sends (client_norm),"
                f" and nothing else does: unit is '{self.unit}', client_norm is {self.client_norm}"
            )

    @property
    def is_clear(self) -> bool:
        """Whether the server sees every contribution, and nothing is noised."""
        return self.secure is None and self.epsilon is None

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
    >>> Protection(Agreed(secure="sums"), min_count=5).words
    'secure=sums, min_count=5'
    >>> Protection().words
    ''
    """

    agreed: Agreed = Agreed()
    min_count: int = 1
    sketch_spare: int = 0
    obfuscation: str | None = None
    max_samples: int | None = None
    robust: str | None = None
    attack: str | None = None

    def __post_init__(self) -> None:
        for name in ("min_count", "max_samples"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and (value is not None or name == "min_count"):
                raise InputError(f"{name} must be a whole number of 1 or more, not {value!r}")
        if type(self.sketch_spare) is not int or self.sketch_spare < 0:
            raise InputError(f"sketch_spare must be a whole number of 0 or more, not {self.sketch_spare!r}")
        if self.obfuscation is not None:
            parse_obfuscation(self.obfuscation)
        if self.attack is not None:
            parse_attack(str(self.attack))
        if self.robust not in (None, "mad"):
            raise UnknownNameError("robust filter", str(self.robust), ("mad",))
        if self.agreed.secure and (self.robust or self.max_samples):
            raise InputError(
                "per-client checks and secure sums exclude each other: the server sees no client's statistics, so it "
                "can neither filter nor cap them. Choose one"
            )

    @property
    def acts_after_measuring(self) -> bool:
        """Whether anything is done to what clients measured: all rules but those on how much a client must have."""
        return replace(self, min_count=1, sketch_spare=0) != Protection()

    @property
    def words(self) -> str:
        """What differs from no protection at all, as text: the same for the same protection."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "agreed"}
        defaults = {f.name: f.default for f in fields(self)}
        told = {**self.agreed.to_dict(), **{k: v for k, v in own.items() if v != defaults[k]}}
        return ", ".join(f"{name}={value}" for name, value in told.items())
