"""What is encoded is decoded: exactly, in the same bytes every time, and as a naive referee counts it."""

import hashlib
import json
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize
from safetensors.numpy import load, save

from fedmoments.core.statistics import MOMENTS, FixedPoint, SketchPlan, Statistics, StatisticsSpec
from fedmoments.errors import InputError, MergeError, MissingMomentError, RefusedError
from fedmoments.wire import Agreement, IdentityKey, PublicKey, Reason, Withheld, decode, encode, read_header

KEY = IdentityKey.from_bytes(bytes(32))
#: Of the contribution that a test below makes; another one means another format.
PINNED = "33dc3e7182f803a21b68d9b6d3d714461b6cb31e995df9b2740ec1fcd8d0c8bf"
FORM = FixedPoint(norm_bound=64.0, max_samples=4096)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and not set(name) & {"/", "\\"} and len(name.encode()) <= 64
)


def agreement(spec: StatisticsSpec, **changes: Any) -> Agreement:
    terms = {"federation": "0a" * 32, "fingerprint": "1b" * 32, "classes": "2c" * 32}
    return Agreement(**{**terms, "n_classes": 4, "dim": 3, "spec": spec, "fixed_point": FORM, **changes})


def read_by_library(body: bytes) -> dict[str, Any]:
    return dict(deserialize(body))  # type: ignore[no-untyped-call]


def eighths(n: int, seed: int) -> tuple[Any, Any]:
    """Return features on a grid of eighths, whose sums are exact in float64 and in fixed point."""
    rng = np.random.default_rng(seed)
    return rng.integers(-32, 33, size=(n, 3)) / 8, rng.choice([0, 1, 3], size=n)


@settings(deadline=None, max_examples=150)
@given(
    names=st.sets(st.sampled_from(sorted(MOMENTS))),
    n=st.integers(0, 20),
    seed=st.integers(0, 2**32),
    client=NAMES,
    version=st.integers(1, 2**63 - 1),
    withheld=st.builds(Withheld, st.integers(0, 4), st.integers(0, 2**63 - 1)),
)
def test_decode_undoes_encode(
    names: set[str], n: int, seed: int, client: str, version: int, withheld: Withheld
) -> None:
    spec = StatisticsSpec.of(*names, sketch=SketchPlan(None, 2, "float16") if "scatter_sketch" in names else None)
    terms = agreement(spec)
    stats = Statistics.of(*eighths(n, seed), spec, n_classes=4)
    data = encode(stats, terms, client=client, version=version, key=KEY, withheld=withheld)
    asked: list[str] = []

    def key_of(name: str) -> PublicKey:
        asked.append(name)
        return KEY.public

    found = decode(data, terms, key_of)
    assert asked == [client]
    assert (found.client, found.version, found.withheld, found.size) == (client, version, withheld, len(data))
    assert found.statistics == stats.quantized(FORM)
    assert found.statistics.spec == stats.spec
    assert found.header == read_header(data, terms)
    assert found.digest == hashlib.sha256(data[:232]).hexdigest()
    assert encode(found.statistics, terms, client=client, version=version, key=KEY, withheld=withheld) == data
    for other in (bytearray(data), memoryview(data), memoryview(b"_" + data)[1:]):
        assert decode(other, terms, key_of).statistics == found.statistics


def test_the_same_statistics_give_the_same_bytes_whatever_form_they_came_in() -> None:
    fine = StatisticsSpec.of("class_grams", "client_means", "class_thirds")
    terms = agreement(StatisticsSpec.of("gram", "class_squares"))
    X, y = eighths(30, 1)
    makes = [
        Statistics.of(X, y, terms.spec, n_classes=4),
        Statistics.of(X, y, terms.spec, n_classes=4, fixed_point=FORM),
        Statistics.of(X, y, fine, n_classes=4),
        Statistics.of(X[::-1], y[::-1], fine, n_classes=4, fixed_point=FORM),
    ]
    made = {encode(stats, terms, client="a", version=1, key=KEY) for stats in makes}
    assert len(made) == 1
    assert hashlib.sha256(made.pop()[:232]).hexdigest() == PINNED, "the format changed: raise its version"


def test_decoded_arrays_do_not_follow_a_buffer_that_changes() -> None:
    terms = agreement(StatisticsSpec.of("gram"))
    data = bytearray(
        encode(Statistics.of(*eighths(9, 2), terms.spec, n_classes=4), terms, client="a", version=1, key=KEY)
    )
    found = decode(data, terms, lambda client: KEY.public)
    before = found.statistics.digest()
    data[:] = bytes(len(data))
    assert found.statistics.digest() == before
    assert all(not array.flags.writeable and array.flags.aligned for array in found.statistics.arrays.values())


@pytest.mark.parametrize("rows", ["int64", "float32", "float16", "bfloat16", "int8"])
def test_the_body_is_what_the_safetensors_library_writes_and_reads(rows: str) -> None:
    spec = StatisticsSpec.of("client_means", "gram", "class_norms", means_per_client=2)
    terms = agreement(spec, rows=rows)
    stats = Statistics.of(*eighths(30, 3), spec, n_classes=4)
    body = encode(stats, terms, client="a", version=1, key=KEY, withheld=Withheld(0, 7))[296:]
    names = ["class_counts", "classes", "moment.class_norms", "moment.client_means", "moment.gram"]
    scales = ["mean_scales"] if rows == "int8" else []
    assert sorted(read_by_library(body)) == [*names[:2], *scales, *names[2:], "row_counts", "row_labels"]
    length = int.from_bytes(body[:8], "little")
    head = json.loads(body[8 : 8 + length])
    assert head["__metadata__"] == {"withheld_classes": "0", "withheld_samples": "7"}
    if rows != "bfloat16":  # of which numpy has none
        again = save(load(body), head["__metadata__"])
        assert json.loads(again[8 : 8 + length]) == head
        assert again[8 + length :] == body[8 + length :]


