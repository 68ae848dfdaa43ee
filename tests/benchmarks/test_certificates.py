"""The commands of a renewal are found in the docs, and a certificate that ends soon is renewed."""

import sys
from pathlib import Path

import pytest

from fl_app.engines import credentials

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import certificates


@pytest.mark.parametrize(
    ("federation", "last"),
    [
        ("Compose", "docker compose restart superlink"),
        ("systemd", "systemctl restart fl-superlink"),
    ],
)
def test_the_docs_say_how_to_renew(federation, last):
    commands = certificates.documented(federation)
    assert (commands[0], commands[-1]) == ("scripts/deploy keys", last)


def test_a_certificate_that_ends_soon_keeps_its_hosts_until_keys_are_made_again(tmp_path):
    keys = credentials.ensure(tmp_path, nodes=0, names=["fl.example"])
    known, ends = credentials.known_as(keys.certificate), credentials.valid_until(keys.certificate)
    certificates.replace(keys, ends_in=certificates.SOON)
    soon = credentials.valid_until(keys.certificate)
    assert soon < ends
    assert credentials.known_as(keys.certificate) == known
    credentials.ensure(tmp_path, nodes=0, names=["fl.example"])
    assert credentials.valid_until(keys.certificate) >= ends
    assert credentials.known_as(keys.certificate) == known
