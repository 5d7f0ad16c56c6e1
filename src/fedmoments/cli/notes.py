"""Notes in the header of a statistics file, which say what its numbers are about, and whether two may be merged.

``class_names`` (list or null), ``feature_map`` (description or null), ``encoder`` (its name as it was typed, its note
where this software encoded, or null), ``targets`` (names of the last columns, where they are targets), ``columns``
(which columns of tables were features beside targets, if they were named) and ``clients`` (names of everybody whose
data are in the file).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedmoments.cli.places import existing_file
from fedmoments.core.maps import FeatureMap, from_description
from fedmoments.core.statistics import Statistics, load_statistics
from fedmoments.core.statistics.relabelling import among
from fedmoments.errors import FileFormatError, MergeError

__all__ = ["Contribution", "contributions", "map_of"]


class Contribution:
    """A statistics file: its statistics, and its notes with everything in place.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = existing_file(path)
        self.stats: Statistics
        self.stats, notes = load_statistics(path)
        self.clients: list[str] = [str(name) for name in notes.get("clients") or [path.stem]]
        self.class_names: list[str] | None = notes.get("class_names")
        self.feature_map: dict[str, Any] | None = notes.get("feature_map")
        self.encoder: str | dict[str, Any] | None = notes.get("encoder")
        self.targets: list[str] = [str(name) for name in notes.get("targets") or []]
        self.columns: list[str] = [str(name) for name in notes.get("columns") or []]
        if self.class_names is not None and len(self.class_names) != self.stats.n_classes:
            raise FileFormatError(
                f"{path} names {len(self.class_names)} classes, but holds statistics of {self.stats.n_classes}"
            )

    def notes(self, clients: list[str]) -> dict[str, Any]:
        """Return the notes of a file with these clients' data, measured as this one was."""
        return {
            "clients": clients,
            "class_names": self.class_names,
            "feature_map": self.feature_map,
            "encoder": self.encoder,
            "targets": self.targets,
            "columns": self.columns,
        }

    def require_same(self, other: "Contribution", *, whole: bool) -> None:
        """Refuse another file that was measured in another way; ``whole`` asks for the same moments too."""
        pairs: list[tuple[str, Any, Any]] = [
            ("feature maps", self.feature_map, other.feature_map),
            ("kinds of classes", _kind(self), _kind(other)),
            ("encoders", _encoder(self), _encoder(other)),
            ("targets", self.targets, other.targets),
            ("columns of features", self.columns, other.columns),
            ("dimensions", self.stats.dim, other.stats.dim),
            ("fixed-point forms", self.stats.fixed_point, other.stats.fixed_point),
        ]
        if whole:
            pairs.append(("moments", str(self.stats.spec), str(other.stats.spec)))
        for what, ours, theirs in pairs:
            if ours != theirs:
                raise MergeError(
                    f"{other.path} cannot be merged with {self.path}, because their {what} differ: "
                    f"{_shown(theirs)} against {_shown(ours)}; measure both alike"
                )
        _require_same_behaviour(self, other)


def _kind(part: Contribution) -> str:
    """Return how classes are told apart: by name, whatever the order, or by number."""
    return "by name" if part.class_names is not None else f"{part.stats.n_classes} without names"


def _encoder(part: Contribution) -> str | None:
    """Return which encoder it was; a note tells by the fingerprint, as its behaviour differs in the last digits."""
    noted = part.encoder
    return f"{noted.get('name')} {str(noted.get('fingerprint'))[:16]}" if isinstance(noted, dict) else noted


def _require_same_behaviour(ours: Contribution, theirs: Contribution) -> None:
    """Refuse features of another network that has the same weights."""
    from fedmoments.samples.encoders.probe import Behaviour, describe_difference

    behaviours = [part.encoder.get("behaviour") for part in (ours, theirs) if isinstance(part.encoder, dict)]
    if None in behaviours or len(behaviours) < 2:
        return
    first, second = map(Behaviour.from_text, behaviours)
    if not first.agrees(second):
        raise MergeError(
            f"{theirs.path} cannot be merged with {ours.path}: the encoders have the same weights, but "
            f"{describe_difference(first.difference(second))}. Use the same code of the network"
        )


def contributions(paths: Iterable[Path], *, whole: bool) -> Iterable[Contribution]:
    """Yield statistics files one by one, refusing any that does not go with the first, and any client twice.

    Classes are those of all files, in the order in which they come: what has the same name is the same class.
    """
    paths = list(paths)
    names = all_names(paths)
    first: Contribution | None = None
    seen: dict[str, Path] = {}
    for path in paths:
        part = Contribution(path)
        first = first or part
        first.require_same(part, whole=whole)
        if names is not None and part.class_names is not None:
            part.stats, part.class_names = among(part.stats, part.class_names, names), names
        for name in part.clients:
            if name in seen:
                raise MergeError(
                    f"the data of client '{name}' are in {seen[name]} and in {path}: each client counts once; leave "
                    "one file out, or measure with different --client names"
                )
            seen[name] = path
        yield part


def all_names(paths: Iterable[Path]) -> list[str] | None:
    """Return the class names of all files, each once, in the order in which they come; None where one has no names."""
    names: dict[str, None] = {}
    for path in paths:
        own = Contribution(path).class_names
        if own is None:
            return None
        names |= dict.fromkeys(own)
    return list(names)


def map_of(part: Contribution) -> FeatureMap | None:
    """Return the map behind which a file was measured."""
    return from_description(part.feature_map) if part.feature_map else None


def _shown(value: Any, limit: int = 60) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
