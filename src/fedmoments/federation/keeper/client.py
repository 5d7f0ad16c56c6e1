"""Keeping a client's identity key: it signs what a client says to its own federation, and nothing else."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError, PolicyError
from fedmoments.federation.keeper.line import Line
from fedmoments.federation.keys.cards import check_name
from fedmoments.federation.keys.parties import load_identity
from fedmoments.federation.outbox.record import Record
from fedmoments.privacy.secure.context import tests_of
from fedmoments.privacy.secure.envelope import signed_envelope
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.policy import PolicyRules
from fedmoments.wire import IdentityKey, PublicKey
from fedmoments.wire.header import signed_header
from fedmoments.wire.withdrawal import signed_withdrawal

__all__ = ["ClientKeeper", "KeptIdentity"]

#: What is signed of results is digests.
MOST_RESULTS = 500

_TUNING, _RESULTS = b"fedmoments tuning\n", b"fedmoments evaluation 1\n"


class ClientKeeper:
    """Answers the process that works for a client's node.

    ==========  =================================================  ==========================================
    asked       what is done                                       under which rule
    ==========  =================================================  ==========================================
    public      the public half of a client's key is returned      the client is one of this node
    sign        a contribution, a masked report, a withdrawal,     it names this client and the federation
                results of a test or a message of a tuning         whose terms were read; tuning is allowed
    derive      a secret number is derived from key and a text     one way: the key cannot be found from it
    refused     a line is written into the client's record         of an app bundle that was refused
    ==========  =================================================  ==========================================

    Parameters
    ----------
    settings
        The client's own.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings, self._keys = settings, dict[str, IdentityKey]()
        self._tunes = PolicyRules.from_dict(settings.policy).tuning != "none"
        if settings.name:
            self._key(settings.name)  # a key that cannot be used is told of now

    def answer(self, what: str, fields: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Do what is asked, if the rules allow it."""
        if what == "refused":
            self._write_down(str(fields["sentence"]))
            return {}, b""
        client = str(fields["client"])
        key = self._key(client)
        match what:
            case "public":
                return {}, key.public.raw
            case "sign":
                self._require_own(client, data)
                return {}, key.sign(data)
            case "derive":
                return {}, key.derive(data)
        raise InputError(f"the keeper of a client's key does not know what {what[:40]!r} means")

    def _key(self, client: str) -> IdentityKey:
        if self._settings.name not in ("", client):
            raise PolicyError(f"the keeper has the key of client '{self._settings.name}', not of '{client[:64]}'")
        check_name(client, "client")
        if client not in self._keys:
            self._keys[client] = load_identity(Path(self._settings.keys) / f"{client}.identity")
        return self._keys[client]

    def _require_own(self, client: str, data: bytes) -> None:
        """Refuse to sign what is not a client's own word to its federation."""
        federation, name = self._statement(data)
        bound = self._settings.federation
        # masked reports name the digest of the id; those of tests have an id of their own
        named = {bound, *(hashlib.sha256(name.encode()).hexdigest() for name in (bound, tests_of(bound)))}
        if (bound and federation not in named) or name not in (None, client):
            raise PolicyError(
                f"the keeper signs what client '{client}' says to the federation {bound[:16]}…, but was asked to sign "
                f"something of '{name or client}' for {federation[:16]}…: nothing was signed"
            )

    def _statement(self, data: bytes) -> tuple[str, str | None]:
        """Return for which federation, and by whom, something is that is to be signed."""
        statement = signed_header(data) or signed_envelope(data) or signed_withdrawal(data)
        if statement is not None:
            return statement
        if data.startswith(_TUNING):
            if not self._tunes:
                raise PolicyError("the keeper signs nothing of a tuning: the policy does not allow one")
            what, federation, _ = data[len(_TUNING) :].split(b"\n", 2)
            if what in (b"greeting", b"update"):
                return federation.decode(), None
        if data.startswith(_RESULTS) and len(data) < MOST_RESULTS:
            return data[len(_RESULTS) :].split(b"\n")[0].decode(), None
        raise PolicyError("the keeper signs contributions, masked reports, results and tunings; this is none of them")

    def _write_down(self, sentence: str) -> None:
        if self._settings.folder:
            record = Record(Path(self._settings.folder) / "record.jsonl")
            facts = {"federation": self._settings.federation, "client": self._settings.name or "this node"}
            record.add("refused app", **facts, sentence=sentence[:1000])
            record.flush()


class KeptIdentity(IdentityKey):
    """A client's key that is somewhere else: the keeper signs with it.

    Parameters
    ----------
    line
        To the keeper.
    client
        Whose key.
    """

    def __init__(self, line: Line, client: str) -> None:
        self._line, self._client = line, client
        self.public = PublicKey(line.ask("public", client=client)[1])

    def private_bytes(self) -> bytes:
        """Raise: they are not here."""
        raise InputError(f"the private key of client '{self._client}' is with its keeper, and never leaves it")

    def sign(self, data: bytes) -> bytes:
        """Return the keeper's signature."""
        return self._line.ask("sign", data, client=self._client)[1]

    def derive(self, purpose: bytes) -> bytes:
        """Return what the keeper derives."""
        return self._line.ask("derive", purpose, client=self._client)[1]
