"""A whole federation on one machine: the same ledger, apps, keys and bytes as in the field.

Three engines run the same two apps: ``flower`` starts a SuperLink, a SuperExec and SuperNodes as real processes,
``ray`` is Flower's own simulation, ``memory`` is one process without a network. The nodes of the last two share one
settings file, have keys that are derived from a seed, and keep nothing on disk.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedmoments.errors import DeploymentError, InputError
from fedmoments.federation.deploy.home import FlowerHome
from fedmoments.federation.deploy.local_terms import local_terms
from fedmoments.federation.deploy.nodes import InstalledApp, SuperNode
from fedmoments.federation.deploy.servers import SuperExec, SuperLink
from fedmoments.federation.deploy.serving import Server, serve
from fedmoments.federation.keys.helper import HelperKeys, make_helper, read_helper_card
from fedmoments.federation.keys.parties import Authority, make_authority, make_client, read_card
from fedmoments.federation.results import require_filterable
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.files import write_whole
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import HelperKey
from fedmoments.samples import parse_split
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.reading import read_data
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.samples.splits.split import client_name
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.files import absolute_data
from fedmoments.settings.helper import HelperSettings
from fedmoments.settings.samples import Running, SampleSource
from fedmoments.settings.server import ServerSettings, TermsSettings
from fedmoments.settings.study import StudySettings

__all__ = ["ENGINES", "LocalFederation", "prepare_local", "run_local", "started"]

ENGINES = ("flower", "ray", "memory")


@dataclass(frozen=True)
class LocalFederation:
    """Files of a federation on one machine.

    Parameters
    ----------
    folder
        Holds ``ledger.db``, and ``keys``, ``node-N.toml`` and a folder for each node, or ``nodes.toml`` for all.
    nodes
        How many nodes.
    clients
        How many clients they serve together.
    server
        The server's settings.
    has_helper
        Whether one more node plays the helper.
    """

    folder: Path
    nodes: int
    clients: int
    server: ServerSettings
    has_helper: bool = False

    def settings_of(self, node: int) -> Path:
        """Return the settings file of a node, from 0."""
        return self.folder / f"node-{node}.toml"

    @property
    def helper_settings(self) -> Path:
        """The settings file of the helper."""
        return self.folder / "helper.toml"

    @property
    def shared_settings(self) -> Path:
        """The settings file that all nodes of a simulation share."""
        return self.folder / "nodes.toml"


def _is_real(engine: str) -> bool:
    """Return whether an engine runs processes and a network."""
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, not '{engine}'")
    return engine == "flower"


def prepare_local(
    folder: Path,
    config: StudySettings,
    server: ServerSettings,
    *,
    nodes: int,
    engine: str = "flower",
    tls: bool = True,
    policy: dict[str, Any] | None = None,
    privacy: Agreed = Agreed(),  # noqa: B008 - frozen
    after: Path | None = None,
    maps: TermsSettings | None = None,
) -> LocalFederation:
    """Draw up terms, make keys, enrol all clients, and write the settings of every node.

    Parameters
    ----------
    folder
        Empty, or not there yet.
    config
        Data, encoder, split and number of clients, as for a simulation: the first of each is taken.
    server
        The server's settings; its ledger is made here.
    nodes
        How many nodes play the clients; client i is played by node i mod nodes.
    engine
        What will run it.
    tls
        Whether to make certificates and node keys; of no effect for engines without a network.
    policy
        Of all clients.
    privacy
        What is agreed on; with secure sums a helper's keys are made here, and stand in the terms.
    after
        The ledger of a first exchange, in whose Fisher directions clients measure now.
    maps
        ``normalize``, ``fourier`` and ``bandwidth``: maps behind which all clients measure, beside those of a study.
    """
    real = _is_real(engine)
    if nodes < 1:
        raise InputError(f"a federation needs at least one node, not {nodes}")
    data = read_data(config)
    n_clients = _split_clients(config, data)
    if privacy.mode.has_helper:  # a key to draw up terms with, before anything is written
        privacy = replace(privacy, helper=HelperKey.generate().public)
    terms = local_terms(config, server, data, privacy, after=after, maps=maps or TermsSettings())
    require_filterable(terms, server.robust, server.max_client_samples)
    folder.mkdir(parents=True, exist_ok=True)
    if privacy.mode.has_helper:
        helper = make_helper(folder.resolve() / "keys", "helper")
        terms = replace(terms, privacy=replace(privacy, helper=read_helper_card(helper.card).key))
    if real and config.threads is None:  # nodes that each want all cores would spend their time waiting for each other
        config = replace(config, threads=max(1, (os.cpu_count() or 1) // nodes))
    nodes = min(nodes, n_clients)
    server = replace(server, ledger=str(folder.resolve() / "ledger.db"), nodes=nodes)
    plan = LocalFederation(folder.resolve(), nodes, n_clients, server, privacy.mode.has_helper)
    base = _client_settings(plan, config, terms, policy, real=real)
    with FederationStore.create(server.ledger, terms) as store:
        _enrol(store, plan, base, tls=tls and real)
        if plan.has_helper:
            _add_helper(store, plan, real=real)
    _write_settings(plan, base, real=real)
    return plan


def _split_clients(config: StudySettings, data: DataSet) -> int:
    """Return how many clients the first split of the settings gives."""
    scheme, part = config.splits[0], data.train
    wanted = config.clients[0] if config.clients else None if finds_clients(scheme) else CLIENTS
    split = parse_split(scheme).apply(
        part.labels, n_clients=wanted, seed=config.seed, domains=part.domains, ids=part.clients, groups=part.groups
    )
    return split.n_clients


def _client_settings(
    plan: LocalFederation, config: StudySettings, terms: Terms, policy: dict[str, Any] | None, *, real: bool
) -> ClientSettings:
    """Return the settings that all nodes have in common."""
    return ClientSettings(
        folder=str(plan.folder / "nodes") if terms.privacy.mode.must_keep else "",
        split=config.splits[0],
        clients=plan.clients,
        key_seed="" if real else secrets.token_hex(32),
        keys=str(plan.folder / "keys") if real else "",
        federation=terms.id,
        policy=policy or {},
        **_shared(config),
    )


def _write_settings(plan: LocalFederation, base: ClientSettings, *, real: bool) -> None:
    """Write one file that all nodes of a simulation share, or one for every real node."""
    if not real:
        write_whole(plan.shared_settings, base.to_toml().encode())
        return
    for node in range(plan.nodes):
        own = replace(
            base,
            folder=str(plan.folder / f"node-{node}"),
            partitions=tuple(range(node, plan.clients, plan.nodes)),
        )
        Path(own.folder).mkdir(mode=0o700, exist_ok=True)  # what works on messages cannot make it
        write_whole(plan.settings_of(node), own.to_toml().encode())


def _shared(study: StudySettings) -> dict[str, Any]:
    """Return what a client's settings take over from a study's."""
    here = Path.cwd()
    shared = {name: getattr(study, name) for part in (SampleSource, Running) for name in _names(part)}
    return shared | {name: absolute_data(value, here) for name in ("data", "test") if (value := getattr(study, name))}


def _names(part: Any) -> list[str]:
    return [declared.name for declared in fields(part)]


def _enrol(store: FederationStore, plan: LocalFederation, base: ClientSettings, *, tls: bool) -> None:
    from fedmoments.federation.flower.node import identity_of

    keys = plan.folder / "keys"
    if tls:
        make_authority(keys, ["localhost"])
        for node in range(plan.nodes):
            make_client(keys, f"node-{node}")
    node_keys = [read_card(keys / f"node-{node}.card").node_key if tls else None for node in range(plan.nodes)]
    members = []
    for number in range(plan.clients):
        client = client_name(number, plan.clients)
        if not base.key_seed:
            make_client(keys, client)
        members.append((client, identity_of(base, client).public, node_keys[number % plan.nodes]))
    store.enrol_many(members)


def _add_helper(store: FederationStore, plan: LocalFederation, *, real: bool) -> None:
    """Write the helper's settings, and tell the ledger of its node."""
    keys = HelperKeys(plan.folder / "keys", "helper")
    card = read_helper_card(keys.card)
    cards = [str(plan.folder / "keys" / f"{client_name(k, plan.clients)}.card") for k in range(plan.clients)]
    settings = HelperSettings(
        str(plan.folder / "helper"),
        str(keys.key),
        store.terms.id,
        minimum=min(store.terms.privacy.batch, 3),
        members=tuple(cards) if real else (),
        anybody=not real,
    )
    Path(settings.folder).mkdir(mode=0o700, exist_ok=True)
    write_whole(plan.helper_settings, settings.to_toml().encode())
    store.note("helper", name=card.name, key=card.key, node_key=card.node_key)


