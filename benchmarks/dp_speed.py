"""Seconds of DP-SGD beside plain SGD on one client; writes docs/results/dp_speed.md.

    .venv/bin/python benchmarks/dp_speed.py --data <folder with MNIST>

On a machine with CUDA it measures that, and writes docs/results/dp_speed_gpu.md.
Plain and private training take turns in one process, on the same samples and from the same model:
private with the gradients of fl_app/client/clipped_gradients.py, and with those that Opacus stores
for each sample, in a network with its own layers in the place of recurrent ones and attention. The
least of several turns counts, since others use the machine too.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np
import torch
from opacus.validators import ModuleValidator
from table import REPO, arguments, header, machine, row
from torch import nn

from fl_app.client import private_training
from fl_app.client.accountant import Release
from fl_app.client.layer_calls import LAYERS, is_separable
from fl_app.client.learner import TrainingJob
from fl_app.client.private_training import Bounded, PrivateLearner
from fl_app.client.sgd import SgdLearner
from fl_app.client.training import trainable
from fl_app.config import Config, load
from fl_app.params import FlatModule
from fl_app.system_numbers import SystemNumbers
from fl_app.wiring import device, network, shared_population

GPU = torch.cuda.is_available()
PAGE = REPO / "docs" / "results" / ("dp_speed_gpu.md" if GPU else "dp_speed.md")
CLOCK = "seconds, with the GPU's work done," if GPU else "processor time"
SAMPLES, BATCHES, FEW, DRAWS = 600, (10, 50, 200), 2, 20
NETWORKS = {
    "linear": ("network=mlp", "network.hidden=[]"),
    "small_cnn": ("network=small_cnn",),
    "mcmahan_cnn": ("network=mcmahan_cnn",),
} | {
    each.lower(): ("network=mcmahan_cnn", f"network._target_=dp_speed_networks.{each}")
    for each in ("Lstm", "Gru", "Transformer", "gate", "own_dense", "words", "low_rank", "experts",
                 "weight_norm", "text")
}  # fmt: skip
MOST = 3.0
"""Times as long as plain training that are the aim."""
HEAD = """# The cost of DP-SGD{where}

Written by `benchmarks/dp_speed.py --data <data>`, on {machine}, one thread. One epoch on
{samples} images of MNIST, which take turns in one process: plain SGD; DP-SGD, `privacy=sample_dp`;
and DP-SGD with the gradients of each sample as Opacus stores them, with its own layers in the place
of recurrent ones and attention. Each number is the least {clock}
of {turns} turns (of {few} with Opacus), in milliseconds a step. All three draw batches, and
both kinds of DP-SGD add noise to all parameters. `linear` has 7,850 parameters, `small_cnn`
105,866, `mcmahan_cnn`, the network of the paper, 1,663,370. The others are in
`benchmarks/dp_speed_networks.py`: `lstm` (82,186 parameters), `gru` (61,962) and `transformer`
(35,978) take the 28 rows of an image as steps. Layers of their own classes: `gate` (47,018) has a
small one between convolutions, and `own_dense` (101,770) nearly all its parameters in one; that of
`words` (68,810) looks up a vector for each of 784 pixels, that of `low_rank` (30,602) computes its
weight as the product of two matrices, that of `experts` (204,494) has four dense layers in one
tensor, and that of `weight_norm` (101,898) computes its weight from rows and their norms. `text`
(644,810) is the classifier of texts of fl-app, with 28 of 10,000 words for an image. Plain training
takes a step of all vectors, most with a gradient of zero, and DP-SGD draws noise for those that the
batch reads, and for all at the end. *noise* is the time of the normal numbers of all parameters
alone. Of a million of them torch's generator, which DP-SGD has, takes {million}.
"""


def verdict(rows: Sequence[str]) -> str:
    """Return what the last two columns of the rows of the table say, and for which layers."""
    cells = [[cell.strip() for cell in each.split("|")[1:-1]] for each in rows]
    ratios = [[float(cell) for cell in each[-2:]] for each in cells]
    (least, most), (fewest, largest) = (
        (min(column), max(column)) for column in zip(*ratios, strict=True)
    )
    slow = [
        f"`{name}` with batches of {batch} ({ratio}; {1 + float(noise) / float(plain):.1f})"
        for name, batch, plain, _, noise, _, ratio, _ in cells
        if float(ratio) > MOST
    ]
    more = (
        f" More than {MOST:.0f} times, with the ratio of plain training and the noise alone behind "
        f"it: {', '.join(slow)}."
        if slow
        else ""
    )
    known = ", ".join(layer.__name__ for layer in LAYERS)
    return (
        f"DP-SGD takes {least:.1f} to {most:.1f} times as long as plain training here.{more} One "
        f"backward pass gives the gradients of the layers {known}, LSTM, GRU, RNN, their cells, "
        "Bilinear and MultiheadAttention, and those of layers of other classes. One of these that "
        "`torch.func.vmap` cannot run is differentiated once more, sample by sample. Opacus "
        "stores the gradients of all samples if the network has layers of `opacus.layers` or an "
        f"EmbeddingBag: {fewest:.1f} to {largest:.1f} times for the networks here."
    )


def clock() -> float:
    """Return a time in seconds up to which all work is done."""
    if not GPU:
        return process_time()
    torch.cuda.synchronize()
    return perf_counter()


def _of_opacus(module: nn.Module) -> nn.Module:
    """Return a network with Opacus's own layers; it copies none whose weights are computed."""
    if not ModuleValidator.validate(module, strict=False):
        return module
    fixed: nn.Module = ModuleValidator.fix(module)
    return fixed


