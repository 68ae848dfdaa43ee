"""Seconds of DP-SGD beside plain SGD on one client; writes docs/results/dp_speed.md.

    .venv/bin/python benchmarks/dp_speed.py --data <folder with MNIST>

On a machine with CUDA it measures that, and writes docs/results/dp_speed_gpu.md.
Plain and private training take turns in one process, on the same samples and from the same model:
private with the gradients of fl_app/client/clipped_gradients.py, and with those that Opacus stores
for each sample, which other layers use. The least of several turns counts, since others use the
machine too.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from unittest.mock import patch

import torch
from table import REPO, header, machine, row

from fl_app.client import private_training
from fl_app.client.accountant import Release
from fl_app.client.layer_calls import LAYERS, is_separable
from fl_app.client.learner import TrainingJob
from fl_app.client.private_training import Bounded, PrivateLearner
from fl_app.client.sgd import SgdLearner
from fl_app.config import Config, load
from fl_app.params import FlatModule
from fl_app.wiring import device, network, shared_population

GPU = torch.cuda.is_available()
PAGE = REPO / "docs" / "results" / ("dp_speed_gpu.md" if GPU else "dp_speed.md")
CLOCK = "seconds, with the GPU's work done," if GPU else "processor time"
SAMPLES, BATCHES, FEW = 600, (10, 50, 200), 2
NETWORKS = {
    "linear": ("network=mlp", "network.hidden=[]"),
    "small_cnn": ("network=small_cnn",),
    "mcmahan_cnn": ("network=mcmahan_cnn",),
}
HEAD = """# The cost of DP-SGD{where}

Written by `benchmarks/dp_speed.py --data <data>`, on {machine}, one thread. One epoch on
{samples} images of MNIST, which take turns in one process: plain SGD; DP-SGD, `privacy=sample_dp`;
and DP-SGD with the gradients of each sample as Opacus stores them, as before and as it still is for
layers that `fl_app/client/clipped_gradients.py` does not know. Each number is the least {clock}
of {turns} turns (of {few} with Opacus), in milliseconds a step. All three draw batches, and
both kinds of DP-SGD add noise to all parameters. `linear` has 7,850 parameters, `small_cnn`
105,866, `mcmahan_cnn`, the network of the paper, 1,663,370.
"""


def verdict(rows: Sequence[str]) -> str:
    """Return what the last two columns of the rows of the table say, and for which layers."""
    ratios = [[float(cell) for cell in each.split("|")[-3:-1]] for each in rows]
    (least, most), (fewest, largest) = (
        (min(column), max(column)) for column in zip(*ratios, strict=True)
    )
    known = ", ".join(layer.__name__ for layer in LAYERS)
    return (
        f"DP-SGD takes {least:.1f} to {most:.1f} times as long as plain training here, but only "
        f"for networks whose trainable layers are all of these: {known}. With one other layer, "
        "such as LSTM, GRU or MultiheadAttention, Opacus stores the gradients of all samples, as "
        f"in the last column: {fewest:.1f} to {largest:.1f} times for the networks here."
    )


def clock() -> float:
    """Return a time in seconds up to which all work is done."""
    if not GPU:
        return process_time()
    torch.cuda.synchronize()
    return perf_counter()


def seconds(config: Config, batch: int, turns: int) -> dict[str, float]:
    """Return the least seconds of one epoch by kind of training."""
    people, where = shared_population(config), device(config)
    data = people.client(0)
    flat = FlatModule(network(config, people.dataset), device=where)
    start = flat.vector()
    images, labels = data.train_images.to(where), data.train_labels.to(where)
    plain = SgdLearner(flat, config.client, classes=people.dataset.classes)
    rate = batch / SAMPLES
    release = Release(noise_multiplier=1.0, rate=rate, steps=round(1 / rate))
    private = PrivateLearner(plain, lambda task: Bounded(release, clip=1.0))
    made = partial(torch.Generator().manual_seed, 0)
    kinds = (("plain", plain, is_separable), ("private", private, is_separable),
             ("opacus", private, lambda module: False))  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name, *_ in kinds}
    for turn, (name, learner, known) in product(range(turns + 1), kinds):
        if name == "opacus" and turn > FEW:
            continue
        job = TrainingJob(start, images, labels, made(), noise=torch.Generator())
        with patch.object(private_training, "is_separable", known):
            began = clock()
            learner.train(job)
            found[name].append(clock() - began)
    return {name: min(each[1:]) for name, each in found.items()}  # the first turn warms up


def main() -> None:
    """Measure every network with every batch size and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    given = HEAD.format(machine=machine(), samples=SAMPLES, turns=options.turns, few=FEW,
                        clock=CLOCK, where=" on a GPU" if GPU else "")  # fmt: skip
    lines = [given, *header("network", "batch", "plain, ms", "DP-SGD, ms", "with Opacus, ms",
                            "DP-SGD / plain", "with Opacus / plain")]  # fmt: skip
    for (name, words), batch in product(NETWORKS.items(), BATCHES):
        config = load([
            "data=mnist", f"data.root={options.data.resolve()}", "population=iid", *words,
            f"population.train_samples={SAMPLES}", "client.epochs=1", f"client.batch_size={batch}",
        ])  # fmt: skip
        steps = SAMPLES / batch / 1000
        found = {kind: each / steps for kind, each in seconds(config, batch, options.turns).items()}
        cells = [f"{each:.2f}" for each in found.values()]
        ratios = [f"{found[kind] / found['plain']:.1f}" for kind in ("private", "opacus")]
        lines.append(row(name, batch, *cells, *ratios))
        print(lines[-1], flush=True)
    PAGE.write_text("\n".join([*lines, "", verdict(lines[3:])]) + "\n")


if __name__ == "__main__":
    main()