@contextmanager
def started(
    plan: LocalFederation,
    *,
    tls: bool = True,
    app: InstalledApp = InstalledApp(),  # noqa: B008 - frozen
) -> Iterator[tuple[Server, list[SuperNode]]]:
    """Start the server and all nodes as processes, the helper's last, and stop them at the end.

    Parameters
    ----------
    plan
        Made by :func:`prepare_local`.
    tls
        Whether it was made with certificates.
    app
        What answers at the nodes.
    """
    authority = Authority(plan.folder / "keys") if tls else None
    home = FlowerHome(plan.folder / "flower")
    with ExitStack() as stack:
        server = stack.enter_context(serve(plan.server, home, authority=authority))
        nodes = [
            SuperNode(
                home,
                server.link.address,
                root_certificates=server.link.root_certificates,
                key=plan.folder / "keys" / f"node-{node}.node" if tls else None,
                config={"client-config": str(plan.settings_of(node))},
                app=app,
                secrets=[plan.folder / "keys"],
                private=[plan.folder / f"node-{node}", plan.settings_of(node)],
                name=f"node-{node}",
            )
            for node in range(plan.nodes)
        ]
        if plan.has_helper:
            nodes.append(
                SuperNode(
                    home,
                    server.link.address,
                    root_certificates=server.link.root_certificates,
                    key=plan.folder / "keys" / "helper.node" if tls else None,
                    config={"helper-config": str(plan.helper_settings)},
                    app=app,
                    secrets=[plan.folder / "keys", plan.folder / "helper"],
                    name="helper",
                )
            )
        stack.callback(_stop_all, nodes)
        for started_node in nodes:
            started_node.start(wait=False)
        for started_node in nodes:
            started_node.wait_joined()
        yield server, nodes


