"""A start-up kit: one JSON file with all that a party needs to take part in a federation.

============  ====================================================================================================
``name``      the party, as it is invited
``server``    ``host:port`` of the server
``desk``      ``host:port`` where the token is handed in
``ca``        the root certificate (PEM) that both are checked against
``terms``     the terms of the federation, as JSON text
``token``     admits the party once; whoever has it first is that party
``expires``   until when: ISO 8601, UTC
``policy``    rules that the operator proposes to the party; they may only be stricter than the built-in ones
``digest``    SHA-256 of the canonical JSON of all the rest: a file that was damaged on its way is noticed
============  ====================================================================================================

The operator wrote it, and a party trusts nobody: every part is checked, nothing in it names a path or code, and rules
that would let more out than the built-in ones are refused.
"""

import base64
import binascii
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.errors import InputError, reading
from fedmoments.federation.keys.cards import check_name
from fedmoments.federation.keys.files import crypto
from fedmoments.federation.terms import Terms
from fedmoments.settings.policy import PolicyRules

__all__ = ["KIT", "TOKEN_BYTES", "Kit", "check_stricter", "read_kit", "statement"]

#: How a kit's file is called.
KIT = ".kit"
#: Of the file; the first one had no digest.
FORMAT = 2
#: A token has this many random bytes.
TOKEN_BYTES = 32
#: A kit is as large as its terms; a larger file is something else.
MOST_BYTES = 2**24
MOST_CERTIFICATE = 2**16
_ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})|\[[0-9a-fA-F:.]{2,45}\]):(\d{1,5})")
#: Rules of which more is stricter, and of which less is.
AT_LEAST = ("min_count", "min_batch", "sketch_spare")
AT_MOST = (
    "max_per_class", "max_bytes", "max_means", "max_numbers", "max_epsilon", "max_delta", "max_heads", "max_rounds",
    "sketch_share",
)  # fmt: skip


@dataclass(frozen=True)
class Kit:
    """All that a party needs.

    Parameters
    ----------
    name, server, desk, ca, terms, token, expires, policy
        As the module says; `terms` as they are read, `token` as text.

    Examples
    --------
    >>> [field.name for field in fields(Kit)]
    ['name', 'server', 'desk', 'ca', 'terms', 'token', 'expires', 'policy']
    """

    name: str
    server: str
    desk: str
    ca: str
    terms: Terms
    token: str
    expires: str
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name, "client")
        for what in ("server", "desk"):
            _check_address(getattr(self, what), what)
        check_certificate(self.ca)
        _check_token(self.token)
        if datetime.fromisoformat(self.expires).tzinfo is None:
            raise InputError(f"the day on which it ends has no time zone: {self.expires!r}")
        check_stricter(self.policy)

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        document = {part.name: getattr(self, part.name) for part in fields(self)}
        document |= {"fedmoments": "kit", "format": FORMAT, "terms": self.terms.to_json(), "policy": dict(self.policy)}
        return f"{json.dumps({**document, 'digest': sha256_of_json(document)}, indent=2)}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes, whose: str = "this") -> "Kit":
        """Read what :meth:`to_bytes` wrote, whoever wrote it.

        Raises
        ------
        FileFormatError
            When it is not a kit, or a part of it cannot be.
        """
        with reading(f"{whose} is not a start-up kit that can be used"):
            if len(data) > MOST_BYTES:
                raise InputError(f"it has more than {MOST_BYTES:,} bytes")
            content = _content(data)
            known = [part.name for part in fields(cls)]
            values = {name: content[name] for name in known}
            texts = [name for name in known if name != "policy" and not isinstance(values[name], str)]
            if texts or set(content) != {*known, "fedmoments", "format", "digest"}:
                raise InputError(f"its parts are not {', '.join(known)}, all but the last of them texts, and a digest")
            kit = cls(**{**values, "terms": Terms.from_json(values["terms"])})
            if content.pop("digest") != sha256_of_json(content):
                raise InputError("it was changed or damaged since it was made: let the operator send it again")
            return kit


def _content(data: bytes) -> dict[str, Any]:
    """Return the object in a file that has the mark of a kit, and a format that this release reads."""
    content = json.loads(data)
    if not isinstance(content, dict) or content.get("fedmoments") != "kit":
        raise InputError("it lacks the mark of a kit")
    if content.get("format") != FORMAT or type(content["format"]) is not int:
        raise InputError(
            f"its format is {content.get('format')!r:.40}, and this release reads {FORMAT}: let the operator "
            "invite you again"
        )
    return content


def read_kit(path: str | os.PathLike[str]) -> Kit:
    """Read a kit's file.

    Raises
    ------
    FileFormatError
        When it is none.
    """
    with Path(path).open("rb") as file:
        return Kit.from_bytes(file.read(MOST_BYTES + 1), str(path))


def statement(federation: str, card: str) -> bytes:
    """Return what the identity key signs when it asks to be enrolled."""
    return f"fedmoments enrolment 1\n{federation}\n{card}".encode()


def check_stricter(policy: Mapping[str, Any]) -> None:
    """Refuse rules in somebody else's file that let more out than the built-in ones.

    Raises
    ------
    InputError
        When one does, or is of a kind of which stricter and looser cannot be told.

    Examples
    --------
    >>> check_stricter({"min_count": 20, "max_bytes": 100_000})
    >>> check_stricter({"min_count": 1})
    Traceback (most recent call last):
    fedmoments.errors.InputError: a kit may make the rules of a party stricter, but min_count = 1 is looser ...
    """
    PolicyRules.from_dict(policy)
    built_in = PolicyRules()
    for name, value in policy.items():
        known = getattr(built_in, name)
        if value != known and not _is_stricter(name, value, known):
            raise InputError(
                f"a kit may make the rules of a party stricter, but {name} = {value} is looser than {known}, or cannot "
                "be compared with it: a party types such a rule itself"
            )


def _is_stricter(name: str, value: Any, known: Any) -> bool:
    """Say whether a rule lets less out than the built-in one; of most rules that cannot be told."""
    if name in AT_LEAST:
        return bool(value >= known)
    if name in AT_MOST:
        return known is None or bool(value <= known)
    return (name == "require_secure" and bool(value)) or (name == "moments" and value is not None)


def check_certificate(pem: str) -> None:
    """Refuse text that is not exactly one certificate."""
    x509 = crypto("x509")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what the standard forbids is a warning yet: a number that is not positive
        try:
            count = 0 if len(pem) > MOST_CERTIFICATE else len(x509.load_pem_x509_certificates(pem.encode("ascii")))
        except Warning as warning:
            raise InputError(f"its certificate is not valid: {warning}") from warning
    if count != 1:
        raise InputError("its certificate is not one certificate")


def _check_address(address: str, what: str) -> None:
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[1]) <= 65535:
        raise InputError(f"the address of its {what} must be HOST:PORT, not {address[:80]!r}")


def _check_token(token: str) -> None:
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("its token is not one") from error
    if len(raw) != TOKEN_BYTES:
        raise InputError(f"its token has {len(raw)} bytes, not {TOKEN_BYTES}")
