"""Masked reports and requests that were cut, changed or made for something else: each refused by name, none crashes."""

import hashlib
import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.privacy.secure_workshop import CONTEXT, SIZE, Workshop, asked

from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.privacy.secure import OVERHEAD_BYTES, Context, SumRequest, read_report
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES, read_envelope
from fedmoments.privacy.secure.request import MOST_REQUEST_BYTES
from fedmoments.wire import IdentityKey, PublicKey, Reason

SHOP = Workshop("abc")
DATA = SHOP.data("a")
#: Offsets in the envelope.
ORDER, FORM, AT_CONTEXT, CLIENT, VERSION, LENGTH, ID, SEALED, COMMITMENT, SIGNATURE = (
    8, 12, 16, 88, 152, 160, 168, 184, 264, 296,
)  # fmt: skip


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def signed(data: bytes, key: IdentityKey | None = None) -> bytes:
    """Sign a forged envelope anew, as its client (or another one) could."""
    signature = (key or SHOP.keys["a"]).sign(b"fedmoments masked report 1\n" + data[:SIGNATURE])
    return changed(data, SIGNATURE, signature)


def reason_of(data: bytes, context: Context = CONTEXT, size: int = SIZE) -> str:
    with pytest.raises(RefusedError) as caught:
        SHOP.read(data, context, size)
    assert caught.value.sentence
    return caught.value.reason


def test_a_report_comes_back_as_it_was_made() -> None:
    report = SHOP.read(DATA)
    assert (report.client, report.version, len(report.id), len(report.sealed)) == ("a", 1, 32, ENVELOPE_BYTES)
    assert report.masked.tobytes() == DATA[OVERHEAD_BYTES:]
    assert not report.masked.flags.writeable
    envelope = read_envelope(report.sealed, CONTEXT)
    mask = SHOP.secret.open(envelope.sealed, envelope.info)
    assert len(mask) == 32
    for kind in (bytearray, memoryview):
        assert SHOP.read(kind(DATA)).id == report.id  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.TRUNCATED),
        (DATA[:-1], Reason.TRUNCATED),
        (DATA + b"\0", Reason.OVERSIZED),
        (DATA * 1000, Reason.OVERSIZED),
        (changed(DATA, 0, b"FEDMOMNT"), Reason.NOT_A_CONTRIBUTION),
        (changed(DATA, ORDER, b"\1\2\3\4"), Reason.ENDIANNESS),
        (changed(DATA, FORM, struct.pack("<I", 2)), Reason.FORMAT_VERSION),
        (changed(DATA, CLIENT, b"\xff"), Reason.CLIENT_ID),
        (changed(DATA, CLIENT, bytes(64)), Reason.CLIENT_ID),
        (changed(DATA, CLIENT, b"a\0b"), Reason.CLIENT_ID),
        (signed(changed(DATA, VERSION, bytes(8))), Reason.CONTRIBUTION_VERSION),
        (signed(changed(DATA, VERSION, b"\xff" * 8)), Reason.CONTRIBUTION_VERSION),
        (signed(changed(DATA, LENGTH, struct.pack("<Q", SIZE + 1))), Reason.DIMENSION),
        (signed(changed(DATA, LENGTH, b"\xff" * 8)), Reason.DIMENSION),
        (changed(DATA, CLIENT, b"b"), Reason.SIGNATURE),
        (signed(DATA, IdentityKey.generate()), Reason.SIGNATURE),
        (changed(DATA, ENVELOPE_BYTES, bytes(32)), Reason.DIGEST),
        (changed(DATA, OVERHEAD_BYTES, bytes(8)), Reason.DIGEST),
    ],
)
def test_reports_are_refused_by_name(data: bytes, reason: Reason) -> None:
    assert reason_of(data) == reason


def test_a_report_of_another_federation_round_or_fingerprint_is_refused() -> None:
    assert reason_of(DATA, replace(CONTEXT, federation="00" * 32)) == Reason.FEDERATION
    assert reason_of(DATA, replace(CONTEXT, fingerprint="00" * 32)) == Reason.FINGERPRINT
    assert reason_of(DATA, replace(CONTEXT, round=4)) == Reason.REPLAYED
    assert reason_of(DATA, size=SIZE + 1) == Reason.TRUNCATED


def test_who_is_not_enrolled_is_refused_before_the_signature_is_looked_at() -> None:
    def nobody(client: str) -> PublicKey:
        raise RefusedError(Reason.UNKNOWN_CLIENT, f"no client '{client}'", client)

    with pytest.raises(RefusedError, match="unknown-client"):
        read_report(DATA, CONTEXT, SIZE, nobody)


