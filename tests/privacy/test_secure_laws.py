"""Secure sums are exact whoever drops out; a mask is the ChaCha20 stream, uniform, and independent of what it hides."""

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import x25519
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from tests.privacy.secure_workshop import CONTEXT, SIZE, Workshop, secure_sum
from tests.waiting import HANG

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure import Context, HelperKey, check_helper_key, make_report
from fedmoments.privacy.secure import report as report_module
from fedmoments.privacy.secure.seal import SEALED_BYTES, seal
from fedmoments.privacy.secure.stream import MOST_WORDS, add_stream, stream
from fedmoments.wire import IdentityKey

FORM = FixedPoint(norm_bound=8.0, max_samples=10_000)
NAMES = ("class_norms", "class_squares", "class_thirds", "class_fourths", "gram", "class_grams")
SPECS = [StatisticsSpec.of(*some) for n in range(3) for some in combinations(NAMES, n)]


def naive_chacha20(key: bytes, counter: int) -> bytes:
    """Return one block of RFC 8439 with nonce 0, by the book."""

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = rotated(state[z] ^ state[x], by)

    words = [int.from_bytes(key[at : at + 4], "little") for at in range(0, 32, 4)]
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *words, counter, 0, 0, 0]
    state = list(start)
    for _ in range(10):
        for at in range(4):
            quarter(at, at + 4, at + 8, at + 12)
        for at in range(4):
            quarter(at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4)
    return b"".join(((a + b) & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(start, state, strict=True))


# -------------------------------------------------------------------------------------------------- exactness


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SPECS), st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 5), min_size=3, max_size=8),
    st.data(),
)  # fmt: skip
def test_the_unmasked_sum_is_the_plain_sum_bit_for_bit_with_any_clients_dropped(
    spec: StatisticsSpec, n_classes: int, dim: int, sizes: list[int], data: st.DataObject
) -> None:
    rng = np.random.default_rng([n_classes, dim, *sizes])
    layout = DenseLayout(spec, n_classes, dim)
    parts = {
        f"client {k}": Statistics.of(
            rng.normal(size=(n, dim)), rng.integers(0, n_classes, n), spec, n_classes=n_classes, fixed_point=FORM
        )
        for k, n in enumerate(sizes)
    }
    dropped = data.draw(st.sets(st.sampled_from(sorted(parts)), max_size=len(parts) - 2))
    vectors = {client: layout.pack(part) for client, part in parts.items()}
    total = secure_sum(vectors, CONTEXT, minimum=2, dropped=dropped)
    merged = Statistics.merge([part for client, part in parts.items() if client not in dropped])
    assert layout.unpack(total, FORM) == merged
    plain = np.zeros(layout.size, np.uint64)
    for client, vector in vectors.items():
        plain += vector * np.uint64(client not in dropped)
    assert np.array_equal(total, plain)


def test_every_subset_of_clients_gives_its_own_sum_over_leader_and_helper() -> None:
    for names in (some for n in range(3, 6) for some in combinations("abcde", n)):
        shop = Workshop("abcde")
        leader = shop.leader(names)
        request = leader.request()
        assert np.array_equal(leader.finish(request, shop.helper.sum(request)), shop.plain(names))


def test_numbers_wrap_modulo_two_to_the_64() -> None:
    vectors = {name: np.array([2**64 - 1, 2**63, 1], np.uint64) for name in "abc"}
    assert secure_sum(vectors, CONTEXT, minimum=3).tolist() == [2**64 - 3, 2**63, 3]
    negative = {name: np.array([-5, 7], np.int64) for name in "abc"}
    assert secure_sum(negative, CONTEXT, minimum=3).view(np.int64).tolist() == [-15, 21]


