"""Arithmetic at a client, by formula: a forward pass, one participation, and what many rounds are expected to cost."""

from collections.abc import Mapping
from typing import Any

from fedmoments.core.costs import client_flops, expected_flops, head_flops
from fedmoments.core.observations import Observation
from fedmoments.errors import InputError
from fedmoments.study.papers.world import World, known_settings

__all__ = ["run"]

_KNOWN = (
    "encoder_megaflops",
    "dim",
    "classes",
    "methods",
    "samples",
    "epochs",
    "map_dimension",
    "rounds",
    "sampled",
    "clients",
)


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:  # noqa: ARG001
    """Count multiply-adds, in millions.

    Parameters
    ----------
    settings
        ``encoder_megaflops`` (one forward pass of one sample), ``dim`` and ``classes``: a whole number, or a table of
        them by data set, each of which is then counted. ``methods`` are names of
        :func:`fedmoments.core.costs.known_methods`, or tables ``{ method = "fed3r-rf", map_dimension = 5000 }``
        with settings of their own (and a ``name`` as part of the place, where one method comes twice); they need
        ``samples`` of a client, and iterative ones take ``epochs``.
        With ``rounds``, ``sampled`` and ``clients`` the cost over all rounds is counted, too.
    world
        Not used.

    Returns
    -------
    list of Observation
        ``megaflops`` at data and part: ``encoder``, ``head`` and ``model``, one forward pass of one sample;
        ``megaflops`` at data, method and map_dimension (0: none), one client that takes part once; ``megaflops in
        all``, what a client is expected to have spent after all rounds; and both as ``passes`` and ``passes in all``,
        in forward passes of one sample through the encoder.

    Examples
    --------
    >>> found = run({"encoder_megaflops": 332.9, "dim": 1280, "classes": {"Landmarks": 2028}}, None)
    >>> [(each.where["part"], round(each.mean, 1)) for each in found]
    [('encoder', 332.9), ('head', 2.6), ('model', 335.5)]
    """
    known_settings(settings, _KNOWN, "compute")
    for key in ("encoder_megaflops", "dim", "classes"):
        if key not in settings:
            raise InputError(f"'{key}' is missing: arithmetic at a client cannot be counted without it.")
    classes = settings["classes"]
    measurements = []
    for data, number in classes.items() if isinstance(classes, Mapping) else [(None, classes)]:
        place: dict[str, Any] = {"classes": number} if data is None else {"data": data, "classes": number}
        measurements += _forward({**settings, "classes": number}, place)
        for entry in settings.get("methods", []):
            own = {"method": entry} if isinstance(entry, str) else dict(entry)
            if "method" not in own:
                raise InputError(f"an entry of 'methods' is a name or a table with 'method', not {entry!r}")
            known_settings(own, ("method", "name", *_KNOWN), "compute")
            measurements += _participation({**settings, **own, "classes": number}, place)
    return measurements


def _forward(settings: Mapping[str, Any], place: Mapping[str, Any]) -> list[Observation]:
    """Return one forward pass of one sample, in parts."""
    encoder = float(settings["encoder_megaflops"])
    head = head_flops(settings["dim"], settings["classes"]) / 1e6
    parts = {"encoder": encoder, "head": head, "model": encoder + head}
    return [Observation({**place, "part": part}, (value,), "megaflops") for part, value in parts.items()]


def _participation(settings: Mapping[str, Any], place: Mapping[str, Any]) -> list[Observation]:
    """Return what a client computes when it takes part once, and what it is expected to compute over all rounds."""
    map_dimension = settings.get("map_dimension", 0)
    flops = client_flops(
        settings["method"],
        samples=settings.get("samples", 1),
        encoder_flops=settings["encoder_megaflops"] * 1e6,
        d=settings["dim"],
        classes=settings["classes"],
        epochs=settings.get("epochs", 1),
        map_dimension=map_dimension or None,
    )
    where = {**place, "method": settings["method"], "map_dimension": map_dimension}
    if "name" in settings:
        where["name"] = settings["name"]
    spent = {"": flops}
    if "rounds" in settings:
        spent[" in all"] = expected_flops(flops, **{key: settings[key] for key in ("rounds", "sampled", "clients")})
    measurements = []
    for when, value in spent.items():
        measurements.append(Observation(where, (value / 1e6,), f"megaflops{when}"))
        measurements.append(Observation(where, (value / 1e6 / settings["encoder_megaflops"],), f"passes{when}"))
    return measurements
