"""FedAvg on MNIST with a NumPyClient and DataLoaders with Ray, as in a tutorial.

    python benchmarks/stock/app.py --data <folder> --out result.json [options]

Writes the seconds of each round, from the sampling of clients to the new global model, and the
accuracy of the global model on the whole test set after each round.
"""

import argparse
import json
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

_datasets: dict[bool, datasets.MNIST] = {}


class Net(nn.Module):
    """The CNN of McMahan et al.: 1,663,370 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 7 * 7, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


def mnist(root: str, *, train: bool) -> datasets.MNIST:
    """Return MNIST, read once per process."""
    if train not in _datasets:
        scale = transforms.Normalize((0.1307,), (0.3081,))
        both = transforms.Compose([transforms.ToTensor(), scale])
        _datasets[train] = datasets.MNIST(root, train=train, transform=both)
    return _datasets[train]


def get_weights(net: nn.Module) -> list[np.ndarray]:
    """Return the parameters as arrays."""
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net: nn.Module, weights: list[np.ndarray]) -> None:
    """Load arrays into the network."""
    pairs = zip(net.state_dict().keys(), weights, strict=True)
    net.load_state_dict(OrderedDict({k: torch.tensor(v) for k, v in pairs}), strict=True)


class Client(NumPyClient):
    """Trains on its part of MNIST."""

    def __init__(self, loader: DataLoader, options: argparse.Namespace) -> None:
        self.net, self.loader, self.options = Net(), loader, options

    def fit(self, parameters, config):
        """Train the received model."""
        set_weights(self.net, parameters)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.options.learning_rate)
        criterion = nn.CrossEntropyLoss()
        self.net.train()
        for _ in range(self.options.epochs):
            for images, labels in self.loader:
                optimizer.zero_grad()
                criterion(self.net(images), labels).backward()
                optimizer.step()
        return get_weights(self.net), len(self.loader.dataset), {}


class Rounds:
    """Central evaluation, and the clock between two of them."""

    def __init__(self, root: str) -> None:
        self.root, self.net = root, Net()
        self.seconds: list[float] = []
        self.accuracy: list[float] = []
        self.left: float | None = None

    def evaluate(self, server_round, parameters, config):
        """Score the global model on the test set; the first call is before any round."""
        if self.left is not None:
            self.seconds.append(time.perf_counter() - self.left)
        set_weights(self.net, parameters)
        right = 0
        with torch.no_grad():
            for images, labels in DataLoader(mnist(self.root, train=False), batch_size=500):
                right += (self.net(images).argmax(1) == labels).sum().item()
        self.accuracy.append(right / 10_000)
        self.left = time.perf_counter()
        return 0.0, {"accuracy": self.accuracy[-1]}


def apps(options: argparse.Namespace, rounds: Rounds) -> tuple[ServerApp, ClientApp]:
    """Return the two apps of the federation."""
    order = np.random.default_rng(options.seed).permutation(60_000)
    root, size = str(options.data), options.samples

    def client_fn(context: Context):
        part = int(context.node_config["partition-id"])
        mine = Subset(mnist(root, train=True), order[part * size : (part + 1) * size].tolist())
        loader = DataLoader(mine, batch_size=options.batch_size, shuffle=True)
        return Client(loader, options).to_client()

    def server_fn(context: Context) -> ServerAppComponents:
        torch.manual_seed(options.seed)
        strategy = FedAvg(
            fraction_fit=options.cohort / options.clients,
            fraction_evaluate=0.0,
            min_available_clients=options.clients,
            initial_parameters=ndarrays_to_parameters(get_weights(Net())),
            evaluate_fn=rounds.evaluate,
        )
        return ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=options.rounds)
        )

    return ServerApp(server_fn=server_fn), ClientApp(client_fn=client_fn)


def main() -> None:
    """Run the federation and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    numbers = {"clients": 100, "samples": 600, "cohort": 10, "rounds": 10, "seed": 0}
    for name, default in (numbers | {"epochs": 1, "batch-size": 50}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    options = parser.parse_args()
    rounds = Rounds(str(options.data))
    server_app, client_app = apps(options, rounds)
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=options.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    options.out.write_text(json.dumps({"seconds": rounds.seconds, "accuracy": rounds.accuracy}))


if __name__ == "__main__":
    main()
