"""Key pairs on the curve P-384, and what two clients share by them."""

from base64 import urlsafe_b64decode
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key

CURVE = ec.SECP384R1()
PRIVATE_BYTES, PUBLIC_BYTES = 48, 49
"""A secret number, and a compressed point: less to share and to send than the same in PEM."""
SEED_SHARE_BYTES, KEY_SHARE_BYTES = 52, 68
"""Lengths of a share of a seed, and of one of a secret key."""


@dataclass(frozen=True)
class KeyPair:
    """A secret key and its public key, as bytes."""

    private: bytes
    public: bytes

    @classmethod
    def generate(cls) -> "KeyPair":
        """Return a new pair, drawn by the operating system and not from the run's seed."""
        return cls.of(ec.generate_private_key(CURVE).private_numbers().private_value)

    @classmethod
    def of(cls, secret: int) -> "KeyPair":
        """Return the pair of a secret number; raises ValueError for one outside of the curve."""
        point = ec.derive_private_key(secret, CURVE).public_key()
        public = point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        return cls(secret.to_bytes(PRIVATE_BYTES, "big"), public)


def check_public(key: bytes) -> None:
    """Raise ValueError unless `key` is a point of the curve, of PUBLIC_BYTES bytes."""
    if len(key) != PUBLIC_BYTES:
        raise ValueError(f"a public key must have {PUBLIC_BYTES} bytes, got {len(key)}")
    ec.EllipticCurvePublicKey.from_encoded_point(CURVE, key)


def cipher_key(private: bytes, public: bytes) -> bytes:
    """Return the key that two clients share for Flower's `encrypt` and `decrypt`."""
    mine = ec.derive_private_key(int.from_bytes(private, "big"), CURVE)
    key: bytes = generate_shared_key(
        mine, ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)
    )
    return key


def mask_seed(private: bytes, public: bytes) -> bytes:
    """Return the seed of the mask that two clients share; both compute the same."""
    return urlsafe_b64decode(cipher_key(private, public))
