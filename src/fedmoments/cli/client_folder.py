"""What a client's folder knows from its last start: settings, the terms that it read, the way to the server.

==================  ================================================================================================
``client.toml``     its settings, with what was added to its data since
``terms.json``      the terms that it read last
``server``          where the server listened, ``HOST:PORT``
``ca.crt``          the certificate that the server is known by
==================  ================================================================================================

So whoever took part before types ``fedmoments client NAME`` and no more; what is typed wins, and is kept.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmoments.cli.given import Given
from fedmoments.cli.joining import Joining, keep_settings, read_terms
from fedmoments.files import write_whole
from fedmoments.settings.client import ClientSettings

__all__ = ["ROOT", "SETTINGS", "TERMS", "ClientFolder"]

SETTINGS, TERMS, SERVER, ROOT = "client.toml", "terms.json", "server", "ca.crt"


@dataclass(frozen=True)
class ClientFolder:
    """A client's folder, whether it is there yet or not."""

    place: Path

    @property
    def settings_file(self) -> Path | None:
        """Its settings file; None before it took part."""
        return file if (file := self.place / SETTINGS).is_file() else None

    def over(self, given: Given[ClientSettings]) -> Given[ClientSettings]:
        """Return what was typed over the settings of the last start.

        Keys and data that are both typed begin anew, but for the data that were added since.
        """
        if given.base is not None or self.settings_file is None:
            return given
        former = ClientSettings.load(self.settings_file)
        if not {"keys", "data"}.issubset(given.values):
            return given.over(former)
        return given.also(also=list(former.also)) if former.also else given

    def terms(self, typed: Any) -> Any:
        """Return the terms that were typed, or those that this client read last if they follow from the former."""
        file = self.place / TERMS
        last = read_terms(file) if file.is_file() else None
        if last is None or (typed is not None and typed.digest not in {stage.digest for stage in last.stages}):
            return typed
        return last

    def keep(self, own: ClientSettings, terms: Any, name: str = SETTINGS) -> Path:
        """Write settings, and the terms if these are the ones that the client accepted; return the settings file."""
        file = keep_settings(own, str(self.place), name)
        if terms is not None and own.federation == terms.id and (own.accepted or terms.id) == terms.digest:
            write_whole(self.place / TERMS, f"{terms.to_json()}\n".encode())
        return file

    def joining(self, typed: Joining) -> Joining:
        """Return how to reach the server: as it was typed, or else as it was the last time."""
        server, root = self.place / SERVER, self.place / ROOT
        if typed.server is None and server.is_file():
            typed = replace(typed, server=server.read_text("utf-8", errors="replace").strip())
        if typed.ca is None and not typed.insecure and root.is_file():
            typed = replace(typed, ca=str(root))
        return typed

    def keep_way(self, join: Joining) -> None:
        """Remember how the server is reached, once it was."""
        if join.ca is not None and join.server is not None:
            write_whole(self.place / SERVER, f"{join.server}\n".encode())
            if Path(join.ca).resolve() != (self.place / ROOT).resolve():
                write_whole(self.place / ROOT, Path(join.ca).read_bytes())
