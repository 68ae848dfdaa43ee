"""Builds the clients of a configuration: data on the device, a model per thread, an attack."""

import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fl_app.building import built
from fl_app.client import local_state, private_inputs
from fl_app.client.attacks import Attack, Collusion
from fl_app.client.learner import Learner, learner_of
from fl_app.client.local import LocalClient
from fl_app.client.memory import Memory, ReadOnly
from fl_app.client.privacy import Privacy, SampleDp
from fl_app.client.private_entries import PrivateEntries
from fl_app.client.private_losses import planned
from fl_app.client.training_plan import TrainingPlan
from fl_app.config import Config
from fl_app.data.population import ClientData, Population, own
from fl_app.params import FlatModule
from fl_app.types import Vector, Vectors
from fl_app.wiring import (
    dataset,
    device,
    flat_network,
    kept_by,
    network,
    personal,
    plan_of,
    privacy,
    recipe,
    schedule,
    shared_population,
)

log = getLogger(__name__)
_lock = threading.Lock()
_local = threading.local()
_crew_lock = threading.Lock()
_crews: dict[tuple[str, int, int, int], Vectors] = {}
_parts_lock = threading.Lock()
_constants: dict[str, Mapping[str, torch.Tensor]] = {}
_entries: dict[str, PrivateEntries] = {}
_clients: OrderedDict[tuple[str, str | None, int, int], ClientData] = OrderedDict()


def client(
    config: Config, client_id: int, data_root: str | None = None, memory: Memory | None = None
) -> LocalClient:
    """Return one client that can train: data on the device, the model of this thread.

    `memory` has what stays with the client between rounds; without it, nothing stays.
    """
    people = shared_population(config, data_root)
    learner = _thread_learner(config, people)
    hostile, liars = attack(config)
    guard, plan, entries = privacy(config), None, None
    if guard.kind != "none":
        plan, entries = plan_of(config, people.samples(client_id)), _private_entries(config, people)
        learner = _private(learner, guard, plan) if guard.of_samples else learner
    return LocalClient(
        client_id,
        samples=people.samples(client_id),
        group=int(people.groups[client_id]),
        load=partial(_client_data, config, client_id, data_root),
        learner=learner,
        seed=config.seed,
        attack=hostile,
        malicious=client_id in liars,
        colluders=partial(_honest_updates, config, data_root) if hostile.collusive else None,
        privacy=guard,
        plan=plan,
        entries=entries,
        memory=memory,
    )


def _private_entries(config: Config, people: Population) -> PrivateEntries:
    """Return which entries of a model privacy hides, computed once per process on a copy.

    Raises ValueError for a network or data that privacy cannot hide. Each client checks this itself
    and does not rely on the check at the start of the run, which may see no data.
    """
    with _parts_lock:
        if config.key not in _entries:
            guard, data = privacy(config), people.dataset
            deployed = config.engine.name == "deployment"
            if guard.of_samples and config.population.resolve() is own:
                private_inputs.check(data)
            tried = network(config, data)
            guard.check(tried, config.client, data.shape, tokens=data.tokens, deployed=deployed)
            flat = flat_network(config, network(config, data))
            entries = guard.entries(flat, data.shape, tokens=data.tokens)
            _entries.clear()
            _entries[config.key] = entries
        return _entries[config.key]


def _private(learner: Learner, guard: Privacy, plan: TrainingPlan) -> Learner:
    """Return the learner of a client with privacy of samples."""
    from fl_app.client.private_training import Bounded, PrivateLearner  # Opacus

    assert isinstance(guard, SampleDp)
    # the noise is computed when it is needed: it can take a second
    return PrivateLearner(
        learner, lambda task: Bounded(guard.release(planned(plan, task)), guard.clip)
    )


@lru_cache(maxsize=2)
def attack(config: Config) -> tuple[Attack, frozenset[int]]:
    """Return the attack of a run and the clients that carry it out (cached)."""
    hostile: Attack = built("attack", config.attack, Attack)
    clients = config.population.options["clients"]
    return hostile, hostile.malicious(clients, seed=config.seed)


def _honest_updates(
    config: Config,
    data_root: str | None,
    start: Vector,
    server_round: int,
    task: Mapping[str, Any],
) -> Vectors:
    """Return the honest updates (m, d) of the clients that the malicious clients observe.

    Colluders that received the same model and settings get the same result, so it is computed
    once per process.
    """
    hostile, liars = attack(config)
    assert isinstance(hostile, Collusion)
    crew = hostile.observed(liars, config.population.options["clients"])
    given = repr(sorted(task.items())).encode()
    key = (config.key, server_round, zlib.crc32(start.tobytes()), zlib.crc32(given))
    with _crew_lock:
        if key not in _crews:
            _crews.clear()
            honest = [_alone(config, each, data_root) for each in crew]
            fits = (each.fit(start, server_round=server_round, task=task) for each in honest)
            updates = np.stack([fit.model - start for fit in fits])
            updates.flags.writeable = False  # the other attackers get the same ones
            _crews[key] = updates
        return _crews[key]


