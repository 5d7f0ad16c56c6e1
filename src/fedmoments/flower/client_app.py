"""The ClientApp: hands what Flower delivers to the node, and what the node says back to Flower.

Its settings are a file on the client's machine, named in the node's own configuration (``client-config``) or, where
Flower gives nodes none (its simulation), in the environment (``FEDMOMENTS_CLIENT``).
"""

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmoments.errors import InputError
from fedmoments.federation.terms import Terms
from fedmoments.flower.messages import ACKNOWLEDGE, CONTRIBUTE, EVALUATE, content_of, read_content
from fedmoments.flower.node import Node
from fedmoments.flower.settings import ClientSettings, parse_partitions
from fedmoments.wire import pack_bundle, unpack_bundle

__all__ = ["FINISHED", "app", "node_of"]

#: File in a client's folder that says: the server has closed the federation's run.
FINISHED = "finished"
#: Caps on what a server may send: classifiers of many classes with a covariance each.
MOST_BYTES, MOST_HEADS = 2**30, 1000

app = ClientApp()


@app.query(CONTRIBUTE.removeprefix("query."))
def contribute(message: Message, context: Context) -> Message:
    """Answer with a bundle of signed contributions."""
    words, _ = read_content(message.content, most_bytes=0)
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
    node = node_of(context)
    try:
        problems = node.acknowledge(words["receipts"], words["refusals"])
    finally:
        _close(node, over=words["over"])
    return Message(content_of({"problems": problems}), reply_to=message)


@app.query(EVALUATE.removeprefix("query."))
def evaluate(message: Message, context: Context) -> Message:
    """Answer with sums over the node's held-out data, one for each head."""
    words, data = read_content(message.content, most_bytes=MOST_BYTES)
    node = node_of(context)
    try:
        terms = _terms(words["terms"])
        heads = unpack_bundle(data, max_bytes=MOST_BYTES, max_items=MOST_HEADS)
        found = [node.evaluate(terms, bytes(head)).to_bytes() for head in heads]
    finally:
        _close(node, over=words["over"])
    return Message(content_of({}, pack_bundle(found)), reply_to=message)


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
        every = range(first, settings.clients or first + 1, step) if step else (first,)
        settings = replace(settings, partitions=tuple(every))
    return Node(settings)


@lru_cache(maxsize=4)
def _settings(path: str, _changed: int) -> ClientSettings:
    return ClientSettings.load(path)


@lru_cache(maxsize=4)
def _terms(text: str) -> Terms:
    return Terms.from_json(text)


def _close(node: Node, *, over: bool) -> None:
    """Leave a sign for whoever started the node that it may stop."""
    if over and node.settings.folder:
        (Path(node.settings.folder) / FINISHED).touch()
