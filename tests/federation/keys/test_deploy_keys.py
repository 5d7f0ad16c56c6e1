"""Certificates that strict verifiers take, keys that nobody else can read, and cards that carry no secret."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.keys import Authority, ClientKeys, load_identity, make_authority, make_client, read_card
from fedmoments.federation.keys.files import check_private
from fedmoments.wire.keys import IdentityKey


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("keys"), ["Fed.Example.org", "10.0.0.7", "::1", "localhost"])


@pytest.fixture
def clinic(tmp_path: Path) -> ClientKeys:
    return make_client(tmp_path, "clinic")


@pytest.fixture
def wide_open() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def greet(authority: Authority, name: str, root: Path | None = None) -> None:
    """Shake hands over TLS as strictly as Python can."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.certificate, authority.key)
    client = ssl.create_default_context(cafile=root or authority.root)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as line:
                line.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname=name) as line:
            line.send(b"x")
    finally:
        thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "fed.example.org", "10.0.0.7", "::1"])
def test_the_server_is_known_under_each_of_its_names(authority: Authority, name: str) -> None:
    greet(authority, name)


def test_another_name_or_another_root_is_not_believed(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'evil.example.org'"):
        greet(authority, "evil.example.org")
    stranger = make_authority(tmp_path, [])
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(authority, "localhost", stranger.root)


def test_the_certificates_may_do_no_more_than_they_must(authority: Authority) -> None:
    root, server = (
        x509.load_pem_x509_certificate(path.read_bytes()) for path in (authority.root, authority.certificate)
    )
    server.verify_directly_issued_by(root)
    usage = x509.KeyUsage
    root_may, server_may = (each.extensions.get_extension_for_class(usage) for each in (root, server))
    assert root_may.critical
    assert server_may.critical
    assert root_may.value.key_cert_sign
    assert not root_may.value.digital_signature
    assert server_may.value.digital_signature
    assert not server_may.value.key_cert_sign
    limits = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert 825 <= (server.not_valid_after_utc - server.not_valid_before_utc).days <= 826


@pytest.mark.usefixtures("wide_open")
def test_private_files_are_private_and_public_ones_are_not(tmp_path: Path) -> None:
    authority, client = make_authority(tmp_path / "server", []), make_client(tmp_path / "client", "clinic")
    for path in (authority.root_key, authority.key, client.node, client.identity):
        assert path.stat().st_mode & 0o777 == 0o600, path
        check_private(path)
    for path in (authority.root, authority.certificate, client.node_public, client.card):
        assert path.stat().st_mode & 0o777 == 0o644, path
    assert (tmp_path / "server").stat().st_mode & 0o777 == 0o700
    assert len(list((tmp_path / "client").iterdir())) == 4


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda folder: make_authority(folder, []), ["ca.crt", "ca.key", "server.pem", "server.key"]),
        (lambda folder: make_client(folder, "a"), ["a.node", "a.node.pub", "a.identity", "a.card"]),
    ],
)
def test_no_key_is_ever_overwritten(tmp_path: Path, make: Callable[[Path], Any], names: list[str]) -> None:
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text("old")
        with pytest.raises(InputError, match=rf"{name} exists already.*never overwritten"):
            make(folder)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "old"
    dangling = tmp_path / "dangling"
    dangling.mkdir()
    (dangling / names[0]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="exists already"):
        make(dangling)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "host", ["", "a b", "host:9092", "https://host", "-a.org", "a..b", "300.1.1.1", "*.org", "a" * 64]
)
def test_what_is_no_host_gets_no_certificate(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="DNS name or an IP address"):
        make_authority(tmp_path / "keys", [host])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("days", [0, -3, 3651])
def test_certificates_have_a_sensible_life(tmp_path: Path, days: int) -> None:
    with pytest.raises(InputError, match="1 to 3650 days"):
        make_authority(tmp_path, [], days)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-rf", "naïve", "a b", "a\n", "x" * 65])
def test_what_cannot_name_files_names_no_client(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a client's name must be"):
        make_client(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_card_carries_both_public_keys_and_no_secret(clinic: ClientKeys) -> None:
    card = read_card(clinic.card)
    assert card.name == "clinic"
    assert card.identity == load_identity(clinic.identity).public
    assert card.node_key == clinic.node_public.read_text().strip()
    node = load_ssh_private_key(clinic.node.read_bytes(), None)
    assert load_ssh_public_key(card.node_key.encode()) == node.public_key()
    text = clinic.card.read_text()
    assert load_identity(clinic.identity).private_bytes().hex() not in text
    assert "PRIVATE" not in text


def test_no_two_clients_share_a_key(tmp_path: Path) -> None:
    cards = [read_card(make_client(tmp_path, name).card) for name in ("a", "b")]
    assert cards[0].identity != cards[1].identity
    assert cards[0].node_key.split()[1] != cards[1].node_key.split()[1]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")
def test_openssh_reads_the_node_key(clinic: ClientKeys) -> None:
    seen = subprocess.run(["ssh-keygen", "-y", "-f", clinic.node], capture_output=True, text=True, check=True).stdout
    assert seen.split()[:2] == clinic.node_public.read_text().split()[:2]


def test_a_key_signs_what_its_card_verifies(clinic: ClientKeys) -> None:
    signature = load_identity(clinic.identity).sign(b"numbers")
    assert read_card(clinic.card).identity.verify(signature, b"numbers")
    assert not IdentityKey.generate().public.verify(signature, b"numbers")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o610])
def test_a_key_that_others_can_use_is_refused(clinic: ClientKeys, mode: int) -> None:
    clinic.identity.chmod(mode)
    with pytest.raises(InputError, match=rf"private key, but others .*mode {mode:04o}.*chmod 600"):
        load_identity(clinic.identity)
    clinic.identity.chmod(0o400)
    load_identity(clinic.identity)


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_not_loaded(clinic: ClientKeys, content: bytes) -> None:
    clinic.identity.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"holds no private key.*\.identity file"):
        load_identity(clinic.identity)


def test_keys_of_another_kind_are_told_apart(clinic: ClientKeys, authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"another kind than Ed25519"):
        load_identity(authority.key)
    with pytest.raises(FileFormatError, match=r"\.identity file"):
        load_identity(clinic.node)
    with pytest.raises(InputError, match="there is no private key"):
        load_identity(tmp_path / "nobody.identity")


def changed(field: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda card: {**card, field: value}


@pytest.mark.parametrize(
    "change",
    [
        changed("fedmoments", "statistics"),
        changed("name", "../up"),
        changed("name", 7),
        changed("identity", "00"),
        changed("identity", None),
        changed("node", "ssh-rsa AAAA"),
        changed("node", "one\ntwo"),
        changed("node", 3),
        changed("node", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"),
        lambda card: {key: value for key, value in card.items() if key != "node"},
        lambda card: [card],
        lambda card: {**card, "padding": "x" * 5000},
    ],
)
def test_a_card_that_was_tampered_with_is_none(clinic: ClientKeys, change: Callable[[dict[str, Any]], Any]) -> None:
    clinic.card.write_text(json.dumps(change(json.loads(clinic.card.read_text()))))
    with pytest.raises(FileFormatError, match=r"is not a client's card .*ask the client"):
        read_card(clinic.card)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 4000])
def test_junk_is_no_card(clinic: ClientKeys, content: bytes) -> None:
    clinic.card.write_bytes(content)
    with pytest.raises(FileFormatError, match="is not a client's card"):
        read_card(clinic.card)
