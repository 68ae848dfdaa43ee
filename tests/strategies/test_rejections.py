"""Who was rejected in a round, and why."""

import pytest

from fl_app.strategies.rejections import Rejections
from fl_app.strategies.replies import ClientFailure, LostClient, RejectedReply


def test_reasons_of_one_client_stand_together_until_the_next_round() -> None:
    rejections = Rejections()
    rejections.begin(3)
    rejections.add(7, "loss must be a number")
    rejections.add("node 9", "the sender must be one that was asked")
    rejections.add(7, "evaluation: status must be OK")
    assert rejections.by_client == {
        7: "loss must be a number; evaluation: status must be OK",
        "node 9": "the sender must be one that was asked",
    }
    rejections.begin(4)
    assert rejections.by_client == {}


def test_of_the_failures_only_malformed_replies_are_rejections() -> None:
    rejections = Rejections()
    failures = [RejectedReply(1, "no bytes"), LostClient(2, "gone"), ClientFailure(3, "raised")]
    rejections.add_failed(failures, "evaluation: ")
    assert rejections.by_client == {1: "evaluation: no bytes"}


def test_a_reason_is_told_once_with_its_clients() -> None:
    rejections = Rejections()
    rejections.begin(1)
    assert str(rejections) == "none"
    for client in (3, 5):
        rejections.add(client, "loss must be finite, got nan")
    assert str(rejections) == "loss must be finite, got nan (of 3, 5)"


@pytest.mark.parametrize("got", ["a model of which 7 parameters are not finite", "norm 4e+20"])
def test_what_helps_against_models_that_diverge_is_told(got: str) -> None:
    rejections = Rejections()
    rejections.add(4, f"model must be finite, its norm below 1e+18, got {got}")
    assert str(rejections).endswith(
        "(of 4); training diverges where parameters are huge or not finite: a lower learning rate "
        "helps, for the columns of a table data.standardise=true where it is not set, and for "
        "numbers to predict, which no setting scales, a unit in which they are about 1, such as "
        "thousands"
    )


def test_a_reason_is_recorded_once() -> None:
    rejections = Rejections()
    for why in ("loss must be finite, got nan; remove it", "norm must be a number") * 2:
        rejections.add(3, why)
    assert rejections.by_client == {
        3: "loss must be finite, got nan; remove it; norm must be a number"
    }
