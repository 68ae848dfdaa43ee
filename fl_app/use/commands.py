"""The commands of `fl-app` on a finished run: their arguments and what they print."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fl_app.config import ConfigError
from fl_app.own import PROJECT, use_modules

if TYPE_CHECKING:
    from fl_app.use.assign import Assignment
    from fl_app.use.run import FinishedRun

BATCH = 500
"""Default number of samples that a model answers at once; it does not affect the answers."""


class Arguments(argparse.ArgumentParser):
    """A parser of one command; its errors are reported like those of a configuration."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with the usage."""
        usage = " ".join(self.format_usage().removeprefix("usage: ").split())
        raise ConfigError([f"{message}; use {usage}"])


def _arguments(command: str, **options: Any) -> Arguments:
    parser = Arguments(prog=f"fl-app {command}", allow_abbrev=False, **options)
    parser.add_argument("folder", type=Path, help="the output folder of a run that has ended")
    return parser


def _loaded(folder: Path) -> "FinishedRun":
    """Return a run whose modules this process finds before those of the current folder."""
    from fl_app.use.run import load_run

    run = load_run(folder)
    use_modules(run.folder / PROJECT)
    return run


def evaluate(arguments: Sequence[str]) -> None:
    """Print the accuracy and metrics of a run, computed again."""
    from fl_app.use.evaluate import evaluate as computed
    from fl_app.use.evaluate import evaluate_samples

    parser = _arguments("evaluate", description="Compute the scores of a run again.")
    parser.add_argument(
        "changes", nargs="*", default=[], help="settings of the data, as data.root=<folder>"
    )
    parser.add_argument("--data", type=Path, help="labelled samples, to score models on them")
    parser.add_argument("--client", help="with --data: the client with the model, id or name")
    parser.add_argument("--json", action="store_true", help="print JSON with all clients")
    given = parser.parse_args(list(arguments))
    if given.data is None and given.client is not None:
        parser.error("--client needs --data, since every client is scored on its own data")
    run = _loaded(given.folder)
    if given.data is None:
        found = computed(given.folder, given.changes)
    else:
        clients = sorted(run.clients) if given.client is None else [run.client_id(given.client)]
        found = evaluate_samples(run, given.data, clients)
    if given.json:
        print(json.dumps(found | {"names": run.client_names} if run.client_names else found))
    else:
        names = {str(client): f"client {client}, {n}" for client, n in run.client_names.items()}
        _show(found, names)


