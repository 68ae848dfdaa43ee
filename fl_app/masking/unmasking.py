"""The server's part of a secure sum: removing the masks from the sum of the masked vectors."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice

from flwr.common.secure_aggregation.crypto.shamir import combine_shares

from fl_app.masking.keys import PRIVATE_BYTES, KeyPair, mask_seed
from fl_app.masking.keystream import SEED_BYTES, mask
from fl_app.masking.neighbours import Graph
from fl_app.types import Integers

_SPARE = 2
"""Shares told beyond those needed with which a lie of one client never wins."""
_POINT_BYTES = 4
"""A share begins with the point at which it is the value of a polynomial."""
_TRIES = 4
"""Parts of the shares that are tried for each share told, before a secret is given up."""
Shares = Mapping[int, Mapping[int, bytes]]
"""The shares of one secret of each client, by the client that told them."""


class UnmaskError(ValueError):
    """Shares that do not give secrets, of `wrong` clients, or are too `few`, of others."""

    def __init__(self, problems: Sequence[str], wrong: Collection[int], few: Collection[int]):
        super().__init__("; ".join(problems))
        self.wrong, self.few = frozenset(wrong), frozenset(few)


class _SecretError(ValueError):
    """Why shares do not give a secret; `few`: more are needed."""

    def __init__(self, why: str, *, few: bool) -> None:
        super().__init__(why)
        self.few = few


def unmasked(
    total: Integers,
    *,
    graph: Graph,
    dropped: Collection[int],
    mask_keys: Mapping[int, bytes],
    seed_shares: Shares,
    key_shares: Shares,
    threshold: Mapping[int, int],
) -> tuple[Integers, set[int]]:
    """Return the sum (l,) of the survivors' vectors from the sum (l,) of their masked ones.

    `seed_shares` are of all survivors, `key_shares` of all `dropped` clients; `graph` has those in
    whose vectors each one has a common mask, which nothing cancels if it dropped out. `mask_keys`
    are the public keys for masks, `threshold` the shares that each secret needs. Also return the
    clients that told wrong shares, as far as more shares than needed show it. Raises UnmaskError
    for shares that give no secret, or another than that of the public key.
    """
    found = _Secrets(threshold)
    for owner, shares in seed_shares.items():
        seed = found.of(owner, shares, SEED_BYTES, None)
        if seed is not None:
            total = total - mask(seed, len(total))
    for owner in dropped:
        holders = [other for other in graph[owner] if other in seed_shares]
        if not holders:
            continue
        private = found.of(owner, key_shares[owner], PRIVATE_BYTES, mask_keys[owner])
        if private is None:
            continue
        for other in holders:
            common = mask(mask_seed(private, mask_keys[other]), len(total))
            total = total - common if other < owner else total + common
    found.check()
    return total, found.liars


class _Secrets:
    """Secrets from shares, of which each needs a `threshold`; `liars` told wrong ones.

    To find who lied takes many times longer than a secret that all shares fit. So the shares of
    known liars are left out of further secrets, or tried last where too few others would be left to
    show another lie: its secret may need them, as a client that shares wrong ones makes its honest
    neighbours look like liars.
    """

    def __init__(self, threshold: Mapping[int, int]) -> None:
        self.threshold, self.liars = threshold, set[int]()
        self._errors: dict[int, _SecretError] = {}

    def of(
        self, owner: int, shares: Mapping[int, bytes], size: int, public: bytes | None
    ) -> bytes | None:
        """Return the secret of a client, None if its shares do not give it."""
        needed = self.threshold[owner]
        tellers = [each for each in shares if each not in self.liars]
        if len(tellers) < needed + _SPARE:
            tellers += [each for each in shares if each in self.liars]
        told = {each: shares[each] for each in tellers}
        try:
            secret, liars = _secret(owner, told, needed, size, public)
        except _SecretError as error:
            self._errors[owner] = error
            return None
        self.liars |= liars
        return secret

    def check(self) -> None:
        """Raise UnmaskError if a secret was not found."""
        if self._errors:
            few = {owner for owner, error in self._errors.items() if error.few}
            problems = [str(error) for error in self._errors.values()]
            raise UnmaskError(problems, self._errors.keys() - few, few)


def _secret(
    owner: int, shares: Mapping[int, bytes], threshold: int, size: int, public: bytes | None
) -> tuple[bytes, set[int]]:
    """Return a secret of `size` bytes, that of a `public` key if there is one, and who lied.

    Any `threshold` shares give the secret. If the first and the last ones give two, other parts are
    tried: the secret is that which the most shares fit. Two polynomials of Shamir's scheme have
    fewer than `threshold` points in common, so that no lie of one client wins if _SPARE more shares
    are told than are needed, and that no other part is tried once so many fit that none has more.
    """
    if len(shares) < threshold:
        raise _SecretError(
            f"{threshold} shares of client {owner} are needed, got {len(shares)}; lower "
            "masking.threshold if many clients are lost",
            few=True,
        )

    def combined(tellers: Sequence[int]) -> bytes | None:
        return _combined([shares[each] for each in tellers], size, public)

    tellers = [*shares]
    secret = combined(tellers[:threshold])
    if secret is not None and (public or combined(tellers[-threshold:]) == secret):
        return secret, set()
    fitting = dict[bytes, set[int]]()
    for part in islice(_parts(tellers, threshold), _TRIES * len(tellers)):
        found = combined(part)
        if found is None or fitting.get(found, set()) >= {*part}:
            continue
        others = [each for each in tellers if each not in part]
        fits = {*part, *(each for each in others if combined([*part[:-1], each]) == found)}
        fitting[found] = max(fitting.get(found, set()), fits, key=len)
        if 2 * len(fits) >= len(tellers) + threshold:
            break
    best = max(map(len, fitting.values()), default=0)
    secrets = [each for each, fits in fitting.items() if len(fits) == best]
    if len(secrets) != 1:
        raise _SecretError(_why(owner, size, public), few=False)
    return secrets[0], {*tellers} - fitting[secrets[0]]


def _parts(tellers: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield parts of this size: for any one of the tellers one without it, then for any two.

    Tellers are left out in groups, as many at once as are not needed, and the last ones first.
    """
    spare = len(tellers) - size
    for width, count in ((spare, 1), (spare // 2, 2)):
        if width == 0:
            continue
        ends = range(len(tellers), 0, -width)
        groups = [tellers[max(0, end - width) : end] for end in ends]
        for groups_away in combinations(groups, count):
            away = {*chain(*groups_away)}
            yield [each for each in tellers if each not in away][:size]


def _combined(shares: Sequence[bytes], size: int, public: bytes | None) -> bytes | None:
    """Return the secret; None: another length, which its owner may choose, or another key.

    Also None for a share at point 0, which would be the secret whatever the others are.
    """
    if any(int.from_bytes(share[:_POINT_BYTES], "little") == 0 for share in shares):
        return None
    try:
        secret: bytes = combine_shares([*shares])
    except ValueError:
        return None
    if len(secret) != size or (public is not None and _public(secret) != public):
        return None
    return secret


def _why(owner: int, size: int, public: bytes | None) -> str:
    what = f"{size} bytes" if public is None else "the secret of its public key"
    return (
        f"the shares of client {owner} must give {what}, and do not: it shared other ones, or one "
        "of those that told them told others; raise masking.neighbours or lower "
        "masking.threshold, so that more shares than needed show who"
    )


def _public(private: bytes) -> bytes | None:
    """Return the public key of a secret one; None for a number that is none of the curve."""
    try:
        return KeyPair.of(int.from_bytes(private, "big")).public
    except ValueError:
        return None
