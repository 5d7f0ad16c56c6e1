"""Keys of a helper: for its owner's eyes, never overwritten, and nothing else is taken for them."""

import json
from pathlib import Path

import pytest

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.keys.helper import load_helper_key, make_helper, read_helper_card
from fedmoments.federation.keys.parties import make_client, read_card
from fedmoments.privacy.secure.seal import seal


def test_a_seed_sealed_for_the_card_opens_with_the_key(tmp_path: Path) -> None:
    made = make_helper(tmp_path, "notary")
    card, key = read_helper_card(made.card), load_helper_key(made.key)
    assert key.open(seal(bytes(range(32)), card.key, b"round"), b"round") == bytes(range(32))
    assert card.node_key in made.node_public.read_text("utf-8")
    for secret in (made.key, made.node):
        assert secret.stat().st_mode & 0o077 == 0


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    made = make_helper(tmp_path, "notary")
    before = made.key.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        make_helper(tmp_path, "notary")
    assert made.key.read_bytes() == before


def test_a_key_that_others_can_read_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    made, client = make_helper(tmp_path, "notary"), make_client(tmp_path, "clinic")
    with pytest.raises(FileFormatError, match="another kind than X25519"):
        load_helper_key(client.identity)
    made.key.chmod(0o644)
    with pytest.raises(InputError, match="others than its owner"):
        load_helper_key(made.key)
    client.node.write_text("no key", "utf-8")
    with pytest.raises(FileFormatError, match="holds no private key"):
        load_helper_key(client.node)


def test_cards_of_helpers_and_clients_are_not_taken_for_each_other(tmp_path: Path) -> None:
    made, client = make_helper(tmp_path, "notary"), make_client(tmp_path, "clinic")
    with pytest.raises(FileFormatError, match="is not a helper's card"):
        read_helper_card(client.card)
    with pytest.raises(FileFormatError, match="is not a client's card"):
        read_card(made.card)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"helper": "00" * 32}, "small order"),
        ({"helper": "AB" * 32}, "lower-case hexadecimal"),
        ({"helper": 7}, "must be texts"),
        ({"name": "../notary"}, "a helper's name must be"),
        ({"node": "ssh-rsa AAAA"}, "node key"),
    ],
)
def test_a_card_with_keys_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    card = make_helper(tmp_path, "notary").card
    content = json.loads(card.read_text("utf-8"))
    card.write_text(json.dumps({**content, **change}), "utf-8")
    with pytest.raises(FileFormatError, match=why):
        read_helper_card(card)
    card.write_text("{" * 5000, "utf-8")
    with pytest.raises(FileFormatError, match="more than 4096 bytes"):
        read_helper_card(card)
