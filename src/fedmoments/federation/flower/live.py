"""What a run says of itself while it lasts: one small file that is replaced every moment, for whoever watches.

It holds what the ledger does not: who is connected, who was asked and has not answered, what is waited for. Nothing
depends on it: a run whose file cannot be written goes on.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedmoments.errors import FedMomentsError
from fedmoments.federation.enrolment.invitations import Invitations, invitations_of
from fedmoments.federation.store import FederationStore

__all__ = ["LIVE", "REGISTERED", "Live", "read_live"]

#: In the home of Flower's processes: the file, and which node has which key.
LIVE, REGISTERED = "live.json", Path("superlink", "registered.json")
#: Seconds between two writings, unless something began or ended.
PAUSE = 0.5
#: A file that is larger was not written here.
MOST_BYTES = 2**24


class Live:
    """Writes the file, and knows which client a node's number stands for.

    Parameters
    ----------
    place
        Home of Flower's processes; empty: nothing is written, and nodes have numbers only.
    store
        The ledger: whose key is whose.
    """

    def __init__(self, place: str, store: FederationStore) -> None:
        self._folder, self._store = Path(place) if place else None, store
        self._facts: dict[str, Any] = {"sites": {}}
        self._written = 0.0
        self._names: dict[int, str] = {}
        self._heard: dict[int, set[str]] = {}

    def names(self, nodes: Any) -> str:
        """Return who is behind some nodes, in words."""
        return ", ".join(self.name(node) for node in nodes) or "nobody"

    def name(self, node: int) -> str:
        """Return who is behind a node: the client, if its key is registered here or its contribution was accepted."""
        return self.client(node) or f"node {node}"

    def client(self, node: int) -> str:
        """Return the client behind a node; empty where nobody knows."""
        if node not in self._names and self._folder is not None:
            with suppress(OSError, ValueError):
                numbers = json.loads((self._folder / REGISTERED).read_text("utf-8"))
                keys = {member.node_key: member.client for member in self._store.enrolled()}
                self._names = {number: keys[key] for key, number in numbers.items() if key in keys}
        heard = self._heard.get(node, ())
        return self._names.get(node) or ("".join(heard) if len(heard) == 1 else "")

    def learn(self, node: int, client: str) -> None:
        """Remember whose accepted contribution came from a node: its name where keys tell none, if it serves one."""
        self._heard.setdefault(node, set()).add(client)

    def absent(self, nodes: Any) -> list[str]:
        """Return the clients that may contribute and of whom no node is here, and who has a kit and never enrolled."""
        here = {self.client(node) for node in nodes}
        if not any(here) and nodes:
            return []  # nobody knows who the nodes are: without keys, or in a simulation
        clients = [member.client for member in self._store.enrolled() if member.status == "enrolled"]
        return [client for client in clients if client not in here] + self.never_enrolled()

    def never_enrolled(self) -> list[str]:
        """Return, in words, who has a kit that can still be used and is not enrolled."""
        path = self._store.path
        if not invitations_of(path).exists():
            return []
        enrolled = {member.client for member in self._store.enrolled()}
        with suppress(FedMomentsError), Invitations(path, self._store.terms.id) as invitations:
            names = [
                invitation.client
                for invitation in invitations.all()
                if invitation.is_open and invitation.client not in enrolled
            ]
            return [f"{name} (has a kit, has not enrolled)" for name in names]
        return []

    def tested(self, clients: list[str], results: dict[str, tuple[float, int]]) -> None:
        """Keep what a node's clients found: accuracy and samples by head."""
        self._facts["sites"][", ".join(clients)] = {
            head: {"accuracy": accuracy, "samples": samples} for head, (accuracy, samples) in results.items()
        }
        self.say()

    def say(self, *, at_once: bool = False, **facts: Any) -> None:
        """Change some facts; they are written now, or with the next ones."""
        self._facts |= facts
        now = time.monotonic()
        if self._folder is None or (now - self._written < PAUSE and not at_once):
            return
        self._written = now
        part = self._folder / f".{LIVE}.{os.getpid()}"
        with suppress(OSError):
            part.write_text(json.dumps({**self._facts, "time": time.time()}), "utf-8")
            part.replace(self._folder / LIVE)


def read_live(place: Path) -> dict[str, Any]:
    """Return what a run wrote last; nothing if there is none."""
    with suppress(OSError, ValueError, RecursionError):
        with (place / LIVE).open("rb") as file:
            content = json.loads(file.read(MOST_BYTES))
        if isinstance(content, dict):
            return content
    return {}
