"""The arguments of the `scripts/deploy` command."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fl_app.engines import commands, membership
from fl_app.engines.compose import NODES_AT_FIRST
from fl_app.engines.federation import MAX_NODES

RUN = "run"
_ACTIONS = ("up", RUN, "status", "down", "keys", "demo", "keep")
_ON_THIS_MACHINE = ("up", "demo", "keep")
_TAKEN = {
    "nodes": (*_ON_THIS_MACHINE, "keys"),
    "data_root": _ON_THIS_MACHINE,
    "node": (membership.ADD, membership.REMOVE, membership.ROTATE),
    "hosts": ("keys",),
    "gpus": ("keys",),
    "warm": (*_ON_THIS_MACHINE, "keys"),
}
"""The actions that take each option, beside --folder, which all take."""


def read(
    arguments: Sequence[str] | None, folder: Path, description: str | None
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options and, for a run, the overrides; ends the program if they are wrong."""
    found = parser(folder, description)
    options, overrides = found.parse_known_args(arguments)
    if overrides and options.action != RUN:
        found.error(f"{options.action} does not know {' '.join(overrides)}; see --help")
    for name, actions in _TAKEN.items():
        if getattr(options, name) != found.get_default(name) and options.action not in actions:
            option, told = (
                f"--{name.replace('_', '-')}",
                ", ".join(a for a in actions if a != "keep"),
            )
            found.error(f"{options.action} takes no {option}, which is for {told}; remove it")
    if options.action in _ON_THIS_MACHINE and (options.nodes or 1) > MAX_NODES:
        found.error(f"--nodes must be in 1..{MAX_NODES} on one machine, got {options.nodes}")
    if options.action == membership.REMOVE and options.node is None:
        found.error(f"{options.action} must be told which node, as by --node 1")
    if options.data_root is not None:
        _must_be_data_root(options.data_root.resolve(), found)
    return options, overrides


def _must_be_data_root(folder: Path, found: argparse.ArgumentParser) -> None:
    if not folder.is_dir():
        found.error(f"--data-root must be a folder that is there, got {folder}")
    try:
        commands.node_config(node=0, nodes=1, data_root=str(folder))
    except ValueError as error:
        found.error(str(error))


def parser(folder: Path, description: str | None) -> argparse.ArgumentParser:
    """Return the parser; `folder` is the one of a federation that names no other."""
    found = argparse.ArgumentParser(
        prog="scripts/deploy",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = [*_ACTIONS, membership.ADD, membership.REMOVE, membership.ROTATE, membership.RENEW]
    found.add_argument("action", nargs="?", choices=actions, default="demo")
    told = f"SuperNodes 0 to N-1 (default: those there were last, {NODES_AT_FIRST} at first)"
    found.add_argument("--nodes", type=_count, metavar="N", help=told)
    told = "of the federation: its keys, logs and state (default: deployment, in the checkout)"
    found.add_argument("--folder", type=_folder, default=folder, help=told)
    found.add_argument("--data-root", type=Path, help="folder of data sets, given to each node")
    found.add_argument("--node", type=int, help="number of a node, which is its client id")
    hosts = "keys: further names and addresses of the SuperLink, with commas between"
    found.add_argument("--hosts", type=_hosts, default=[], help=hosts)
    told = "keys: each node reserves a GPU (default: as an earlier call wrote)"
    found.add_argument("--gpus", action=argparse.BooleanOptionalAction, help=told)
    told = "clients are forks of a process that has their libraries (default: yes; keys: as before)"
    found.add_argument("--warm", action=argparse.BooleanOptionalAction, help=told)
    return found


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must be a folder, got ''; remove it for the default")
    return Path(text)


def _hosts(text: str) -> list[str]:
    found = [host.strip() for host in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(
            f"must be names or addresses with a comma between each two, got {text!r}"
        )
    return found


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
