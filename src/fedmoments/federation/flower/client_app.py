"""The ClientApp: hands what Flower delivers to the node, and what the node says back to Flower.

Its settings are a file on the client's machine, named in the node's own configuration (``client-config``) or, where
Flower gives nodes none (its simulation), in the environment (``FEDMOMENTS_CLIENT``). A node with a ``helper-config``
is a helper instead: it answers ``query.unmask`` and contributes nothing.
"""

import os
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmoments.errors import InputError, PolicyError, PrivacyError, RefusedError
from fedmoments.federation.flower.helper import FINISHED, HelperNode
from fedmoments.federation.flower.messages import (
    ACKNOWLEDGE,
    CONTRIBUTE,
    EVALUATE,
    GREET,
    HELPER,
    PRESENT,
    SCORE,
    SECOND,
    TEMPERATURE,
    TUNE,
    UNMASK,
    content_of,
    read_content,
)
from fedmoments.federation.flower.node import Node
from fedmoments.federation.flower.testing import Examiner
from fedmoments.federation.flower.tuning_node import MissingStartError, TuningNode
from fedmoments.federation.flower.tuning_task import Task
from fedmoments.federation.keeper import KeptHelper, KeptIdentity, Line
from fedmoments.federation.terms import Terms
from fedmoments.settings.client import ClientSettings, parse_partitions
from fedmoments.settings.helper import HelperSettings
from fedmoments.wire import unpack_bundle

__all__ = ["HELPER_SETTINGS", "KEEPER", "app", "helper_of", "node_of"]

#: Caps on what a server may send: classifiers of many classes with a covariance each.
MOST_BYTES, MOST_HEADS = 2**30, 1000
#: Cap on what a leader may ask of a helper: half a million reports.
UNMASK_BYTES = 2**28
#: In Flower's simulation, names the settings of the helper, which its last node plays.
HELPER_SETTINGS = "FEDMOMENTS_HELPER"
#: In a node's configuration: the descriptor of its line to the keeper of the key.
KEEPER = "keeper"
#: What a node says that does not have the start of a tuning.
_MISSING = {"missing": "start"}

app = ClientApp()


@app.query(CONTRIBUTE.removeprefix("query."))
def contribute(message: Message, context: Context) -> Message:
    """Answer with a bundle of signed contributions."""
    fields, _ = read_content(message.content, most_bytes=0)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and contributes nothing")
    offer = node_of(context).contribute(
        _terms(fields["terms"]).at(fields.get("attempt", 0)),
        most_bytes=int(fields["most_bytes"]),
        again=bool(fields["again"]),
        after=str(fields["after"]),
        given_up=frozenset(map(str, fields.get("given_up", ()))),
    )
    return Message(content_of(offer.fields(), offer.bundle), reply_to=message)


@app.query(ACKNOWLEDGE.removeprefix("query."))
def acknowledge(message: Message, context: Context) -> Message:
    """Keep receipts and refusals."""
    fields, _ = read_content(message.content, most_bytes=0)
    helper = helper_of(context)
    if helper is not None:
        helper.close(over=fields["over"] is True)
        return Message(content_of({"problems": []}), reply_to=message)
    node = node_of(context)
    try:
        problems = node.acknowledge(fields["receipts"], fields["refusals"], fields.get("log"))
    finally:
        _close(node.settings.folder, over=fields["over"])
    return Message(content_of({"problems": problems}), reply_to=message)


@app.query(EVALUATE.removeprefix("query."))
def evaluate(message: Message, context: Context) -> Message:
    """Answer with coarse sums over the node's held-out data, one for each head, or with masked reports."""
    fields, data = read_content(message.content, most_bytes=MOST_BYTES)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and evaluates nothing")
    node = node_of(context)
    try:
        terms = _terms(fields["terms"])
        heads = unpack_bundle(data, max_bytes=MOST_BYTES, max_items=MOST_HEADS)
        tested = Examiner(node).answer(terms, [bytes(head) for head in heads])
    finally:
        _close(node.settings.folder, over=fields["over"])
    return Message(content_of(tested.fields(), tested.bundle), reply_to=message)


@app.query(SECOND.removeprefix("query."))
def second(message: Message, context: Context) -> Message:
    """Answer with a bundle of masked reports of the second of two phases."""
    fields, broadcast = read_content(message.content, most_bytes=MOST_BYTES)
    terms = _terms(fields["terms"]).at(fields.get("attempt", 0))
    offer = node_of(context).second(terms, broadcast, most_bytes=int(fields["most_bytes"]), after=str(fields["after"]))
    return Message(content_of(offer.fields(), offer.bundle), reply_to=message)


@app.query(PRESENT.removeprefix("query."))
def present(message: Message, context: Context) -> Message:  # noqa: ARG001 - Flower hands it over
    """Answer, and thereby say that all earlier messages were answered or are lost."""
    return Message(content_of({}), reply_to=message)


@app.query(HELPER.removeprefix("query."))
def helper(message: Message, context: Context) -> Message:
    """Say whether this node is a helper, of which key, and prove that."""
    fields, _ = read_content(message.content, most_bytes=0)
    helper_node = helper_of(context)
    if helper_node is None:
        return Message(content_of({"helper": ""}), reply_to=message)
    proof = helper_node.prove(bytes.fromhex(fields["sealed"]))
    return Message(content_of({"helper": helper_node.public, "proof": proof}), reply_to=message)


