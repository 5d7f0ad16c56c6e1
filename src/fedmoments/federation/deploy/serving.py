"""Serving a federation: SuperLink and SuperExec around a ledger, a run, and its true status."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from fedmoments.durable import change_other, erase_deleted
from fedmoments.durable.locks import lock
from fedmoments.errors import DeploymentError, InputError, LedgerError
from fedmoments.federation.deploy.app_folder import write_app
from fedmoments.federation.deploy.control import RunStatus
from fedmoments.federation.deploy.home import ConfigValue, FlowerHome
from fedmoments.federation.deploy.processes import Process
from fedmoments.federation.deploy.servers import SuperExec, SuperLink
from fedmoments.federation.keys.parties import Authority
from fedmoments.federation.store import FederationStore
from fedmoments.files import write_whole
from fedmoments.settings.server import ServerSettings, TuningSettings

#: What a run says of itself; see :mod:`fedmoments.federation.flower.live`.
LIVE = "live.json"

__all__ = ["Server", "erase_messages", "forget_presence", "helper_node_key", "serve"]


class Server:
    """A SuperLink with its SuperExec that can run a federation.

    Parameters
    ----------
    link, executor
        Running.
    settings
        The server's own.
    """

    def __init__(self, link: SuperLink, executor: SuperExec, settings: ServerSettings | TuningSettings) -> None:
        self.link, self.executor, self.settings = link, executor, settings
        self.run_id: int | None = None
        self._admitting = Lock()

    def admit(self, key: str) -> None:
        """Let the holder of one more transport key join, while the run goes on."""
        with self._admitting:
            _register(self.link, [key], only=False)

    def submit(self, *, app: Path | None = None, simulated_nodes: int | None = None) -> int:
        """Start the run, and return its number.

        Parameters
        ----------
        app
            Folder of the Flower app; ours by default.
        simulated_nodes
            How many nodes Flower's simulation plays, where the SuperLink is one of a simulation.
        """
        folder = self.link.home.of("run")
        settings = replace(self.settings, ledger=str(Path(self.settings.ledger).resolve()))
        if settings.out:
            settings = replace(settings, out=str(Path(settings.out).resolve()))
        if isinstance(settings, ServerSettings):
            settings = replace(settings, place=str(self.link.home.folder))
            (self.link.home.folder / LIVE).unlink(missing_ok=True)  # of a former run
        path = folder / f"{settings.config_key}.toml"
        write_whole(path, settings.to_toml().encode())
        federation: dict[str, ConfigValue] | None = None
        if simulated_nodes is not None:
            resources = {"client-resources-num-cpus": 1, "init-args-num-cpus": os.cpu_count() or 1}
            federation = {"num-supernodes": simulated_nodes, **resources}
        chosen = app or write_app(folder / "app")
        self.run_id = self.link.control.submit_run(chosen, {settings.config_key: str(path)}, federation=federation)
        return self.run_id

    def wait(self, timeout: float, watch: tuple[Process, ...] = ()) -> RunStatus:
        """Wait for the run's end and return its true status.

        Raises
        ------
        DeploymentError
            When there is no run, or it is not over in time.
        """
        if self.run_id is None:
            raise DeploymentError("there is no run to wait for: submit one first")
        return self.link.control.wait_for_run(self.run_id, timeout, watch=(self.executor, *watch))

    def log(self) -> str:
        """Return what the server app printed so far."""
        if self.run_id is None:
            return ""
        path = self.link.control.run_log(self.run_id)
        return path.read_text("utf-8", errors="replace") if path.exists() else ""


@contextmanager
def serve(
    settings: ServerSettings | TuningSettings,
    home: FlowerHome,
    *,
    authority: Authority | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Iterator[Server]:
    """Start a SuperLink and a SuperExec, register the node keys of enrolled clients, and stop all at the end.

    Parameters
    ----------
    settings
        The server's own; its ledger says who is enrolled.
    home
        Where Flower's processes keep their things.
    authority
        Certificates; without them plain HTTP on this machine only, for trials.
    host, port
        Where to listen.
    """
    with FederationStore.open(settings.ledger) as store:
        keys = {member.node_key for member in store.enrolled() if member.node_key and member.status == "enrolled"}
        keys |= {helper for helper in [helper_node_key(store)] if helper}
    database = home.of("superlink") / "state.db"
    authority = None if authority is None else Authority(Path(authority.folder).resolve())
    with (
        _alone(home),
        _clean(database),
        SuperLink(home, authority=authority, host=host, port=port, database=database) as link,
        SuperExec(link) as executor,
    ):
        if authority is not None:
            _register(link, sorted(keys))
        yield Server(link, executor, settings)


def helper_node_key(store: FederationStore) -> str | None:
    """Return the transport key of the helper's node, from the note in the ledger."""
    if not store.terms.privacy.mode.has_helper:
        return None
    notes = [entry.details for entry in store.audit() if entry.event == "note" and '"helper"' in entry.facts]
    keys = [str(facts["node_key"]) for facts in notes if facts.get("note") == "helper"]
    return keys[-1] if keys else None


