"""Amended terms that parties were shown: two of one federation, neither of which goes on from the other, are a lie.

The server signs every amendment (:mod:`fedmoments.federation.amendment`), and all former terms follow from amended
ones. So whoever holds two that part has the proof, with two signatures of one key, that two parties were told two
stories, without a look at the log.
"""

import json
from collections.abc import Sequence
from itertools import combinations

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import FileFormatError
from fedmoments.federation.terms import Terms

__all__ = ["apart", "line_of", "terms_of"]

#: How a line of a notebook begins that holds terms.
_MARK = b'{"terms":'


def line_of(terms: Terms) -> bytes:
    """Return a notebook's line of amended terms."""
    return canonical_json({"terms": terms.to_json()}).encode() + b"\n"


def terms_of(line: bytes) -> Terms | None:
    """Return the amended terms that a line holds, once their signatures are right; None of a line of something else.

    Raises
    ------
    FileFormatError
        When it should hold terms, and holds something else.

    Examples
    --------
    >>> terms_of(b'{"head": {}}') is None
    True
    """
    if not line.startswith(_MARK):
        return None
    try:
        terms = Terms.from_json(str(json.loads(line)["terms"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"this is not a line of a witness's notebook: {error}") from error
    if not terms.amended:
        raise FileFormatError("a line of a witness's notebook holds terms that nobody amended")
    return terms


def apart(shown: Sequence[Terms]) -> list[tuple[Terms, Terms]]:
    """Return the pairs of terms of one federation of which neither follows from the other."""
    return [
        (one, two)
        for one, two in combinations(shown, 2)
        if one.id == two.id
        and one.digest not in {stage.digest for stage in two.stages}
        and two.digest not in {stage.digest for stage in one.stages}
    ]
