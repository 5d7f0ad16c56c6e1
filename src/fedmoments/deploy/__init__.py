"""Flower's processes as Python objects: certificates and keys, SuperLink, SuperExec, SuperNodes, runs."""

from fedmoments.deploy.control import Control, RunStatus
from fedmoments.deploy.home import ConfigValue, FlowerHome
from fedmoments.deploy.keys import (
    Authority,
    Card,
    ClientKeys,
    load_identity,
    make_authority,
    make_client,
    read_card,
)
from fedmoments.deploy.nodes import SuperNode
from fedmoments.deploy.processes import Process
from fedmoments.deploy.servers import SuperExec, SuperLink

__all__ = [
    "Authority",
    "Card",
    "ClientKeys",
    "ConfigValue",
    "Control",
    "FlowerHome",
    "Process",
    "RunStatus",
    "SuperExec",
    "SuperLink",
    "SuperNode",
    "load_identity",
    "make_authority",
    "make_client",
    "read_card",
]
