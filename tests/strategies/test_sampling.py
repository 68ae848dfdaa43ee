"""Draws of clients: keyed, sorted, and of the size that was asked for."""

from fl_app.strategies.sampling import CohortSampler, draw_at_most


def test_a_cohort_is_a_share_of_the_clients_and_at_least_one() -> None:
    ids = [9, 3, 5, 7, 1]
    sizes = {share: len(CohortSampler(0, share).draw(1, ids, "all")) for share in (0.01, 0.5, 1.0)}
    assert sizes == {0.01: 1, 0.5: 2, 1.0: 5}
    assert CohortSampler(0, 1.0).draw(1, ids, "all") == [1, 3, 5, 7, 9]
    assert CohortSampler(0, 0.5).draw(1, [], "all") == []


def test_a_draw_depends_on_seed_round_and_purpose_and_not_on_the_order_of_the_ids() -> None:
    ids = list(range(100))
    draws = [
        CohortSampler(0, 0.1).draw(1, ids, "all"), CohortSampler(1, 0.1).draw(1, ids, "all"),
        CohortSampler(0, 0.1).draw(2, ids, "all"), CohortSampler(0, 0.1).draw(1, ids, "pool"),
    ]  # fmt: skip
    assert len({tuple(draw) for draw in draws}) == 4
    assert CohortSampler(0, 0.1).draw(1, ids[::-1], "all") == draws[0]


def test_no_more_clients_are_measured_than_asked_for() -> None:
    ids = list(range(10))
    assert draw_at_most(None, ids, seed=0, server_round=1) == ids
    assert draw_at_most(10, ids, seed=0, server_round=1) == ids
    assert len(draw_at_most(4, ids, seed=0, server_round=1)) == 4
