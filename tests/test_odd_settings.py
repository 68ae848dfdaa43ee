"""Odd values in every setting: a run is configured, or refused in sentences.

Each setting of each option of conf/ meets each odd value. Of those that its type accepts, the
checks between groups and the trials meet all when FL_APP_ODD_VALUES=all is set (minutes); otherwise
one, chosen by its name, which is always the same.
"""

import os
import re
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from fl_app import config
from fl_app.compatibility import problems
from fl_app.composition import CONF, choices, compose
from fl_app.config import ConfigError, check, load, option
from fl_app.schema import FIXED, PARTS, TARGETS, TOP

NUMBERS = (0, -1, 1, 0.5, 1e18, -1e18, 10**9, 10**18, 2**70, inf, -inf, nan, 1e308, 1e-320)
OTHERS = (None, True, "", "abc", "1e18", "math.sqrt", "a" * 10_000, "€\u0000\n", [], [1], [10**18],
          [[0]], ["x"], {}, {"a": 1})  # fmt: skip
ODD = NUMBERS + OTHERS
ALL = os.environ.get("FL_APP_ODD_VALUES") == "all"
MEMORY = 2 * 2**30
"""Bytes that a wrong value may make the process ask for, at most."""

POINTS = ("strategy=kmeans", "network=centroids", "data=blobs", "population=iid")
COMPANIONS = {("network", "centroids"): POINTS, ("data", "blobs"): POINTS} | {
    ("strategy", name): POINTS
    for name in choices("strategy")
    if option(f"strategy={name}").resolve().clusters_points
}
"""What an option needs beside itself, for a configuration that is sound without the odd value."""


def _options() -> Iterator[tuple[str, ...]]:
    """Return the overrides that choose each option of each group, itself the last."""
    small = "network.width=0.25"
    yield (small, "")
    yield (small, "population/dynamics=every_ten")
    for group in (*TARGETS, *FIXED):
        for file in sorted((CONF / group).glob("*.yaml")):
            if not ALL and "defaults:" in file.read_text(encoding="utf-8"):
                continue  # another option with other values
            others = COMPANIONS.get((group, file.stem), () if group == "network" else (small,))
            if "download" in file.read_text(encoding="utf-8"):
                others = (*others, "data.download=false", "data.root=nowhere")
            others = tuple(o for o in others if not o.startswith(f"{group}="))
            yield (*others, f"{group}={file.stem}")


def _settings(option: str, composed: DictConfig) -> list[str]:
    """Return the names of the settings of an option; of none, those above all groups."""
    group = option.partition("=")[0].replace("/", ".")
    keys = OmegaConf.select(composed, group) if group else TOP
    return [f"{group}.{key}".strip(".") for key in keys if key != "dynamics"]


def _typed(group: str, tree: dict[str, Any]) -> list[str]:
    """Return what the types of a group have against its settings."""
    found, absent = list[str](), dict[str, list[str]]()
    if group in TARGETS:
        config._target(group, tree[group], found, absent, built=True)
    else:
        config._typed(group, tree[group], found)
    for part in PARTS:
        if part.partition(".")[0] == group:
            config._part(part, tree, found)
    return [*found, *(f"{' and '.join(named)}: {why}" for why, named in absent.items())]


def _accepted(name: str, tree: dict[str, Any]) -> list[Any]:
    """Return the odd values that the type of a setting accepts; the others are refused by name."""
    *path, last = name.split(".")
    node, accepted = tree, []
    for part in path:
        node = node[part]
    before = node[last]
    for value in ODD:
        node[last] = value
        try:
            found = _typed(name.partition(".")[0], tree)
        except Exception as error:
            pytest.fail(f"{name}={value!r:.80}: {type(error).__name__}: {error}")
        if not found:
            accepted.append(value)
        named = name.removesuffix("._target_")
        assert all(named in each for each in found), f"{name}={value!r:.80}: {found}"
    node[last] = before
    return accepted


@contextmanager
def _little_memory() -> Iterator[None]:
    """Let no allocation succeed that is larger than MEMORY."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("overrides", list(_options()), ids=lambda each: each[-1] or "top")
def test_an_odd_value_is_refused_in_sentences_or_works(overrides: tuple[str, ...]) -> None:
    composed = deepcopy(compose([each for each in overrides if each]))
    OmegaConf.set_readonly(composed, False)
    tree = OmegaConf.to_container(composed, resolve=True)
    for name in _settings(overrides[-1], composed):
        with _little_memory():
            accepted = _accepted(name, tree)
        start = zlib.crc32(name.encode()) % max(1, len(accepted))
        before = OmegaConf.select(composed, name)
        for value in accepted if ALL else accepted[start : start + 1]:
            OmegaConf.update(composed, name, value, merge=False, force_add=True)
            _check(composed, name, f"{name}={value!r:.80}")
        OmegaConf.update(composed, name, before, merge=False, force_add=True)


def _check(composed: DictConfig, named: str, what: str) -> None:
    """Fail unless a configuration is sound, or refused in sentences that name a group."""
    told = True
    try:
        with _little_memory():
            check(composed, also=problems)
    except ConfigError as error:
        told = named.partition(".")[0] in str(error)
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    assert told, f"the reason does not name {what}"


@pytest.mark.parametrize("group", [*TOP, *FIXED, *TARGETS])
@pytest.mark.parametrize("whole", [True, False])
def test_a_group_that_is_wrong_by_itself_breaks_no_check_of_the_others(
    group: str, whole: bool
) -> None:
    composed = deepcopy(compose(["network.width=0.25"]))
    OmegaConf.set_readonly(composed, False)
    key = group if whole or group in TOP else f"{group}.a_setting"
    OmegaConf.update(composed, key, None if whole else {"a": 1}, merge=False, force_add=True)
    with pytest.raises(ConfigError, match=group):
        check(composed, also=problems)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["attack=backdoor", "attack.value=1e308"], "got fl_app.client.attacks.Backdoor with .*1e"),
        (["data=client_files", "data.root=wards"], "data=fl_app.data.table.client_files: line 2"),
    ],
)
def test_what_only_a_trial_shows_names_its_setting(
    overrides: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wards").mkdir()
    (tmp_path / "wards" / "north.csv").write_text("age,stay\n71\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        load(overrides, also=problems)
    assert re.search(said, str(error.value), re.MULTILINE)


@pytest.mark.parametrize(
    ("network", "width"),
    [("small_cnn", "1e18"), ("small_cnn", "1e309"), ("mobilenet", "1e309"), ("mobilenet", "100")],
)
def test_a_network_is_not_made_where_it_is_too_large(network: str, width: str) -> None:
    larger = "network.width must be|a network must have at most 536,870,912 parameters, got"
    with _little_memory(), pytest.raises(ConfigError, match=larger):
        load([f"network={network}", f"network.width={width}"], also=problems)


@pytest.mark.parametrize(
    "override",
    ["=1", "", "rounds=[", "rounds=€", "rounds=" + "9" * 5000, "a" * 10_000,
     "rounds=" + "{a:" * 300 + "1" + "}" * 300, "rounds=${oc.env:NO_SUCH}", "client=3",
     "client=null", "client=[1]", "~strategy", "++network._target_=json"],
    ids=lambda override: override[:40],
)  # fmt: skip
def test_an_override_that_hydra_stumbles_over_is_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        load([override], also=problems)
