"""What methods send, by formula: numbers and bytes, up and down, over all clients and rounds. No data are needed."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fedmoments.core.costs import Cost, iterative_cost, kibibytes, known_methods, megabytes, one_shot_cost
from fedmoments.core.observations import Observation
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.study.papers.world import World, known_settings

__all__ = ["DIRECTIONS", "QUANTITIES", "run"]

#: Ways that numbers travel.
DIRECTIONS = ("up", "down", "both")
#: What can be measured; each also as ``… per client``, that is for one client in one round.
QUANTITIES = ("floats", "bytes", "megabytes", "kibibytes", "mebibytes")
_OTHERS = "others"
_SWEPT = ("dim", "classes", "clients", "means_per_client", "map_dimension", "sampled", "rounds")
_KNOWN = (
    "methods",
    *_SWEPT,
    "present",
    "packed",
    "absent",
    "encoder_parameters",
    "ship",
    "bias",
    "counts",
    "bytes_per_number",
    "directions",
    "quantities",
)


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:  # noqa: ARG001
    """Price methods in all combinations of the settings.

    Parameters
    ----------
    settings
        ``methods`` are names of :func:`fedmoments.core.costs.known_methods`; ``fedcof+fedadam`` is one after the
        other; a table ``{ method = "fedcof", means_per_client = 2 }`` has settings of its own. ``dim``, ``classes``,
        ``clients``, ``means_per_client``, ``map_dimension`` (0: none), ``sampled`` and ``rounds`` are whole numbers or
        lists, which are swept; ``dim`` may be a table of encoders, ``{ SqueezeNet = 512 }``.

        ``present`` is the sum over clients of the classes that each holds, or a table of such sums by method, with
        ``others`` for the rest; ``absent`` = true sends all classes instead. ``packed`` = false counts d² for a
        symmetric matrix. ``encoder_parameters`` is the encoder's size, which ``ship`` = true sends down to every client
        of a one-shot method. ``bias`` adds one parameter a class to the head of iterative methods. ``counts`` adds the
        whole numbers n_kc, as wide as a float.

        ``directions`` are some of :data:`DIRECTIONS` and ``quantities`` some of :data:`QUANTITIES`, also with
        `` per client`` behind them.
    world
        Not used.

    Returns
    -------
    list of Observation
        At method, direction and all that can be swept (and encoder, where the dimensions are those of encoders).

    Examples
    --------
    >>> table = {"methods": ["fedcof"], "dim": 512, "clients": 100, "present": 2870, "quantities": ["megabytes"]}
    >>> [(found.where["method"], round(found.mean, 2)) for found in run(table, None)]
    [('fedcof', 5.88)]
    """
    known_settings(settings, _KNOWN, "communication")
    measurements = []
    for entry in settings.get("methods", []):
        own = {"method": entry} if isinstance(entry, str) else dict(entry)
        name = own.pop("method", None)
        if not isinstance(name, str):
            raise InputError(f"an entry of 'methods' is a name or a table with 'method', not {entry!r}")
        known_settings(own, _KNOWN[1:], "communication")
        for place, one in _each({**settings, **own}):
            measurements += _measurements({"method": name, **place}, _price(name, one), one)
    return measurements


def _each(settings: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the place and the settings of every combination."""
    encoders = settings["dim"] if isinstance(settings.get("dim"), Mapping) else {}
    several = {key: _several(settings[key]) for key in _SWEPT if key in settings}
    if encoders:
        several["dim"] = list(encoders)
    for values in product(*several.values()):
        place = dict(zip(several, values, strict=True))
        if encoders:
            place |= {"encoder": place["dim"], "dim": encoders[place["dim"]]}
        yield place, {**settings, **place}


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _price(name: str, settings: Mapping[str, Any]) -> Cost:
    """Return the cost of a method, or of several one after the other."""
    first, _, rest = name.partition("+")
    price = _one_shot if first in known_methods("one-shot") else _iterative
    cost = price(first, settings)
    return cost + _price(rest, settings) if rest else cost


def _one_shot(method: str, settings: Mapping[str, Any]) -> Cost:
    present = settings.get("present")
    if isinstance(present, Mapping):
        present = present.get(method, present.get(_OTHERS))
    return one_shot_cost(
        method,
        d=_needed(settings, "dim", method),
        clients=_needed(settings, "clients", method),
        present_classes=present,
        classes=settings.get("classes"),
        means_per_client=settings.get("means_per_client", 1),
        map_dimension=settings.get("map_dimension") or None,
        packed=settings.get("packed", True),
        send_absent_classes=settings.get("absent", False),
        encoder_parameters=_needed(settings, "encoder_parameters", method) if settings.get("ship") else 0,
        bytes_per_number=settings.get("bytes_per_number", 4),
    )


def _iterative(method: str, settings: Mapping[str, Any]) -> Cost:
    return iterative_cost(
        method,
        d=_needed(settings, "dim", method),
        classes=_needed(settings, "classes", method),
        encoder_parameters=_needed(settings, "encoder_parameters", method),
        sampled=_needed(settings, "sampled", method),
        rounds=_needed(settings, "rounds", method),
        bias=settings.get("bias", False),
        bytes_per_number=settings.get("bytes_per_number", 4),
    )


def _needed(settings: Mapping[str, Any], key: str, method: str) -> Any:
    if key not in settings:
        raise InputError(f"'{key}' is missing: the formula of '{method}' has it. Add it to the settings.")
    return settings[key]


def _measurements(where: Mapping[str, Any], cost: Cost, settings: Mapping[str, Any]) -> list[Observation]:
    measurements = []
    for direction in settings.get("directions", ["up"]):
        floats, size = _travelled(cost, direction, counts=settings.get("counts", False))
        for quantity in settings.get("quantities", ["floats", "megabytes"]):
            base, per_client = quantity.removesuffix(" per client"), quantity.endswith(" per client")
            if base not in QUANTITIES:
                raise UnknownNameError("quantity that is sent", quantity, QUANTITIES)
            sizes = {
                "floats": floats,
                "bytes": size,
                "megabytes": megabytes(size),
                "kibibytes": kibibytes(size),
                "mebibytes": kibibytes(size) / 1024,
            }
            value = sizes[base] / cost.uploads if per_client else sizes[base]
            measurements.append(Observation({**where, "direction": direction}, (float(value),), quantity))
    return measurements


def _travelled(cost: Cost, direction: str, *, counts: bool) -> tuple[float, float]:
    """Return numbers and bytes in a direction."""
    up = (cost.up_numbers, cost.up_bytes_with_counts) if counts else (cost.up_floats, cost.up_bytes)
    down = (cost.down_floats, cost.down_bytes)
    if direction not in DIRECTIONS:
        raise UnknownNameError("direction", direction, DIRECTIONS)
    return {"up": up, "down": down, "both": (up[0] + down[0], up[1] + down[1])}[direction]
