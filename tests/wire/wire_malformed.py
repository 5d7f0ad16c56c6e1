"""A catalogue of malformed contributions: bytes, headers and bodies. Every kind has a name and its reasons."""

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.core.statistics import SketchPlan
from fedmoments.wire import Agreement, Reason

Made = tuple[Agreement, bytes]
Maker = Callable[[np.random.Generator], Made]


@dataclass(frozen=True)
class Kind:
    """One way to be malformed: how to make it, which reasons it may have, words of the sentence."""

    make: Maker
    reasons: frozenset[Reason]
    words: tuple[str, ...]


KINDS: dict[str, Kind] = {}


def kind(*reasons: Reason, words: tuple[str, ...] = ()) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        KINDS[make.__name__] = Kind(make, frozenset(reasons), words)
        return make

    return add


def bases() -> list[Agreement]:
    return [
        w.agreement("client_means", means=2),
        w.agreement("client_means", "gram", rows="float16"),
        w.agreement("client_means", rows="bfloat16"),
        w.agreement("gram", "class_squares"),
        w.agreement("class_grams", "class_fourths"),
        w.agreement("class_norms", "gram", "class_thirds"),
        w.agreement("scatter_sketch", dim=24),
        w.agreement("scatter_sketch", "gram", sketch=SketchPlan(None, 3, "float16"), rows="float32"),
    ]


def some(rng: np.random.Generator) -> Made:
    """Return a sound contribution of some agreement."""
    agreement = bases()[rng.integers(len(bases()))]
    return agreement, w.sound(agreement, seed=int(rng.integers(8)))


def flipped(data: bytes, start: int, stop: int, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(start, stop))
    return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]


# -------------------------------------------------------------------------------------------------- bytes on the way


