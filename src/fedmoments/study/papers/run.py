"""Run an experiment: settings to measurements, these beside the paper's numbers, everything into one document."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import fedmoments
from fedmoments.core.observations import Observation
from fedmoments.errors import InputError
from fedmoments.study.papers.claims import compare_claims
from fedmoments.study.papers.comparison import Compared, Gained, Ours, compare_numbers, compare_settings, our_cells
from fedmoments.study.papers.engines import load_engine
from fedmoments.study.papers.experiment import Block, Experiment
from fedmoments.study.papers.library import PAPERS
from fedmoments.study.papers.world import World

__all__ = ["Request", "run_experiment"]


@dataclass(frozen=True)
class Request:
    """How an experiment is to be run.

    Parameters
    ----------
    same_as
        Name of the block whose data and encoder these are: numbers are then compared with the paper's one by one.
        Without it, data stand in for the paper's, and gains and claims are compared.
    changes
        Settings that replace the experiment's: fewer rounds, say. Each is told as a deviation.
    command
        What the user typed.
    """

    same_as: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


#: Our cells, beside numbers or gains of the paper, or alone.
_Cells = list[list[Ours]] | list[list[Gained]] | list[list[Compared]]


class _Part(TypedDict):
    """A block of the paper's table, with ours beside every number of it."""

    name: str
    settings: dict[str, Any]
    tolerance: float
    cells: list[list[Compared]]


class _Table(TypedDict):
    """The table of an experiment: ours beside one block or by themselves (None: block by block), and the paper's."""

    rows: list[str]
    columns: list[str]
    reference: str | None
    units: str
    ours: _Cells | None
    blocks: list[_Part]


def run_experiment(experiment: Experiment, world: World, request: Request | None = None) -> dict[str, Any]:
    """Run an experiment, and return everything that a page shows of it, ready for JSON.

    Parameters
    ----------
    experiment
        What to run.
    world
        Data, encoders, seeds and caches. An experiment that needs no data takes none of them.
    request
        How.

    Returns
    -------
    dict
        ``experiment`` (the file), ``mode`` (``computed``, ``same data`` or ``stand-in``), ``measurements``, ``table``,
        ``claims``, ``deviations``, ``data``, ``seeds``, ``seconds``, ``cached``.

    Examples
    --------
    >>> from fedmoments.settings.study import StudySettings
    >>> from fedmoments.study.papers import experiment
    >>> found = run_experiment(experiment("fedcof/table1"), World(StudySettings(), cache_dir=False))
    >>> found["mode"], {cell["verdict"] for block in found["table"]["blocks"] for row in block["cells"] for cell in row}
    ('computed', {'as derived'})
    """
    request = request or Request()
    start = time.perf_counter()
    reused = world.reused
    world.deviations.clear()
    block = _part_of(experiment, request, world)
    settings = {**experiment.settings, **(block.settings if block else {})}
    changes = _changed(settings, request.changes, world)
    settings = changed_settings(settings, changes)
    if experiment.is_free:
        mode = "computed"
        measurements, table = _computed(experiment, changes, world)
    else:
        mode = "stand-in" if block is None else "same data"
        measurements, table = _measured(experiment, changes, block, world)
    data = None if experiment.is_free else _data(world)
    document: dict[str, Any] = {
        "format": 1,
        "version": fedmoments.__version__,
        "command": request.command,
        "experiment": _told(experiment),
        "mode": mode,
        "same_as": request.same_as,
        "settings": settings,
        "changed": sorted(changes),
        "data": data,
        "seeds": list(world.each_seed),
        "table": table,
        "claims": compare_claims(experiment.claims, measurements, samples=data["test"] if data else None),
        "measurements": [observation.to_dict() for observation in measurements],
        "deviations": list(world.deviations),
    }
    document["cached"] = world.reused - reused
    document["seconds"] = time.perf_counter() - start
    return document


def _part_of(experiment: Experiment, request: Request, world: World) -> Block | None:
    """Return the part of the table that the data are said to be those of, which is told as what it is."""
    if request.same_as is None:
        return None
    if experiment.is_free:
        raise InputError(f"{experiment.name} needs no data: leave out what they are the same as")
    if len(world.encoder_names) > 1:
        several = ", ".join(map(str, world.encoder_names))
        raise InputError(
            f"data that are those of '{request.same_as}' have one encoder, but {several} arrived: name that one alone"
        )
    block, first = experiment.block(request.same_as), world.features()
    world.deviate(
        f"that these data, {first.n_classes} classes in {first.dim} dimensions, are those of {request.same_as} is what "
        "you say; nothing here can tell"
    )
    return block


