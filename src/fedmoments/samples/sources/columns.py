"""Which column of a table is what: as given, or guessed from its name; and what a row must have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.columns import columns_matching
from fedmoments.core.maps import TableMap
from fedmoments.errors import InputError
from fedmoments.samples.samples import Modality

__all__ = ["Columns", "choose_columns", "guess_column", "label_name"]

_GUESSES = {
    "text": ("text", "sentence", "utterance", "content", "query", "question", "review", "document"),
    "image": ("image", "img", "picture", "image_path", "path", "file", "file_name", "filename"),
    "label": ("label", "labels", "class", "category", "target", "intent", "y"),
}
#: How a column that could not be guessed is named, on the command line.
_WAYS = {
    "text or image": "--text or --image; --features 'a,b*' for columns of numbers; --table draft for a raw table",
    "label": "--label",
}
#: Columns that an error lists.
MOST_NAMED = 12


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are used, None where the table has no such column; and what codes a raw table."""

    item: str
    is_image: bool
    label: str
    client: str | None = None
    domain: str | None = None
    split: str | None = None
    features: tuple[str, ...] = ()
    group: str | None = None
    table: TableMap | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """The columns to read."""
        named = (*(self.features or (self.item,)), self.label, self.client, self.domain, self.split, self.group)
        return tuple(name for name in named if name)

    @property
    def modality(self) -> Modality:
        """What samples are: those of ``features`` are rows of numbers."""
        return "features" if self.features else "image" if self.is_image else "text"


def _require_one_kind(whose: str, other: str | None) -> None:
    if other:
        raise InputError(f"{whose}: samples are texts, images or numbers: give the columns of one of these")


def _matching(wanted: Sequence[str] | str, present: Sequence[str], others: Collection[str | None]) -> Any:
    """Return the columns that were asked for as features, of those that are nothing else."""
    patterns = [name.strip() for name in wanted.split(",")] if isinstance(wanted, str) else wanted
    return columns_matching([name for name in present if name not in others], patterns)


def choose_columns(
    whose: str,
    present: Sequence[str],
    *,
    text: str | None = None,
    image: str | None = None,
    label: str | None = None,
    client: str | None = None,
    domain: str | None = None,
    split: str | None = None,
    group: str | None = None,
    features: Sequence[str] | str | None = None,
    numbers: Any = (),
) -> Columns:
    """Check the columns that were given, and guess text or image and label when they were not.

    ``features`` are names or patterns of columns of numbers, ``a,b,emb*`` or a list; where nothing else is a sample,
    the columns that are known to hold ``numbers``.

    Examples
    --------
    >>> choose_columns("t.csv", ["text", "category"])
    Columns(item='text', is_image=False, label='category', client=None, domain=None, split=None, features=(),
            group=None, table=None)
    >>> choose_columns("t.csv", ["age", "emb0", "emb1", "label"], features="emb*").features
    ('emb0', 'emb1')
    >>> choose_columns("t.csv", ["a", "b"], text="a", label="c")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: t.csv has no column 'c' for label: its columns are a, b
    """
    given = {"text": text, "image": image, "label": label, "client": client, "domain": domain, "split": split}
    given["group"] = group
    _check_given(whose, present, given)
    keys = {"client": client, "domain": domain, "split": split, "group": group}
    others = list(keys.values())
    if features is not None:
        _require_one_kind(whose, text or image)
        label = label or guess_column("label", present)
        return _of_numbers(whose, present, _matching(features, present, (label, *others)), label, keys)
    item, is_image = _item_of(present, text, image, label)
    label = label or guess_column("label", present, item)
    if item is None:
        names = [name for name in numbers if name not in (label, *others)]
        _named(whose, present, "text or image", label if names else None)
        return _of_numbers(whose, present, names, label, keys)
    return Columns(item, is_image, _named(whose, present, "label", label), client, domain, split, group=group)


def _item_of(present: Sequence[str], text: str | None, image: str | None, label: str | None) -> tuple[str | None, bool]:
    """Return the column of texts or images, as given or as guessed, and whether it holds images; None without one."""
    if image is None:
        text = text or guess_column("text", present, label)
    return text or image or guess_column("image", present, label), text is None


def _named(whose: str, present: Sequence[str], what: str, name: str | None) -> str:
    """Return the name of a column that must be known."""
    if name is None:
        raise InputError(
            f"which column of {whose} is {what}? Name it: {_WAYS[what]}. The columns are {_listed(present)}"
        )
    return name


def _of_numbers(
    whose: str, present: Sequence[str], names: Sequence[str], label: str | None, keys: Mapping[str, str | None]
) -> Columns:
    """Return the columns of a table whose samples are rows of numbers."""
    label = _named(whose, present, "label", label)
    client, domain, split, group = (keys[what] for what in ("client", "domain", "split", "group"))
    return Columns(names[0], False, label, client, domain, split, tuple(names), group)  # noqa: FBT003


def _check_given(whose: str, present: Sequence[str], given: Mapping[str, str | None]) -> None:
    """Refuse columns that are not there, and columns of texts and of images at once."""
    if given["text"] is not None and given["image"] is not None:
        raise InputError(f"{whose}: samples are texts or images: give the column of one, not text and image")
    for what, name in given.items():
        if name is not None and name not in present:
            raise InputError(f"{whose} has no column '{name}' for {what}: its columns are {_listed(present)}")


def _listed(present: Sequence[str]) -> str:
    more = f", … ({len(present)} in all)" if len(present) > MOST_NAMED else ""
    return ", ".join(map(str, present[:MOST_NAMED])) + more


def guess_column(what: str, present: Sequence[str], taken: str | None = None) -> str | None:
    """Return the column whose name says that it holds text, images or labels; None if none does.

    Examples
    --------
    >>> guess_column("text", ["id", "Sentence"]), guess_column("features", ["a"])
    ('Sentence', None)
    """
    by_name = {name.lower(): name for name in reversed(present) if name != taken}
    return next((by_name[guess] for guess in _GUESSES.get(what, ()) if guess in by_name), None)


def label_name(value: object) -> str:
    """Return a label, client or domain as text; empty when the value is missing. 3.0 is 3: gaps make floats of numbers.

    Examples
    --------
    >>> label_name(3.0), label_name(" cat "), label_name(None), label_name(float("nan"))
    ('3', 'cat', '', '')
    """
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