def erase_messages(database: Path) -> None:
    """Cut what was deleted out of a SuperLink's database, which no process may have open.

    Messages are deleted there once they were fetched, but whether their bytes are overwritten depends on how SQLite was
    built; masked reports beside the helper's answer are nothing to keep.

    Raises
    ------
    DeploymentError
        When the file cannot be rewritten.
    """
    if not database.exists():
        return
    try:
        erase_deleted(database)
    except LedgerError as error:
        raise DeploymentError(
            f"messages of this run may still be in {database} ({error}): make sure that no SuperLink runs, and "
            "delete it"
        ) from error


def forget_presence(database: Path) -> None:
    """Let a SuperLink that starts now believe of no node that it is there; no process may have its database open.

    A node that leaves after its server has stopped cannot say goodbye: for a minute the database calls it online. A
    server that starts within that minute would take it for one of those it waits for, ask it, and wait for its answer
    until the round is closed. A node that is there says so again within half a minute.

    Raises
    ------
    DeploymentError
        When the database is not as this release knows it.
    """
    if not database.exists():
        return
    try:
        gone = "UPDATE node SET status = 'offline', online_until = ? WHERE status = 'online'"
        change_other(database, "node", gone, time.time())
    except LedgerError as error:
        raise DeploymentError(
            f"who was connected to the former server cannot be cleared ({error}): install flwr>=1.41,<1.43, or, "
            f"with no server running, delete the folder {database.parent}"
        ) from error


@contextmanager
def _clean(database: Path) -> Iterator[None]:
    """Forget who was connected before a SuperLink starts, and erase what was sent when it is gone."""
    forget_presence(database)
    try:
        yield
    finally:
        erase_messages(database)


@contextmanager
def _alone(home: FlowerHome) -> Iterator[None]:
    """Hold the home's lock: two servers on one database would serve each other's nodes."""
    path = home.folder / "lock"
    with path.open("a") as file:
        try:
            lock(file, wait=False)
        except OSError as error:
            raise InputError(
                f"another server runs in {home.folder}: wait for it to end, or stop it; one ledger is served by one"
            ) from error
        yield


def _register(link: SuperLink, keys: list[str], *, only: bool = True) -> None:
    """Let the holders of keys join, and nobody else any more; what the SuperLink's database knows is not said again.

    Parameters
    ----------
    only
        Whether others may join no more.
    """
    path = link.home.of("superlink") / "registered.json"
    known: dict[str, int] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    new = [key for key in keys if key not in known]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        numbers = list(pool.map(link.control.register_node, new))
    known |= {key: number for key, number in zip(new, numbers, strict=True) if number is not None}
    for key in sorted(known.keys() - set(keys)) if only else ():
        link.control.unregister_node(known.pop(key))
    write_whole(path, json.dumps(known).encode())
