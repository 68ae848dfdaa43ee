"""What a node says of itself: strict types in their ranges, or it stays outside."""

import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import flwr
import pytest
from flwr.common import GetPropertiesIns
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules
from lies import lie_of_properties

from fl_app.client.local import LocalClient
from fl_app.client_app import FederatedClient
from fl_app.ingress.introductions import Identity, read_introduction
from fl_app.ingress.rejection import RejectionError

HONEST = {"client_id": 4, "group": 1, "samples": 30, "malicious": False}


@pytest.mark.parametrize("expected", [None, 4])
def test_an_honest_node_is_who_it_says(expected: int | None) -> None:
    assert read_introduction(HONEST, 12, expected) == Identity(4, 1, 30, False)
    newer = HONEST | {"flower": "1.39.0"}
    assert read_introduction(newer, 12, expected) == Identity(4, 1, 30, False, "1.39.0")


def test_a_client_says_its_version_of_flower() -> None:
    local = SimpleNamespace(client_id=4, group=1, samples=30, malicious=False)
    told = FederatedClient(cast(LocalClient, local)).get_properties(GetPropertiesIns({}))
    found = read_introduction(told.properties, 12)
    assert found == Identity(4, 1, 30, False, flwr.__version__)


@pytest.mark.parametrize(
    "version", [1.39, None, "one", "1", "1.39\n", "1.39" + 40 * "0", "\u0661.\u0662"]
)
def test_a_version_is_short_and_has_the_form_of_one(version: object) -> None:
    with pytest.raises(RejectionError, match=r"flower must be a version such as 1\.39\.0, got"):
        read_introduction(HONEST | {"flower": version}, 12)


@settings(max_examples=1000, deadline=None)
@given(draw=st.randoms(use_true_random=False), expected=st.sampled_from([None, 4]))
def test_a_lie_is_rejected_unless_it_keeps_every_rule(draw: Random, expected: int | None) -> None:
    _, told = lie_of_properties(draw, HONEST)
    valid = rules.is_introduction(told, clients=12, expected=expected)
    found, _ = rules.answered(read_introduction, told, 12, expected)
    assert (found is not None) == valid
    if not valid:
        return
    assert 0 <= found.client_id < 12


@pytest.mark.parametrize("client", [12, -1, 2**40, 10**30, 4.0, True, "4", float("inf")])
def test_an_id_that_no_client_of_the_run_has_is_rejected(client: object) -> None:
    with pytest.raises(RejectionError, match=r"client_id must be an integer in 0\.\.11, got"):
        read_introduction(HONEST | {"client_id": client}, 12)
    with pytest.raises(RejectionError, match=r"client_id must be an integer in 0\.\.11, got"):
        read_introduction(HONEST | {"client_id": client}, 12, 5)


def test_a_node_is_the_client_that_the_engine_knows() -> None:
    with pytest.raises(RejectionError, match="client_id must be 5, the client of this node, got 4"):
        read_introduction(HONEST, 12, 5)


def test_only_a_client_with_a_planted_attack_is_malicious() -> None:
    told = HONEST | {"malicious": True}
    assert read_introduction(told, 12, planted={4}) == Identity(4, 1, 30, True)
    why = "malicious must be false for a client without a planted attack, got true"
    for planted in (frozenset(), {5}):
        with pytest.raises(RejectionError, match=why):
            read_introduction(told, 12, planted=planted)
