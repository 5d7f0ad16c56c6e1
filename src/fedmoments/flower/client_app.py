"""The ClientApp: hands what Flower delivers to the node, and what the node says back to Flower.

Its settings are a file on the client's machine, named in the node's own configuration (``client-config``) or, where
Flower gives nodes none (its simulation), in the environment (``FEDMOMENTS_CLIENT``). A node with a ``helper-config``
is a helper instead: it answers ``query.unmask`` and contributes nothing.
"""

import os
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmoments.errors import InputError, PolicyError, PrivacyError, RefusedError
from fedmoments.federation.terms import Terms
from fedmoments.flower.helper import HelperNode, HelperSettings
from fedmoments.flower.messages import (
    ACKNOWLEDGE,
    CONTRIBUTE,
    EVALUATE,
    GREET,
    HELPER,
    SCORE,
    SECOND,
    TEMPERATURE,
    TUNE,
    UNMASK,
    content_of,
    read_content,
)
from fedmoments.flower.node import Node
from fedmoments.flower.settings import ClientSettings, parse_partitions
from fedmoments.flower.tuning_node import MissingStartError, TuningNode
from fedmoments.flower.tuning_task import Task
from fedmoments.wire import pack_bundle, unpack_bundle

__all__ = ["FINISHED", "HELPER_SETTINGS", "app", "helper_of", "node_of"]

#: File in a client's folder that says: the server has closed the federation's run.
FINISHED = "finished"
#: Caps on what a server may send: classifiers of many classes with a covariance each.
MOST_BYTES, MOST_HEADS = 2**30, 1000
#: Cap on what a leader may ask of a helper: half a million reports.
UNMASK_BYTES = 2**28
#: In Flower's simulation, names the settings of the helper, which its last node plays.
HELPER_SETTINGS = "FEDMOMENTS_HELPER"
#: What a node says that does not have the start of a tuning.
_MISSING = {"missing": "start"}

app = ClientApp()


@app.query(CONTRIBUTE.removeprefix("query."))
def contribute(message: Message, context: Context) -> Message:
    """Answer with a bundle of signed contributions."""
    words, _ = read_content(message.content, most_bytes=0)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and contributes nothing")
    offer = node_of(context).contribute(
        _terms(words["terms"]),
        most_bytes=int(words["most_bytes"]),
        again=bool(words["again"]),
        after=str(words["after"]),
    )
    return Message(content_of(offer.words(), offer.bundle), reply_to=message)


@app.query(ACKNOWLEDGE.removeprefix("query."))
def acknowledge(message: Message, context: Context) -> Message:
    """Keep receipts and refusals."""
    words, _ = read_content(message.content, most_bytes=0)
    helper = helper_of(context)
    if helper is not None:
        _close(helper.settings.folder, over=words["over"])
        return Message(content_of({"problems": []}), reply_to=message)
    node = node_of(context)
    try:
        problems = node.acknowledge(words["receipts"], words["refusals"])
    finally:
        _close(node.settings.folder, over=words["over"])
    return Message(content_of({"problems": problems}), reply_to=message)


@app.query(EVALUATE.removeprefix("query."))
def evaluate(message: Message, context: Context) -> Message:
    """Answer with sums over the node's held-out data, one for each head."""
    words, data = read_content(message.content, most_bytes=MOST_BYTES)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and evaluates nothing")
    node = node_of(context)
    try:
        terms = _terms(words["terms"])
        heads = unpack_bundle(data, max_bytes=MOST_BYTES, max_items=MOST_HEADS)
        found = [node.evaluate(terms, bytes(head)).to_bytes() for head in heads]
    finally:
        _close(node.settings.folder, over=words["over"])
    return Message(content_of({}, pack_bundle(found)), reply_to=message)


@app.query(SECOND.removeprefix("query."))
def second(message: Message, context: Context) -> Message:
    """Answer with a bundle of masked reports of the second of two phases."""
    words, told = read_content(message.content, most_bytes=MOST_BYTES)
    offer = node_of(context).second(
        _terms(words["terms"]), told, most_bytes=int(words["most_bytes"]), after=str(words["after"])
    )
    return Message(content_of(offer.words(), offer.bundle), reply_to=message)


@app.query(HELPER.removeprefix("query."))
def helper(message: Message, context: Context) -> Message:
    """Say whether this node is a helper, of which key, and prove that."""
    words, _ = read_content(message.content, most_bytes=0)
    found = helper_of(context)
    if found is None:
        return Message(content_of({"helper": ""}), reply_to=message)
    proof = found.prove(bytes.fromhex(words["sealed"]))
    return Message(content_of({"helper": found.public, "proof": proof}), reply_to=message)


