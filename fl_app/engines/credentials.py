"""A local certificate authority, the SuperLink's certificate and the nodes' keys.

They suffice for one machine or one private network; files of another authority can replace them.
Existing files that are still valid are used again, so a federation can be restarted.
"""

import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CURVE = ec.SECP384R1()  # the curve of `ssh-keygen -t ecdsa -b 384`, which Flower documents
_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 825
_RENEW_DAYS = 30
_NODE = re.compile(r"node(\d+)\.pub")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*\.?")


@dataclass(frozen=True)
class Credentials:
    """The path of each file in `folder`; names are the same on a host and in a container."""

    folder: Path

    @property
    def authority(self) -> Path:
        """Certificate of the authority, which all processes trust."""
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        """Key of the authority; it signs certificates, and no process of a federation reads it."""
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        """The SuperLink's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The SuperLink's key."""
        return self.folder / "server.key"

    @property
    def secret(self) -> Path:
        """Secret by which a SuperExec authenticates to the SuperLink."""
        return self.folder / "superexec.secret"

    def node_key(self, node: int) -> Path:
        """Private key of a SuperNode: its identity across restarts."""
        return self.folder / f"node{node}"

    def node_public_key(self, node: int) -> Path:
        """Public key of a SuperNode in OpenSSH format, for its registration."""
        return self.folder / f"node{node}.pub"


class CredentialsError(ValueError):
    """A key that is needed is not in the folder of keys."""


def ensure(
    folder: Path,
    *,
    nodes: int | Iterable[int],
    names: Sequence[str] = ("localhost", "superlink"),
    addresses: Sequence[str] = ("127.0.0.1",),
) -> Credentials:
    """Create files that are missing or expire soon; the folder has mode 0700, every file 0600.

    `nodes` are the numbers of nodes that need keys; a count n means 0 to n - 1. A node whose public
    key is there keeps its pair, also if the private key is on the node's own machine only. The
    server's certificate is made again if it lacks one of `names` and `addresses`. A new one keeps
    the names and addresses of the former. Raises CredentialsError if the authority's key is needed
    and is kept elsewhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    found = Credentials(folder.resolve())
    hosts = list(dict.fromkeys([*names, *addresses, *known_as(found.certificate)]))
    if _stale(found.authority):
        _make_authority(found)
        found.certificate.unlink(missing_ok=True)  # signed by the former authority
    lacks = _stale(found.certificate) or set(hosts) != set(known_as(found.certificate))
    if lacks or not _certifies(found.certificate, found.key):
        _must_sign(found)
        _make_server(found, *split_hosts(hosts))
    if not found.secret.exists():
        _write(found.secret, secrets.token_bytes(32))
    for node in range(nodes) if isinstance(nodes, int) else nodes:
        if not found.node_public_key(node).exists():
            make_node(found, node)
    return found


def must_have_private_keys(keys: Credentials, nodes: Iterable[int]) -> None:
    """Raise CredentialsError if one of the nodes cannot run here with its own pair of keys.

    A private key that does not belong to the registered public key would be refused again and
    again, and Flower names no reason.
    """
    for node in nodes:
        private, public = keys.node_key(node), keys.node_public_key(node)
        if not private.exists():
            raise CredentialsError(
                f"{private} must be there to start node {node} on this machine, and is "
                f"not; use another folder, or remove {public} for a new pair"
            )
        if not _is_pair(private, public):
            raise CredentialsError(
                f"{private} must be the private key to {public}, and is not; bring the former "
                f"file back, or remove both for a new pair"
            )


def _is_pair(private: Path, public: Path) -> bool:
    try:
        key = serialization.load_ssh_private_key(private.read_bytes(), password=None)
        told = serialization.load_ssh_public_key(public.read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm):  # damaged, with a password, unknown
        return False
    return key.public_key() == told


def _certifies(certificate: Path, key: Path) -> bool:
    """Whether a certificate is for a key, and not for one that a crash had no time to certify."""
    try:
        told = serialization.load_pem_private_key(key.read_bytes(), password=None).public_key()
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return told == _loaded(certificate).public_key()


def node_numbers(folder: Path) -> list[int]:
    """Return the numbers of the nodes whose public keys are in a folder of keys."""
    found = (_NODE.fullmatch(path.name) for path in folder.glob("node*.pub"))
    return sorted(int(name[1]) for name in found if name)


def split_hosts(hosts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names and the IP addresses among hosts; raises CredentialsError for others."""
    names, addresses = list[str](), list[str]()
    for host in hosts:
        try:
            addresses.append(str(ipaddress.ip_address(host)))
        except ValueError:
            names.append(host)
    if wrong := [name for name in names if not _HOST.fullmatch(name)]:
        raise CredentialsError(
            f"a host must be an IP address or a name of letters, digits, hyphens and dots, without "
            f"a port, got {', '.join(map(repr, wrong))}; write other letters in their xn-- form"
        )
    return names, addresses


def renew_certificate(keys: Credentials) -> None:
    """Give the SuperLink a new key, and a certificate for the hosts of the former one.

    Raises CredentialsError if the authority's key is kept elsewhere.
    """
    _must_sign(keys)
    _make_server(keys, *split_hosts(known_as(keys.certificate)))


def valid_until(certificate: Path) -> datetime:
    """Return when a certificate ends."""
    return _loaded(certificate).not_valid_after_utc


def known_as(certificate: Path) -> list[str]:
    """Return the names and addresses in a server's certificate; none if there is no such file."""
    if not certificate.exists():
        return []
    found = _loaded(certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _stale(certificate: Path) -> bool:
    if not certificate.exists():
        return True
    return valid_until(certificate) < datetime.now(UTC) + timedelta(days=_RENEW_DAYS)


def _loaded(certificate: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes())
    except ValueError as error:
        raise CredentialsError(
            f"{certificate} must be a certificate in PEM, got {certificate.stat().st_size} bytes "
            f"of something else; bring it back, or remove it for a new one"
        ) from error


def _must_sign(keys: Credentials) -> None:
    if not keys.authority_key.exists():
        raise CredentialsError(
            f"{keys.authority_key} must be there to sign a new certificate of the SuperLink, and "
            f"is not; bring it back, or remove {keys.authority} for a new authority, whose "
            f"certificate every node then needs"
        )


def _make_authority(to: Credentials) -> None:
    key = ec.generate_private_key(_CURVE)
    name = _name("fl-app local authority")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), days=_AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(to.authority_key, _pem(key))
    _write(to.authority, certificate.public_bytes(serialization.Encoding.PEM))


def _make_server(to: Credentials, names: Sequence[str], addresses: Sequence[str]) -> None:
    authority = _loaded(to.authority)
    signer = serialization.load_pem_private_key(to.authority_key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(_CURVE)
    known_as: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    known_as += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(_name("superlink"), authority.subject, key.public_key(), days=_SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(known_as), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(to.key, _pem(key))
    _write(to.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def make_node(to: Credentials, node: int) -> None:
    """Write a new key pair of a node; a former one is lost."""
    key = ec.generate_private_key(_CURVE)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(to.node_key(node), private)
    _write(to.node_public_key(node), public + b"\n")


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks of other machines differ
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read at any time."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
