"""Options of privacy that several commands share; a rule that is not typed has its default."""

from typing import Annotated

import typer

__all__ = [
    "Attack",
    "Batch",
    "ClientNorm",
    "ClipNorm",
    "Cohort",
    "Contributors",
    "Delta",
    "Epsilons",
    "MaxClientSamples",
    "MinCount",
    "Neighbours",
    "NoiseShares",
    "Obfuscate",
    "Robust",
    "Secure",
    "SketchSpare",
    "Unit",
]

_PANEL = "Privacy and poison"


def _option(help_: str, metavar: str | None = None) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=help_, metavar=metavar, rich_help_panel=_PANEL)
    return option


MinCount = Annotated[int | None, _option("Clients withhold a class with fewer samples.", "N")]
SketchSpare = Annotated[
    int | None,
    _option("Clients with fewer samples beyond one a class send no row of a sketch (in the field: 20).", "N"),
]
Obfuscate = Annotated[
    str | None, _option("laplace:0.5, gaussian:0.5, uniform:0.5: clients blur their counts; no differential privacy.")
]
Secure = Annotated[
    str | None, _option("sums, two-phase or cohorts: two servers add up without seeing a summand.", "MODE")
]
Batch = Annotated[int | None, _option("Fewest clients that a secure sum is over; 3.", "N")]
Cohort = Annotated[int | None, _option("Clients in a cohort, with --secure cohorts; 10.", "N")]
Contributors = Annotated[int | None, _option("Fewest clients that must hold a class for it to be opened; 3.", "N")]
Epsilons = Annotated[
    str | None,
    _option("2 or 0.5,2,8,inf: budgets of central differential privacy; inf neither scales nor noises.", "EPSILON"),
]
Delta = Annotated[float | None, _option("Its δ, well below one over the samples; 1e-5.", "DELTA")]
Unit = Annotated[str | None, _option("What it hides: one sample, or everything of one client.", "sample|client")]
Neighbours = Annotated[str | None, _option("From which data it hides it; add-remove.", "add-remove|replace")]
ClipNorm = Annotated[
    float | None, _option("Public norm that features are clipped to; without it they are scaled to length 1.", "NORM")
]
ClientNorm = Annotated[float | None, _option("Public norm of all that a client sends, with --unit client.", "NORM")]
NoiseShares = Annotated[
    str | None, _option("automatic, equal or counts=0.1,sums=1,second=0.5: how the noise is shared.", "SHARES")
]
Robust = Annotated[str | None, _option("mad: leave out clients whose means lie far from the others'.", "FILTER")]
MaxClientSamples = Annotated[int | None, _option("Most samples that one client is believed to have.", "N")]
Attack = Annotated[
    str | None, _option("flip:0.1:100, junk:0.01, …: what a share of the clients does (see docs/privacy.md).", "ATTACK")
]
