"""Sends many mutated replies to every method; writes docs/results/fuzz.md.

    scripts/fuzz [replies] [seed]

There are three ways: complete runs with the real client app (benchmarks/fuzz_runs.py), messages
through grid and messenger (tests/engines/over_the_wire.py), and replies passed to the strategy
(tests/strategies/lockstep.py), including objects that no message could contain. Each run is
compared with a second one without the replies that the rules reject. A second implementation of
the rules is in tests/ingress/rules.py.
"""

import logging
import multiprocessing
import shlex
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from random import Random
from typing import Any

from table import REPO, arguments, header, machine, row

for folder in ("engines", "strategies", "ingress"):
    sys.path.insert(0, str(REPO / "tests" / folder))

PAGE = REPO / "docs" / "results" / "fuzz.md"
ROUNDS = 7
BY_MESSAGE = 0.1
"""Share of the replies that travel as messages through grid and messenger."""
PACKAGES = ("flwr", "numpy", "torch", "hypothesis")
Kinds = Counter[tuple[str, str]]


@dataclass
class Found:
    """What some runs found: replies by message and kind of lie, and what went wrong."""

    what: str
    told: Kinds = field(default_factory=Counter)
    valid: Kinds = field(default_factory=Counter)
    runs: int = 0
    stopped: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        """Take in what other runs found."""
        self.told += other.told
        self.valid += other.valid
        self.runs += other.runs
        self.stopped += other.stopped
        self.changed += other.changed

    def play(self, name: str, seed: int, runs: Callable[[], tuple[Kinds, Kinds]]) -> None:
        """Play a pair of runs and note what it found."""
        self.runs += 1
        try:
            told, valid = runs()
        except AssertionError:
            self.changed.append(f"{name}, seed {seed}: {_fault()}")
        except BaseException:
            self.stopped.append(f"{name}, seed {seed}: {_fault()}")
        else:
            self.told += told
            self.valid += valid


def _fault() -> str:
    """Return the end of the traceback, its files relative to the repository."""
    return traceback.format_exc().replace(f"{REPO}/", "")[-600:]


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def by_strategy(name: str, replies: int, seed: int) -> Found:
    """Hand replies to a strategy of the tests until so many lies are told."""
    _quiet()
    from lockstep import Lockstep
    from methods import STRATEGIES

    found = Found("handed to the strategy")
    for number in _seeds(found, replies, seed):

        def runs(number: int = number) -> tuple[Kinds, Kinds]:
            both = Lockstep(STRATEGIES[name], Random(f"{name} {number}"))
            for server_round in range(1, ROUNDS + 1):
                both.round(server_round)
            return both.tally.told, both.tally.valid

        found.play(name, number, runs)
    return found


def by_message(name: str, replies: int, seed: int) -> Found:
    """Send replies as messages until so many lies are told."""
    _quiet()
    from methods import STRATEGIES
    from over_the_wire import OverTheWire

    found = Found("messages through grid and messenger")
    for number in _seeds(found, replies, seed):

        def runs(number: int = number) -> tuple[Kinds, Kinds]:
            both = OverTheWire(STRATEGIES[name], Random(f"{name} {number}"))
            try:
                both.introduce()
                for server_round in range(1, ROUNDS + 1):
                    both.round(server_round)
            finally:
                both.grid.close()
            return both.tally.told, both.tally.valid

        found.play(name, number, runs)
    return found


def _seeds(found: Found, replies: int, seed: int) -> Iterator[int]:
    """Yield seeds until enough is told; runs that stop count as one reply."""
    number = seed * 1_000_000
    while found.told.total() + len(found.stopped) + len(found.changed) < replies:
        yield number
        number += 1


NETWORKS = {
    "centroids": ["network=centroids"],
    "mixture": ["network=mixture", "network.settings.hidden=[4]"],
}
"""Of methods that need a kind of model."""
TRAINING = ("client.epochs=1", "client.batch_size=30")
"""Of clients that train in batches."""


def _network(method: Any) -> list[str]:
    """Return a small network for a method."""
    kind = "centroids" if method.clusters_points else method.model_kind
    return NETWORKS.get(kind, ["network.width=0.25"])


