"""Options of tuning that several commands share, one for each field of a plan; what is not typed has its default."""

from dataclasses import fields
from typing import Annotated, Any

import typer

from fedmoments.errors import InputError

__all__ = [
    "Batchnorm",
    "Beta1",
    "Beta2",
    "CheckEvery",
    "Epochs",
    "Fraction",
    "LearningRate",
    "LocalBatch",
    "Momentum",
    "Mu",
    "Optimiser",
    "Patience",
    "PlanSeed",
    "Replacement",
    "Rounds",
    "ServerLr",
    "ServerMomentum",
    "Stage",
    "Tau",
    "Temperature",
    "TestEvery",
    "ValidationShare",
    "WeightDecay",
    "typed_plan",
]

_PANEL = "Tuning"


def _option(*names: str, help_: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help_, metavar=metavar, rich_help_panel=_PANEL)


Stage = Annotated[
    str | None, _option(help_="Train the head (lp), everything (ft) or the encoder alone (feat); lp.", metavar="STAGE")
]
Optimiser = Annotated[
    str | None, _option(help_="fedavg, fedavgm, fedadam, fedprox or scaffold; fedavg.", metavar="NAME")
]
Rounds = Annotated[int | None, _option(help_="Rounds, at most; 200.", metavar="N")]
Fraction = Annotated[float | None, _option(help_="Share of the clients that train in a round; 1.", metavar="SHARE")]
Replacement = Annotated[
    bool | None,
    _option("--replacement/--no-replacement", help_="Draw each round's clients whoever was drawn before; not so."),
]
LearningRate = Annotated[float | None, _option("--lr", help_="Step of a client's SGD; 0.01.", metavar="STEP")]
Momentum = Annotated[float | None, _option(help_="Momentum of a client's SGD; 0.", metavar="M")]
WeightDecay = Annotated[float | None, _option(help_="L2 penalty of a client's SGD; 0.", metavar="W")]
LocalBatch = Annotated[
    int | None, _option("--local-batch", help_="Samples in a client's batch, 0 for all at once; 32.", metavar="N")
]
Epochs = Annotated[int | None, _option(help_="Passes over a client's samples in a round; 1.", metavar="E")]
ServerLr = Annotated[float | None, _option(help_="Step of the server; 0.01 with fedadam, otherwise 1.", metavar="STEP")]
ServerMomentum = Annotated[float | None, _option(help_="Momentum of fedavgm; 0.9.", metavar="M")]
Beta1 = Annotated[float | None, _option("--beta-1", help_="Decay of fedadam's mean; 0.9.", metavar="B")]
Beta2 = Annotated[float | None, _option("--beta-2", help_="Decay of fedadam's mean square; 0.999.", metavar="B")]
Tau = Annotated[float | None, _option(help_="What fedadam adds to the root; 0.001.", metavar="T")]
Mu = Annotated[float | None, _option(help_="Weight of fedprox's penalty; 0.01.", metavar="MU")]
Temperature = Annotated[
    str | None,
    _option(
        help_="T of softmax(scores/T), or auto: chosen by training cross-entropy; 0.1 for normalised heads, else 1.",
        metavar="T|auto",
    ),
]
Batchnorm = Annotated[
    str | None,
    _option(help_="Running values of batch normalisation: frozen, or averaged; frozen.", metavar="frozen|averaged"),
]
ValidationShare = Annotated[
    float | None,
    _option("--validation", help_="Share of each client's samples that tells when to stop; 0.", metavar="SHARE"),
]
CheckEvery = Annotated[int | None, _option(help_="Rounds from one look at it to the next; 5.", metavar="N")]
Patience = Annotated[int | None, _option(help_="Looks without a better one after which it stops; 5.", metavar="N")]
TestEvery = Annotated[int | None, _option(help_="Rounds from one test to the next; 1.", metavar="N")]
PlanSeed = Annotated[
    int | None, _option("--seed", help_="Draws clients, batches, validation shares and a random start; 0.", metavar="N")
]


def typed_plan(**typed: Any) -> dict[str, Any]:
    """Return the fields of a :class:`~fedmoments.tuning.TuningPlan` that were typed.

    Parameters
    ----------
    typed
        By name of the field; None stands for what was not typed. The temperature is a text.

    Raises
    ------
    InputError
        When the temperature is neither a number nor ``auto``.

    Examples
    --------
    >>> typed_plan(rounds=20, lr=None, temperature="0.1", replacement=False)
    {'rounds': 20, 'temperature': 0.1, 'replacement': False}
    """
    from fedmoments.tuning import TuningPlan

    known = {field.name for field in fields(TuningPlan)}
    if not known.issuperset(typed):
        raise TypeError(f"no fields of a plan: {', '.join(sorted(set(typed) - known))}")
    found = {name: value for name, value in typed.items() if value is not None}
    if "temperature" in found:
        found["temperature"] = _temperature(found["temperature"])
    return found


def _temperature(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature takes a number above 0, or 'auto', but '{text}' arrived") from None
