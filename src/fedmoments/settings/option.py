"""A field that people set: what it is for, how it is typed, and under which heading of a command's help it stands.

A setting is one field of a frozen dataclass. Its default, its type and what :func:`option` says of it are all that
there is to know: TOML files are read and written by it, and command lines are generated from it.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any

__all__ = ["GROUPS", "Option", "option", "option_of"]

#: Headings of a command's help, in their order.
GROUPS = ("Data", "Encoder", "Federation", "Heads", "Tuning", "Privacy", "Server", "Output")


@dataclass(frozen=True)
class Option:
    """What a field says of itself.

    Parameters
    ----------
    help
        One sentence for the help of a command. The default stands behind it by itself.
    names
        How it is typed: ``--out``, ``-o``; by default the name of the field.
    group
        One of :data:`GROUPS`; empty: the first list, of what is typed most.
    metavar
        What stands for the value in the help.
    kind
        How its text is read where the type of the field does not say it: see ``fedmoments.cli.texts``.
    shown
        What the help says that it is unless it is typed, where the field's own default does not tell.
    common
        Its place in the first list, before all headings; 0: it stands under its heading.
    swept
        What the help says besides where several values are run one after the other; empty: one value at a time.
    needs
        The field without which this one says nothing; empty: none.
    argument
        Whether it is typed without a name, by its place.
    least
        The least that a whole number may be; None: any.
    bare
        What it is when it is typed without a value; None: a value must be typed.
    entries
        Group of entry points with which packages add values; the help names those that are installed. Empty: none.
    """

    help: str
    names: tuple[str, ...] = ()
    group: str = ""
    metavar: str = ""
    kind: str = ""
    shown: str = ""
    common: int = 0
    swept: str = ""
    needs: str = ""
    argument: bool = False
    least: int | None = None
    bare: str | None = None
    entries: str = ""


def option(default: Any, help: str, *names: str, repr: bool = True, **more: Any) -> Any:  # noqa: A002 - as field() has it
    """Return a dataclass field that people set.

    Parameters
    ----------
    default
        Its default; :data:`dataclasses.MISSING` where a value is required.
    help, names, more
        As in :class:`Option`.
    repr
        Whether it is part of the text of its dataclass.

    Examples
    --------
    >>> from dataclasses import dataclass, fields
    >>> @dataclass(frozen=True)
    ... class Door:
    ...     width: float = option(0.9, "Metres from hinge to lock.", metavar="M")
    >>> Door().width, option_of(fields(Door)[0]).metavar
    (0.9, 'M')
    """
    metadata = {"option": Option(help, names, **more)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata, repr=repr)
    return field(default=default, metadata=metadata, repr=repr) if default is not MISSING else field(metadata=metadata)


def option_of(declared: Field[Any]) -> Option | None:
    """Return the option of a field; None where it is not one that users set."""
    return declared.metadata.get("option")
