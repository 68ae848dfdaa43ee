"""The authority signs what clients of the SuperLink accept, and its files are private."""

import ipaddress
import shutil
import socket
import ssl
import stat
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fl_app.engines import certificates, credentials


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return credentials.ensure(tmp_path_factory.mktemp("run") / "keys", nodes=2)


def test_every_file_is_the_owners_alone(keys):
    names = {path.name for path in keys.folder.iterdir()}
    assert names == {
        *("ca.crt", "ca.key", "server.pem", "server.key", "superexec.secret"),
        *("node0", "node0.pub", "node1", "node1.pub"),
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.folder.iterdir()} == {0o600}
    assert stat.S_IMODE(keys.folder.stat().st_mode) == 0o700


def test_the_certificate_names_localhost_superlink_and_loopback(keys):
    certificate = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "superlink"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate(keys.authority.read_bytes())
    )


@pytest.mark.parametrize("name", ["localhost", "superlink", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_accepts_the_server(keys, name):
    assert handshake(keys, keys.authority, name)


def test_a_client_refuses_another_name_and_another_authority(keys, tmp_path):
    other = credentials.ensure(tmp_path / "keys", nodes=0)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, keys.authority, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, other.authority, "localhost")


def handshake(keys, trusted, name):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys.certificate, keys.key)
    client = ssl.create_default_context(cafile=str(trusted))
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default
    here, there = socket.socketpair()

    def serve():
        with there:
            try:
                server.wrap_socket(there, server_side=True).close()
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with here, client.wrap_socket(here, server_hostname=name) as secured:
            return secured.version() is not None
    finally:
        thread.join()


def test_a_node_key_is_p384_in_openssh_format_and_fits_its_public_key(keys):
    private = serialization.load_ssh_private_key(keys.node_key(0).read_bytes(), password=None)
    public = serialization.load_ssh_public_key(keys.node_public_key(0).read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public
    assert keys.node_public_key(0).read_text().startswith("ecdsa-sha2-nistp384 ")
    assert keys.node_public_key(0).read_bytes() != keys.node_public_key(1).read_bytes()


def test_a_second_call_keeps_what_is_there_and_adds_nodes(keys, tmp_path):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    credentials.ensure(folder, nodes=3)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"node2", "node2.pub"}


def test_a_certificate_about_to_expire_is_renewed_by_the_same_authority(
    keys, tmp_path, monkeypatch
):
    folder = tmp_path / "keys"
    monkeypatch.setattr(certificates, "SERVER_DAYS", 29)
    short = credentials.ensure(folder, nodes=0)
    before = short.certificate.read_bytes(), short.authority.read_bytes()
    monkeypatch.undo()
    credentials.ensure(folder, nodes=0)
    assert short.certificate.read_bytes() != before[0]
    assert short.authority.read_bytes() == before[1]


@pytest.mark.parametrize("damage", [b"", None])
def test_a_key_that_a_crash_left_without_its_certificate_is_replaced(keys, tmp_path, damage):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    credentials.ensure(folder, nodes=0, names=["fl.example"])
    other = credentials.ensure(tmp_path / "other", nodes=0)
    key = other.key.read_bytes() if damage is None else damage
    (folder / "server.key").write_bytes(key)
    again = credentials.ensure(folder, nodes=0)
    assert handshake(again, again.authority, "fl.example")
    before = again.key.read_bytes()
    assert credentials.ensure(folder, nodes=0).key.read_bytes() == before


def test_a_new_authority_signs_a_new_certificate(tmp_path):
    keys = credentials.ensure(tmp_path / "keys", nodes=0)
    keys.authority.unlink()
    credentials.ensure(tmp_path / "keys", nodes=0)
    assert handshake(keys, keys.authority, "localhost")


def test_an_authority_whose_key_is_kept_offline_stays_until_it_must_sign(keys, tmp_path):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    (folder / "ca.key").unlink()
    before = (folder / "ca.crt").read_bytes()
    offline = credentials.ensure(folder, nodes=2)
    with pytest.raises(credentials.CredentialsError, match=r"ca\.key must be there to sign"):
        credentials.ensure(folder, nodes=2, names=["fl.example"])
    assert offline.authority.read_bytes() == before
    assert "fl.example" not in credentials.known_as(offline.certificate)


def test_a_renewed_certificate_keeps_the_hosts_that_it_had(keys, tmp_path, monkeypatch):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    credentials.ensure(folder, nodes=0, names=["fl.example"], addresses=["10.0.0.7"])
    first = (folder / "server.pem").read_bytes()
    credentials.ensure(folder, nodes=0)
    assert (folder / "server.pem").read_bytes() == first
    monkeypatch.setattr(credentials, "_RENEW_DAYS", 1000)  # the certificate ends sooner
    credentials.ensure(folder, nodes=0, names=["other.example"], addresses=[])
    names = ["other.example", "fl.example", "localhost", "superlink", "10.0.0.7", "127.0.0.1"]
    assert set(credentials.known_as(folder / "server.pem")) == set(names)


def test_a_node_whose_private_key_is_on_its_own_machine_keeps_its_pair(keys, tmp_path):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    public = (folder / "node1.pub").read_bytes()
    (folder / "node1").unlink()
    again = credentials.ensure(folder, nodes=2)
    assert again.node_public_key(1).read_bytes() == public
    assert not again.node_key(1).exists()
    credentials.must_have_private_keys(again, [0])
    with pytest.raises(credentials.CredentialsError, match="start node 1 on this machine"):
        credentials.must_have_private_keys(again, [0, 1])


def test_a_private_key_of_another_pair_is_told_by_its_name(keys, tmp_path):
    folder = tmp_path / "keys"
    shutil.copytree(keys.folder, folder)
    given = credentials.Credentials(folder)
    credentials.must_have_private_keys(given, [0, 1])
    shutil.copyfile(given.node_key(0), given.node_key(1))
    with pytest.raises(credentials.CredentialsError, match=r"node1 must be the private key to "):
        credentials.must_have_private_keys(given, [0, 1])
    given.node_key(0).write_bytes(b"no key")
    with pytest.raises(credentials.CredentialsError, match=r"node0 must be the private key to "):
        credentials.must_have_private_keys(given, [0])
