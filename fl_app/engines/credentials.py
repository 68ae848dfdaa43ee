"""The files of a local certificate authority, the SuperLink's certificate and the nodes' keys.

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

from fl_app.engines import certificates

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
    if lacks or not _certified(found):
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
        if not certificates.is_pair(private.read_bytes(), public.read_bytes()):
            raise CredentialsError(
                f"{private} must be the private key to {public}, and is not; bring the former "
                f"file back, or remove both for a new pair"
            )


def _certified(keys: Credentials) -> bool:
    """Whether the certificate is for the key, and not for one that a crash left uncertified."""
    try:
        key = keys.key.read_bytes()
    except FileNotFoundError:
        return False
    return certificates.certifies(_loaded(keys.certificate), key)


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
    return certificates.hosts_of(_loaded(certificate))


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
    key, certificate = certificates.new_authority()
    _write(to.authority_key, key)
    _write(to.authority, certificate)


def _make_server(to: Credentials, names: Sequence[str], addresses: Sequence[str]) -> None:
    authority, signer = _loaded(to.authority), to.authority_key.read_bytes()
    key, certificate = certificates.new_server(authority, signer, names, addresses)
    _write(to.key, key)
    _write(to.certificate, certificate)


def make_node(to: Credentials, node: int) -> None:
    """Write a new key pair of a node; a former one is lost."""
    private, public = certificates.new_node()
    _write(to.node_key(node), private)
    _write(to.node_public_key(node), public)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read at any time."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
