"""What a source of data is: a prefix, one line of help, and a function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """An entry of the registry.

    Parameters
    ----------
    prefix
        What is typed before the colon.
    argument
        What is typed after it, for help texts (``PATH``); empty when nothing is.
    summary
        One line for help texts.
    load
        The function ``(argument, **options) -> DataSet``; its keyword-only parameters are the options.
    endings
        Endings of files that are taken for this source when no prefix was typed.
    """

    prefix: str
    argument: str
    summary: str
    load: Callable[..., DataSet]
    endings: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is typed: ``csv:PATH``."""
        return f"{self.prefix}:{self.argument}" if self.argument else self.prefix

    @property
    def options(self) -> Mapping[str, Any]:
        """Names of the options, with their defaults."""
        parameters = inspect.signature(self.load).parameters.values()
        return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}

    def check(self, argument: str, options: Mapping[str, Any]) -> None:
        """Refuse an argument or options that this source does not take."""
        if bool(argument) != bool(self.argument):
            raise InputError(f"the data source '{self.prefix}' is typed as {self.usage}")
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            raise InputError(
                f"the data source '{self.prefix}' has no option '{unknown[0]}': its options are "
                f"{', '.join(sorted(self.options))}"
            )
