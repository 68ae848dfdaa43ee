"""One contract for every strategy: the same cases, whatever the method."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from methods import STRATEGIES

from fl_app.strategies.centroid_strategy import CentroidStrategy
from fl_app.strategies.fedavg import SingleModel
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