def test_five_thousand_mutations_of_a_report_none_taken_in_none_crashes() -> None:
    rng = np.random.default_rng(0)
    reasons: Counter[str] = Counter()
    for _ in range(5000):
        data = bytearray(DATA)
        kind = rng.integers(5)
        if kind == 0:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        elif kind == 1:
            del data[rng.integers(len(data)) :]
        elif kind == 2:
            data += rng.bytes(int(rng.integers(1, 100)))
        elif kind == 3:
            at, n = rng.integers(len(data)), rng.integers(1, 40)
            data[at : at + n] = rng.bytes(len(data[at : at + n]))
        else:
            a, b = sorted(rng.integers(0, len(data), 2))
            data[a:b] = data[a:b][::-1]
        if bytes(data) == DATA:
            continue
        reasons[reason_of(bytes(data))] += 1
    assert sum(reasons.values()) > 4900
    assert {Reason.TRUNCATED, Reason.OVERSIZED, Reason.SIGNATURE, Reason.DIGEST, Reason.CLIENT_ID} <= set(reasons)


def test_every_single_bit_of_a_report_counts() -> None:
    for at in range(len(DATA)):
        assert reason_of(changed(DATA, at, bytes([DATA[at] ^ 1 << at % 8])))


def test_the_helper_cannot_confirm_a_guess_by_the_commitment() -> None:
    """It knows the mask; were the masked vector signed without a salt, it could try vectors until a digest fits."""
    report = SHOP.read(DATA)
    commitment = read_envelope(report.sealed, CONTEXT).commitment
    assert commitment == hashlib.sha256(DATA[ENVELOPE_BYTES:]).digest()
    assert commitment != hashlib.sha256(report.masked.tobytes()).digest()
    assert DATA[ENVELOPE_BYTES:OVERHEAD_BYTES] not in report.sealed
    salts = {SHOP.data("a")[ENVELOPE_BYTES:OVERHEAD_BYTES] for _ in range(20)}
    assert len(salts) == 20


# -------------------------------------------------------------------------------------------------- requests


def test_a_request_has_one_form_whatever_the_order() -> None:
    reports = [SHOP.report(name) for name in "abc"]
    one = asked(reports, [(0, 4), (4, 9), (20, 30)])
    two = asked(reports[::-1], [(20, 30), (0, 9)])
    assert one == two
    assert one.digest == two.digest
    assert (one.blocks, one.size) == (((0, 9), (20, 30)), 19)
    assert SumRequest.from_bytes(one.to_bytes()) == one


@pytest.mark.parametrize("blocks", [[(0, 4), (3, 5)], [(4, 4)], [(5, 4)], [(-1, 2)], [(0, 2**60)], [(0, 3), (0, 3)]])
def test_blocks_that_overlap_or_are_none_are_refused(blocks: list[tuple[int, int]]) -> None:
    with pytest.raises(InputError, match="block"):
        SHOP.request("abc", blocks)


def test_an_id_under_which_another_envelope_comes_is_refused() -> None:
    a, b = SHOP.report("a"), SHOP.report("b")
    with pytest.raises(InputError, match="its own envelope"):
        SumRequest(CONTEXT, [(a.id, b.sealed)], [(0, SIZE)])


def test_three_thousand_mutations_of_a_request_are_refused_or_other_requests() -> None:
    data = SHOP.request("abc", [(0, 5), (7, 30)]).to_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(3000):
        other = bytearray(data)
        if rng.integers(2):
            other[rng.integers(200 if rng.integers(2) else len(other))] ^= 1 << rng.integers(8)
        else:
            other = other[: rng.integers(len(other))]
        try:
            request = SumRequest.from_bytes(bytes(other))
        except RefusedError:
            refused += 1
            continue
        assert request.to_bytes() == other
        if request.blocks == ((0, 5), (7, 30)):  # so an envelope or the context was changed
            with pytest.raises((RefusedError, PrivacyError)):
                SHOP.helper.sum(request)
    assert refused > 1500


def test_a_request_beyond_the_cap_is_not_parsed() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return MOST_REQUEST_BYTES + 1

    with pytest.raises(RefusedError, match="oversized"):
        SumRequest.from_bytes(Long())


def test_a_request_in_another_order_is_refused() -> None:
    data = SHOP.request("abc").to_bytes()
    head, envelopes = data[: -3 * ENVELOPE_BYTES], data[-3 * ENVELOPE_BYTES :]
    turned = head + envelopes[ENVELOPE_BYTES:] + envelopes[:ENVELOPE_BYTES]
    with pytest.raises(RefusedError, match="must ascend"):
        SumRequest.from_bytes(turned)