def _alone(config: Config, client_id: int, data_root: str | None) -> LocalClient:
    """Return an honest client that trains alone, not with a cohort."""
    memory = _seen_by_colluders(config, client_id)
    found = replace(client(config, client_id, data_root, memory), malicious=False)
    return replace(found, learner=found.learner.alone())


def _seen_by_colluders(config: Config, client_id: int) -> Memory | None:
    """Return what stays with a client, which its colluders read; None if its update needs nothing.

    A shared model does not depend on a model of the client's own beside it. Raises ValueError where
    clients have no folder in common.
    """
    if not kept_by(config) or personal(config.personal).own_model:
        return None
    folder = config.records.folder
    if folder is None or config.engine.name == "deployment":
        raise ValueError(
            f"attack must be one without colluders with {kept_by(config)} and no records.folder in "
            f"which they find what the others keep, got {config.attack.path}; use fl-app and "
            "engine=inprocess or simulation, or another attack"
        )
    kept = local_state.of_run(Path(folder), client_id, config.records.checkpoint_every)
    return ReadOnly(kept)


def fuses(config: Config) -> bool:
    """Whether clients that run in parallel in this process train as one computation."""
    if not _may_fuse(config):
        return False
    module = network(config, dataset(config.data, config.seed))
    return learner_of(module, config.client.learner).fuses(module)


def _may_fuse(config: Config) -> bool:
    """Whether privacy, device and settings allow fused training; the network must allow it too."""
    if privacy(config).of_samples or config.client.cohort == "single":
        return False
    if config.client.cohort != "fused" and device(config).type != "cuda":
        return False
    return not _unusual(config)


@lru_cache(maxsize=2)
def _unusual(config: Config) -> bool:
    """Whether the recipe needs training one by one; said once in the log."""
    reasons = recipe(config).unusual()
    if reasons:
        log.warning("clients train one by one, not as a cohort: %s", ", ".join(reasons))
    return bool(reasons)


def workers(config: Config) -> int:
    """Return how many clients run in parallel in this process."""
    return config.client.cohort_size if fuses(config) else config.engine.workers


def _thread_learner(config: Config, people: Population) -> Learner:
    """Return a learner on a model that no other thread uses.

    Its weights are always loaded before use. Everything else comes from the network's constructor
    and is the same on every engine, because all use the same seed.
    """
    if getattr(_local, "key", None) != config.key:
        torch.set_num_threads(config.client.threads)
        module = network(config, people.dataset)
        build, flat = learner_of(module, config.client.learner), _with_constants(config, module)
        learner = build(flat, config.client, classes=people.dataset.classes)
        learner.recipe = recipe(config)
        _local.learner = learner.fused() if _may_fuse(config) else learner
        _local.key = config.key
    found: Learner = _local.learner
    return found


def _with_constants(config: Config, module: torch.nn.Module) -> FlatModule:
    """Return a network as a flat one, with the constants of the first one of this process.

    A client that trains in another thread can draw from torch's global generator, for example for
    dropout, and so change the draws of a constructor. Before the first network no client trains.
    """
    with _parts_lock:
        flat = flat_network(
            config, module, device=device(config), constants=_constants.get(config.key)
        )
        if config.key not in _constants:
            _constants.clear()
            _constants[config.key] = flat.constants
        return flat


def _client_data(
    config: Config, client_id: int, data_root: str | None, server_round: int
) -> ClientData:
    """Return a client's tensors in a round; the last `client.cached` of them are cached."""
    drifts = schedule(config).stage(client_id, server_round)
    key = (config.key, data_root, client_id, drifts)
    people = shared_population(config, data_root)
    with _lock:
        if key in _clients:
            _clients.move_to_end(key)
            return _clients[key]
    drift = config.dynamics.drift
    data = people.client(client_id, drifts=drifts, drift=drift).to(device(config))
    with _lock:
        for other in [held for held in _clients if held[0] != config.key]:
            del _clients[other]  # from an earlier run of a sweep
        _clients[key] = data
        while len(_clients) > config.client.cached:
            _clients.popitem(last=False)
    return data
