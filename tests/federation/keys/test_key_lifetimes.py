"""Keys and certificates over time: rotated, revoked, protected, and warned of before they end."""

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.errors import FileFormatError, InputError, LedgerError, RefusedError
from fedmoments.federation.keys.expiry import expiry_note, server_note
from fedmoments.federation.keys.files import PASSPHRASE_FILE, crypto
from fedmoments.federation.keys.helper import load_helper_key, make_helper
from fedmoments.federation.keys.parties import Authority, load_identity, make_authority, make_client, read_card
from fedmoments.federation.keys.renewal import renew_server
from fedmoments.federation.keys.rotation import Rotation, rotate_client, rotation_of
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FederationStore]:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 2, StatisticsSpec())
    with FederationStore.create(tmp_path / "ledger", terms) as store:
        yield store


def enrol(store: FederationStore, card: Path) -> None:
    read, rotation = read_card(card), rotation_of(card)
    if rotation is not None:
        store.rotate(rotation)
    store.enrol(read.name, read.identity, read.node_key)


def test_a_new_key_that_the_old_one_signed_takes_its_place(store: FederationStore, tmp_path: Path) -> None:
    keys = make_client(tmp_path / "keys", "clinic")
    enrol(store, keys.card)
    old = load_identity(keys.identity)
    former = rotate_client(tmp_path / "keys", "clinic")
    assert load_identity(former).public == old.public != load_identity(keys.identity).public
    assert {path.stat().st_mode & 0o777 for path in (former, keys.identity)} == {0o600}
    for _ in range(2):
        enrol(store, keys.card)
    (member,) = store.enrolled()
    assert member.key == load_identity(keys.identity).public
    assert store.verify().whole
    with pytest.raises(InputError, match="delete the old key once"):
        rotate_client(tmp_path / "keys", "clinic")
    former.unlink()
    rotate_client(tmp_path / "keys", "clinic")
    enrol(store, keys.card)
    assert [entry.event for entry in store.audit()].count("rotated") == 2


def test_nobody_else_rotates_a_key(store: FederationStore) -> None:
    old, new, thief = (IdentityKey.generate() for _ in range(3))
    store.enrol("clinic", old.public)
    store.enrol("other", thief.public)
    sound = Rotation.signed("clinic", old, new.public)
    lies = [
        Rotation.signed("clinic", thief, new.public),
        replace(sound, key=thief.public),
        replace(Rotation.signed("clinic", thief, thief.public), former=old.public),
        replace(Rotation.signed("other", old, new.public), client="clinic"),
    ]
    for lie in lies:
        with pytest.raises(LedgerError, match="did not sign the new key"):
            store.rotate(lie)
    with pytest.raises(RefusedError, match="no client called"):
        store.rotate(replace(sound, client="nobody"))
    store.revoke("clinic")
    with pytest.raises(RefusedError, match="was revoked"):
        store.rotate(sound)


def test_an_old_key_does_not_come_back_with_a_snapshot(store: FederationStore, tmp_path: Path) -> None:
    old, new = IdentityKey.generate(), IdentityKey.generate()
    store.enrol("clinic", old.public)
    store.snapshot(tmp_path / "snapshot")
    store.rotate(Rotation.signed("clinic", old, new.public))
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert restored.enrolled()[0].key == new.public
        assert restored.verify().whole
        with pytest.raises(LedgerError, match="is enrolled with the key"):
            restored.enrol("clinic", old.public)


def test_a_passphrase_protects_secret_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    words.touch(mode=0o600)
    words.write_text("correct horse battery\n")
    keys = make_client(tmp_path / "keys", "clinic", b"correct horse battery")
    helper = make_helper(tmp_path / "keys", "notary", b"correct horse battery")
    assert b"ENCRYPTED" in keys.identity.read_bytes()
    for load, path in ((load_identity, keys.identity), (load_helper_key, helper.key)):
        monkeypatch.delenv(PASSPHRASE_FILE, raising=False)
        with pytest.raises(InputError, match=f"protected by a passphrase.*{PASSPHRASE_FILE}"):
            load(path)
        monkeypatch.setenv(PASSPHRASE_FILE, str(words))
        assert load(path).public
    words.write_text("incorrect horse battery\n")
    with pytest.raises(InputError, match="does not open"):
        load_identity(keys.identity)
    words.chmod(0o644)
    with pytest.raises(InputError, match="others than its owner"):
        load_identity(keys.identity)


