"""One registry for everything that has a name: heads, moments, encoders, sources, splits and more.

A registry knows three origins, which all work alike:

* **built in**: the tuple of a fixed name (``PRESETS``, ``ENCODERS`` …) in every file of one package of fedmoments;
* **installed**: entry points of the registry's group. Each names one thing, or a tuple of things; a thing without a
  name of its own (a class, a function) takes that of the entry point::

      [project.entry-points."fedmoments.heads"]
      my-head = "my_package:MyHead"

* **at run time**: :meth:`Registry.register`, in this process alone.

Two things of one name are refused, with where both come from. The same class or function, defined again (a cell that
is run twice), takes its own place.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from threading import RLock
from typing import Any, Generic, TypeVar

from fedmoments.errors import InputError, UnknownNameError

__all__ = ["Registry", "first_line", "scan"]

Value = TypeVar("Value")
#: Makes an entry of what was given, by the name that it was given under (None: it must have one of its own).
Accept = Callable[[Any, str | None], Value]


@dataclass(frozen=True)
class _Held(Generic[Value]):
    value: Value
    place: str
    origin: str
    ours: bool

    def __str__(self) -> str:
        return f"{self.place} ({self.origin})"


class Registry(Mapping[str, Value]):
    """Things by name: built-in ones first, then those of others, in order each; a live view.

    Parameters
    ----------
    kind
        What one of them is called, for messages.
    group
        The group of entry points.
    accept
        Makes an entry of what an author gives, such as a class; refuses what cannot be one with an InputError.
    built_in
        Returns our own entries; called once, when they are needed.
    order
        What entries are sorted by, their names by default; None leaves ours as they come.
    name_of
        Returns an entry's name, by default its attribute ``name``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Colour:
    ...     name: str
    >>> colours = Registry("colour", group="fedmoments.colours", accept=lambda given, name: given,
    ...                    built_in=lambda: [Colour("red"), Colour("green")])
    >>> colours.register(Colour("blue"))
    Colour(name='blue')
    >>> list(colours), "blue" in colours
    (['green', 'red', 'blue'], True)
    >>> colours.find("rad")
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown colour 'rad': did you mean 'red'? Known are: blue, green, red.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str,
        accept: Accept[Value],
        built_in: Callable[[], Iterable[Value]] = tuple,
        order: Callable[[Value], Any] | None = lambda _: 0,
        name_of: Callable[[Value], str] = attrgetter("name"),
    ) -> None:
        self.kind = kind
        self.group = group
        self._accept = accept
        self._built_in: Callable[[], Iterable[Value]] | None = built_in
        self._order = order
        self._name_of = name_of
        self._held: dict[str, _Held[Value]] = {}
        self._at_run_time: set[str] = set()
        self._table: dict[str, Value] | None = None
        self._loaded = False
        self._lock = RLock()

    def register(self, given: Any, name: str | None = None) -> Value:
        """Make something known in this process, and return its entry.

        Parameters
        ----------
        given
            An entry, or what an entry can be made of.
        name
            What users type; its own name by default.

        Raises
        ------
        InputError
            When another has that name, or when this cannot be an entry.
        """
        with self._lock:
            self._scan()
            value = self._entry(given, name, "registered")
            self._hold(value, _place(given), "registered at run time", ours=False)
            self._at_run_time.add(self._name_of(value))
            return value

    def remove(self, name: str) -> None:
        """Forget what was registered at run time; what is built in or installed stays."""
        with self._lock:
            if name not in self._at_run_time:
                raise InputError(f"the {self.kind} '{name}' was not registered at run time, and is not forgotten")
            self._at_run_time.remove(name)
            del self._held[name]
            self._table = None

    def find(self, name: str) -> Value:
        """Return the entry of that name.

        Raises
        ------
        UnknownNameError
            When there is none; with the nearest name, and all that there are.
        """
        try:
            return self[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self) from None

    def is_built_in(self, name: str) -> bool:
        """Return whether what has that name is a part of fedmoments."""
        return name in self and self._held[name].ours

    def __getitem__(self, name: str) -> Value:
        if self._built_in is not None:
            with self._lock:
                self._scan()
        held = self._held.get(name)  # ours are found while modules are still being imported: nobody's code is loaded
        return self._all()[name] if held is None else held.value

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Value]:
        if self._table is None:
            with self._lock:
                self._scan()
                self._load()
                ordered = sorted(self._held.values(), key=self._sort_key)
                self._table = {self._name_of(held.value): held.value for held in ordered}
        return self._table

    def _sort_key(self, held: _Held[Value]) -> tuple[bool, Any]:
        if held.ours and self._order is None:
            return False, ()
        return not held.ours, (self._order(held.value) if self._order else 0, self._name_of(held.value))

    def _scan(self) -> None:
        built_in, self._built_in = self._built_in, None  # None meanwhile: what is scanned may look in here
        try:
            for value in built_in() if built_in else ():
                self._hold(value, _place(value), "built in", ours=True)
        except BaseException:
            self._built_in = built_in
            raise

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        try:
            for entry in entry_points(group=self.group):
                origin = f"installed by {entry.dist.name}" if entry.dist else "installed"
                loaded = self._loaded_from(entry, origin)
                several = isinstance(loaded, tuple | list)
                for given in loaded if several else (loaded,):
                    value = self._entry(given, None if several else entry.name, origin)
                    self._hold(value, _place(given), origin, ours=False)
        except BaseException:
            self._loaded = False
            raise

    def _loaded_from(self, entry: EntryPoint, origin: str) -> Any:
        try:
            return entry.load()
        except Exception as error:
            raise InputError(
                f"the {self.kind} '{entry.name}' ({origin}, entry point {entry.value} of {self.group}) does not load: "
                f"{type(error).__name__}: {error}. Repair or uninstall that package"
            ) from error

    def _entry(self, given: Any, name: str | None, origin: str) -> Value:
        try:
            return self._accept(given, name)
        except InputError as error:
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise InputError(f"{_place(given)} ({origin}) is not {article} {self.kind}: {error}") from error

    def _hold(self, value: Value, place: str, origin: str, *, ours: bool) -> None:
        name = self._name_of(value)
        held, other = _Held(value, place, origin, ours), self._held.get(name)
        if other is not None and (other.ours or other.place != held.place):
            raise InputError(
                f"two {self.kind}s call themselves '{name}': {other} and {held}. Rename one of them, or "
                "uninstall the package that brings it"
            )
        self._held[name] = held
        self._table = None


def scan(package: str, attribute: str) -> Callable[[], list[Any]]:
    """Return a function that collects the tuples called ``attribute`` in all modules of a package.

    Examples
    --------
    >>> "fedcof" in [preset.name for preset in scan("fedmoments.core.heads", "PRESETS")()]
    True
    """

    def collect() -> list[Any]:
        path = importlib.import_module(package).__path__
        modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(path, f"{package}.")]
        return [entry for module in modules for entry in getattr(module, attribute, ())]

    return collect


def first_line(thing: object) -> str:
    """Return the first line of a docstring, for a table; empty where there is none.

    Examples
    --------
    >>> first_line(first_line)
    'Return the first line of a docstring, for a table; empty where there is none.'
    """
    # A dataclass without a docstring gets its signature for one, which says nothing.
    text = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
    return "" if text.startswith(f"{getattr(thing, '__name__', None)}(") else text


def _place(value: Any) -> str:
    """Return where a class or a function is defined, or the first one that an entry holds."""
    held = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else []
    for part in (value, *held):
        if callable(part) and hasattr(part, "__qualname__"):
            return f"{part.__module__}.{part.__qualname__}"
    return repr(value) if held else f"{type(value).__module__}.{type(value).__qualname__}"
