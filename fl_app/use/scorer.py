"""Scores of a finished run's models by the learner of the run, as clients computed them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_app import client_wiring, former_form, own
from fl_app.client.learner import Learner, learner_of
from fl_app.client.local import LocalClient
from fl_app.client.local_state import of_run
from fl_app.client.personal import staying
from fl_app.client.pretrained import prepare
from fl_app.composition import CONF
from fl_app.config import Config, ConfigError, check, load
from fl_app.data.natural import encoded
from fl_app.params import FlatModule
from fl_app.records.names import CONFIG
from fl_app.records.reading import read_config, read_names, readable
from fl_app.schema import FIXED
from fl_app.types import Vector
from fl_app.use.run import FinishedRun
from fl_app.wiring import device, personal, recipe, shared_population


def config_of(folder: Path, changes: Sequence[str]) -> Config:
    """Return the configuration of a run, with settings changed such as `data.root=<folder>`.

    Raises ConfigError for a setting that the run does not have.
    """
    path = folder / CONFIG
    if not path.exists():
        raise ConfigError(
            [
                f"the folder must be the whole output folder of a run, got {folder} without "
                f"{CONFIG}; this command needs the settings of the run, predict and export do not"
            ]
        )
    own.use(folder / own.PROJECT)
    tree = OmegaConf.create(read_config(folder))
    with readable(path, "the configuration of a run"):
        _complete(tree)
    OmegaConf.update(tree, "network.weights", None)  # the models of the run have them
    if "by_column" in str(tree.population.get("_target_")):
        names = encoded(read_names(folder)) or None  # with their ids
        OmegaConf.update(tree, "population.names", names)
    for name, value in former_form.settings(folder, tree).items():
        OmegaConf.update(tree, f"data.{name}", value)
    for change in changes:
        key, given, value = change.partition("=")
        try:
            known = OmegaConf.select(tree, key, throw_on_missing=True, default=tree) is not tree
        except OmegaConfBaseException:
            known = False
        if not given or not known:
            raise ConfigError(
                [f"a change must be <setting>=<value> of a setting in {path}, got {change}"]
            )
        OmegaConf.update(tree, key, yaml.safe_load(value))
    config = check(OmegaConf.create(OmegaConf.to_container(tree)))  # type: ignore[arg-type]
    former_form.check_settings(folder, config.data.options)
    return config


def _complete(tree: Any) -> None:
    """Add settings that the run did not have yet, with their defaults."""
    usual = load([f"engine={tree.engine.name}"]).resolved
    for group in FIXED:
        for name, value in usual[group].items():
            if name not in tree[group]:
                tree[group][name] = value
    if "personal" not in tree:
        tree["personal"] = usual["personal"]
    for group, given in tree.items():
        if OmegaConf.is_dict(given) and "_target_" in given:
            for name, value in _defaults(str(group), given["_target_"]).items():
                if name not in given:
                    given[name] = value


def _defaults(group: str, target: str) -> dict[str, Any]:
    """Return the settings in conf of the first option of a group with this target."""
    for file in sorted((CONF / group).glob("*.yaml")):
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        if found.get("_target_") == target:
            return {name: value for name, value in found.items() if name != "defaults"}
    return {}


class Scorer:
    """Loads the models of a run into one network and its learner."""

    def __init__(self, run: FinishedRun, config: Config) -> None:
        self.run, self.config = run, config
        self._held: tuple[str, Vector] | None = None
        self._fits = False  # whether the data are known to have the form of the run's

    @cached_property
    def learner(self) -> Learner:
        """The learner of the run, on a network with the weights of the first model."""
        torch.set_num_threads(self.config.client.threads)  # as a client of the run
        frozen = prepare(self.run.network(), self.config.pretrained)
        module = self.run.load_shared(self.run.models[0], frozen)
        own = personal(self.config.personal)
        local = staying(module, self.config.client.batch_norm, own)
        flat = FlatModule(module, device=device(self.config), local=local)
        classes = int(self.run.serving["classes"])
        build = learner_of(module, self.config.client.learner)
        built = build(flat, self.config.client, classes=classes)
        built.recipe = recipe(self.config)
        return built

    def vector(self, name: str) -> Vector:
        """Return a model by name as a vector (d,)."""
        if self._held is None or self._held[0] != name:
            self.loaded(name)
            self._held = name, self.learner.flat.vector()
        return self._held[1]

    def loaded(self, name: str) -> torch.nn.Module:
        """Return the network with a model by name, in evaluation mode, valid until the next."""
        return self.run.load_shared(name, self.learner.flat.module)

    def become(self, client_id: int | None) -> None:
        """Let the models have the parts that stay with a client, if there are any.

        Raises ValueError as `FinishedRun.own`.
        """
        self.learner.flat.own = self.run.own(client_id)

    def client(self, client_id: int) -> LocalClient:
        """Return a client of the run with its data, and the learner of this scorer."""
        self.run.own(client_id)  # raises if it is elsewhere
        memory = of_run(self.run.folder, client_id, self.config.records.checkpoint_every)
        if not self._fits:
            self._check_data()
            self._fits = True
        local = client_wiring.client(self.config, client_id, memory=memory)
        return replace(local, learner=self.learner)

    def _check_data(self) -> None:
        """Raise DataError for data of another form than those of the run."""
        form = shared_population(self.config).dataset.form()
        former_form.check(self.run.folder, self.config.population.path, form)

    def used(self, local: LocalClient) -> str:
        """Return the name of the model of a client, also of one that chooses on its data."""
        names = self.run.clients[local.client_id]
        if len(names) == 1:
            return names[0]
        losses = self.losses(local, names)
        return min(losses, key=losses.__getitem__)

    def losses(self, local: LocalClient, names: Sequence[str]) -> Mapping[str, float]:
        """Return the loss of some models on the training data of a client, by name."""
        now = self.run.round
        return {
            name: local.score(self.vector(name), train_data=True, server_round=now).loss
            for name in names
        }
