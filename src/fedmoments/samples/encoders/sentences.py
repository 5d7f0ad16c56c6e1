"""How a sentence is prepared: white space at both ends goes; an empty one is refused."""

from typing import Any

from fedmoments.errors import InputError

__all__ = ["clean_sentence"]


def clean_sentence(sample: Any) -> str:
    r"""Return a sentence without white space at its ends.

    Raises
    ------
    InputError
        When it is not a text, is empty, or holds half of a character (a lone surrogate).

    Examples
    --------
    >>> clean_sentence("  Where is my card?\n")
    'Where is my card?'
    >>> clean_sentence(" ")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the sentence is empty
    """
    if not isinstance(sample, str):
        raise InputError(f"a sentence must be a text, but is {type(sample).__name__}")
    sentence = sample.strip()
    if not sentence:
        raise InputError("the sentence is empty")
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the sentence is not sound Unicode: {error.reason} at position {error.start}") from error
    return sentence