def test_certificates_are_warned_of_and_refused_in_words(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, ["fed.example.org"], 100)
    now = datetime.datetime.now(datetime.UTC)

    def note(days: float) -> str | None:
        return expiry_note(authority.certificate, "the server's certificate", now + datetime.timedelta(days=days))

    assert note(0) is None
    assert note(69) is None
    warned = note(71)
    assert warned is not None
    assert "in 28 days: let the server's operator run 'fedmoments keys renew" in warned
    with pytest.raises(InputError, match=r"the server's certificate .* ended on .* nobody can connect"):
        note(101)
    with pytest.raises(InputError, match="this machine's clock says"):
        note(-2)
    with pytest.raises(InputError, match="is not a certificate"):
        expiry_note(authority.key, "it")


def test_a_certificate_is_renewed_for_the_same_names(tmp_path: Path) -> None:
    x509 = crypto("x509")
    authority = make_authority(tmp_path, ["fed.example.org", "10.0.0.7"], 40)
    before = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    _, end = renew_server(tmp_path, 800)
    after = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    root = x509.load_pem_x509_certificate(authority.root.read_bytes())
    names = [part.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for part in (before, after)]
    assert names[0] == names[1]
    assert before.public_key() != after.public_key()
    assert end <= root.not_valid_after_utc
    after.verify_directly_issued_by(root)
    assert authority.key.stat().st_mode & 0o777 == 0o600
    with served(authority) as address:
        assert server_note(address, authority.root) is None or "ends on" in str(server_note(address, authority.root))


@contextmanager
def served(authority: Authority) -> Iterator[str]:
    """Show a certificate to whoever connects, on this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(plain, server_side=True) as secured:
                        secured.recv(1)
                except OSError:
                    plain.close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_client_hears_in_words_what_is_wrong_with_a_servers_certificate(tmp_path: Path) -> None:
    soon = make_authority(tmp_path / "soon", [], 10)
    other = make_authority(tmp_path / "other", [], 100)
    with served(soon) as address:
        warned = server_note(address, soon.root)
        assert warned is not None
        assert "in 9 days" in warned
        with pytest.raises(InputError, match=r"this is not the server that your ca.crt belongs to"):
            server_note(address, other.root)
    ended = _ended(tmp_path / "ended")
    with served(ended) as address, pytest.raises(InputError, match=r"has expired.*keys renew"):
        server_note(address, ended.root)
    assert server_note("127.0.0.1:1", soon.root) is None


def _ended(folder: Path) -> Authority:
    """Certificates of which the server's ended an hour ago."""
    from fedmoments.federation.keys import certificates

    x509 = crypto("x509")
    authority = make_authority(folder, [], 100)
    coding = crypto("hazmat.primitives.serialization")
    root_key = coding.load_pem_private_key(authority.root_key.read_bytes(), None)
    key = coding.load_pem_private_key(authority.key.read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    builder: Any = x509.CertificateBuilder(
        subject_name=certificates.named("fedmoments server"),
        issuer_name=certificates.named("fedmoments federation"),
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=now - datetime.timedelta(days=2),
        not_valid_after=now - datetime.timedelta(hours=1),
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([certificates.general_name("127.0.0.1")]), critical=False
    )
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    signed = builder.add_extension(above, critical=False).sign(root_key, crypto("hazmat.primitives.hashes").SHA384())
    authority.certificate.write_bytes(signed.public_bytes(coding.Encoding.PEM))
    return authority


def test_a_card_with_a_broken_rotation_is_no_card(tmp_path: Path) -> None:
    keys = make_client(tmp_path, "clinic")
    rotate_client(tmp_path, "clinic")
    text = keys.card.read_text()
    for broken in (text.replace('"former": "', '"former": "zz'), text.replace('"signature": "', '"signature": "z')):
        keys.card.write_text(broken)
        with pytest.raises(FileFormatError, match="is not a client's card"):
            rotation_of(keys.card)
