"""What runs at a party when its SuperNode has received a message: the client app that is installed here, and no other.

Flower's own executor unpacks the app bundle that the server sent, imports it and runs it: whoever has the server has
every party's machine. This one takes the place of that executor. Of a bundle it reads the name alone: a run of another
app is answered with a refusal, and one of ours by calling our own app. Nothing of a bundle is written, unpacked,
imported or executed, nor are a run's settings read.

It is three kinds of process, started by ``python -m`` beside the SuperNode:

* the *keeper*, which loads the party's private key, speaks to no network, and answers questions by its rules
  (:mod:`fedmoments.federation.keeper`);
* the *worker*, which asks the SuperNode for tasks; keys (and a helper's memory) are hidden from it before it asks
  (:mod:`fedmoments.federation.deploy.sandbox`). It was split off before the key was loaded;
* a *task*, split off the worker for each message, so that what one message breaks ends with it.
"""

import argparse
import ctypes
import importlib
import os
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedmoments.errors import InputError, told_elsewhere
from fedmoments.federation.deploy import sandbox
from fedmoments.federation.flower.client_app import KEEPER
from fedmoments.federation.flower.helper import HelperNode
from fedmoments.federation.flower.replies import cleaned
from fedmoments.federation.keeper import ClientKeeper, HelperKeeper, Line, serve
from fedmoments.samples.encoders.cache import feature_folder
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.helper import HelperSettings

__all__ = ["main"]

#: Seconds between two questions for work.
_POLL = 0.2
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_NOT_KEPT = (
    "this system has no Landlock, so files cannot be hidden from processes of the same user: an attacker in Flower's "
    "process could read the private key"
)


@dataclass(frozen=True)
class _Place:
    """Where a worker finds work, and what it does it with."""

    address: str
    secret: bytes
    config: Mapping[str, Any]
    app: ClientApp
    bundle: str


def main(arguments: list[str]) -> int:
    """Work for the SuperNode of this machine until this process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "secret", "config", "app", "bundle"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--hide", action="append", default=[], type=Path)
    given = parser.parse_args(arguments)
    config = tomllib.loads(Path(given.config).read_text("utf-8"))
    app = _load(given.app)
    place = _Place(given.address, Path(given.secret).read_bytes(), config, app, given.bundle)
    _make_folders(config)
    here, there = socket.socketpair()
    keeper = os.getpid()
    worker = os.fork()  # before there is a key: a copy of this process has none
    if not worker:
        here.close()
        _end_with(keeper)
        if not sandbox.hide(given.hide):
            print(_NOT_KEPT, flush=True)  # noqa: T201 - its log
        _work(place, there)
    there.close()
    return _keep(config, here, worker)


def _load(reference: str) -> ClientApp:
    """Return the client app ``module:name`` that is installed on this machine."""
    module, _, name = reference.partition(":")
    app = getattr(importlib.import_module(module), name)
    if not isinstance(app, ClientApp):
        raise InputError(f"{reference} is not a Flower client app, but a {type(app).__name__}")
    return app


def _make_folders(config: Mapping[str, Any]) -> None:
    """Make the folders that a client writes to: the worker may be unable to make them."""
    if path := config.get("client-config"):
        own = ClientSettings.load(path)
        if own.folder:
            Path(own.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(InputError):  # told of when the cache is needed
            feature_folder(own.cache)


# -------------------------------------------------------------------------------------------------- the keeper


def _keep(config: Mapping[str, Any], control: socket.socket, worker: int) -> int:
    """Load the key, and answer whoever the worker sends, until the worker ends; return its exit code."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # others of this user read neither memory nor trace it
    answer = _answering(config)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        for descriptor in descriptors:
            serve(descriptor, answer)


