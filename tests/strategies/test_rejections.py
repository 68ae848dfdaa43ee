"""Who was rejected in a round, and why."""

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


def test_a_reason_is_told_once_with_its_clients_and_what_helps() -> None:
    rejections = Rejections()
    rejections.begin(1)
    assert str(rejections) == "none"
    for client in (3, 5):
        rejections.add(client, "loss must be finite, got nan")
    assert str(rejections) == "loss must be finite, got nan (of 3, 5)"
    rejections.add(4, "model must be finite, got a model of which 7 parameters are not finite")
    assert str(rejections).endswith(
        "(of 4); training diverges where parameters are not finite: a lower learning rate helps, "
        "for the columns of a table data.standardise=true where it is not set, and for numbers to "
        "predict, which no setting scales, a unit in which they are about 1, such as thousands"
    )


def test_a_reason_is_recorded_once() -> None:
    rejections = Rejections()
    for why in ("loss must be finite, got nan; remove it", "norm must be a number") * 2:
        rejections.add(3, why)
    assert rejections.by_client == {
        3: "loss must be finite, got nan; remove it; norm must be a number"
    }