@kind(*(reason for reason in Reason))
def header_bit_flipped(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, flipped(data, 0, 232, rng)


@kind(Reason.SIGNATURE, words=("client 'clinic'", "key"))
def signature_bit_flipped(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, flipped(data, 232, 296, rng)


@kind(Reason.DIGEST, words=("client 'clinic'", "signed a body of digest"))
def body_bit_flipped(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, flipped(data, 296, len(data), rng)


@kind(Reason.DIGEST)
def body_of_another(rng: np.random.Generator) -> Made:
    agreement = w.agreement("gram")
    return agreement, w.sound(agreement, seed=0)[:296] + w.sound(agreement, seed=1 + int(rng.integers(7)))[296:]


@kind(Reason.TRUNCATED, words=("arrived",))
def cut_off(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, data[: int(rng.integers(len(data)))]


@kind(Reason.TRAILING, words=("client 'clinic'", "announces a body of"))
def too_long(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, data + rng.bytes(int(rng.integers(1, 200)))


@kind(Reason.OVERSIZED, words=("may have 1024 bytes", "arrived"))
def over_the_cap(rng: np.random.Generator) -> Made:
    return w.agreement("client_means", max_bytes=1024), some(rng)[1] + bytes(int(rng.integers(1024, 4096)))


@kind(Reason.TRUNCATED, Reason.NOT_A_CONTRIBUTION)
def noise(rng: np.random.Generator) -> Made:
    return some(rng)[0], rng.bytes(int(rng.integers(0, 2000)))


@kind(Reason.CLIENT_ID, Reason.TRUNCATED)
def noise_behind_the_magic(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, data[:16] + rng.bytes(int(rng.integers(0, 2000)))


@kind(Reason.NOT_A_CONTRIBUTION, words=("FEDMOMNT", "begins with"))
def another_format(rng: np.random.Generator) -> Made:
    values, file = rng.normal(size=50), io.BytesIO()
    np.save(file, values)
    return some(rng)[0], [file.getvalue(), pickle.dumps(values), b"{" * 500][rng.integers(3)]


# -------------------------------------------------------------------------------------------------- headers, signed


def other_header(
    name: str, reason: Reason, words: tuple[str, ...], values: Callable[[np.random.Generator], Any]
) -> None:
    """Add the kind that has one field of the header changed, and is rightly signed."""

    def make(rng: np.random.Generator) -> Made:
        agreement, data = some(rng)
        return agreement, w.signed(data[296:], agreement, **{name.removeprefix("other_"): values(rng)})

    make.__name__ = name
    kind(reason, words=words)(make)


def digest(rng: np.random.Generator) -> bytes:
    return rng.bytes(32)


def bad_name(rng: np.random.Generator) -> bytes:
    names = [b"", b"a/b", b"a\\b", b"line\n", b"a\0b", b"\xff\xfe", "\u202e".encode(), b"\x7f", b"\0" + rng.bytes(3)]
    return names[rng.integers(len(names))]


AGREED = ("agreed on", "client 'clinic'", "sent")
other_header("other_magic", Reason.NOT_A_CONTRIBUTION, ("FEDMOMNT",), lambda rng: rng.bytes(8))
other_header("other_mark", Reason.ENDIANNESS, ("must read", "reads 0x04030201"), lambda rng: 0x04030201)
other_header("other_format", Reason.FORMAT_VERSION, ("version 1", "arrived"), lambda rng: int(rng.integers(2, 99)))
other_header("other_fingerprint", Reason.FINGERPRINT, AGREED, digest)
other_header("other_classes", Reason.CLASSES, AGREED, digest)
other_header("other_federation", Reason.FEDERATION, AGREED, digest)
other_header("other_dim", Reason.DIMENSION, AGREED, lambda rng: int(rng.choice([0, 3, 5, 2**32 - 1])))
other_header("other_n_classes", Reason.DIMENSION, AGREED, lambda rng: int(rng.choice([0, 4, 6, 2**32 - 1])))
other_header("other_client", Reason.CLIENT_ID, ("1 to 64 bytes", "arrived"), bad_name)
other_header(
    "other_version", Reason.CONTRIBUTION_VERSION, ("from 1 to", "number"), lambda rng: [0, 2**63][rng.integers(2)]
)
other_header("other_length", Reason.TRUNCATED, ("announces",), lambda rng: 2 ** int(rng.integers(20, 64)))
other_header("other_digest", Reason.DIGEST, ("signed a body of digest",), digest)


@kind(Reason.UNKNOWN_CLIENT, words=("no client 'nobody' is enrolled",))
def unknown(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, w.signed(data[296:], agreement, client=b"nobody")


@kind(Reason.REVOKED_CLIENT, words=("'former'",))
def revoked(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, w.signed(data[296:], agreement, client=b"former")


@kind(Reason.SIGNATURE, words=("was not signed with the key", "client 'clinic'"))
def signed_by_another(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, w.signed(data[296:], agreement, key=w.stranger)


@kind(Reason.SIGNATURE)
def signed_for_another_purpose(rng: np.random.Generator) -> Made:
    agreement, data = some(rng)
    return agreement, data[:232] + w.key.sign(data[:232]) + data[296:]


# -------------------------------------------------------------------------------------------------- bodies, signed


def other_body(change: Callable[[bytes, np.random.Generator], bytes]) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        agreement, data = some(rng)
        return agreement, w.signed(change(data[296:], rng), agreement)

    make.__name__ = change.__name__
    return kind(Reason.BODY, words=("client 'clinic'",))(make)


def split_body(body: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(body[:8], "little")
    return json.loads(body[8 : 8 + length]), body[8 + length :]


def framed(head: object, data: bytes, separators: tuple[str, str] = (",", ":")) -> bytes:
    text = (head if isinstance(head, str) else json.dumps(head, separators=separators)).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


@other_body
def body_of_noise(body: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(int(rng.integers(0, 300)))


@other_body
def pickled_body(body: bytes, rng: np.random.Generator) -> bytes:
    return pickle.dumps({"classes": rng.integers(0, 9, 5)})


@other_body
def huge_tensor_header(body: bytes, rng: np.random.Generator) -> bytes:
    length = 1 << int(rng.integers(14, 64))
    return length.to_bytes(8, "little") + body[8:]


@other_body
def deep_json(body: bytes, rng: np.random.Generator) -> bytes:
    depth = int(rng.integers(1000, 8000))
    return framed(["[" * depth, '{"a":' * (depth // 5), "[" * (depth // 2) + "]" * (depth // 2)][rng.integers(3)], b"")


@kind(Reason.BODY, words=("client 'clinic'", "at most 8192"))
def long_json(rng: np.random.Generator) -> Made:
    agreement = some(rng)[0]
    return agreement, w.signed(framed([0] * int(rng.integers(4100, 4200)), b""), agreement)


@other_body
def json_of_another_kind(body: bytes, rng: np.random.Generator) -> bytes:
    texts = ["[]", "1", "null", "NaN", '"a"', "{", '{"a":1}', "1" * 5000, '{"é":{}}', '{"__metadata__":[]}']
    return framed(texts[rng.integers(len(texts))], split_body(body)[1])


@other_body
def name_twice(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    entry = json.dumps(head["classes"], separators=(",", ":"))
    text = json.dumps(head, separators=(",", ":"))
    return framed(text[:-1] + f',"classes":{entry}}}', data)


@other_body
def another_spelling(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    longer = body[:8] + body[8:].replace(b"classes", b"\\u0063lasses", 1)
    return [
        framed(head, data, separators=(", ", ": ")),
        framed(json.dumps(head, separators=(",", ":")) + " " * 8, data),
        framed(json.dumps(head, separators=(",", ":"), sort_keys=True), data),
        (int.from_bytes(body[:8], "little") + 5).to_bytes(8, "little") + longer[8:],
    ][rng.integers(4)]


@other_body
def another_order(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    names = [name for name in head if name != "__metadata__"]
    while True:
        order = [names[at] for at in rng.permutation(len(names))]
        if order != names:
            break
    entries, parts, start = {"__metadata__": head["__metadata__"]}, [], 0
    for name in order:  # everything is where it is said to be, only in an order that is not the one
        part = data[slice(*head[name]["data_offsets"])]
        entries[name] = head[name] | {"data_offsets": [start, start + len(part)]}
        parts.append(part)
        start += len(part)
    return framed(entries, b"".join(parts))


@other_body
def overlapping_tensors(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    head["classes"]["data_offsets"] = head["class_counts"]["data_offsets"]
    return framed(head, data)


@other_body
def bytes_of_no_tensor(body: bytes, rng: np.random.Generator) -> bytes:
    return body + rng.bytes(int(rng.integers(1, 64)))


@other_body
def missing_bytes(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    return framed(head, data[: int(rng.integers(0, len(data)))])


@other_body
def strange_shape(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    long, deep = "9" * 3500, 900
    shapes = [f"[{2**62},{2**62}]", "[-1]", "[true]", "[1.5]", '["\\ud800"]', "null", "[1e999]", '"x"', "[1,1,1,1]"]
    shapes += [f"[{long},{long}]", "[" * deep + "]" * deep, f"[0,{2**40}]"]
    head["classes"]["shape"] = "HERE"
    text = json.dumps(head, separators=(",", ":"))
    return framed(text.replace('"HERE"', shapes[rng.integers(len(shapes))]), data)


@other_body
def missing_tensor(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    last = [name for name in head if name != "__metadata__"][-1]
    return framed(head, data[: head.pop(last)["data_offsets"][0]])


@other_body
def extra_tensor(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    head["zzz"] = {"dtype": "U8", "shape": [1], "data_offsets": [len(data), len(data) + 1]}
    return framed(head, data + b"x")


@other_body
def strange_entry(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    head["classes"] = [1, None, {}, {"dtype": "I64"}, {**head["classes"], "more": 1}][rng.integers(5)]
    return framed(head, data)


@other_body
def strange_metadata(body: bytes, rng: np.random.Generator) -> bytes:
    head, data = split_body(body)
    good = head["__metadata__"]
    wrong = ["", "-1", "01", "+1", "1.0", " 1", "9" * 19, "9" * 100, "x", "٣", "1_0"][rng.integers(11)]
    odd: list[Any] = [{}, {**good, "note": "x"}, {"withheld_classes": "1"}, {**good, "withheld_samples": 3}, "x"]
    odd += [{**good, "withheld_samples": wrong}, {**good, "withheld_classes": wrong}, {**good, "withheld_classes": "6"}]
    return framed({**head, "__metadata__": odd[rng.integers(len(odd))]}, data)