def _show(found: dict[str, Any], names: Mapping[str, str]) -> None:
    """Print an evaluation for a reader; `names` are those of clients by id."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if found["loss"]["mean"] is None and not found["metrics"]:
        console.print("no client has samples for test; give labelled samples with --data")
    first = "loss" if found["accuracy"]["mean"] is None else "accuracy"
    for name, each in {first: found[first], **found["metrics"]}.items():
        if each["mean"] is None:
            continue
        clients = each["clients"]
        line = f"{name} {each['mean']:.4f}"
        if len(clients) == 1:
            (only,) = clients
            line += f" ({names.get(only, f'client {only}')})"
        elif clients:
            low, high = min(clients, key=clients.get), max(clients, key=clients.get)
            line += (
                f", mean of {len(clients)} clients, from {clients[low]:.4f} "
                f"({names.get(low, f'client {low}')}) to {clients[high]:.4f} "
                f"({names.get(high, f'client {high}')})"
            )
        console.print(line)
    known = found["recorded"]
    if known is not None and known["largest_difference"] is not None:
        gap = known["largest_difference"]
        console.print(f"largest difference from round {known['round']} as recorded: {gap:.1e}")
    elif known is not None and known["round"] == found["round"]:
        console.print(f"the record of round {known['round']} has none of these scores to compare")
    elif known is not None:
        console.print(
            f"the last evaluation was after round {known['round']}, and the models are those "
            f"after round {found['round']}"
        )


def predict(arguments: Sequence[str]) -> None:
    """Write what a model answers to raw samples."""
    from fl_app.use.predict import predict as written
    from fl_app.use.predict import total

    parser = _arguments("predict", description="Write what a model answers to raw samples.")
    _add_model(parser)
    parser.add_argument("--data", type=Path, required=True, help="a table, .npy, .npz or images")
    parser.add_argument("--out", type=_file, required=True, help="the CSV file to write")
    parser.add_argument("--batch", type=_count, default=BATCH, help="samples at once")
    given = parser.parse_args(list(arguments))
    run = _loaded(given.folder)
    model = run.model(client=given.client, community=given.community, name=given.model)
    columns = (TextColumn("{task.completed:,} rows"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)  # no empty line in its place where nobody watches
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total(given.data))
        done = written(
            run, model, given.data, given.out, batch=given.batch,
            progress=lambda rows: bar.advance(task, rows),
        )  # fmt: skip
    print(f"{done:,} predictions in {given.out}")


def export(arguments: Sequence[str]) -> None:
    """Write the models of a run in the format of another tool."""
    from fl_app.use.card import CARD
    from fl_app.use.export import default_names
    from fl_app.use.export import export as written
    from fl_app.use.formats import FORMATS
    from fl_app.use.mlflow_model import save

    parser = _arguments("export", description="Write models in the format of another tool.")
    _add_model(parser)
    parser.add_argument("--format", required=True, choices=[*FORMATS, "mlflow"])
    parser.add_argument("--to", type=Path, required=True, help="the folder to write")
    given = parser.parse_args(list(arguments))
    run = _loaded(given.folder)
    if given.format == "mlflow":  # one model with all of them
        if (given.client, given.community, given.model) != (None, None, None):
            parser.error("--format mlflow holds all models; leave --client and the like out")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # of three files
        save(run, given.to)
        print(given.to)
        return
    client = None if given.client is None else run.client_id(given.client)
    one = {"client": client, "community": given.community, "name": given.model}
    named = any(value is not None for value in one.values())
    names = [run.name(**one)] if named else default_names(run)
    for each in written(run, given.format, given.to, names, client=client):
        print(f"{each.file}: differs from PyTorch by at most {each.difference:.1e}")
    print(given.to / CARD)


def _add_model(parser: argparse.ArgumentParser) -> None:
    """Add the three ways to name a model."""
    parser.add_argument("--client", help="the model of this client, by its id or its own name")
    parser.add_argument("--community", type=int, help="the model of this community")
    parser.add_argument("--model", help="a model by name, such as global")


def _file(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("must be a file, got -; write one, and print it")
    return Path(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got {text}")
    return int(text)


def assign(arguments: Sequence[str]) -> None:
    """Print the community of a client that was never part of the run."""
    parser = _arguments("assign", description="Find the community of a new client.")
    parser.add_argument("--data", type=Path, required=True, help="its samples")
    parser.add_argument("--by", choices=["loss", "update"], help="how to use labels; loss if left")
    parser.add_argument("--without-labels", action="store_true", help="use the inputs alone")
    parser.add_argument("--epochs", type=_count, default=1, help="with --by update")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(list(arguments))
    if given.without_labels and given.by is not None:
        parser.error(f"--by {given.by} needs labels; leave it out with --without-labels")
    found, unit = _assigned(_loaded(given.folder), given)
    if given.json:
        print(json.dumps(found.content()))
        return
    margin = "the only one" if found.margin is None else f"margin to the second {found.margin:.1%}"
    print(f"{found.model}, {margin}")
    for name, value in sorted(found.values.items(), key=lambda each: each[1]):
        print(f"  {name}: {unit} {value:.4f}")
    if given.without_labels:
        print("without labels: communities that disagree only on labels cannot be told apart")


def _assigned(run: "FinishedRun", given: argparse.Namespace) -> tuple["Assignment", str]:
    """Return an assignment in the way that the arguments choose, and what its values are."""
    from fl_app.use.assign import by_certainty, by_descriptor, by_loss, by_update
    from fl_app.use.samples import labelled, on_device, unlabelled
    from fl_app.use.scorer import Scorer, config_of
    from fl_app.wiring import device

    config = config_of(run.folder, [])
    scorer = Scorer(run, config)
    if given.without_labels:
        inputs = unlabelled(run, given.data).to(device(config))
        if run.serving["descriptors"]:
            return by_descriptor(scorer, inputs), "distance"
        unit = "distance" if run.answers == "centroids" else "entropy"
        return by_certainty(scorer, inputs), unit
    samples = on_device(*labelled(run, given.data), device(config))
    if given.by == "update":
        return by_update(scorer, *samples, epochs=given.epochs), "update"
    return by_loss(scorer, *samples), "loss"


def fine_tune(arguments: Sequence[str]) -> None:
    """Train the model of a client or a community further, on the data of one client."""
    from fl_app.use.fine_tune import fine_tune as tuned

    parser = _arguments("fine-tune", description="Train a personal model.")
    _add_model(parser)
    parser.add_argument("--data", type=Path, help="labelled samples instead of the client's own")
    parser.add_argument("--epochs", type=_count, default=1)
    parser.add_argument("--to", type=Path, required=True, help="the folder to write")
    given = parser.parse_args(list(arguments))
    run = _loaded(given.folder)
    done = tuned(
        run, client=None if given.client is None else run.client_id(given.client),
        community=given.community, model=given.model, data=given.data, epochs=given.epochs,
        to=given.to,
    )  # fmt: skip
    before, after = done.before, done.after
    if before is None or after is None:
        print(f"{done.start}: not scored, since the client has no test samples")
    else:
        scored = f"loss {before.loss:.4f} before, {after.loss:.4f} after"
        print(f"{done.start}: {scored}, on {before.samples} samples that it was not trained on")
        if before.accuracy is not None and after.accuracy is not None:
            print(f"accuracy {before.accuracy:.4f} before, {after.accuracy:.4f} after")
    print(given.to)


COMMANDS = {
    "evaluate": evaluate,
    "predict": predict,
    "export": export,
    "assign": assign,
    "fine-tune": fine_tune,
}
"""Commands by name."""
