"""Flower's processes as Python objects: SuperLink, SuperExec, SuperNodes, runs."""

from fedmoments.federation.deploy.control import Control, RunStatus
from fedmoments.federation.deploy.home import ConfigValue, FlowerHome
from fedmoments.federation.deploy.nodes import SuperNode
from fedmoments.federation.deploy.processes import Process
from fedmoments.federation.deploy.servers import SuperExec, SuperLink

__all__ = [
    "ConfigValue",
    "Control",
    "FlowerHome",
    "Process",
    "RunStatus",
    "SuperExec",
    "SuperLink",
    "SuperNode",
]