def words(name: str) -> list[str]:
    """Return the overrides of a method of conf/strategy for whole runs."""
    from fl_app.config import option

    target = option(f"strategy={name}")
    method = target.resolve()
    found = [f"strategy={name}", *_network(method), *(() if method.clusters_points else TRAINING)]
    return [*found, "strategy.cluster_round=2"] if "cluster_round" in target.options else found


def by_run(name: str, replies: int, seed: int) -> Found:
    """Play one pair of whole runs of a method of conf/strategy."""
    _quiet()
    from fuzz_runs import pair

    found = Found("whole runs with the real client app")
    found.play(name, seed, lambda: pair(words(name), seed))
    return found


def tasks(replies: int, seed: int) -> list[tuple[Callable[..., Found], str, int, int]]:
    """Return what is to be played: by whom, which method, how many replies, which seed."""
    from methods import STRATEGIES

    from fl_app.composition import choices
    from fl_app.config import option

    # replies under masks have another form: tests/engines/test_community_runs.py
    named = [n for n in choices("strategy") if not option(f"strategy={n}").resolve().needs_masks]
    whole = [(by_run, name, 0, seed) for name in named]
    sent = max(1, round(BY_MESSAGE * replies / len(STRATEGIES)))
    handed = max(1, -(-replies // len(STRATEGIES)) - sent)
    return [
        *whole,
        *((by_message, name, sent, seed) for name in STRATEGIES),
        *((by_strategy, name, handed, seed) for name in STRATEGIES),
    ]


def play(replies: int, seed: int, workers: int) -> list[Found]:
    """Play all tasks, some at a time, and show how far it is."""
    found: dict[str, Found] = {}
    context, done = multiprocessing.get_context("spawn"), 0
    with ProcessPoolExecutor(workers, mp_context=context) as pool, ending(pool):
        waiting = [pool.submit(task, *arguments) for task, *arguments in tasks(replies, seed)]
        for each in as_completed(waiting):
            part = each.result()
            found.setdefault(part.what, Found(part.what)).add(part)
            done += part.told.total()
            print(f"\r{done:,} of {replies:,} replies", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return list(found.values())


@contextmanager
def ending(pool: ProcessPoolExecutor) -> Iterator[None]:
    """End the workers of a pool at once on an error or Ctrl-C, for which the pool would wait."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise


def page(found: list[Found], command: str, seconds: float) -> list[str]:
    """Return the page: what was told in which way, and by message and kind of lie."""
    whole = Found("all")
    for each in found:
        whole.add(each)
    lines = [
        "# Mutated replies", "",
        f"Written by `{command}` in {seconds:.0f} seconds on {machine()};",
        ", ".join(f"{name} {version(name)}" for name in PACKAGES) + ".", "",
        "Every run was compared with a second one without the replies that the rules reject:",
        "after each round both had exactly the same state, and every client that broke a rule was",
        "recorded. A lie can be valid by chance, such as another number of samples that is not too",
        "large; then it is used like an honest reply. A message without a reply, such as that of a",
        "client that raised, is recorded as failed and counts as rejected.", "",
        f"**{whole.told.total():,} replies, {len(whole.stopped)} runs stopped, "
        f"{len(whole.changed)} states changed.**", "",
        *header("way", "pairs of runs", "replies", "rejected", "valid", "stopped", "changed"),
    ]  # fmt: skip
    for each in [*found, whole]:
        told, valid = each.told.total(), each.valid.total()
        counts = (each.runs, told, told - valid, valid, len(each.stopped), len(each.changed))
        lines.append(row(each.what, *(f"{count:,}" for count in counts)))
    lines += ["", *header("message", "lie", "replies", "rejected", "valid")]
    for (message, kind), told in sorted(whole.told.items()):
        valid = whole.valid[message, kind]
        lines.append(row(message, kind, *(f"{n:,}" for n in (told, told - valid, valid))))
    return [*lines, *(f"\n    {fault}" for fault in (*whole.stopped, *whole.changed))]


def main() -> None:
    """Play, write the page, and fail where anything was stopped or changed."""
    parser = arguments(__doc__)
    parser.add_argument("replies", type=int, nargs="?", default=100_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    began = time.perf_counter()
    found = play(options.replies, options.seed, options.workers)
    command = shlex.join(["scripts/fuzz", str(options.replies), str(options.seed)])
    lines = page(found, command, time.perf_counter() - began)
    PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(any(each.stopped or each.changed for each in found))


if __name__ == "__main__":
    main()
