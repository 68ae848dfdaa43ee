"""What the ClientApp makes of a node."""

import pytest
from flwr.app import Context, RecordDict
from flwr.common import GetPropertiesIns

from fl_app.client_app import client_fn
from fl_app.ingress.introductions import BeyondError, read_introduction


def _introduced(client: int, *words: str) -> dict[str, object]:
    overrides = " ".join(["population.clients=3", *words])
    config = {"partition-id": client, "num-partitions": 4}
    context = Context(1, 2, config, RecordDict(), {"overrides": overrides})
    return client_fn(context).get_properties(GetPropertiesIns({})).properties


@pytest.mark.parametrize("population", ["iid", "own"])
def test_a_client_that_the_run_does_not_have_introduces_itself_all_the_same(
    population: str,
) -> None:
    assert read_introduction(_introduced(2, f"population={population}"), 3).client_id == 2
    with pytest.raises(BeyondError, match=r"client_id must be an integer in 0\.\.2, got 3"):
        read_introduction(_introduced(3, f"population={population}"), 3)
