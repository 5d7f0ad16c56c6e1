"""Natural order: ``img2`` before ``img10``, as people count."""

import re
from collections.abc import Iterable

__all__ = ["natural_key", "sorted_names"]

_NUMBER = re.compile(r"([0-9]+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def natural_key(text: str) -> tuple[object, ...]:
    """Return a key that sorts digits by value and letters without case; the text itself decides between equals.

    Examples
    --------
    >>> sorted(["img10", "Img2", "img", "img1"], key=natural_key)
    ['img', 'img1', 'Img2', 'img10']
    """
    parts = _NUMBER.split(text)  # text and digits in turn, text first
    numbers = [part.lstrip("0") for part in parts[1::2]]
    keys: list[object] = [part.casefold() for part in parts]
    keys[1::2] = [(len(number), number) for number in numbers]
    return (tuple(keys), text)


def sorted_names(names: Iterable[str]) -> list[str]:
    """Return the different names in natural order; whole numbers, when all are, by value.

    Examples
    --------
    >>> sorted_names(["10", "-1", "2", "2"])
    ['-1', '2', '10']
    """
    different = set(names)
    if all(_WHOLE.fullmatch(name) for name in different):
        return sorted(different, key=lambda name: (int(name), name))
    return sorted(different, key=natural_key)
