"""Checks shapes at run time in every test, by jaxtyping with beartype; finds the real data."""

import gc
import inspect
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

# workers use all cores (see scripts/test): threads of several workers would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
import quick_hydra
import quick_shares

gc.disable()  # until the tests are collected: modules are no garbage
quick_hydra.quicken()

ALWAYS, ONE_IN = 50, 50
"""Each worker checks the first calls of a function, and then one in so many."""


def _sampled(jaxtyped: Callable[..., Callable[[Any], Any]]) -> Callable[..., Callable[[Any], Any]]:
    """Return a `jaxtyped` that does not check every call.

    With every call checked, tests of graphs and strategies take twice as long.
    """

    def decorator(*, typechecker: Any) -> Callable[[Any], Any]:
        checks = jaxtyped(typechecker=typechecker)

        def decorate(target: Any) -> Any:
            checked, calls = checks(target), count()
            if not inspect.isfunction(target):
                return checked

            @wraps(target)
            def call(*args: Any, **options: Any) -> Any:
                number = next(calls)
                whole = number < ALWAYS or number % ONE_IN == 0
                return (checked if whole else target)(*args, **options)

            return call

        return decorate

    return decorator


jaxtyping.jaxtyped = _sampled(jaxtyping.jaxtyped)
jaxtyping.install_import_hook(
    ["fl_app.graph", "fl_app.aggregation", "fl_app.evaluation", "fl_app.params", "fl_app.masking"],
    "beartype.beartype",
)
quick_shares.quicken()  # imports what the hook checks

# a shell that starts the tests in the background lets them and their processes ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)

# a machine under load is slow, and no example is wrong for that
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests first that mostly wait for processes of Flower.

    One worker then runs them one after another, while the others do what needs the cores.
    """
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, rarely, and leave out the modules that all tests share."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same global generators, whatever its worker ran before."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder with MNIST and Fashion-MNIST, which the repository does not contain."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("FL_APP_DATA_ROOT", beside))
    if not (root / "MNIST" / "raw").exists():
        pytest.skip("no real data: set FL_APP_DATA_ROOT to a folder with MNIST and FashionMNIST")
    return root
