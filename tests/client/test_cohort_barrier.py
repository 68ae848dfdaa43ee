"""Threads that meet to work together."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fl_app.client.cohort_barrier import CohortBarrier, gathered, together


def _doubled(log: list[list[int]]):
    def run(jobs):
        log.append(list(jobs))
        return [2 * job for job in jobs]

    return run


def _call(count: int, client, *, idle: tuple[int, ...] = ()) -> list[object]:
    """Call clients in threads; `idle` never start, as when they are cancelled."""
    barrier = CohortBarrier(count)

    def called(place: int) -> object:
        try:
            with barrier.member(place):
                return client(place)
        finally:
            barrier.arrived(place)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(called, p) for p in range(count) if p not in idle]
        for place in idle:
            barrier.arrived(place)
        return [future.exception(10) or future.result() for future in futures]


def test_all_jobs_are_done_at_once_in_the_order_of_the_places() -> None:
    log: list[list[int]] = []
    assert _call(5, lambda place: together(10 + place, _doubled(log))) == [20, 22, 24, 26, 28]
    assert log == [[10, 11, 12, 13, 14]]


def test_who_brings_nothing_raises_or_is_cancelled_is_not_waited_for() -> None:
    log: list[list[int]] = []

    def client(place: int) -> object:
        if place == 1:
            return "nothing"
        if place == 3:
            raise KeyError("broken")
        return together(place, _doubled(log))

    found = _call(5, client, idle=(4,))
    assert found[0] == 0
    assert found[1] == "nothing"
    assert found[2] == 4
    assert isinstance(found[3], KeyError)
    assert log == [[0, 2]]


def test_a_failure_of_one_job_is_told_to_its_client_alone() -> None:
    found = _call(3, lambda place: together(place, lambda jobs: [0, ValueError("mine"), 2]))
    assert found[::2] == [0, 2]
    assert isinstance(found[1], ValueError)
    with pytest.raises(ValueError, match="mine"):
        together(1, lambda jobs: [ValueError("mine")])


def test_a_failure_of_the_work_is_told_to_everyone() -> None:
    def run(_: object) -> list[object]:
        raise ValueError("no room")

    found = _call(3, lambda place: together(place, run))
    assert all(isinstance(error, RuntimeError) and "no room" in str(error) for error in found)


def test_alone_a_job_is_simply_done() -> None:
    log: list[list[int]] = []
    assert not gathered()
    assert together(4, _doubled(log)) == 8
    assert _call(1, lambda _: gathered()) == [True]
    with pytest.raises(ZeroDivisionError):
        together(1, lambda jobs: [1 / 0])
