"""A point of a sweep, and how each of its parts is called: tables, files, pages and axes read the fields of `Setting`.

What is swept is one field here, declared by :func:`swept`; its column in CSV, its key in JSON, its words on pages and
in the terminal, and the title of its axis follow. With ``typed`` its option of studies and its place in their loops
follow, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from fedmoments.settings.option import Option

__all__ = ["SWEPT", "Setting", "Swept", "counted", "spelled", "split_words", "swept", "with_swept_options"]

_SCHEMES = {"dirichlet": "Dirichlet", "iid": "IID", "domain": "one domain each", "id": "one user each"}


def split_words(scheme: Any) -> str:
    """Return a split as one says it.

    Examples
    --------
    >>> split_words("dirichlet:0.1"), split_words("iid"), split_words("shards:2")
    ('Dirichlet 0.1', 'IID', 'shards 2')
    """
    name, _, rest = str(scheme).partition(":")
    return f"{_SCHEMES.get(name, name)} {rest}".strip()


def counted(word: str, number: int) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted("client", 1000), counted("mean", 1)
    ('1,000 clients', '1 mean')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Swept:
    """How one part of a setting is called.

    Parameters
    ----------
    name
        Title of its column.
    subject, axis
        In a sentence ("number of clients") and beside an axis; the name by default.
    none, without
        What None is in a column, and spelled out.
    word, spell
        A value in a column of a page, and spelled out.
    number
        Whether it is sorted as a number.
    payload
        Whether it changes what is sent and nothing else: what it buys is seen in one figure.
    concerns
        Whether it matters for the method of a row.
    several
        What a list of its values is called, in settings and in ``simulate``; empty where other fields say it.
    typed
        The option of a study that sweeps it; None where the study has a field of its own for it.
    """

    name: str
    subject: str = ""
    axis: str = ""
    none: str = "–"
    without: str = ""
    word: Callable[[Any], str] = str
    spell: Callable[[Any], str] | None = None
    number: bool = False
    payload: bool = False
    concerns: Callable[[Any], bool] = lambda row: True  # noqa: ARG005
    several: str = ""
    typed: Option | None = None


def swept(default: Any, name: str, **more: Any) -> Any:
    """Declare a part of a setting: a field with a default, and how it is called."""
    return field(default=default, metadata={"swept": Swept(name, **more)})


def _is_shrunk(row: Any) -> bool:
    return "shrinkage" in row.hyper and not row.baseline


@dataclass(frozen=True)
class Setting:
    """A point of a sweep, or the federation that ran.

    Parameters
    ----------
    clients
        Number of clients, or None when the data themselves say it (splits ``domain`` and ``id``).
    split
        The scheme as it was typed; None where nobody split anything.
    means_per_client
        Means that a client sends of a class, for heads that use them.
    shrinkage
        For heads that have that hyper-parameter; None leaves each head's own.
    projection
        Dimensions of the public random projection that features are measured behind; None for the features as they
        are.
    budget
        Bytes that the rows of one client may take, as it was typed, for heads on scatter sketches; None leaves these
        their default, and is the setting of all other heads.
    epsilon, privacy
        Of differential privacy, None without; whatever else protects, in words, None for nothing.
    """

    clients: int | None = swept(
        None,
        "clients",
        subject="number of clients",
        none="as in the data",
        without="clients as the data say",
        spell=partial(counted, "client"),
        number=True,
        several="clients",
    )
    split: str | None = swept(None, "split", word=split_words, spell=split_words, several="splits")
    means_per_client: int = swept(
        1,
        "means per client",
        subject="number of means per client",
        spell=lambda number: f"{counted('mean', number)} per client and class",
        number=True,
        concerns=lambda row: "client_means" in row.sends,
        several="means_per_client",
    )
    shrinkage: str | None = swept(
        None,
        "shrinkage",
        none="default",
        without="default shrinkage",
        concerns=_is_shrunk,
        several="shrinkages",
        typed=Option(
            "automatic,absolute:1,relative:0.5,blend:0.1,none: for heads with a shrinkage.",
            ("--shrinkage",),
            group="Heads",
            metavar="KIND:VALUE,…",
        ),
    )
    projection: int | None = swept(
        None,
        "projection",
        subject="dimension of a random projection",
        axis="dimensions measured",
        none="full",
        without="all dimensions",
        spell=lambda number: f"projected to {counted('dimension', number)}",
        number=True,
        payload=True,
        several="projections",
    )
    budget: str | None = swept(
        None,
        "budget",
        subject="bytes that a client may send",
        axis="bytes sent per client",
        none="none",
        without="no budget",
        number=True,
        payload=True,
        concerns=lambda row: row.setting.budget is not None,
        several="budgets",
    )
    epsilon: float | None = swept(
        None,
        "ε",
        subject="budget ε of differential privacy",
        axis="ε, the more the less private",
        none="∞",
        without="ε = ∞",
        word="{:g}".format,
        spell="ε = {:g}".format,
        number=True,
    )
    privacy: str | None = swept(None, "protection", none="none", without="no protection")

    def to_dict(self) -> dict[str, Any]:
        """Return the setting, ready for JSON."""
        return {name: getattr(self, name) for name in SWEPT}

    def word(self, key: str) -> str:
        """Return the value of one part, as a column of a page has it.

        Examples
        --------
        >>> Setting(split="dirichlet:0.1").word("split"), Setting().word("projection")
        ('Dirichlet 0.1', 'full')
        """
        value, part = getattr(self, key), SWEPT[key]
        return part.none if value is None else part.word(value)

    def spelled(self, keys: Sequence[str], separator: str = ", ") -> str:
        """Return some parts spelled out.

        Examples
        --------
        >>> Setting(100, "dirichlet:0.1", 2, "0.5", 64).spelled(list(SWEPT)[:5])
        '100 clients, Dirichlet 0.1, 2 means per client and class, shrinkage 0.5, projected to 64 dimensions'
        """
        return separator.join(spelled(key, getattr(self, key)) for key in keys)


#: Parts of a setting, and how they are called.
SWEPT: dict[str, Swept] = {part.name: part.metadata["swept"] for part in fields(Setting)}


def spelled(key: str, value: Any) -> str:
    """Return one part of a setting spelled out.

    Examples
    --------
    >>> spelled("clients", 5), spelled("epsilon", None), spelled("budget", "means/2")
    ('5 clients', 'ε = ∞', 'budget means/2')
    """
    part = SWEPT[key]
    if value is None:
        return part.without or f"{part.name} {part.none}"
    return part.spell(value) if part.spell else f"{part.name} {part.word(value)}"


T = TypeVar("T")


def with_swept_options(cls: type[T]) -> type[T]:
    """Give settings a field for every part of :class:`Setting` that is typed: a list of values, none by default.

    It stands between the class and ``@dataclass``; loops read these fields by their names in :data:`SWEPT`.
    """
    hints = get_type_hints(Setting)
    for name, part in SWEPT.items():
        if part.typed is not None:
            kind = next((choice for choice in get_args(hints[name]) if choice is not NoneType), hints[name])
            cls.__annotations__[part.several] = tuple[kind, ...]  # type: ignore[valid-type]
            setattr(cls, part.several, field(default=(), metadata={"option": part.typed}))
    return cls
