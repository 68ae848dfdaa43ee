"""Shares secrets in a fraction of the time: tests of secure sums share thousands.

PyCryptodome computes in GF(2^128) without branches, so that nobody learns a secret from the time
taken, and clients keep no key that they agree on longer than they must. Tests have no secrets, and
elements and keys are the same.
"""

from functools import cache

from Crypto.Protocol import SecretSharing

Element = SecretSharing._Element
MULTIPLIED, INVERSE = Element.__mul__, Element.inverse
"""Those of PyCryptodome, with which `masking/test_protocol.py` compares."""
BITS = 128
LOW = (1 << BITS) - 1
ONES = int.from_bytes(b"\1" * (2 * BITS - 1))
DIGITS = int.from_bytes(b"0" * (2 * BITS - 1))


def quicken() -> None:
    """Let Shamir's scheme compute by this file, and each two clients agree on a key once."""
    from fl_app.masking import keys

    Element.__mul__ = multiplied
    Element.inverse = inverse
    keys.cipher_key = cache(keys.cipher_key)


def multiplied(one: Element, other: Element) -> Element:
    if Element.irr_poly in (one._value, other._value):
        return Element(0)
    # one byte for a coefficient, which is at most 128 before it is taken modulo 2
    product = _bytes(one._value) * _bytes(other._value) & ONES
    found = int((product | DIGITS).to_bytes(2 * BITS - 1), 2)
    while high := found >> BITS:  # x^128 is 1 + x + x^2 + x^7
        found = found & LOW ^ high ^ high << 1 ^ high << 2 ^ high << 7
    return Element(found)


def _bytes(value: int) -> int:
    """Return a number whose bytes are the bits of `value`."""
    return int.from_bytes(f"{value:b}".encode()) & ONES


def inverse(one: Element) -> Element:
    """Return the inverse, by Euclid's algorithm on polynomials; ValueError for zero."""
    if one._value == 0:
        raise ValueError("Inversion of zero")
    rest, modulus, found, before = one._value, Element.irr_poly, 1, 0
    while rest > 1:
        shift = rest.bit_length() - modulus.bit_length()
        if shift < 0:
            rest, modulus, found, before, shift = modulus, rest, before, found, -shift
        rest ^= modulus << shift
        found ^= before << shift
    return Element(found)