def test_too_few_clients_and_wrong_vectors_are_refused() -> None:
    vectors = {name: np.ones(4, np.uint64) for name in "abc"}
    with pytest.raises(PrivacyError, match="3 different reports or more, but 2 were named"):
        secure_sum(vectors, CONTEXT, minimum=3, dropped=["a"])
    with pytest.raises(InputError, match="none"):
        secure_sum(vectors, CONTEXT, minimum=2, dropped=["z"])
    with pytest.raises(InputError, match="one length"):
        secure_sum(vectors | {"d": np.ones(5, np.uint64)}, CONTEXT, minimum=3)
    for wrong in (np.ones(4), np.ones((2, 2), np.uint64), np.ones(0, np.uint64), np.ones(4, np.int32)):
        with pytest.raises(InputError, match="64 bits"):
            secure_sum(vectors | {"a": wrong} if len(wrong) == 4 else dict.fromkeys("abc", wrong), CONTEXT, minimum=3)


# -------------------------------------------------------------------------------------------------- the mask


def test_the_mask_is_the_chacha20_stream_of_rfc_8439() -> None:
    known = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert naive_chacha20(bytes(32), 0).hex().startswith(known)
    seed = bytes(range(32))
    blocks = b"".join(naive_chacha20(seed, counter) for counter in range(20))
    assert stream(seed, 0, 160).tobytes() == blocks
    assert stream(bytes(32), 0, 8).tobytes() == naive_chacha20(bytes(32), 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 70_000), min_size=2, max_size=2), st.binary(min_size=32, max_size=32))
def test_any_slice_of_the_mask_is_made_without_what_is_before_it(ends: list[int], seed: bytes) -> None:
    start, stop = sorted(ends)
    assert np.array_equal(stream(seed, start, stop), stream(seed, 0, stop)[start:])


def test_blocks_are_added_one_after_the_other() -> None:
    seed, whole = bytes(32), stream(bytes(32), 0, 50_000)
    total = np.full(40_005, 7, np.uint64)
    blocks = [(3, 8), (9_000, 49_000)]
    add_stream(total, seed, blocks)
    assert np.array_equal(total - np.uint64(7), np.concatenate([whole[3:8], whole[9_000:49_000]]))
    add_stream(total, seed, blocks, minus=True)
    assert (total == 7).all()


def test_blocks_outside_the_stream_and_wrong_seeds_are_refused() -> None:
    for start, stop in ((-1, 3), (5, 4), (0, MOST_WORDS + 1)):
        with pytest.raises(InputError, match="lies between"):
            add_stream(np.zeros(3, np.uint64), bytes(32), [(start, stop)])
    with pytest.raises(InputError, match="32 bytes"):
        stream(bytes(31), 0, 1)


def test_a_masked_vector_is_uniform_whatever_it_hides() -> None:
    """Chi-square over all bytes; a sound mask fails one threshold in 10⁶ runs."""
    key, helper = IdentityKey.generate(), HelperKey.generate()
    for vector in (np.zeros(50_000, np.uint64), np.full(50_000, 2**40, np.uint64), np.arange(50_000, dtype=np.uint64)):
        data = make_report(vector, CONTEXT, client="a", version=1, helper=helper.public, key=key)
        masked = np.frombuffer(data, np.uint8, offset=report_module.OVERHEAD_BYTES)
        counts = np.bincount(masked, minlength=256)
        assert scipy_stats.chisquare(counts).pvalue > 1e-6
        for place in range(8):
            assert scipy_stats.chisquare(np.bincount(masked[place::8], minlength=256)).pvalue > 1e-6


def test_under_one_seed_two_masked_vectors_differ_by_what_they_hide_and_seeds_are_never_used_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Workshop("ab")
    one, two = shop.vectors["a"], shop.vectors["b"]
    fresh = [shop.report("a", version=n, vector=one).masked for n in range(1, 20)]
    assert len({masked.tobytes() for masked in fresh}) == 19
    monkeypatch.setattr("fedmoments.privacy.secure.report.secrets.token_bytes", bytes)
    difference = shop.report("a", vector=one).masked - shop.report("a", vector=two).masked
    assert np.array_equal(difference, one - two)


