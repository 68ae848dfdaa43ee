"""The schema of a configuration: the groups, their settings and types.

Groups with fixed settings are dataclasses. The settings of a group with a `_target_` (see TARGETS)
are the keyword-only parameters of its target: see `Target`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal

import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    Tag,
)

from fl_app.client.learner import learner_at
from fl_app.client.normalisation import Sharing
from fl_app.client.pretrained import Pretrained
from fl_app.client.stragglers import Epochs
from fl_app.client.training import Precision
from fl_app.data.schedule import Dynamics
from fl_app.own import imported_from, unfound
from fl_app.types import (
    Backend,
    Benign,
    Contrast,
    Count,
    EngineName,
    Fallback,
    NonNegativeInt,
    PositiveInt,
    Seed,
    Store,
    Text,
)
from fl_app.used_with import When

Threads = Annotated[int, Field(gt=0, le=1024)]
STRICT = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)


def _device(name: str) -> str:
    try:
        torch.device("cpu" if name == "auto" else name)
    except RuntimeError as error:
        raise ValueError("auto, cpu, cuda or cuda:<number>") from error
    return name


@dataclass(frozen=True, kw_only=True)
class Target:
    """A group with a target: the dotted path and the keyword-only options.

    `sound` is False if a wrong option was removed; then it is used only in checks.
    """

    path: str
    options: Mapping[str, Any]
    sound: bool = True

    def resolve(self) -> Callable[..., Any]:
        """Return the class or function at the path."""
        found: Callable[..., Any] = get_object(self.path)
        return found


def _ray_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or "/" in text or not port.isdecimal() or int(port) not in range(1, 65_536):
        raise ValueError("host:port of a Ray cluster, as `ray start --head` prints it")
    return text


def _learner(path: str) -> str:
    learner_at(path)
    return path


def _nested(node: Any) -> Target:
    """Return a node with a `_target_`, which names a class of another library, and its arguments.

    Their values are checked by building it: see `recipe` in wiring.
    """
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise ValueError("one class, by _target_, with its arguments")
    try:
        imported_from(node["_target_"])
    except Exception as error:  # the import of a user's module can raise anything
        reason = unfound(node["_target_"]) or str(error).replace("\n", " ")
        raise ValueError(f"the path of a class that can be imported ({reason})") from error
    options = {str(name): value for name, value in node.items() if name != "_target_"}
    return Target(path=node["_target_"], options=options)


def _kind_of_epochs(given: Any) -> str:
    return "drawn" if isinstance(given, Mapping | Epochs) else "number"


Nested = Annotated[Target, BeforeValidator(_nested)]


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Local training for `epochs` epochs with batches of `batch_size`, by default by SGD."""

    __pydantic_config__ = STRICT
    used_with = MappingProxyType({"cohort_size": When("cohort", unless=("single",))})
    epochs: Annotated[
        Annotated[NonNegativeInt, Tag("number")] | Annotated[Epochs, Tag("drawn")],
        Discriminator(_kind_of_epochs),
    ]
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: NonNegativeFloat
    proximal: NonNegativeFloat
    device: Annotated[Text, AfterValidator(_device)]
    precision: Precision
    threads: Threads
    cached: PositiveInt
    cohort: Literal["auto", "fused", "single"]
    cohort_size: PositiveInt
    batch_norm: Sharing
    clip_norm: PositiveFloat | None
    learner: Annotated[Text, AfterValidator(_learner)] | None
    optimizer: Nested
    scheduler: Nested
    transform: Nested


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine that runs the rounds, and the replies that a round needs."""

    __pydantic_config__ = STRICT
    used_with = MappingProxyType(
        {
            "sample_cap": When("strategy.weighting", ("capped",)),
            **dict.fromkeys(
                ("warm", "restarts", "connection", "node_ids", "folder"),
                When("name", ("deployment",)),
            ),
            **dict.fromkeys(
                ("cpus_per_client", "gpus_per_client", "ray_address"),
                When("name", ("simulation",)),
            ),
        }
    )
    name: EngineName
    workers: Threads
    min_success: PositiveInt
    largest_update: Annotated[float, Field(gt=1)] | None
    clip_update: Annotated[float, Field(ge=1)] | None
    sample_cap: Annotated[float, Field(ge=1)]
    round_timeout_s: PositiveFloat | None
    connect_timeout_s: PositiveFloat
    place_newcomers: bool
    evaluate_with_training: bool
    nodes_timeout_s: PositiveFloat
    cpus_per_client: PositiveInt
    gpus_per_client: NonNegativeFloat
    ray_address: Annotated[Text, AfterValidator(_ray_address)] | None
    warm: bool
    restarts: NonNegativeInt
    connection: Text | None
    node_ids: Text | None
    folder: Text | None


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """How the server stores updates and finds communities."""

    __pydantic_config__ = STRICT
    used_with = MappingProxyType(
        {
            "memory_gb": When("store", ("auto",)),
            "sketch_dim": When("store", ("auto", "sketch")),
            "root_samples": When("benign", ("root",)),
        }
    )
    store: Store
    memory_gb: PositiveFloat
    sketch_dim: PositiveInt
    backend: Backend
    resolution: PositiveFloat
    sparse_above: NonNegativeInt
    neighbours: PositiveInt
    look_ahead_every: NonNegativeInt
    contrast: Contrast
    benign: Benign
    root_samples: PositiveInt


@dataclass(frozen=True, kw_only=True)
class RecordsConfig:
    """What a run writes and when; the command that starts the run sets `folder`."""

    __pydantic_config__ = STRICT
    folder: Text | None
    checkpoint_every: PositiveInt
    evaluate_every: PositiveInt
    evaluate_at_most: NonNegativeInt | None
    central_test: bool
    snapshot_rounds: list[PositiveInt]
    snapshots: NonNegativeInt
    figures: bool
    report: bool
    resume: bool
    restarts: NonNegativeInt
    started_by: Text | None
    id: Text | None


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """The Prometheus endpoint of the server."""

    __pydantic_config__ = STRICT
    used_with = MappingProxyType({"host": When("port", unless=(None,))})
    port: Annotated[int, Field(ge=1, le=65535)] | None
    host: Text


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """The form of the log lines."""

    __pydantic_config__ = STRICT
    format: Literal["text", "json"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Config:
    """The checked configuration of a run; compared by identity, so that results can be cached."""

    experiment_name: str
    seed: int
    rounds: int
    fallback: Fallback
    strategy: Target
    population: Target
    data: Target
    network: Target
    attack: Target
    privacy: Target
    personal: Target
    tracking: Target
    task: Target
    masking: Target
    dynamics: Dynamics
    pretrained: Pretrained
    client: ClientConfig
    engine: EngineConfig
    graph: GraphConfig
    records: RecordsConfig
    metrics: MetricsConfig
    logging: LoggingConfig
    resolved: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """The whole configuration as text, as a key for the caches of this process."""
        return repr(self.resolved)

    def yaml(self) -> str:
        """Return the resolved configuration as YAML."""
        return OmegaConf.to_yaml(OmegaConf.create(dict(self.resolved)))


USAGE_ERROR = 2
"""The exit status of a command with a configuration error."""


class ConfigError(ValueError):
    """All problems of a configuration, one per line, in `problems`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} configuration error(s):\n{lines}")


TOP = {"experiment_name": Text, "seed": Seed, "rounds": Count, "fallback": Fallback}
FIXED = {
    "client": ClientConfig,
    "engine": EngineConfig,
    "graph": GraphConfig,
    "records": RecordsConfig,
    "metrics": MetricsConfig,
    "logging": LoggingConfig,
}
PARTS: Mapping[str, Any] = {"population.dynamics": Dynamics, "network": Pretrained}
"""Settings of every option of a group with a target, which the target does not receive."""
TARGETS = (
    "strategy", "population", "data", "network", "attack", "privacy", "personal", "tracking",
    "task", "masking",
)  # fmt: skip
NESTED = ("client/optimizer", "client/scheduler", "client/transform")
"""Groups whose targets are classes of other libraries, with arguments of their own."""
SERVER_TARGETS = ("strategy", "tracking")
"""Groups that only the server builds; their targets load libraries that clients do not need."""
