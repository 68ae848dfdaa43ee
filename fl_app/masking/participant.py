"""A client in one secure sum: its keys, the shares of others, and what it tells in each stage.

Bonawitz et al., CCS 2017, "Practical secure aggregation for privacy-preserving machine learning",
against a server that is curious but follows the protocol. Without the consistency check and the
signatures that the paper adds against one that does not.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import urandom

from cryptography.fernet import InvalidToken
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)

from fl_app.masking.keys import (
    KEY_SHARE_BYTES,
    SEED_SHARE_BYTES,
    KeyPair,
    check_public,
    cipher_key,
    mask_seed,
)
from fl_app.masking.keystream import SEED_BYTES, mask
from fl_app.masking.stages import FEWEST, SETUP, SHARES, STAGES, UNMASK, VECTOR
from fl_app.types import Integers

SHARE_BYTES = (SEED_SHARE_BYTES, KEY_SHARE_BYTES)
"""Lengths of the shares in a box; the server would refuse others."""


class ProtocolError(ValueError):
    """A question of the server that would reveal too much, or that comes out of turn."""


@dataclass
class Participant:
    """The state of a client in one secure sum, as bytes between two messages.

    `threshold` is how many clients, itself included, must still be there when masks are removed.
    """

    client_id: int
    stage: str = ""
    """The last stage that was answered."""
    mask_private: bytes = b""
    cipher_private: bytes = b""
    seed: bytes = b""
    """Of the mask of its own, so that a late vector of a client thought lost stays masked."""
    threshold: int = 0
    public: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """The public keys of its neighbours for masks and for ciphers."""
    seed_shares: dict[int, bytes] = field(default_factory=dict)
    """Shares of the seeds of its neighbours and of its own."""
    key_shares: dict[int, bytes] = field(default_factory=dict)
    """Shares of the secret keys for masks of its neighbours."""

    def set_up(self) -> tuple[bytes, bytes]:
        """Draw new keys; return the public ones for masks and for ciphers."""
        of_masks, of_ciphers = KeyPair.generate(), KeyPair.generate()
        self.__init__(self.client_id)  # type: ignore[misc]
        self.stage = SETUP
        self.mask_private, self.cipher_private = of_masks.private, of_ciphers.private
        return of_masks.public, of_ciphers.public

    def share(self, public: Mapping[int, tuple[bytes, bytes]], threshold: int) -> dict[int, bytes]:
        """Return for each neighbour, by its public keys, its encrypted shares of this client.

        Raises ProtocolError for too few clients, or a threshold that half of them or fewer reach.
        """
        self._enter(SHARES)
        holders = len(public) + 1
        least = max(FEWEST, holders // 2 + 1)
        if self.client_id in public or not least <= threshold <= holders:
            raise ProtocolError(
                f"the threshold must be in {least}..{holders} for {holders} clients, got "
                f"{threshold}; sample more clients"
            )
        every = [key for pair in public.values() for key in pair]
        if len({*every}) < len(every):
            raise ProtocolError("the public keys must be different, got one twice")
        for key in every:
            check_public(key)
        self.public, self.threshold, self.seed = dict(public), threshold, urandom(SEED_BYTES)
        of_seed = create_shares(self.seed, threshold, holders)
        of_key = create_shares(self.mask_private, threshold, holders)
        self.seed_shares[self.client_id] = of_seed.pop()
        parts = zip(sorted(public), of_seed, of_key[:-1], strict=True)
        return {
            other: encrypt(
                cipher_key(self.cipher_private, public[other][1]),
                share_keys_plaintext_concat(self.client_id, other, for_seed, for_key),
            )
            for other, for_seed, for_key in parts
        }

    def mask(self, vector: Integers, boxes: Mapping[int, bytes]) -> tuple[Integers, list[int]]:
        """Return `vector` (l,) with this client's mask and one for each neighbour with a box.

        A neighbour's mask is added by the client with the smaller id, and subtracted by the other,
        so that the sum of both is without it. A box has a neighbour's shares. Also return those
        whose boxes do not open: there are no masks for them. Raises ProtocolError for too few
        boxes that do.
        """
        self._enter(VECTOR)
        if not boxes.keys() <= self.public.keys():
            raise ProtocolError(f"boxes must be from neighbours, got those of {sorted(boxes)}")
        opened = [other for other, box in boxes.items() if self._opens(other, box)]
        if len(opened) + 1 < self.threshold:
            raise ProtocolError(
                f"shares of {self.threshold - 1} neighbours or more are needed, got those of "
                f"{sorted(opened)}"
            )
        masked: Integers = vector + mask(self.seed, len(vector))
        for other in opened:
            common = mask(mask_seed(self.mask_private, self.public[other][0]), len(vector))
            masked = masked + common if self.client_id < other else masked - common
        return masked, sorted(boxes.keys() - {*opened})

    def _opens(self, other: int, box: bytes) -> bool:
        """Store the shares in a box; False if it has none for this client of the right length."""
        key = cipher_key(self.cipher_private, self.public[other][1])
        try:
            source, target, seed, secret = share_keys_plaintext_separate(decrypt(key, box))
        except (InvalidToken, ValueError):
            return False
        lengths = (len(seed), len(secret))
        if (source, target) != (other, self.client_id) or lengths != SHARE_BYTES:
            return False
        self.seed_shares[other], self.key_shares[other] = seed, secret
        return True

    def reveal(
        self, survivors: Collection[int], dropped: Collection[int]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return shares of the survivors' seeds and of the dropped clients' keys, in their order.

        Never both of one client, which would unmask its vector. Raises ProtocolError if that is
        asked for, or if fewer than the threshold survive.
        """
        self._enter(UNMASK)
        known = self.seed_shares.keys()
        if {*survivors} & {*dropped} or not {*survivors, *dropped} <= known:
            raise ProtocolError(
                "each client must have survived or dropped, and have sent shares, got "
                f"{sorted(survivors)} and {sorted(dropped)}"
            )
        if self.client_id not in survivors or len({*survivors}) < self.threshold:
            raise ProtocolError(
                f"{self.threshold} clients or more must survive, this one included, got "
                f"{sorted(survivors)}"
            )
        return [self.seed_shares[each] for each in survivors], [
            self.key_shares[each] for each in dropped
        ]

    def _enter(self, stage: str) -> None:
        """Enter a stage; each one once, and in order."""
        before = STAGES[STAGES.index(stage) - 1]
        if self.stage != before:
            raise ProtocolError(
                f"{stage} must follow {before}, got it after {self.stage or 'nothing'}; begin anew"
            )
        self.stage = stage

    def to_bytes(self) -> bytes:
        """Return the state, which must not leave the client."""
        return json.dumps(asdict(self), default=bytes.hex).encode()

    @classmethod
    def of_bytes(cls, saved: bytes) -> "Participant":
        """Return the state that `to_bytes` returned."""
        values = json.loads(saved)
        for name in ("mask_private", "cipher_private", "seed"):
            values[name] = bytes.fromhex(values[name])
        for name in ("seed_shares", "key_shares"):
            values[name] = {int(k): bytes.fromhex(v) for k, v in values[name].items()}
        pairs: Mapping[str, Sequence[str]] = values["public"]
        values["public"] = {
            int(k): (bytes.fromhex(first), bytes.fromhex(second))
            for k, (first, second) in pairs.items()
        }
        return cls(**values)