# -------------------------------------------------------------------------------------------------- sealing


def test_a_sealed_seed_opens_with_its_key_and_info_only() -> None:
    key, other, seed = HelperKey.generate(), HelperKey.generate(), bytes(range(32))
    sealed = seal(seed, key.public, b"this")
    assert len(sealed) == SEALED_BYTES
    assert sealed != seal(seed, key.public, b"this")
    assert key.open(sealed, b"this") == seed
    wrong = [(key, sealed, b"that"), (other, sealed, b"this"), (key, sealed[:-1], b"this"), (key, b"", b"this")]
    wrong += [(key, bytes(SEALED_BYTES), b"this"), (key, sealed + b"\0", b"this")]
    wrong += [(key, bytes([*sealed[:at], sealed[at] ^ 1, *sealed[at + 1 :]]), b"this") for at in range(SEALED_BYTES)]
    for opener, data, info in wrong:
        with pytest.raises(PrivacyError, match="does not open"):
            opener.open(data, info)


def test_a_key_is_not_shown_and_comes_back_from_its_bytes() -> None:
    key = HelperKey.generate()
    assert key.to_bytes().hex() not in repr(key)
    assert HelperKey.from_bytes(key.to_bytes()).public == key.public
    with pytest.raises(InputError, match="32 bytes"):
        HelperKey.from_bytes(bytes(31))


#: Points of order 1, 2, 4 and 8 on curve and twist, as listed in RFC 7748's security considerations and by Bernstein.
SMALL = (
    "00" * 32, "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ff" * 32, "xy" * 32, "00", "AB" * 32, "",
)  # fmt: skip


@pytest.mark.parametrize("public", SMALL)
def test_keys_that_hide_nothing_are_refused_before_anything_is_sealed(public: str) -> None:
    with pytest.raises(InputError, match="helper's public key"):
        check_helper_key(public)
    shop = Workshop("a")
    with pytest.raises(InputError, match="helper's public key"):
        shop.data("a", helper=public)


def test_a_seed_of_another_length_is_neither_sealed_nor_opened() -> None:
    key = HelperKey.generate()
    with pytest.raises(InputError, match="32 bytes"):
        seal(bytes(31), key.public, b"")
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    point = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(key.public))
    assert key.open(suite.encrypt(bytes(32), point, info=b"x"), b"x") == bytes(32)  # HPKE as others speak it
    with pytest.raises(PrivacyError, match="32 bytes was to be sealed, but 16"):
        key.open(suite.encrypt(bytes(16), point, info=b"x"), b"x")


def test_without_cryptography_the_room_is_imported_and_says_what_is_missing() -> None:
    script = """
import sys
sys.modules["cryptography"] = None
from fedmoments.errors import MissingExtraError
from fedmoments.privacy.secure import HelperKey
from fedmoments.privacy.secure.stream import stream
for call in (HelperKey.generate, lambda: stream(bytes(32), 0, 1)):
    try:
        call()
    except MissingExtraError as error:
        assert "fedmoments[privacy]" in str(error)
    else:
        raise SystemExit("nothing was missing")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG)


def test_a_context_is_checked_and_every_part_of_it_counts() -> None:
    base = Context("f", 1, "p")
    for other in (Context("g", 1, "p"), Context("f", 2, "p"), Context("f", 1, "q"), Context("f1", 1, "p")):
        assert other.digest != base.digest
    for wrong in (
        ("", 1, "p"),
        ("f", -1, "p"),
        ("f", True, "p"),
        ("f", 1, "x" * 257),
        ("f", 2**63, "p"),
        ("\n", 1, "p"),
    ):
        with pytest.raises(InputError, match="context"):
            Context(*wrong)


def test_a_layouts_size_is_what_a_report_costs() -> None:
    shop = Workshop("a")
    assert len(shop.data("a")) == 392 + 8 * SIZE
