"""The certificate of a SuperLink: one that ends soon, and its renewal as the docs say."""

import re
import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from table import REPO

from fl_app.engines.credentials import Credentials

PAGE = REPO / "docs" / "production.md"
SOON = timedelta(days=7)


def documented(federation: str) -> list[str]:
    """Return the commands that the docs give for a renewal in a federation of this kind."""
    head = f"  | {federation}"
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(head)]
    return re.findall(r"`([^`]+)`", rows[0].split(" | ")[-1])


def replace(keys: Credentials, *, ends_in: timedelta) -> None:
    """Replace the certificate by one of the same key and hosts that ends at another time."""
    own = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(keys.authority.read_bytes())
    key = serialization.load_pem_private_key(keys.authority_key.read_bytes(), None)
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        issuer_name=authority.subject,
        subject_name=own.subject,
        public_key=own.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=9),
        not_valid_after=now + ends_in,
        extensions=list(own.extensions),
    ).sign(key, hashes.SHA256())  # type: ignore[arg-type]
    keys.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def served(port: int) -> x509.Certificate | None:
    """Return the certificate that a port of this machine serves; None if it does not answer."""
    try:
        text = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
    except OSError:
        return None
    return x509.load_pem_x509_certificate(text.encode())


def compared(former: x509.Certificate | None, now: x509.Certificate | None) -> str:
    """Say how long the certificates last that were served before and after a renewal."""
    if former is None or now is None:
        return "no certificate served"
    days = [(each.not_valid_after_utc - datetime.now(UTC)).days for each in (former, now)]
    return f"the certificate that is served ends in {days[1]} days, the former in {days[0]}"