def naive_moments(X: Any, y: Any) -> dict[str, Any]:
    """Count everything with loops over exact fractions: {name: {place: number}}."""
    found: dict[str, dict[Any, Fraction]] = {name: {} for name in MOMENTS}
    for features, label in zip(X, y, strict=True):
        x = [Fraction(float(value)) for value in features]
        for j in range(3):
            for power, name in enumerate(("sums", "class_squares", "class_thirds", "class_fourths"), start=1):
                found[name][label, j] = found[name].get((label, j), Fraction(0)) + x[j] ** power
            norms = found["class_norms"]
            norms[label, 0] = norms.get((label, 0), Fraction(0)) + x[j] ** 2
            for i in range(j + 1):
                place = j * (j + 1) // 2 + i
                for name, key in (("gram", place), ("class_grams", (label, place))):
                    found[name][key] = found[name].get(key, Fraction(0)) + x[i] * x[j]
    found["client_means"] = found["sums"]
    return found


@pytest.mark.parametrize(
    "names",
    [("gram", "class_norms"), ("class_grams", "class_thirds", "class_fourths"), ("client_means", "class_squares")],
)
def test_the_bytes_hold_what_a_naive_referee_counts(names: tuple[str, ...]) -> None:
    spec = StatisticsSpec.of(*names)
    X, y = eighths(25, 4)
    terms = agreement(spec)
    body = encode(Statistics.of(X, y, spec, n_classes=4), terms, client="a", version=1, key=KEY)[296:]
    tensors = read_by_library(body)
    numbers = {name: struct.unpack(f"<{len(entry['data']) // 8}q", entry["data"]) for name, entry in tensors.items()}
    present = sorted({int(label) for label in y})
    assert numbers["classes"] == tuple(present)
    assert numbers["class_counts"] == tuple(int((y == label).sum()) for label in present)
    referee = naive_moments(X, [int(label) for label in y])
    for name in spec.sent:
        scale = 2 ** FORM.bits(MOMENTS[name].degree)
        assert numbers[f"moment.{name}"] == tuple(int(value * scale) for _, value in sorted(referee[name].items())), (
            name
        )


def test_encode_refuses_what_decode_would() -> None:
    terms = agreement(StatisticsSpec.of("gram"))
    stats = Statistics.of(*eighths(9, 2), terms.spec, n_classes=4)
    with pytest.raises(RefusedError) as caught:
        encode(
            stats, agreement(terms.spec, max_bytes=1024, dim=3), client="a", version=1, key=KEY, withheld=Withheld(9)
        )
    assert caught.value.reason == Reason.BODY
    negative = Statistics(terms.spec, 4, 3, stats.classes, stats.class_counts, {n: -a for n, a in stats.arrays.items()})
    with pytest.raises(RefusedError, match="indefinite: the contribution of client 'a'") as caught:
        encode(negative, terms, client="a", version=1, key=KEY)
    assert caught.value.client == "a"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"client": ""}, InputError, "1 to 64 bytes"),
        ({"client": "ä" * 33}, InputError, "66 bytes"),
        ({"client": "a/b"}, InputError, "without slashes"),
        ({"client": "a\nb"}, InputError, "printable"),
        ({"client": "a\0"}, InputError, "printable"),
        ({"client": "\ud800"}, InputError, "printable"),
        ({"version": 0}, InputError, "from 1 to"),
        ({"version": 2**63}, InputError, "from 1 to"),
    ],
)
def test_encode_says_what_is_wrong_with_its_arguments(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    terms = agreement(StatisticsSpec())
    stats = Statistics.of(*eighths(9, 2), terms.spec, n_classes=4)
    arguments: dict[str, Any] = {"client": "a", "version": 1, "key": KEY}
    with pytest.raises(error, match=words):
        encode(stats, terms, **(arguments | change))


def test_encode_says_what_is_wrong_with_the_statistics() -> None:
    terms = agreement(StatisticsSpec.of("gram"))
    stats = Statistics.of(*eighths(9, 2), terms.spec, n_classes=4)
    with pytest.raises(InputError, match="dim=3, but dim=4"):
        encode(stats, agreement(terms.spec, dim=4), client="a", version=1, key=KEY)
    with pytest.raises(InputError, match="n_classes=4, but n_classes=5"):
        encode(stats, agreement(terms.spec, n_classes=5), client="a", version=1, key=KEY)
    with pytest.raises(MissingMomentError):
        encode(stats, agreement(StatisticsSpec.of("class_grams")), client="a", version=1, key=KEY)
    with pytest.raises(MergeError):
        encode(stats.quantized(FixedPoint(8.0, 99)), terms, client="a", version=1, key=KEY)


@pytest.mark.parametrize("bad", [{"classes": -1}, {"samples": 2**63}, {"samples": True}, {"classes": 1.0}])
def test_what_was_withheld_is_a_whole_number(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="whole number"):
        Withheld(**bad)
