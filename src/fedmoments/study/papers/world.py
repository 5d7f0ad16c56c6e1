"""What engines run on: the data, encoded once, the seeds, what was measured before, and where progress is told."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.provenance import package_code
from fedmoments.samples.encoders.folders import cache_folder
from fedmoments.samples.features import Features
from fedmoments.settings.study import StudySettings
from fedmoments.study.crew import Crew
from fedmoments.study.jobs.encoding import Encoded, encode_data
from fedmoments.study.memory import Memory

__all__ = ["KIND", "Progress", "World"]

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]
#: Name of the cache's folder.
KIND = "reproduction"


@dataclass(eq=False)
class World:
    """Everything that is not in the file of an experiment.

    Parameters
    ----------
    config
        Data and encoder, as for any job; of the rest only ``seed``, ``readers`` and ``memory_limit`` are used.
    encoders
        Encoders to run with, for tables that compare several; the config's own alone by default.
    seeds
        How many.
    cache_dir
        Folder of the caches, of features and of results; the user's by default, False does without.
    progress
        Called before every step.
    fresh
        Forget what was measured on these data before.
    crew
        Who works on settings and seeds; this process by default.

    Examples
    --------
    >>> world = World(StudySettings(data="digits"), seeds=3, cache_dir=False)
    >>> list(world.each_seed)
    [0, 1, 2]
    """

    config: StudySettings
    encoders: tuple[str, ...] = ()
    seeds: int = 1
    cache_dir: Any = None
    progress: Progress | None = None
    fresh: bool = False
    crew: Crew = field(default_factory=Crew)
    resumed: int = 0
    deviations: list[str] = field(default_factory=list)
    memories: dict[Any, Memory] = field(default_factory=dict)
    forgotten: set[Path] = field(default_factory=set)
    _encoded: dict[str | None, Encoded] = field(default_factory=dict)

    @property
    def each_seed(self) -> range:
        """All seeds."""
        return range(self.config.seed, self.config.seed + self.seeds)

    @property
    def encoder_names(self) -> tuple[str | None, ...]:
        """Encoders to run with; None is the one that the data's kind decides."""
        return self.encoders or (self.config.encoder,)

    def encoded(self, encoder: str | None = None) -> Encoded:
        """Return the data behind an encoder, by default the first one; encoded once."""
        name = self.encoder_names[0] if encoder is None else encoder
        if name not in self._encoded:
            config = replace(self.config, encoder=name, splits=("iid",), clients=(1,))
            self._encoded[name] = encode_data(config, cache_dir=self.cache_dir, progress=self.progress)
        return self._encoded[name]

    def features(self, encoder: str | None = None) -> Features:
        """Return the features behind an encoder."""
        return self.encoded(encoder).features

    def basis(self, encoder: str | None = None) -> list[str]:
        """Return what every measurement on these data depends on: code, data, encoder, and who holds what."""
        return self.encoded(encoder).basis()

    def memory(self, encoder: str | None = None) -> Memory:
        """Return what was measured on these data before; without data (``encoder="none"``) what was computed."""
        basis = [package_code()] if encoder == "none" else self.basis(encoder)
        key = tuple(basis)
        if key not in self.memories:
            digest = hashlib.sha256(json.dumps(basis).encode()).hexdigest()[:24]
            path = None if self.cache_dir is False else cache_folder(KIND, self.cache_dir) / f"measured-{digest}.jsonl"
            self.memories[key] = Memory(path, fresh=path is not None and self._forgets(path))
        return self.memories[key]

    def folder(self, key: Any, encoder: str | None = None) -> Path | None:
        """Return a folder of the cache for whatever depends on a key and these data; None without a cache."""
        if self.cache_dir is False:
            return None
        digest = hashlib.sha256(json.dumps([self.basis(encoder), key], sort_keys=True, default=str).encode())
        folder = cache_folder(KIND, self.cache_dir) / digest.hexdigest()[:24]
        if self._forgets(folder):
            shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _forgets(self, path: Path) -> bool:
        """Say whether what a path holds is to be forgotten: once, so that one run remembers what it measures."""
        first = self.fresh and path not in self.forgotten
        self.forgotten.add(path)
        return first

    @property
    def reused(self) -> int:
        """How much was found in caches so far; engines with a cache of their own count it as ``resumed``."""
        return self.resumed + sum(memory.found for memory in self.memories.values())

    def deviate(self, sentence: str) -> None:
        """Note, once, where this run departs from the paper's, and why."""
        if sentence not in self.deviations:
            self.deviations.append(sentence)

    def say(self, done: int, total: int, what: str) -> None:
        """Tell progress."""
        if self.progress:
            self.progress(done, total, what)


def known_settings(settings: Mapping[str, Any], known: tuple[str, ...], engine: str) -> None:
    """Refuse settings that an engine does not have."""
    for name in settings:
        if name not in known:
            raise UnknownNameError(f"setting of the engine '{engine}'", name, known)


def numbers_of_clients(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of clients of an experiment's settings."""
    clients = settings.get("clients", [])
    several = tuple(clients) if isinstance(clients, list | tuple) else (clients,)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in several):
        raise InputError(f"clients must be whole numbers, not {clients!r}")
    return several
