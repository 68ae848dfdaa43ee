"""One contract for every strategy: the same cases, whatever the method."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from methods import STRATEGIES

from fl_app.testing import MethodContract
from fl_app.testing.toy import Build


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=list(STRATEGIES))
    def build(self, request: pytest.FixtureRequest) -> Build:
        return STRATEGIES[request.param]
