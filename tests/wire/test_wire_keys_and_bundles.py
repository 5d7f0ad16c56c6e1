"""Identity keys sign and verify; bundles frame exactly."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.errors import InputError, RefusedError
from fedmoments.wire import IdentityKey, PublicKey, Reason, pack_bundle, unpack_bundle


def test_keys_are_those_of_rfc_8032() -> None:
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = IdentityKey.from_bytes(secret)
    assert key.public.hex == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex().startswith("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da")
    assert key.private_bytes() == secret


def test_signatures_of_others_and_of_other_bytes_do_not_verify() -> None:
    key, other = IdentityKey.generate(), IdentityKey.generate()
    signature = key.sign(b"data")
    assert key.public.verify(signature, b"data")
    assert not other.public.verify(signature, b"data")
    assert not key.public.verify(signature, b"datb")
    assert not key.public.verify(signature[:-1], b"data")
    assert not key.public.verify(bytes(64), b"data")


def test_a_private_key_is_not_shown() -> None:
    key = IdentityKey.generate()
    assert key.private_bytes().hex() not in repr(key)
    assert key.public.hex in repr(key)


@pytest.mark.parametrize("raw", [b"", bytes(31), bytes(33)])
def test_keys_of_another_length_are_refused(raw: bytes) -> None:
    with pytest.raises(InputError, match="32 bytes"):
        PublicKey(raw)
    with pytest.raises(InputError, match="32 bytes"):
        IdentityKey.from_bytes(raw)


FIELD = 2**255 - 19
EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022


@pytest.mark.parametrize("sign", [0, 2**255])
@pytest.mark.parametrize("y", [0, 1, EIGHTH, FIELD - EIGHTH, FIELD - 1, FIELD, FIELD + 1])
def test_keys_for_which_anybody_can_sign_are_refused(y: int, sign: int) -> None:
    """All encodings of points of order 1, 2, 4 and 8; with 01 00 … 00 one text signs whatever is asked."""
    raw = (y + sign).to_bytes(32, "little")
    with pytest.raises(InputError, match="anybody can sign"):
        PublicKey(raw)
    with pytest.raises(InputError, match="anybody can sign"):
        PublicKey.from_hex(raw.hex())


@pytest.mark.parametrize("text", ["", "0" * 63, "G" * 64, "A" * 64, " " * 64])
def test_public_keys_are_written_in_one_way(text: str) -> None:
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        PublicKey.from_hex(text)


def test_without_cryptography_the_message_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import fedmoments.wire as wire\n"
        "try:\n    wire.IdentityKey.generate()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fedmoments[flower]" in done.stdout


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=8))
def test_a_bundle_gives_back_its_items(items: list[bytes]) -> None:
    data = pack_bundle(items)
    assert [bytes(item) for item in unpack_bundle(data, max_bytes=len(data), max_items=len(items))] == items
    assert unpack_bundle(bytearray(data), max_bytes=len(data), max_items=len(items)) == items


@settings(deadline=None)
@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: b"FEDMBNDL" + rest))
def test_whatever_is_no_bundle_is_refused(data: bytes) -> None:
    try:
        items = unpack_bundle(data, max_bytes=64, max_items=3)
    except RefusedError:
        return
    assert pack_bundle(items) == data


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], Reason.TRUNCATED),
        (lambda data: data[:20], Reason.TRUNCATED),
        (lambda data: data[:15], Reason.TRUNCATED),
        (lambda data: b"", Reason.TRUNCATED),
        (lambda data: data + b"x", Reason.TRAILING),
        (lambda data: data + bytes(100), Reason.OVERSIZED),
        (lambda data: b"x" + data[1:], Reason.NOT_A_CONTRIBUTION),
        (lambda data: data[:8] + (2**63).to_bytes(8, "little") + data[16:], Reason.OVERSIZED),
        (lambda data: data[:16] + b"\xff" * 8 + data[24:], Reason.TRUNCATED),
        (lambda data: data[:16] + bytes(8) + data[24:], Reason.TRAILING),
    ],
)
def test_bundles_are_refused_whole(change, reason: Reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RefusedError) as caught:
        unpack_bundle(change(pack_bundle([b"abc", b"", b"defg"])), max_bytes=100, max_items=3)
    assert caught.value.reason == reason
