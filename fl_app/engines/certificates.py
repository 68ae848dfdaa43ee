"""Keys and certificates as bytes: those of an authority, of the SuperLink and of nodes."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CURVE = ec.SECP384R1()  # the curve of `ssh-keygen -t ecdsa -b 384`, which Flower documents
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
Pair = tuple[bytes, bytes]
"""A private key, and its public key or the certificate of that."""


def new_authority() -> Pair:
    """Return a key and the certificate, both in PEM, that signs those of servers."""
    key = ec.generate_private_key(CURVE)
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
        _builder(name, name, key.public_key(), days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(key), certificate.public_bytes(serialization.Encoding.PEM)


def new_server(
    authority: x509.Certificate,
    authority_key: bytes,
    names: Sequence[str],
    addresses: Sequence[str],
) -> Pair:
    """Return a key and the certificate of the SuperLink, both in PEM, for these hosts."""
    signer = serialization.load_pem_private_key(authority_key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(CURVE)
    hosts: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    hosts += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(_name("superlink"), authority.subject, key.public_key(), days=SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pem(key), certificate.public_bytes(serialization.Encoding.PEM)


def new_node() -> Pair:
    """Return a private and a public key in OpenSSH's format."""
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + b"\n"


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and the addresses in a server's certificate."""
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]


def is_pair(private: bytes, public: bytes) -> bool:
    """Whether two keys in OpenSSH's format belong to each other."""
    try:
        key = serialization.load_ssh_private_key(private, password=None)
        told = serialization.load_ssh_public_key(public)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # damaged, with a password, unknown
        return False
    return key.public_key() == told


def certifies(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether a certificate is for a private key in PEM."""
    try:
        told = serialization.load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return told == certificate.public_key()


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
