"""A client releases one sketch in a run, within its budget, whatever the server asks."""

from math import inf, sqrt
from pathlib import Path

import numpy as np
import pytest

from fl_app.client.local_state import FolderMemory, of_run
from fl_app.client.own_sketch import OwnSketch
from fl_app.client.sketch_release import SketchRelease
from fl_app.config import option
from fl_app.types import Vector


def _release(**changes: object) -> SketchRelease:
    given = {"dimension": 4, "epsilon": 10.0, "delta": 1e-5, "randomness": "system", **changes}
    return SketchRelease(**given)  # type: ignore[arg-type]


def _client(memory: FolderMemory, now: int, release: SketchRelease) -> OwnSketch:
    return OwnSketch(release, memory, seed=0, client_id=3, now=now)


def _vector(*numbers: float) -> Vector:
    return np.array(numbers, np.float32)


def _whole() -> slice:
    return slice(None)


def _first() -> slice:
    return slice(0, 2)


MODELS = [_vector(1, 1, 1)]


def _trained(folder: Path, release: SketchRelease) -> FolderMemory:
    memory = FolderMemory(folder, every=1)
    _client(memory, 1, release).trained(_vector(0, 0, 0), _vector(4, -2, 1))
    return memory


def test_a_sketch_is_drawn_once_also_for_another_question(tmp_path: Path) -> None:
    release = _release()
    memory = _trained(tmp_path, release)
    first = _client(memory, 2, release).released(MODELS, _whole)
    later = _client(FolderMemory(tmp_path, every=1), 7, release)
    assert np.array_equal(later.released([_vector(9, 9, 9)] * 2, _first), first)


def test_a_run_that_repeats_rounds_neither_draws_nor_cumulates_again(tmp_path: Path) -> None:
    release = _release()
    memory = _trained(tmp_path, release)
    first = _client(memory, 5, release).released(MODELS, _whole)
    _client(memory, 2, release).trained(_vector(1, 1, 1), _vector(9, 0, 0))
    assert np.array_equal(_client(memory, 5, release).released(MODELS, _whole), first)


def test_a_round_that_is_repeated_counts_once(tmp_path: Path) -> None:
    release, found = _release(epsilon=inf, randomness="seed"), []
    for times in (1, 2):
        memory = _trained(tmp_path / str(times), release)
        for _ in range(times):
            _client(memory, 2, release).trained(_vector(1, 1, 1), _vector(0, 0, 3))
        found.append(_client(memory, 3, release).released([_vector(2, 2, 2)], _whole))
    assert np.array_equal(*found)


def test_only_the_direction_of_what_is_compared_is_told(tmp_path: Path) -> None:
    """Own updates are (3, -3, 0): two numbers of one length, the third is not compared."""
    release = _release(epsilon=inf, dimension=8)
    told = _client(_trained(tmp_path, release), 2, release).released(MODELS, _first)
    assert sorted(np.abs(told).tolist())[-2:] == pytest.approx([0.5**0.5] * 2)
    assert np.count_nonzero(told) == 2


def test_a_client_that_has_not_trained_has_no_sketch(tmp_path: Path) -> None:
    client = _client(FolderMemory(tmp_path, every=1), 4, _release())
    with pytest.raises(ValueError, match="must have trained before round 4"):
        client.released(MODELS, _whole)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 10.0, 50.0])
def test_the_noise_is_that_of_the_budget(epsilon: float) -> None:
    release = _release(epsilon=epsilon)
    assert release.spent <= epsilon * (1 + 1e-3)
    assert release.spent > 0.97 * epsilon
    # one Gaussian release with the sensitivity 2: more noise than that of the sensitivity 1
    assert release.noise_multiplier > 2 * (0.9 / epsilon if epsilon < 1 else 1.1 / epsilon)
    assert release.largest > 1 + 5 * release.noise_multiplier
    limit, noise = release.longest, release.noise_multiplier
    assert sqrt(1 + release.dimension * noise**2) < limit - 5 * noise
    assert limit < sqrt(release.dimension) * release.largest
    assert _release(epsilon=inf).noise_multiplier == 0.0
    assert _release(epsilon=inf).spent == inf


def test_the_noise_of_the_system_is_another_one_each_time_and_that_of_the_seed_is_not() -> None:
    keys = {"seed": 1, "server_round": 2, "client_id": 3}
    for randomness, same in (("system", False), ("seed", True)):
        release = _release(randomness=randomness)
        told = [release.sketch(_vector(1, 2, 3), **keys) for _ in range(2)]
        assert np.array_equal(*told) == same
    other = _release(randomness="seed").sketch(_vector(1, 2, 3), **{**keys, "client_id": 4})
    assert not np.array_equal(told[0], other)


def test_what_a_client_keeps_has_a_place_of_its_own(tmp_path: Path) -> None:
    of_run(tmp_path, 2, 1).write({"a": np.ones(1)}, 1)
    own = of_run(tmp_path, 2, 1, "own updates")
    assert own.read(9) == {}
    own.write({"b": np.ones(1)}, 1)
    assert [*of_run(tmp_path, 2, 1).read(9)] == ["a"]


def test_only_a_method_with_sketches_has_a_release() -> None:
    assert SketchRelease.of(option("strategy=ifca").options) is None
    found = SketchRelease.of(option("strategy=secure_flic").options)
    assert found is not None
    assert found.randomness == "system"