@app.query(UNMASK.removeprefix("query."))
def unmask(message: Message, context: Context) -> Message:
    """Answer with masks of a batch, added up, or with the rule that forbids it."""
    fields, data = read_content(message.content, most_bytes=UNMASK_BYTES)
    helper_node = helper_of(context)
    if helper_node is None:
        raise InputError("this node is not a helper: it has no key that opens masks")
    try:
        terms = _terms(fields["terms"]).at(fields.get("attempt", 0))
        answer = helper_node.answer(terms, str(fields["step"]), data)
    except RefusedError as error:
        refused = {"client": error.client or "", "reason": error.reason, "sentence": error.sentence}
        return Message(content_of({"refused": refused}), reply_to=message)
    except (PrivacyError, PolicyError) as error:
        return Message(content_of({"forbidden": str(error)}), reply_to=message)
    return Message(content_of({}, answer), reply_to=message)


@app.query(GREET.removeprefix("query."))
def greet(message: Message, context: Context) -> Message:
    """Say which clients take part in a tuning, and with how many samples."""
    node, task, fields, items = _tuning(message, context)
    start = _start(fields, items)
    if start is None:
        raise InputError("a greeting must bring the classifier that the tuning starts from")
    return Message(content_of(node.greet(task, start)), reply_to=message)


@app.train(TUNE.removeprefix("train."))
def tune(message: Message, context: Context) -> Message:
    """Answer with one client's parameters after its part of a round, or with the rule that forbids it."""
    node, task, fields, items = _tuning(message, context)
    start = _start(fields, items)
    number, last = int(fields["round"]), int(fields["last"])
    try:
        reply, body = node.tune(task, str(fields["client"]), number, items[0], last=last, start=start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    except PolicyError as error:
        return Message(content_of({"declined": str(error)}), reply_to=message)
    return Message(content_of(reply, body), reply_to=message)


@app.query(SCORE.removeprefix("query."))
def score(message: Message, context: Context) -> Message:
    """Answer with how parameters do on samples of this node, as sums."""
    node, task, fields, items = _tuning(message, context)
    start = _start(fields, items)
    try:
        total = node.score(task, str(fields["part"]), list(fields["clients"]), items[0], start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    return Message(content_of(asdict(total)), reply_to=message)


@app.query(TEMPERATURE.removeprefix("query."))
def temperature(message: Message, context: Context) -> Message:
    """Answer with the start's cross-entropy under some temperatures, as sums."""
    node, task, fields, items = _tuning(message, context)
    start = _start(fields, items)
    try:
        sums = node.temperature(task, list(fields["temperatures"]), list(fields["clients"]), start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    return Message(content_of({"sums": sums}), reply_to=message)


def _tuning(message: Message, context: Context) -> tuple[TuningNode, Task, dict[str, Any], list[bytes]]:
    """Return who is asked, about which tuning, and what came along."""
    fields, data = read_content(message.content, most_bytes=MOST_BYTES)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and trains nothing")
    items = [bytes(item) for item in unpack_bundle(data, max_bytes=MOST_BYTES, max_items=2)]
    task = Task.read(fields, _terms(fields["terms"]))
    node = node_of(context)
    return TuningNode(node.settings, node.identity), task, fields, items


def _start(fields: dict[str, Any], items: list[bytes]) -> bytes | None:
    """Take the bytes of the start out of what came along; None if they did not."""
    return items.pop() if fields["with_start"] else None


def helper_of(context: Context) -> HelperNode | KeptHelper | None:
    """Return the helper that a context belongs to; None if it is that of a client."""
    path = str(context.node_config.get("helper-config", ""))
    line = _line(context)
    if path and line is not None:
        return KeptHelper(line)
    if not path and _plays_helper(context):
        path = os.environ[HELPER_SETTINGS]
    return HelperNode(HelperSettings.load(path)) if path else None


def _line(context: Context) -> Line | None:
    """Return the line to the keeper of this party's key; None in a simulation, where nobody keeps it."""
    descriptor = context.node_config.get(KEEPER)
    return None if descriptor is None else Line.at(int(descriptor))


def _plays_helper(context: Context) -> bool:
    """Say whether this is the last node of Flower's simulation, which plays the helper where there is one."""
    config = context.node_config
    n = int(config.get("num-partitions", 0))
    return bool(os.environ.get(HELPER_SETTINGS)) and n > 0 and int(config.get("partition-id", -1)) == n - 1


def node_of(context: Context) -> Node:
    """Return the node that a context belongs to."""
    path = str(context.node_config.get("client-config", "") or os.environ.get("FEDMOMENTS_CLIENT", ""))
    if not path:
        raise InputError("this node does not know its settings: start it with 'fedmoments client'")
    settings = _settings(path, Path(path).stat().st_mtime_ns)
    typed = context.node_config.get("partitions")
    if typed is not None:
        settings = replace(settings, partitions=parse_partitions(str(typed)))
    elif settings.split and "partition-id" in context.node_config:
        first, step = int(context.node_config["partition-id"]), int(context.node_config.get("num-partitions", 0))
        step -= bool(os.environ.get(HELPER_SETTINGS)) and step > 0  # the last one plays the helper
        every = range(first, settings.clients or first + 1, step) if step else (first,)
        settings = replace(settings, partitions=tuple(every))
    line = _line(context)
    return Node(settings, None if line is None else partial(KeptIdentity, line))


@lru_cache(maxsize=4)
def _settings(path: str, _changed: int) -> ClientSettings:
    return ClientSettings.load(path)


@lru_cache(maxsize=4)
def _terms(text: str) -> Terms:
    return Terms.from_json(text)


def _close(folder: str, *, over: bool) -> None:
    """Leave a file that lets the node's starter stop it."""
    if over and folder:
        (Path(folder) / FINISHED).touch()