def _stop_all(nodes: list[SuperNode]) -> None:
    """Ask all to stop before waiting for any."""
    for node in nodes:
        node.stop(wait=False)
    for node in nodes:
        node.stop()


def run_local(plan: LocalFederation, engine: str = "flower", *, tls: bool = True, timeout: float = 1800.0) -> str:
    """Run a federation to its end, and return what the server said.

    Raises
    ------
    DeploymentError
        When the run did not complete.
    """
    if engine == "memory":
        _run_in_memory(plan)
        return ""
    if engine == "ray":
        return _run_on_ray(plan, timeout)
    with started(plan, tls=tls) as (server, nodes):
        server.submit()
        status = server.wait(timeout, watch=tuple(nodes))
        return _proven(server, status.succeeded, status.status, status.details)


def _run_in_memory(plan: LocalFederation) -> None:
    from fedmoments.federation.flower.client_app import app as client_app
    from fedmoments.federation.flower.grid import run_in_process
    from fedmoments.federation.flower.server_app import app as server_app

    path = plan.folder / "server.toml"
    write_whole(path, plan.server.to_toml().encode())
    common = {"client-config": str(plan.shared_settings), "num-partitions": plan.nodes}
    configs: list[dict[str, Any]] = [{**common, "partition-id": node} for node in range(plan.nodes)]
    configs += [{"helper-config": str(plan.helper_settings)}] if plan.has_helper else []
    run_in_process(server_app, client_app, configs, {"server-config": str(path)})


def _run_on_ray(plan: LocalFederation, timeout: float) -> str:
    """Run on Flower's simulation: its nodes have no configuration of ours, so they find the settings by environment."""
    home = FlowerHome(plan.folder / "flower")
    os.environ["FEDMOMENTS_CLIENT"] = str(plan.shared_settings)
    if plan.has_helper:
        os.environ["FEDMOMENTS_HELPER"] = str(plan.helper_settings)
    try:
        with SuperLink(home, simulation=True) as link, SuperExec(link) as executor:
            server = Server(link, executor, plan.server)
            server.submit(simulated_nodes=plan.nodes + plan.has_helper)
            status = server.wait(timeout)
            return _proven(server, status.succeeded, status.status, status.details)
    finally:
        os.environ.pop("FEDMOMENTS_CLIENT", None)
        os.environ.pop("FEDMOMENTS_HELPER", None)


def _proven(server: Server, succeeded: bool, status: str, details: str) -> str:  # noqa: FBT001
    log = server.log()
    if not succeeded:
        last = " | ".join(log.strip().splitlines()[-8:])
        raise DeploymentError(f"the run ended as {status} {details}: {last}")
    return log
