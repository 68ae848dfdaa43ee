"""The form of a configuration: what each group holds, and of which type.

Groups with a fixed form are dataclasses. A group with a `_target_` (strategy, population,
data, network, attack, privacy, tracking) takes the keyword-only parameters of what it names: see
`Target`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from pydantic import AfterValidator, ConfigDict, Field, NonNegativeFloat, PositiveFloat

from fl_app.data.schedule import Dynamics
from fl_app.types import Count, NonNegativeInt, PositiveInt, Seed, Text

Threads = Annotated[int, Field(gt=0, le=1024)]
STRICT = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)


def _device(name: str) -> str:
    try:
        torch.device("cpu" if name == "auto" else name)
    except RuntimeError as error:
        raise ValueError("auto, cpu, cuda or cuda:<number>") from error
    return name


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Local training: SGD over `epochs` epochs in batches of `batch_size`."""

    __pydantic_config__ = STRICT
    epochs: NonNegativeInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: NonNegativeFloat
    proximal: NonNegativeFloat
    device: Annotated[Text, AfterValidator(_device)]
    precision: Literal["fp32", "bf16"]
    threads: Threads
    cached: PositiveInt
    cohort: Literal["auto", "fused", "single"]
    cohort_size: PositiveInt


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Who runs the rounds, and how many replies a round needs."""

    __pydantic_config__ = STRICT
    name: Literal["inprocess", "simulation", "deployment"]
    workers: Threads
    min_success: PositiveInt
    largest_update: Annotated[float, Field(gt=1)] | None
    clip_update: Annotated[float, Field(ge=1)] | None
    sample_cap: Annotated[float, Field(ge=1)]
    round_timeout_s: PositiveFloat | None
    connect_timeout_s: PositiveFloat
    cpus_per_client: PositiveInt
    gpus_per_client: NonNegativeFloat
    warm: bool
    connection: Text | None
    folder: Text | None


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """What the server keeps of the updates, and how it finds communities among them."""

    __pydantic_config__ = STRICT
    store: Literal["auto", "exact", "disk", "sketch"]
    memory_gb: PositiveFloat
    sketch_dim: PositiveInt
    backend: Literal["python-louvain", "fast", "leiden"]
    resolution: PositiveFloat
    sparse_above: NonNegativeInt
    neighbours: PositiveInt
    look_ahead_every: NonNegativeInt
    benign: Literal["largest", "root"]
    root_samples: PositiveInt


@dataclass(frozen=True, kw_only=True)
class RecordsConfig:
    """What a run writes and when; `folder` is where, set by the door that starts the run."""

    __pydantic_config__ = STRICT
    folder: Text | None
    checkpoint_every: PositiveInt
    evaluate_every: PositiveInt
    evaluate_at_most: PositiveInt | None
    central_test: bool
    snapshot_rounds: list[PositiveInt]
    snapshots: NonNegativeInt
    figures: bool
    report: bool
    resume: bool


@dataclass(frozen=True, kw_only=True)
class Target:
    """A group that names what it builds: the dotted path and its keyword-only options.

    `sound` is False where an option was wrong and left out: it takes part in checks alone.
    """

    path: str
    options: Mapping[str, Any]
    sound: bool = True

    def resolve(self) -> Callable[..., Any]:
        """Return the class or function that the path names."""
        found: Callable[..., Any] = get_object(self.path)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Config:
    """A whole run, checked; equal to itself alone, so that what is built from it can be cached."""

    experiment_name: str
    seed: int
    rounds: int
    strategy: Target
    population: Target
    data: Target
    network: Target
    attack: Target
    privacy: Target
    tracking: Target
    dynamics: Dynamics
    client: ClientConfig
    engine: EngineConfig
    graph: GraphConfig
    records: RecordsConfig
    resolved: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """The whole configuration as text, to tell one run's caches from another's."""
        return self.yaml()

    def yaml(self) -> str:
        """Return the resolved configuration as YAML."""
        return OmegaConf.to_yaml(OmegaConf.create(dict(self.resolved)))


class ConfigError(ValueError):
    """Every problem of a configuration, one a line, in `problems`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} configuration error(s):\n{lines}")


TOP = {"experiment_name": Text, "seed": Seed, "rounds": Count}
FIXED = {
    "client": ClientConfig,
    "engine": EngineConfig,
    "graph": GraphConfig,
    "records": RecordsConfig,
}
TARGETS = ("strategy", "population", "data", "network", "attack", "privacy", "tracking")
SERVER_TARGETS = ("strategy", "tracking")
"""Groups that the server alone builds: what they name loads libraries that no client needs."""
