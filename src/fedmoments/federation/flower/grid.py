"""A grid in one process: runs the ClientApp of every node when its reply is requested.

The same two apps as in a deployment, without network, processes or a database. A client runs when the server pulls its
reply, so that one reply is in memory at a time, however many nodes there are.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmoments.errors import DeploymentError

__all__ = ["InProcessGrid", "run_in_process"]

#: Flower's code for an exception in a ClientApp.
RAISED = 2
_RUN = 1


class InProcessGrid(Grid):
    """Nodes 1 … K, each with a configuration of its own, that run a ClientApp in this process.

    Parameters
    ----------
    client_app
        The app of all nodes.
    node_configs
        One mapping a node, as ``--node-config`` gives it in a deployment.
    """

    def __init__(self, client_app: ClientApp, node_configs: Sequence[Mapping[str, Any]]) -> None:
        self._app = client_app
        self._contexts = {
            number: Context(_RUN, number, dict(config), RecordDict(), {})
            for number, config in enumerate(node_configs, start=1)
        }
        self._waiting: dict[str, Message] = {}
        self._pushed = 0
        self._run: Any = None

    def set_run(self, run: Any) -> None:
        """Set the run; nothing depends on it here."""
        self._run = run

    @property
    def run(self) -> Any:
        """The run that was set."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message, as Flower's grids do."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages and return their ids."""
        ids = []
        for message in messages:
            self._pushed += 1
            name = f"message-{self._pushed}"
            message.metadata.__dict__["_message_id"] = name
            self._waiting[name] = message
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Run the app for these messages, now, and return the replies."""
        return [self._answer(self._waiting.pop(name)) for name in message_ids if name in self._waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        """Push, run and return all replies."""
        return self.pull_messages(list(self.push_messages(messages)))

    def _answer(self, message: Message) -> Message:
        context = self._contexts[message.metadata.dst_node_id]
        message.content = copy.deepcopy(message.content)  # a client may change it; other nodes were sent the same
        try:
            return self._app(message, context)
        except Exception as error:
            return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    node_configs: Sequence[Mapping[str, Any]],
    run_config: Mapping[str, Any],
) -> None:
    """Run a ServerApp and the ClientApp of many nodes in this process, to the end.

    Parameters
    ----------
    server_app, client_app
        The apps.
    node_configs
        One mapping a node.
    run_config
        What ``flwr run`` would hand to the ServerApp.
    """
    _identify()
    grid = InProcessGrid(client_app, node_configs)
    server_app(grid, Context(_RUN, 0, {}, RecordDict(), dict(run_config)))


def _identify() -> None:
    """Tell Flower which task this process is: its messages carry that, and cannot be made without."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError as error:
        raise DeploymentError(
            "this release of flwr keeps the identity of a task elsewhere: install flwr>=1.41,<1.43"
        ) from error
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN, 0, 0
