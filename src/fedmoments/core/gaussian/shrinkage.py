"""How much is added to the diagonal of a covariance, and on which scale.

A shrunk covariance is ``keep·Σ + add·I`` with

=============  ==========  ======================  =========================================================
kind           keep        add                     origin
=============  ==========  ======================  =========================================================
automatic      1           ½·tr(Σ)/ν               ν degrees of freedom behind Σ: little data, much shrinkage
absolute:γ     1           γ                       FedCOF (γ = 1 for SqueezeNet and ViT-B/16, 0.1 MobileNetV2)
relative:ρ     1           ρ·tr(Σ)/d               γ in units of the mean within-class variance
blend:α        1 − α       α·tr(Σ)/d               GH-OFL (α = 0.05 for LDA, 0.1 for QDA)
none           1           0                       FedCGS
=============  ==========  ======================  =========================================================

**Law** under automatic, relative and blend shrinkage, multiplying all features by a constant changes no prediction.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["Amount", "Shrinkage"]


@dataclass(frozen=True)
class Amount:
    """A kind of rule and its amount, as a person types them: ``automatic``, ``none``, ``KIND:AMOUNT`` or a number."""

    kind: str = "automatic"
    amount: float = 0.0

    #: The largest amount of every kind, the kind that a number alone means, and what is allowed, in words.
    MOST: ClassVar[dict[str, float]]
    NUMBER: ClassVar[str]
    ALLOWED: ClassVar[str]

    def __post_init__(self) -> None:
        if not 0.0 <= self.amount <= self.MOST.get(self.kind, -1.0) or math.isinf(self.amount):
            raise self._refusal(f"{self.kind}:{self.amount:g}")

    @classmethod
    def _refusal(cls, arrived: str) -> InputError:
        return InputError(f"{cls.ALLOWED} or a number, which means {cls.NUMBER}; '{arrived}' arrived")

    @classmethod
    def parse(cls, value: "Self | str | float") -> Self:
        """Return the rule that a word like ``blend:0.5``, or a number, stands for."""
        if isinstance(value, cls):
            return value
        text = str(value)
        kind, _, amount = text.partition(":")
        if kind in ("automatic", "auto", "none") and not amount:
            return cls("none" if kind == "none" else "automatic")
        try:
            return cls(kind if amount else cls.NUMBER, float(amount or kind))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise cls._refusal(text) from None

    def __str__(self) -> str:
        return self.kind if self.kind in ("automatic", "none") else f"{self.kind}:{self.amount:g}"


@dataclass(frozen=True)
class Shrinkage(Amount):
    """A kind of shrinkage and its amount.

    Examples
    --------
    >>> Shrinkage.parse("relative:0.5").amounts(trace=20.0, dim=10, dof=100.0)
    (1.0, 1.0)
    >>> Shrinkage.parse(0.1)
    Shrinkage(kind='absolute', amount=0.1)
    >>> str(Shrinkage.parse("automatic"))
    'automatic'
    """

    MOST: ClassVar[dict[str, float]] = {
        "automatic": 0.0,
        "absolute": math.inf,
        "relative": math.inf,
        "blend": 1.0,
        "none": 0.0,
    }
    NUMBER = "absolute"
    ALLOWED = "shrinkage is one of automatic, none, absolute:γ, relative:ρ (γ, ρ ≥ 0), blend:α (0 ≤ α ≤ 1)"

    def amounts(self, *, trace: float, dim: int, dof: float) -> tuple[float, float]:
        """Return (keep, add) for a covariance.

        Parameters
        ----------
        trace
            tr(Σ), in squared feature units.
        dim
            d.
        dof
            ν, degrees of freedom behind Σ.
        """
        if self.kind in ("none", "absolute"):
            return 1.0, self.amount
        if dof <= 0:
            raise NotEnoughDataError(
                f"{self} shrinkage scales with the spread inside classes, but no class has two samples (or two rows of "
                "client means, of two clients) to measure it from: let more clients take part, give an absolute "
                "shrinkage, more means per client, or another head"
            )
        if self.kind == "automatic":
            return 1.0, 0.5 * trace / dof
        return (1.0 - self.amount if self.kind == "blend" else 1.0), self.amount * trace / dim