def _answering(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what answers for the party whose settings the configuration names."""
    if path := config.get("helper-config"):
        return HelperKeeper(HelperNode(HelperSettings.load(path))).answer
    if path := config.get("client-config"):
        return ClientKeeper(ClientSettings.load(path)).answer
    return _nobody


def _nobody(what: str, fields: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:  # noqa: ARG001
    """Answer for a node without settings, and so without a key."""
    if what != "refused":
        raise InputError("this node has no key")
    return {}, b""


# -------------------------------------------------------------------------------------------------- the worker


def _work(place: _Place, control: socket.socket) -> NoReturn:
    """Ask the SuperNode for tasks, one at a time, and have each done by a process of its own."""
    client = _client(
        place, SuperExecAuthHttpInterceptor(master_secret=place.secret, protected_methods=frozenset({_ACQUIRE}))
    )
    # An app of another kind must be refused, or the SuperNode waits for its answer forever.
    request = AcquireTaskRequest(supported_task_types=list(TaskType))
    while True:
        try:
            work = client.AcquireTask(request)
        except httpx.HTTPError:  # the SuperNode is not there yet, or not any more
            time.sleep(_POLL)
            continue
        if work.HasField("task") and work.token:
            _split_off(place, control, work.token, str(work.task.type))
        else:
            time.sleep(_POLL)


def _split_off(place: _Place, control: socket.socket, token: str, kind: str) -> None:
    """Do one task in a process of its own, with a line of its own to the keeper."""
    mine, keepers = socket.socketpair()
    with mine, keepers:
        worker = os.getpid()
        task = os.fork()
        if not task:
            code = 1
            try:
                keepers.close()
                _end_with(worker)
                descriptor = mine.detach()  # the line is its only owner from here on
                code = _Task(place, Line.at(descriptor), descriptor, kind).run(token)
            finally:
                sys.stdout.flush()
                os._exit(code)
        socket.send_fds(control, [b"k"], [keepers.fileno()])
    os.waitpid(task, 0)


def _client(place: _Place, interceptor: Any) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        server_address=place.address,
        insecure=True,  # it listens on this machine only
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
        retry_invoker=make_simple_http_retry_invoker()
        if isinstance(interceptor, RuntimeTokenHttpInterceptor)
        else None,
    )


def _end_with(parent: int) -> None:
    """Let this process, which was just split off, end with its parent."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


# -------------------------------------------------------------------------------------------------- a task


class _Task:
    """One message: our app answers it, or it is refused."""

    def __init__(self, place: _Place, line: Line, descriptor: int, kind: str) -> None:
        self._place, self._line, self._kind = place, line, kind
        self._config = {**place.config, KEEPER: descriptor}

    def run(self, token: str) -> int:
        """Fetch the message, answer it, and return this process's exit code."""
        client = _client(self._place, RuntimeTokenHttpInterceptor(token))
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        status, details = SubStatus.FAILED, ""
        try:
            message, context, run, _ = pull_task_input(client)  # the last is the bundle: nobody looks into it
            reply = self._refusal(message, run.fab_id) or self._answer(message, context)
            push_message(client, reply, context)
            details = reply.error.reason or "" if reply.has_error() else ""
            status = SubStatus.FAILED if reply.has_error() else SubStatus.COMPLETED
        finally:
            push_task_output(client=client, context=None, sub_status=status, details=details)
            heartbeat.stop()
            client.close()
        return int(status != SubStatus.COMPLETED)

    def _refusal(self, message: Message, bundle: str) -> Message | None:
        """Return the refusal of an app that is not ours, once it is written down; None of ours."""
        if bundle == self._place.bundle and self._kind == TaskType.CLIENT_APP:
            return None
        sentence = (
            f"the server sent the app {cleaned(bundle, 100)!r} ({cleaned(self._kind, 40)}), but this node runs its own "
            f"{self._place.bundle!r} alone: nothing of what was sent was unpacked or run"
        )
        self._line.ask("refused", sentence=sentence)
        print(f"refused: {sentence}", flush=True)  # noqa: T201 - its log
        return Message(Error(ErrorCode.LOAD_CLIENT_APP_EXCEPTION, sentence), reply_to=message)

    def _answer(self, message: Message, context: Context) -> Message:
        """Return what our app replies; what it raises is told in the reply and in the log."""
        context.node_config, context.run_config = dict(self._config), {}
        try:
            return self._place.app(message=message, context=context)
        except Exception as error:  # whatever a message breaks, the server hears of it
            kind = type(error)
            print(f"{kind.__module__}.{kind.__qualname__}: {error}", flush=True)  # noqa: T201 - its log
            reason = f"{kind}:<'{told_elsewhere(error)}'>"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
