"""A command whose help is complete and plain, whichever releases of typer and click meet."""

import inspect
import typing
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup"]


class PlainCommand(TyperCommand):
    """A command with help as plain text, and with the help of its arguments."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        # click 8.5 gives arguments a help of its own and so erases what typer had set; annotations still hold it.
        function = inspect.unwrap(self.callback) if self.callback else None
        hints = typing.get_type_hints(function, include_extras=True) if function else {}
        for parameter in self.params:
            given: Any = parameter
            if getattr(given, "help", None) is None:
                notes = getattr(hints.get(parameter.name or ""), "__metadata__", ())
                given.help = next((note.help for note in notes if getattr(note, "help", None)), None)

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Write nothing: typer lists arguments with the options, click 8.5 would list them a second time."""

    def get_help(self, ctx: Any) -> str:
        """Return the help without the escapes that typer leaves in it when rich is installed but not used."""
        return super().get_help(ctx).replace("\\[", "[")


class PlainGroup(TyperGroup):
    """A group with help as plain text."""

    def get_help(self, ctx: Any) -> str:
        """Return the help without the escapes that typer leaves in it when rich is installed but not used."""
        return super().get_help(ctx).replace("\\[", "[")
