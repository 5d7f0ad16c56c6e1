"""The fingerprint of a federation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.maps import Clip, Identity, Normalize, Offset, RandomFourier, RandomProjection
from fedmoments.errors import FileFormatError, InputError, MergeError
from fedmoments.samples.encoders.probe import Behaviour
from fedmoments.samples.fingerprint import Fingerprint

SERVER = Fingerprint(
    encoder="minilm@sha256:53aa",
    preprocessing={"lower": True, "length": 128},
    feature_map=Normalize() | RandomProjection(384, 64, seed=7),
    classes=("cat", "dog", "über"),
)
BEHAVIOUR = Behaviour.of(np.random.default_rng(0).normal(size=(4, 384)))
CHANGES: dict[str, object] = {
    "encoder": "minilm@sha256:0000",
    "preprocessing": {"lower": False, "length": 128},
    "feature_map": Normalize() | RandomProjection(384, 64, seed=8),
    "classes": ("dog", "cat", "über"),
    "format_version": 2,
}
TEXT = st.text(min_size=1)
MAPS = st.sampled_from([None, Identity(), Normalize(), Clip(2) | Normalize(), RandomFourier(3, 4, 1.5, 9)])
FINGERPRINTS = st.builds(
    Fingerprint,
    TEXT,
    TEXT | st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=3),
    MAPS,
    st.lists(TEXT, min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(1, 3),
    st.none() | st.sampled_from([BEHAVIOUR, Behaviour.of(np.eye(4))]),
)


@given(FINGERPRINTS)
def test_json_round_trip(fingerprint: Fingerprint) -> None:
    again = Fingerprint.from_json(fingerprint.to_json())
    assert again == fingerprint
    assert again.digest == fingerprint.digest
    assert hash(again) == hash(fingerprint)
    again.require_same(fingerprint)


@given(FINGERPRINTS, FINGERPRINTS)
def test_digests_are_equal_exactly_when_all_but_the_behaviour_is(a: Fingerprint, b: Fingerprint) -> None:
    assert (replace(a, behaviour=b.behaviour) == b) == (a.digest == b.digest)
    if a != b:  # these behaviours are equal, or far from each other
        with pytest.raises(MergeError):
            a.require_same(b)


def test_behaviours_need_only_agree() -> None:
    noise = 1e-6 * np.random.default_rng(1).normal(size=(4, 384))
    features = np.random.default_rng(0).normal(size=(4, 384))
    ours, theirs = (replace(SERVER, behaviour=Behaviour.of(each)) for each in (features, features + noise))
    assert ours != theirs  # 256 numbers rounded to 16 bits: some are on the two sides of a boundary
    assert ours.digest == theirs.digest
    ours.require_same(theirs)
    with pytest.raises(MergeError, match="behaviour: the networks behave differently: on the same probe"):
        ours.require_same(replace(SERVER, behaviour=Behaviour.of(np.maximum(features, 0))))
    with pytest.raises(MergeError, match=r"behaviour: server has Behaviour.*, client has None; use the same code"):
        ours.require_same(SERVER)


def test_frozen_digest() -> None:
    assert SERVER.digest == "7cf88863cfa898bcba37bca540278618bd62420a888a1e931d123229f146ad62"


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_counts_and_is_named(name: str) -> None:
    client = replace(SERVER, **{name: CHANGES[name]})  # type: ignore[arg-type]
    with pytest.raises(MergeError) as caught:
        SERVER.require_same(client, ours="hospital A", theirs="client 7")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(f"in {name}")
    assert lines[1].startswith(f"  {name}: hospital A has ")
    assert "client 7 has" in lines[1]
    assert ";" in lines[1]
    assert client.digest[:12] in lines[0]


def test_all_differing_fields_are_named_at_once_with_both_values() -> None:
    client = replace(SERVER, **CHANGES)  # type: ignore[arg-type]
    with pytest.raises(MergeError) as caught:
        SERVER.require_same(client, theirs="client 7")
    message = str(caught.value)
    assert len(message.splitlines()) == 1 + len(CHANGES)
    for value in ("sha256:53aa", "sha256:0000", '"lower":true', '"lower":false', '"seed":7', '"seed":8'):
        assert value in message


def test_long_class_lists_are_explained_in_a_few_words() -> None:
    names = tuple(f"class {c}" for c in range(1203))
    ours = replace(SERVER, classes=names)
    with pytest.raises(MergeError, match=r"server has 1203, client has 1202, only server: \['class 1202'\], first at"):
        ours.require_same(replace(SERVER, classes=names[:-1]))
    with pytest.raises(MergeError, match=r"position 5: 'class 5' against 'new'") as caught:
        ours.require_same(replace(SERVER, classes=(*names[:5], "new", *names[6:])))
    assert len(str(caught.value)) < 600


def test_long_maps_are_shortened_but_told_apart() -> None:
    first, second = (Offset(np.r_[np.zeros(1280), last]) for last in (1.0, 2.0))
    with pytest.raises(MergeError, match=second.fingerprint()[:12]) as caught:
        replace(SERVER, feature_map=first).require_same(replace(SERVER, feature_map=second))
    assert len(str(caught.value)) < 1200


def test_no_map_is_the_identity() -> None:
    assert replace(SERVER, feature_map=None) == replace(SERVER, feature_map=Identity())


def test_the_order_of_a_mapping_does_not_count() -> None:
    assert replace(SERVER, preprocessing={"length": 128, "lower": True}) == SERVER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": ""}, "encoder of a Fingerprint must be a text"),
        ({"encoder": None}, "encoder of a Fingerprint must be a text"),
        ({"preprocessing": 3}, "text that is not empty or a mapping, but got 3"),
        ({"preprocessing": {"mean": np.zeros(3)}}, "cannot be written as JSON"),
        ({"feature_map": {"kind": "identity"}}, "must be a FeatureMap or None"),
        ({"classes": "abc"}, "list or tuple of at least one name.*but got 'abc'"),
        ({"classes": ()}, "at least one name"),
        ({"classes": ("a", 1)}, "class 1 of a Fingerprint must be a name"),
        ({"classes": ("a", "b", "a")}, "class 2 of a Fingerprint, 'a', occurs twice"),
        (
            {"classes": ("caf\u00e9", "cafe\u0301")},
            "class 1 of a Fingerprint, .*, occurs before, in another Unicode form",
        ),
        ({"format_version": 0}, "format_version"),
        ({"format_version": True}, "format_version"),
    ],
)
def test_wrong_fields_are_refused_with_reasons(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SERVER, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"encoder": "x"}', "[" * 100_000, "1" * 5000])
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(FileFormatError, match="fingerprint"):
        Fingerprint.from_json(text)


def test_json_with_an_unknown_map_is_refused_by_name() -> None:
    value = {**SERVER.to_dict(), "feature_map": {"kind": "wavelet"}}
    with pytest.raises(FileFormatError, match="feature map 'wavelet'"):
        Fingerprint.from_json(json.dumps(value))


def test_only_fingerprints_are_compared() -> None:
    with pytest.raises(InputError, match="client 7 sent 'abc'"):
        SERVER.require_same("abc", theirs="client 7")  # type: ignore[arg-type]
