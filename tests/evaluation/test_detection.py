"""How well the malicious are told apart, by hand."""

from fl_app.evaluation.detection import detection


def test_by_hand() -> None:
    accuracy, members = {0: 1.0, 1: 0.5, 2: 0.0}, {0: 0, 1: 0, 2: 1, 3: 1, 4: 0}
    found = detection({1, 2, 3}, {2, 3, 4, 9}, {0, 1, 2, 3, 4}, accuracy, members)
    assert found == {
        "malicious": 3,
        "suspects": 3,
        "precision": 2 / 3,
        "recall": 2 / 3,
        "loyal_lost": 1,
        "loyal_accuracy": 0.75,
        "pure_share": 2 / 5,
        "loyal_sizes": [3],
    }


def test_where_nobody_is_suspected_or_measured() -> None:
    found = detection(set(), {1}, {0, 1}, {}, {})
    assert found["precision"] is None
    assert found["recall"] == 0.0
    assert found["loyal_accuracy"] is None
    assert found["pure_share"] is None
    assert found["loyal_sizes"] is None