@app.query(UNMASK.removeprefix("query."))
def unmask(message: Message, context: Context) -> Message:
    """Answer with masks of a batch, added up, or with the rule that forbids it."""
    words, data = read_content(message.content, most_bytes=UNMASK_BYTES)
    found = helper_of(context)
    if found is None:
        raise InputError("this node is no helper: it has no key that opens masks")
    try:
        answer = found.answer(_terms(words["terms"]), str(words["step"]), data)
    except RefusedError as error:
        refused = {"client": error.client or "", "reason": error.reason, "sentence": error.sentence}
        return Message(content_of({"refused": refused}), reply_to=message)
    except (PrivacyError, PolicyError) as error:
        return Message(content_of({"forbidden": str(error)}), reply_to=message)
    return Message(content_of({}, answer), reply_to=message)


@app.query(GREET.removeprefix("query."))
def greet(message: Message, context: Context) -> Message:
    """Say which clients take part in a tuning, and with how many samples."""
    node, task, words, items = _tuning(message, context)
    start = _start(words, items)
    if start is None:
        raise InputError("a greeting must bring the classifier that the tuning starts from")
    return Message(content_of(node.greet(task, start)), reply_to=message)


@app.train(TUNE.removeprefix("train."))
def tune(message: Message, context: Context) -> Message:
    """Answer with one client's parameters after its part of a round, or with the rule that forbids it."""
    node, task, words, items = _tuning(message, context)
    start = _start(words, items)
    number, last = int(words["round"]), int(words["last"])
    try:
        told, body = node.tune(task, str(words["client"]), number, items[0], last=last, start=start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    except PolicyError as error:
        return Message(content_of({"declined": str(error)}), reply_to=message)
    return Message(content_of(told, body), reply_to=message)


@app.query(SCORE.removeprefix("query."))
def score(message: Message, context: Context) -> Message:
    """Answer with how parameters do on samples of this node, as sums."""
    node, task, words, items = _tuning(message, context)
    start = _start(words, items)
    try:
        found = node.score(task, str(words["part"]), list(words["clients"]), items[0], start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    return Message(content_of(asdict(found)), reply_to=message)


@app.query(TEMPERATURE.removeprefix("query."))
def temperature(message: Message, context: Context) -> Message:
    """Answer with the start's cross-entropy under some temperatures, as sums."""
    node, task, words, items = _tuning(message, context)
    start = _start(words, items)
    try:
        sums = node.temperature(task, list(words["temperatures"]), list(words["clients"]), start)
    except MissingStartError:
        return Message(content_of(_MISSING), reply_to=message)
    return Message(content_of({"sums": sums}), reply_to=message)


def _tuning(message: Message, context: Context) -> tuple[TuningNode, Task, dict[str, Any], list[bytes]]:
    """Return who is asked, about which tuning, and what came along."""
    words, data = read_content(message.content, most_bytes=MOST_BYTES)
    if helper_of(context) is not None:
        raise InputError("this node is a helper: it opens masks, and trains nothing")
    items = [bytes(item) for item in unpack_bundle(data, max_bytes=MOST_BYTES, max_items=2)]
    task = Task.read(words, _terms(words["terms"]))
    return TuningNode(node_of(context).settings), task, words, items


def _start(words: dict[str, Any], items: list[bytes]) -> bytes | None:
    """Take the bytes of the start out of what came along; None if they did not."""
    return items.pop() if words["with_start"] else None


def helper_of(context: Context) -> HelperNode | None:
    """Return the helper that a context belongs to; None if it is that of a client."""
    path = str(context.node_config.get("helper-config", ""))
    if not path and _plays_helper(context):
        path = os.environ[HELPER_SETTINGS]
    return HelperNode(HelperSettings.load(path)) if path else None


def _plays_helper(context: Context) -> bool:
    """Say whether this is the last node of Flower's simulation, which plays the helper where there is one."""
    config = context.node_config
    n = int(config.get("num-partitions", 0))
    return bool(os.environ.get(HELPER_SETTINGS)) and n > 0 and int(config.get("partition-id", -1)) == n - 1


def node_of(context: Context) -> Node:
    """Return the node that a context belongs to."""
    path = str(context.node_config.get("client-config", "") or os.environ.get("FEDMOMENTS_CLIENT", ""))
    if not path:
        raise InputError(
            "this node does not know its settings: start it with --node-config \"client-config='/path/client.toml'\""
        )
    settings = _settings(path, Path(path).stat().st_mtime_ns)
    typed = context.node_config.get("partitions")
    if typed is not None:
        settings = replace(settings, partitions=parse_partitions(str(typed)))
    elif settings.split and "partition-id" in context.node_config:
        first, step = int(context.node_config["partition-id"]), int(context.node_config.get("num-partitions", 0))
        step -= bool(os.environ.get(HELPER_SETTINGS)) and step > 0  # the last one plays the helper
        every = range(first, settings.clients or first + 1, step) if step else (first,)
        settings = replace(settings, partitions=tuple(every))
    return Node(settings)


@lru_cache(maxsize=4)
def _settings(path: str, _changed: int) -> ClientSettings:
    return ClientSettings.load(path)


@lru_cache(maxsize=4)
def _terms(text: str) -> Terms:
    return Terms.from_json(text)


def _close(folder: str, *, over: bool) -> None:
    """Leave a sign for whoever started the node that it may stop."""
    if over and folder:
        (Path(folder) / FINISHED).touch()