def changed_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes, which variants follow, too, where they have such a setting of their own.

    Parameters
    ----------
    settings
        Of an experiment.
    changes
        What replaces them. Of a table, variants get the entries that are new or other ones than before.

    Examples
    --------
    >>> settings = {"clients": [100], "variants": [{"name": "few", "clients": [10]}, {"name": "all"}]}
    >>> changed_settings(settings, {"clients": [5]})["variants"]
    [{'name': 'few', 'clients': [5]}, {'name': 'all'}]
    """
    changed = {**settings, **changes}
    if "variants" in changed and "variants" not in changes:
        changed["variants"] = [
            {key: _overlaid(value, settings.get(key), changes.get(key, value)) for key, value in variant.items()}
            for variant in changed["variants"]
        ]
    return changed


def _overlaid(own: Any, before: Any, after: Any) -> Any:
    """Return a variant's setting where the common one was changed."""
    if not isinstance(own, Mapping) or not isinstance(after, Mapping):
        return after
    known = before if isinstance(before, Mapping) else {}
    new = {key: value for key, value in after.items() if key not in known or known[key] != value}
    empty: dict[str, Any] = {}
    return {**own, **{key: _overlaid(own.get(key, empty), known.get(key), value) for key, value in new.items()}}


def _changed(settings: Mapping[str, Any], changes: Mapping[str, Any], world: World) -> dict[str, Any]:
    """Return the changes, each told as a deviation."""
    for name, value in changes.items():
        before = settings.get(name)
        instead = "" if before is None else f" instead of {_words(before)}"
        world.deviate(f"{name} is {_words(value)}{instead}, as was requested")
    return dict(changes)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _computed(
    experiment: Experiment, changes: Mapping[str, Any], world: World
) -> tuple[list[Observation], _Table | None]:
    """Return what needs no data: every block with its own settings, compared number by number."""
    engine = load_engine(experiment.engine)
    if not experiment.paper:
        measurements = engine(changed_settings(experiment.settings, changes), world)
        return measurements, _table(experiment, our_cells(experiment, measurements), [])
    all_measurements: list[Observation] = []
    blocks = []
    for block in experiment.paper:
        measurements = engine(changed_settings({**experiment.settings, **block.settings}, changes), world)
        cells = compare_numbers(experiment, block, our_cells(experiment, measurements), judged=not changes)
        blocks.append(_part(experiment, block, cells))
        all_measurements += [
            replace(observation, where={"block": block.name, **observation.where}) for observation in measurements
        ]
    return all_measurements, _table(experiment, None, blocks)


def _measured(
    experiment: Experiment, changes: Mapping[str, Any], block: Block | None, world: World
) -> tuple[list[Observation], _Table | None]:
    """Return what was measured on data: compared with a block's numbers, or with the gains of all blocks."""
    if block is None:
        world.deviate(
            f"the data are {world.encoded().data.name} behind {world.encoded().encoder.name}, not the paper's: the "
            "setting is reproduced, not the numbers"
        )
    if world.seeds != experiment.seeds:
        world.deviate(f"{world.seeds} {'seed' if world.seeds == 1 else 'seeds'} instead of {experiment.seeds}")
    own = block.settings if block else {}
    measurements = load_engine(experiment.engine)(changed_settings({**experiment.settings, **own}, changes), world)
    cells = our_cells(experiment, measurements)
    if any(cell["several"] for line in cells for cell in line):
        world.deviate("some cells of the table show the first of several measurements; all of them are in the files")
    theirs = [_part(experiment, part, compare_numbers(experiment, part, cells)) for part in experiment.paper]
    if block is None:
        return measurements, _table(experiment, compare_settings(experiment, cells), theirs)
    return measurements, _table(experiment, compare_numbers(experiment, block, cells, judged=not changes), theirs)


def _part(experiment: Experiment, block: Block, cells: list[list[Compared]]) -> _Part:
    """Return what the document says of a block."""
    tolerance = experiment.tolerance if block.tolerance is None else block.tolerance
    return {"name": block.name, "settings": dict(block.settings), "tolerance": tolerance, "cells": cells}


def _table(experiment: Experiment, ours: _Cells | None, blocks: list[_Part]) -> _Table | None:
    if not experiment.rows:
        return None
    return {
        "rows": [line.name for line in experiment.rows],
        "columns": [line.name for line in experiment.columns],
        "reference": experiment.reference,
        "units": experiment.units,
        "ours": ours,
        "blocks": blocks,
    }


def _told(experiment: Experiment) -> dict[str, Any]:
    """Return what the document says of the experiment itself."""
    paper = experiment.name.partition("/")[0]
    plain = {key: getattr(experiment, key) for key in ("name", "title", "source", "about", "needs", "engine", "long")}
    figures = [vars(figure) | {"where": dict(figure.where)} for figure in experiment.figures]
    more = {
        "paper": PAPERS[paper],
        "seeds": experiment.seeds,
        "tolerance": experiment.tolerance,
        "origin": experiment.origin,
    }
    misprints = [vars(misprint).copy() for misprint in experiment.misprints]
    return {**plain, **more, "notes": list(experiment.notes), "figures": figures, "misprints": misprints}


def _data(world: World) -> dict[str, Any]:
    """Return what the document says of the data behind each encoder."""
    first = world.encoded().describe()
    fingerprints = {}
    for name in world.encoder_names:
        encoded = world.encoded(name)
        fingerprints[encoded.encoder.name] = encoded.measured_as().digest
    kept = ("name", "description", "train", "test", "dim", "classes", "modality", "digest", "encoder")
    return {**{key: getattr(first, key) for key in kept}, "fingerprints": fingerprints}
