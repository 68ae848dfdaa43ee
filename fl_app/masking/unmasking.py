"""The server's part of a secure sum: removing the masks from the sum of the masked vectors."""

from collections.abc import Collection, Mapping, Sequence

from flwr.common.secure_aggregation.crypto.shamir import combine_shares

from fl_app.masking.keys import PRIVATE_BYTES, KeyPair, mask_seed
from fl_app.masking.keystream import SEED_BYTES, mask
from fl_app.masking.neighbours import Graph
from fl_app.types import Integers

Shares = Mapping[int, Sequence[bytes]]
"""Shares of one secret of each client."""


class UnmaskError(ValueError):
    """Shares that do not give the secret: a client told a wrong one."""


def unmasked(
    total: Integers,
    *,
    graph: Graph,
    dropped: Collection[int],
    mask_keys: Mapping[int, bytes],
    seed_shares: Shares,
    key_shares: Shares,
    threshold: Mapping[int, int],
) -> Integers:
    """Return the sum (l,) of the survivors' vectors from the sum (l,) of their masked ones.

    `seed_shares` are of all survivors, `key_shares` of all `dropped` clients, whose neighbours have
    masks in the total that nothing cancels. `mask_keys` are the public keys for masks, `threshold`
    the shares that each secret needs. Raises UnmaskError for shares that give no secret, or another
    than that of the public key.
    """
    for owner, shares in seed_shares.items():
        total = total - mask(_secret(owner, shares, threshold[owner], SEED_BYTES), len(total))
    for owner in dropped:
        private = _secret(owner, key_shares[owner], threshold[owner], PRIVATE_BYTES)
        if _public(private) != mask_keys[owner]:
            raise UnmaskError(f"the shares of the key of client {owner} must give its key")
        for other in graph[owner]:
            if other in seed_shares:
                common = mask(mask_seed(private, mask_keys[other]), len(total))
                total = total - common if other < owner else total + common
    return total


def _secret(owner: int, shares: Sequence[bytes], threshold: int, size: int) -> bytes:
    """Return a secret of `size` bytes; who shared it may have shared one of any other length."""
    if len(shares) < threshold:
        raise UnmaskError(
            f"{threshold} shares of client {owner} are needed, got {len(shares)}; lower "
            "masking.threshold if many clients are lost"
        )
    try:
        secret: bytes = combine_shares(list(shares[:threshold]))
    except ValueError as error:
        raise UnmaskError(f"the shares of client {owner} give no secret") from error
    if len(secret) != size:
        raise UnmaskError(f"the shares of client {owner} must give {size} bytes, got {len(secret)}")
    return secret


def _public(private: bytes) -> bytes | None:
    """Return the public key of a secret one; None for a number that is none of the curve."""
    try:
        return KeyPair.of(int.from_bytes(private, "big")).public
    except ValueError:
        return None