def seconds(config: Config, batch: int, turns: int) -> dict[str, float]:
    """Return the least seconds of one epoch by kind of training, and of the noise of its steps."""
    people, where = shared_population(config), device(config)
    data = people.client(0)
    flat = FlatModule(network(config, people.dataset), device=where)
    start = flat.vector()
    images, labels = data.train_images.to(where), data.train_labels.to(where)
    plain = SgdLearner(flat, config.client, classes=people.dataset.classes)
    rate = batch / SAMPLES
    release = Release(noise_multiplier=1.0, rate=rate, steps=round(1 / rate))
    fixed = FlatModule(_of_opacus(network(config, people.dataset)), device=where)
    stored = SgdLearner(fixed, config.client, classes=people.dataset.classes)
    private, opacus = (
        PrivateLearner(each, lambda task: Bounded(release, clip=1.0)) for each in (plain, stored)
    )
    made = partial(torch.Generator().manual_seed, 0)
    kinds = (("plain", plain, is_separable), ("private", private, is_separable),
             ("opacus", opacus, lambda module: False))  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name, *_ in kinds}
    for turn, (name, learner, known) in product(range(turns + 1), kinds):
        if name == "opacus" and turn > FEW:
            continue
        job = TrainingJob(start, images, labels, made(), noise=torch.Generator())
        with patch.object(private_training, "is_separable", known):
            began = clock()
            learner.train(job)
            found[name].append(clock() - began)
    least = {name: min(each[1:]) for name, each in found.items()}  # the first turn warms up
    noise = noise_seconds(trainable(flat.module), turns) * release.steps
    return {name: least.get(name, noise) for name in ("plain", "private", "noise", "opacus")}


def noise_seconds(parameters: Sequence[nn.Parameter], turns: int) -> float:
    """Return the least seconds of normal numbers for all parameters, in memory that they have."""
    noisy = [torch.empty_like(each, requires_grad=False) for each in parameters]
    generator = torch.Generator(noisy[0].device).manual_seed(0)
    found = []
    for _ in range(turns * DRAWS):
        began = clock()
        for each in noisy:
            each.normal_(generator=generator)
        found.append(clock() - began)
    return min(found)


def of_sources(count: int, turns: int) -> str:
    """Return the milliseconds of so many normal numbers from several generators, in words."""
    found, made = np.empty(count, np.float32), torch.empty(count)
    generator = torch.Generator().manual_seed(0)
    sources: dict[str, Callable[[], object]] = {"": lambda: made.normal_(generator=generator)}
    for bits in (np.random.SFC64, np.random.Philox):
        draw = np.random.Generator(bits(0))
        sources[f"NumPy's {bits.__name__} "] = partial(
            draw.standard_normal, dtype=np.float32, out=found
        )
    sources["AES-256 of `privacy.randomness=system` "] = partial(
        SystemNumbers().standard_normal, count, np.float32
    )
    words = []
    for name, draw in sources.items():
        seconds = [-process_time() + (draw(), process_time())[1] for _ in range(turns)]
        words.append(f"{name}{1000 * min(seconds):.1f} ms")
    return ", ".join(words)


def main() -> None:
    """Measure every network with every batch size and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    given = HEAD.format(machine=machine(), samples=SAMPLES, turns=options.turns, few=FEW,
                        clock=CLOCK, where=" on a GPU" if GPU else "",
                        million=of_sources(1_000_000, options.turns))  # fmt: skip
    lines = [given, *header("network", "batch", "plain, ms", "DP-SGD, ms", "noise, ms",
                            "with Opacus, ms", "DP-SGD / plain",
                            "with Opacus / plain")]  # fmt: skip
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
