"""FedAvg on MNIST with pfl-research's simulator, the work of benchmarks/stock/app.py.

    <python with pfl> benchmarks/pfl_research/app.py --data <folder> --out result.json [options]

With torchrun the clients of a round are spread over its processes; the first one writes. Seconds of
a round are from one model of the server to the next, without an evaluation.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

MEAN, DEVIATION = 0.1307, 0.3081
NEVER = 10**6


class Net(nn.Module):
    """The CNN of McMahan et al., 1,663,370 parameters, with the methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.hidden, self.out = nn.Linear(64 * 7 * 7, 512), nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, `(n, 10)`."""
        for layer in (self.first, self.second):
            images = functional.max_pool2d(functional.relu(layer(images)), 2)
        return self.out(functional.relu(self.hidden(images.flatten(1))))

    def loss(self, images: Tensor, labels: Tensor, eval: bool = False) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return functional.cross_entropy(self(images), labels)

    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor, eval: bool = False) -> dict[str, Weighted]:
        """Return the accuracy of a batch."""
        right = (self(images).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


class Clock(TrainingProcessCallback):
    """Notes the seconds of each round."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Start the clock."""
        self._since = time.perf_counter()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note the seconds since the last round."""
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self._since = now
        return False, Metrics()


def read(root: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return the normalised images `(n, 1, 28, 28)` and the labels of MNIST's `train` or `t10k`."""
    raw = next(path for path in (root / "MNIST" / "raw", root) if path.is_dir())
    images = _idx(raw / f"{part}-images-idx3-ubyte").astype(np.float32) / 255
    labels = _idx(raw / f"{part}-labels-idx1-ubyte").astype(np.int64)
    return torch.from_numpy((images - MEAN) / DEVIATION)[:, None], torch.from_numpy(labels)


def _idx(path: Path) -> np.ndarray:
    packed = path.with_name(f"{path.name}.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def user_data(options: argparse.Namespace) -> Callable[[str], Dataset]:
    """Return what makes the data set of a client: a part of a random split."""
    images, labels = read(options.data, "train")
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))

    def made(user: str) -> Dataset:
        rows = order[int(user) * options.samples : (int(user) + 1) * options.samples]
        return Dataset(raw_data=[images[rows], labels[rows]], user_id=user)

    return made


def train(options: argparse.Namespace) -> tuple[list[float], Net]:
    """Run all rounds and return their seconds and the network."""
    users = [str(client) for client in range(options.clients)]
    sampler = get_user_sampler("minimize_reuse", users)
    data = FederatedDataset(user_data(options), sampler)
    network, clock = Net(), Clock()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=options.rounds, evaluation_frequency=NEVER,
            train_cohort_size=options.cohort, val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_learning_rate=options.learning_rate, local_num_epochs=options.epochs,
            local_batch_size=options.batch_size,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=1000),
        callbacks=[clock],
    )  # fmt: skip
    return clock.seconds, network


@torch.no_grad()
def accuracy(network: Net, root: Path) -> float:
    """Return the share of test images that the network gets right."""
    images, labels = read(root, "t10k")
    parts = zip(images.split(1000), labels.split(1000), strict=True)
    right = sum(int((network(some).argmax(1) == their).sum()) for some, their in parts)
    return right / len(labels)


def main() -> None:
    """Train and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("clients", "samples", "cohort", "epochs", "batch-size", "rounds", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    np.random.seed(0)
    seconds, network = train(options)
    if os.environ.get("RANK", "0") == "0":
        found = {"seconds": seconds, "accuracy": [accuracy(network, options.data)]}
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
