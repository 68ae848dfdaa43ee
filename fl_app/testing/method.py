"""The contract of methods: cases that every method must pass."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.params import from_bytes
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.state import load, save
from fl_app.strategies.state_fields import check_fields
from fl_app.testing.bad_replies import BAD, raw
from fl_app.testing.toy import (
    SIZE,
    TARGETS,
    Build,
    builder,
    context,
    honest,
    join,
    play,
    reply,
    roster,
    starts,
)
from fl_app.types import Vector


def _models(strategy: CommunityStrategy) -> Vector:
    return strategy.state.communities.models


def _nothing(*_: object) -> FitRes:
    return raw([])


HERE = (range(2), range(12), range(0, 12, 2), (), range(1, 12, 2), (7,), range(12))
"""The clients that are there in each round."""


def _lying(client: int, start: Vector, server_round: int) -> FitRes:
    """Train, or every fifth client: send a model that is finite, and hardly new or far off."""
    if client % 5:
        return honest(client, start, server_round)
    lies = (start, -start, start + np.float32(1e-30), np.full(SIZE, (-1) ** server_round * 1e15))
    return reply(lies[(client + server_round) % 4].astype(np.float32), loss=1e30)


class MethodContract:
    """Tests of a method on toy clients; a subclass names it by `name`, as in `strategy=<name>`."""

    name = "fedavg"

    @pytest.fixture
    def build(self) -> Build:
        """Return a function that builds the method from a context."""
        return builder(self.name)

    def test_runs_are_repeatable_and_do_not_depend_on_reply_order(self, build: Build) -> None:
        first, second = build(context()), build(context())
        play(first, roster(12), range(1, 9))
        play(second, roster(12), range(1, 9), reverse=True)
        np.testing.assert_array_equal(_models(first), _models(second))
        assert first.state.communities.members == second.state.communities.members

    def test_another_seed_samples_other_clients(self, build: Build) -> None:
        first, second = build(context()), build(context(seed=1))
        # the second round: a method may ask all clients in the first
        play(first, roster(12), range(1, 3))
        play(second, roster(12), range(1, 3))
        assert first.cohort.client_ids != second.cohort.client_ids

    def test_restored_strategy_goes_on_as_if_nothing_had_happened(
        self, build: Build, tmp_path: Path
    ) -> None:
        stop, whole = 5, build(context())
        play(whole, roster(12), range(1, 9))
        before, after = build(context()), build(context())
        check_fields(type(before.state))
        play(before, roster(12), range(1, stop + 1))
        write(tmp_path, Checkpoint(stop, *save(before.state)))
        kept = read(tmp_path)
        load(after.state, kept.arrays, kept.state)
        play(after, roster(12), range(stop + 1, 9))
        np.testing.assert_array_equal(_models(whole), _models(after))
        assert whole.state.communities.members == after.state.communities.members

    def test_a_run_whose_clients_are_absent_and_lie_within_the_rules_resumes_after_any_round(
        self, build: Build, tmp_path: Path
    ) -> None:
        whole, parts, known = build(context()), build(context()), roster(12)
        for server_round, here in enumerate(HERE, 1):
            known.absent = frozenset(set(range(12)) - set(here))
            now = range(server_round, server_round + 1)
            for strategy in (whole, parts):
                with suppress(TooFewRepliesError):
                    play(strategy, known, now, client=_lying)
            write(tmp_path, Checkpoint(server_round, *save(parts.state)))
            one, other = (each.outcome(server_round) for each in (whole, parts))
            assert one.members == other.members
            assert np.isfinite(one.models).all()
            np.testing.assert_array_equal(one.models, other.models)
            parts, kept = build(context()), read(tmp_path)
            load(parts.state, kept.arrays, kept.state)

    def test_no_more_clients_are_measured_than_asked_for_and_others_each_time(
        self, build: Build
    ) -> None:
        known = roster(12)

        def examined(most: int | None) -> list[set[int]]:
            strategy = build(context(evaluate_at_most=most, evaluate_every=1))
            parameters = strategy.initialize_parameters(known)
            found = []
            for server_round in (1, 2):
                instructions = strategy.configure_evaluate(server_round, parameters, known)
                found.append({known.client_id(proxy) for proxy, _ in instructions})
            return found

        assert examined(None) == examined(12) == [set(range(12))] * 2
        first, second = examined(5)
        assert len(first) == len(second) == 5
        assert first != second
        assert examined(5) == [first, second]

    def test_with_a_privacy_it_needs_no_loss_that_it_does_not_ask_for(self, build: Build) -> None:
        strategy, known = build(context(private=True)), roster(12)
        if strategy.asks:  # a configuration error with a privacy
            return
        play(strategy, known, range(1, 9))
        assert np.isfinite(_models(strategy)).all()
        parameters = strategy.initialize_parameters(known)
        asked = strategy.configure_evaluate(9, parameters, known)
        assert not any(ins.config.get("choose") for _, ins in asked)
        if not strategy.compares:
            trained = strategy.configure_fit(9, parameters, known)
            assert all(len(starts(ins)) == 1 for _, ins in trained)

    def test_a_single_client_is_a_federation(self, build: Build) -> None:
        strategy = build(context())
        play(strategy, roster(1), range(1, 9))
        assert np.isfinite(_models(strategy)).all()
        view = strategy.view(8)
        assert view is None or view.labels.shape == (1,)

    def test_equal_clients_get_equal_models(self, build: Build) -> None:
        def same(client: int, start: Vector, server_round: int) -> FitRes:
            return reply(start + 0.5 * (TARGETS[0] - start))

        strategy, known = build(context()), roster(6, groups=1)
        strategy.sampler.participation = 1.0  # a model of an earlier round is another model
        play(strategy, known, range(1, 9), client=same)
        models, offers = strategy.attribute(range(6))
        received = [[models[row] for row in rows] for rows in offers]
        assert all(np.array_equal(received[0], each) for each in received)
        assert np.isfinite(models).all()

    def test_clients_get_models_that_are_nearer_to_what_they_learn(self, build: Build) -> None:
        given, known = context(), roster(12)
        strategy = build(given)
        strategy.sampler.participation = 1.0
        aims = [np.stack([TARGETS[c % len(TARGETS)], TARGETS.mean(0)]) for c in range(12)]
        learns = set[int]()
        for server_round in range(1, 9):  # after any of them: a method may begin anew
            play(strategy, known, range(server_round, server_round + 1))
            models, offers = strategy.attribute(range(12))
            for client, rows in enumerate(offers):  # to the target of its group, or of all
                before = np.linalg.norm(given.initial - aims[client], axis=1)
                now = [np.linalg.norm(models[row] - aims[client], axis=1) for row in rows]
                learns |= {client} if (np.min(now, axis=0) < before).any() else set()
        assert learns == set(range(12))

    def test_another_reply_of_the_last_client_is_another_result(self, build: Build) -> None:
        def told(other: Callable[[Vector], Vector]) -> Vector:
            def client(client_id: int, start: Vector, server_round: int) -> FitRes:
                answer = honest(client_id, start, server_round)
                if client_id == 11:
                    model = other(from_bytes(answer.parameters.tensors[0]).copy())
                    return reply(model.astype(np.float32), samples=21)
                return answer

            strategy = build(context())
            strategy.sampler.participation = 1.0
            play(strategy, roster(12), range(1, 3), client=client)
            return strategy.attribute(range(12))[0].copy()

        # a rule that drops what is far out may use only one of them
        others = (lambda m: m + 0.02, lambda m: m - 0.02, lambda m: m / 2 + TARGETS.mean(0) / 4)
        usual = told(lambda model: model)
        assert any(not np.array_equal(usual, told(each)) for each in others)

    def test_two_clients_with_the_same_update_belong_together(self, build: Build) -> None:
        def twins(client: int, start: Vector, server_round: int) -> FitRes:
            return honest(0 if client == 3 else client, start, server_round)

        strategy = build(context())
        strategy.sampler.participation = 1.0
        play(strategy, roster(12), range(1, 9), client=twins)
        view = strategy.view(8)
        if view is not None:
            label = dict(zip(view.client_ids.tolist(), view.labels.tolist(), strict=True))
            assert label[0] == label[3]

    def test_a_newcomer_is_taken_in(self, build: Build) -> None:
        strategy, known = build(context()), roster(12)
        play(strategy, known, range(1, 5))
        join(known, 12)
        play(strategy, known, range(5, 10))
        models, (rows,) = strategy.attribute([12])
        assert np.isfinite(models[list(rows)]).all()
        instructions = strategy.configure_evaluate(10, strategy.initialize_parameters(known), known)
        assert 12 in {known.client_id(proxy) for proxy, _ in instructions}

    def test_a_community_whose_clients_are_gone_keeps_its_model(self, build: Build) -> None:
        strategy, known = build(context()), roster(12)
        play(strategy, known, range(1, 7))
        for client, proxy in known.proxies().items():
            if client % 3 == 0:
                known.unregister(proxy)
        before = {row: model.copy() for row, model in enumerate(_models(strategy))}
        members = dict(strategy.state.communities.members)
        play(strategy, known, range(7, 9))
        assert np.isfinite(_models(strategy)).all()
        now = strategy.state.communities.members
        gone = {client: row for client, row in members.items() if client % 3 == 0}
        for client, row in gone.items():
            alone = all(c % 3 == 0 for c in members if members[c] == row)
            if alone and now.get(client) == row and len(_models(strategy)) == len(before):
                np.testing.assert_array_equal(_models(strategy)[row], before[row])

    @pytest.mark.parametrize("case", list(BAD))
    def test_a_bad_reply_is_named_and_never_reaches_a_sum(self, build: Build, case: str) -> None:
        make, message = BAD[case]
        with_bad, without = build(context()), build(context())
        known = roster(12)
        target: list[int] = []

        def client(client_id: int, start: Vector, server_round: int) -> FitRes:
            target[:] = target or [client_id]
            return make() if client_id == target[0] else honest(client_id, start, server_round)

        play(with_bad, known, range(1, 2), client=client)
        assert list(with_bad.rejections.by_client) == target
        assert message in with_bad.rejections.by_client[target[0]]

        def silent(client_id: int, start: Vector, server_round: int) -> FitRes | None:
            return None if client_id == target[0] else honest(client_id, start, server_round)

        play(without, known, range(1, 2), client=silent)
        np.testing.assert_array_equal(_models(with_bad), _models(without))

    def test_too_few_valid_replies_stop_the_round_and_change_nothing(self, build: Build) -> None:
        strategy = build(context(min_success=4))
        play(strategy, roster(12), range(1, 3))
        before = _models(strategy).copy()
        with pytest.raises(TooFewRepliesError, match=r"min_success=4 valid replies, got 0 of \d+;"):
            play(strategy, roster(12), range(3, 4), client=lambda *_: raw([]))
        np.testing.assert_array_equal(_models(strategy), before)

    @pytest.mark.parametrize("skipped", [(1,), (1, 2), (3, 6), (4,), (5,), (6, 7), (9,)])
    def test_rounds_without_valid_replies_are_skipped(
        self, build: Build, skipped: tuple[int, ...]
    ) -> None:
        strategy, known = build(context()), roster(12)
        for server_round in range(1, 10):
            before = strategy.outcome(server_round - 1)
            if server_round in skipped:
                with pytest.raises(TooFewRepliesError):
                    play(strategy, known, range(server_round, server_round + 1), client=_nothing)
                np.testing.assert_array_equal(strategy.outcome(server_round).models, before.models)
                assert strategy.outcome(server_round).members == before.members
            else:
                play(strategy, known, range(server_round, server_round + 1))
        assert np.isfinite(_models(strategy)).all()
