"""The models of a finished run, from its folder alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from torch import nn

from fl_app import own
from fl_app.client.initial_network import drawn
from fl_app.client.local_state import CLIENTS, of_run
from fl_app.data.preparation import Preparation, preparation
from fl_app.option_schema import typed
from fl_app.params import COMMUNITY
from fl_app.records.models import read_mixture, read_model
from fl_app.records.reading import readable
from fl_app.records.serving import FILE, NEEDED, community_name, read_serving
from fl_app.records.summary import read_summary
from fl_app.use.clients import client_id, model_of
from fl_app.use.run_modules import RunModules

log = getLogger(__name__)
OF_CLASSES = ("classification", "multilabel", "tokens")
"""The kinds of labels that are classes."""


def load_run(folder: str | Path) -> "FinishedRun":
    """Return a finished run; raises ValueError for a folder without its models.

    Neither the data set nor a network connection is needed. The folder can be a copy. A warning
    tells of a run that failed or was interrupted.
    """
    run = FinishedRun(Path(folder).expanduser().resolve())
    status = "completed"
    with suppress(ValueError):  # a damaged summary spoils no model
        status = run.summary.get("status", status)
    if status != "completed":
        log.warning(
            "the run in %s has ended as %s: its models are those after round %d; resume it for "
            "those of its last round", run.folder, status, run.round,
        )  # fmt: skip
    return run


class FinishedRun:
    """A run that has ended: its clients, their communities and their models."""

    def __init__(self, folder: Path) -> None:
        if not folder.exists():
            raise ValueError(
                f"the folder must be the output folder of a run, got {folder}, which is not there; "
                "correct it"
            )
        found = read_serving(folder)
        if found is None:
            raise ValueError(
                f"the folder must be that of a run that has ended, with {FILE}, got {folder}; give "
                "the output folder, and resume a run that has not ended"
            )
        with readable(folder / FILE, "the description of the models of a run"):
            for name in NEEDED:
                found[name]
        self.folder = folder
        self._modules = RunModules(folder / own.PROJECT)
        self.serving: Mapping[str, Any] = found
        """The content of serving.json."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, (C, H, W) of an image."""
        return tuple(self.serving["input_shape"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, or their numbers; empty if numbers are predicted."""
        return self.labels if self.answers in OF_CLASSES else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The names or numbers of the classes of the labels; empty if these are numbers."""
        if self.target not in OF_CLASSES:
            return ()
        names: list[str] = self.serving["class_names"]
        return tuple(names or map(str, range(self.serving["classes"])))

    @property
    def predicted(self) -> tuple[str, ...]:
        """The columns of a table that the models were trained to predict, if there are any."""
        named = (self.serving["preprocess"].get("label") or {}).get("column", ())
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def answers(self) -> str:
        """What the models answer: the kind of labels, "centroids", or other "numbers"."""
        return str(self.serving["answers"])

    @property
    def target(self) -> str:
        """The kind of labels that the data have."""
        of_older = "classification" if self.answers == "centroids" else self.answers
        return str(self.serving.get("target", of_older))

    @property
    def round(self) -> int:
        """The round after which the models were written."""
        return int(self.serving["round"])

    @property
    def clients(self) -> Mapping[int, tuple[str, ...]]:
        """The name of the model of each client; several: it chooses on its data."""
        found: Mapping[int, tuple[str, ...]] = self.serving["clients"]
        return found

    @property
    def client_names(self) -> Mapping[int, str]:
        """The clients' own names by id, empty if the data have none."""
        return dict(enumerate(self.serving.get("client_names", ())))

    def client_id(self, given: int | str) -> int:
        """Return the id of a client by its id or its own name: see `use.clients.client_id`."""
        return client_id(given, self.clients, self.client_names)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models, those of the communities first."""
        return tuple(self.serving["models"])

    @property
    def communities(self) -> dict[int, list[int]]:
        """The clients that use the model of each community."""
        found: dict[int, list[int]] = {
            int(name.removeprefix(COMMUNITY)): []
            for name in self.models
            if name.startswith(COMMUNITY)
        }
        for client, names in self.clients.items():
            if len(names) == 1 and names[0].startswith(COMMUNITY):
                found[int(names[0].removeprefix(COMMUNITY))].append(client)
        return found

    @property
    def kept_by(self) -> str:
        """The settings because of which clients have something of their own; empty: none."""
        local = "client.batch_norm=local" if self.serving["local"] else ""  # of older runs
        return str(self.serving.get("kept_by", local))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The summary of the run; empty if it has none."""
        return read_summary(self.folder) or {}

    @cached_property
    def preprocess(self) -> Preparation:
        """Maps raw samples to inputs (N, ...): see `fl_app.data.preparation.Preparation`."""
        described = self.serving["preprocess"]
        with self._modules.first(), _as_trained(described, "preparation"):
            made = preparation(described)
        self._modules.bind(made, "arrays", "labels")
        return made

    def model(
        self,
        *,
        client: int | str | None = None,
        community: int | None = None,
        name: str | None = None,
    ) -> nn.Module:
        """Return the model of a client, of a community or by name, in evaluation mode.

        Raises ValueError for an unknown one, and for a client that chooses on its data.
        """
        known = None if client is None else self.client_id(client)
        given = self.name(client=known, community=community, name=name)
        return self.load(given, self.network(), client=known)

    def network(self) -> nn.Module:
        """Return the network of the run with its first weights."""
        described = self.serving["network"]
        options = {key: value for key, value in described.items() if key != "_target_"}
        with self._modules.first(), _as_trained(described, "network"):
            target = get_object(described["_target_"])
            made = drawn(
                target, self.input_shape, self.serving["classes"],
                typed("network", target, options),
                tokens=self.serving["input_type"] == "int64", seed=self.serving["seed"],
            )  # fmt: skip
        self._modules.bind(made, "forward")
        return made

    def load(self, name: str, network: nn.Module, *, client: int | None = None) -> nn.Module:
        """Load a model by name into a network of the run, and return it in evaluation mode.

        Raises ValueError if a part of it stays with the clients and that of `client` is unknown.
        """
        return self._load(self.shared(name) | self.own(client), network)

    def load_shared(self, name: str, network: nn.Module) -> nn.Module:
        """Load a model by name; what stays with each client is as the constructor made it."""
        return self._load(self.shared(name), network)

    def _load(self, state: Mapping[str, np.ndarray], network: nn.Module) -> nn.Module:
        with _as_trained(self.serving["network"], "network"):
            network.load_state_dict({key: torch.from_numpy(each) for key, each in state.items()})
        return network.eval()

    def shared(self, name: str) -> dict[str, np.ndarray]:
        """Return the tensors of a model by name."""
        mixture = self.serving["mixtures"].get(name)
        if mixture is None:
            return read_model(self.folder, name)
        return read_mixture(self.folder, mixture, self.serving["constants"])

    def own(self, client: int | None) -> dict[str, np.ndarray]:
        """Return what stays with a client; empty if nothing does, or if it has never trained.

        Raises ValueError if something does, for no client and for a client elsewhere.
        """
        local, whole = self.serving["local"], self.serving.get("own_models", False)
        if not local and (client is None or not whole):
            return {}
        others = f" and {len(local) - 1} more stay" if len(local) > 1 else " stays"
        parts = f"{local[0]}{others}" if local else "a model stays"
        told = f"{self.kept_by}: {parts} with a client"
        if client is None:
            raise ValueError(
                f"a model must be a client's, got none with {told}; give a client of the run"
            )
        if not (self.folder / CLIENTS).is_dir():
            raise ValueError(
                f"a client must have been simulated by this run, got client {client} with {told} "
                "on its own machine; use its model there"
            )
        return of_run(self.folder, client, every=1).read(until=self.round)

    def name(
        self,
        *,
        client: int | str | None = None,
        community: int | None = None,
        name: str | None = None,
    ) -> str:
        """Return the name of one model; raises ValueError as `model`."""
        given = [each for each in (client, community, name) if each is not None]
        if not given and len(self.models) == 1:
            return self.models[0]
        if len(given) != 1:
            which = min(self.clients, default=None)
            example = f"name={self.models[0]} or --model {self.models[0]}"
            example = example if which is None else f"client={which} or --client {which}"
            raise ValueError(
                f"a model must be named by exactly one of --client, --community and --model (in "
                f"Python client, community and name), got {len(given)}; give one, such as {example}"
            )
        if client is not None:
            return model_of(self.client_id(client), self.clients)
        wanted = community_name(community) if community is not None else str(name)
        if wanted not in self.models:
            raise ValueError(
                f"the model must be one of {', '.join(self.models)}, got {wanted}; use one of these"
            )
        return wanted


@contextmanager
def _as_trained(described: Mapping[str, Any], what: str) -> Iterator[None]:
    """Raise ValueError for a class of the run that is absent or has changed since."""
    try:
        yield
    except FileNotFoundError as error:  # such as weights that its constructor reads
        raise ValueError(
            f"the {what} {described.get('_target_')} reads {error.filename or error} when it is "
            "made, which is not there: bring the file, or train with network.weights=<file> in "
            "place of it, whose values are stored with the run"
        ) from error
    except Exception as error:  # a user's code can raise anything
        reason = " ".join((str(error) or "nothing said").split())
        raise ValueError(
            f"the {what} {described.get('_target_')} must be the one that the run was trained "
            f"with, got {type(error).__name__}: {reason:.300}; use the fl-app, the packages and "
            "the modules of the run"
        ) from error
