"""One contract for every strategy: the same cases, whatever the method."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from methods import STRATEGIES

from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.centroid_strategy import CentroidStrategy
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.state import load, save
from fl_app.testing import MethodContract
from fl_app.testing.toy import Build, context, play, roster


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=list(STRATEGIES))
    def build(self, request: pytest.FixtureRequest) -> Build:
        return STRATEGIES[request.param]

    def test_a_method_that_groups_clients_shows_them(self, build: Build) -> None:
        strategy = build(context())
        play(strategy, roster(12), range(1, 9))
        one_model = isinstance(strategy, SingleModel | CentroidStrategy)
        assert (strategy.view(8) is None) == one_model

    def test_a_skipped_round_is_shown_alike_after_a_restart(self, build: Build) -> None:
        strategy, again = build(context()), build(context())
        play(strategy, roster(12), range(1, 5))
        load(again.state, *save(strategy.state))
        for each in (strategy, again):
            _skipped(each, 5)
        found, wanted = again.outcome(5), strategy.outcome(5)
        assert found.notes == wanted.notes
        assert (found.view is None) == (wanted.view is None)
        if found.view is not None and wanted.view is not None:
            assert found.view.client_ids.tolist() == wanted.view.client_ids.tolist()
            assert found.view.labels.tolist() == wanted.view.labels.tolist()


@pytest.mark.parametrize(
    ("name", "nothing"),
    [("dcfl", {"dunn": None}), ("cfl", {"alpha_cross": {}}), ("fedgwc", {"change": {}})],
)
def test_a_skipped_round_measures_nothing(name: str, nothing: dict[str, object]) -> None:
    strategy = STRATEGIES[name](context())
    play(strategy, roster(12), range(1, 5))
    assert strategy.outcome(4).notes != nothing
    _skipped(strategy, 5)
    assert strategy.outcome(5).notes == nothing


def _skipped(strategy: CommunityStrategy, server_round: int) -> None:
    """Play a round in which nobody answers."""
    with pytest.raises(TooFewRepliesError):
        play(strategy, roster(12), range(server_round, server_round + 1), client=lambda *_: None)
