"""What travels between the two apps: one opaque array of bytes at most, and a few fields as JSON.

=====================  ===========================================  ==============================================
message type           the server sends                             the node replies
=====================  ===========================================  ==============================================
query.contribute       terms, whether to send again, most bytes     a bundle of contributions; what it declined
query.acknowledge      receipts and refusals; whether it is over    what was wrong with them
query.evaluate         classifiers; the run is over then            coarse sums over held-out data, or masked reports
query.second           terms, and what the first phase gave         a bundle of masked reports of the second
query.present          nothing                                      nothing: it is there, and has read all before
query.helper           whose helper is sought                       whether the node is that helper
query.unmask           terms, a step and what it asks for           masks of a batch added up, or why not
query.greet            terms, plan and start of a tuning            its clients, signed, and how many samples they have
train.tune             a client, a round, parameters                that client's parameters afterwards, signed
query.score            parameters, and on which samples             sums over the node's samples of that part
query.temperature      temperatures                                 sums of the cross-entropy under each
=====================  ===========================================  ==============================================

Flower does not check a declared shape or type, so the bytes are checked where they are read.
"""

import json
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedmoments.errors import InputError

__all__ = [
    "ACKNOWLEDGE",
    "CONTRIBUTE",
    "EVALUATE",
    "GREET",
    "HELPER",
    "PRESENT",
    "SCORE",
    "SECOND",
    "TEMPERATURE",
    "TUNE",
    "UNMASK",
    "content_of",
    "content_size",
    "read_content",
]

CONTRIBUTE, ACKNOWLEDGE, EVALUATE = "query.contribute", "query.acknowledge", "query.evaluate"
HELPER, UNMASK, SECOND = "query.helper", "query.unmask", "query.second"
PRESENT = "query.present"
GREET, TUNE, SCORE, TEMPERATURE = "query.greet", "train.tune", "query.score", "query.temperature"

#: Most characters of the JSON text of a message: terms with thousands of class names, receipts of thousands of clients.
MOST_WORDS = 2**25

_WORDS, _BYTES = "words", "bytes"


def content_of(fields: Mapping[str, Any], data: bytes | None = None) -> RecordDict:
    """Return the content of a message: fields as one JSON text, and bytes as one array of uint8.

    Examples
    --------
    >>> read_content(content_of({"round": 1}, b"abc"), most_bytes=10)
    ({'round': 1}, b'abc')
    """
    records: dict[str, Any] = {_WORDS: ConfigRecord({"json": json.dumps(dict(fields))})}
    if data is not None:
        array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
        records[_BYTES] = ArrayRecord({_BYTES: array})
    return RecordDict(records)


def content_size(content: RecordDict) -> int:
    """Return how many bytes the JSON text and the array of a content have, without Flower's framing.

    Examples
    --------
    >>> content_size(content_of({}, b"abc")), content_size(content_of({"a": 1}))
    (5, 8)
    """
    text_bytes = sum(len(str(record.get("json", "")).encode()) for record in content.config_records.values())
    return text_bytes + sum(len(array.data) for record in content.array_records.values() for array in record.values())


def read_content(content: RecordDict, *, most_bytes: int) -> tuple[dict[str, Any], bytes]:
    """Return the fields and the bytes of a content; nothing in it is trusted.

    Raises
    ------
    InputError
        When it holds something else, or more bytes than allowed.
    """
    config, arrays = content.config_records, content.array_records
    text = config[_WORDS].get("json") if set(config) == {_WORDS} else None
    if not isinstance(text, str) or content.metric_records or set(arrays) - {_BYTES}:
        raise InputError(
            "a message must hold words and at most one array of bytes: is the same version of "
            "fedmoments installed on both sides?"
        )
    fields = _parsed(text)
    if not arrays:
        return fields, b""
    record = arrays[_BYTES]
    if list(record) != [_BYTES] or len(record[_BYTES].data) > most_bytes:
        raise InputError(f"a message must hold one array of at most {most_bytes} bytes")
    return fields, record[_BYTES].data


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > MOST_WORDS:
        raise InputError(f"the words of a message may have {MOST_WORDS} characters, not {len(text)}")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the words of a message must be JSON: {type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise InputError("the words of a message must be a JSON object")
    return fields
