"""How many clients a run on the federation of `scripts/deploy up` has."""

from collections.abc import Sequence
from pathlib import Path


def clients_of(overrides: Sequence[str], nodes: Sequence[int]) -> int:
    """Return the number of clients of a run; says so where it is not that of its settings."""
    if (kept := _kept_clients(overrides)) is not None:
        print(f"the run keeps its {kept} clients, which share one data set; a new run uses all")
        return kept
    clients = max(nodes) + 1
    if (planned := _planned_clients(overrides)) not in (None, clients):
        print(
            f"population.clients={clients}, a client for each node, in place of {planned} as the "
            "settings of the run have it; scripts/deploy down, and up --nodes, changes the number"
        )
    return clients


def _kept_clients(overrides: Sequence[str]) -> int | None:
    """Return the number of clients that a resumed run keeps, None if each node is one of it.

    Clients that share one data set would get other samples of it.
    """
    if (folder := _resumed(overrides)) is None:
        return None
    from fl_app.resumed_run import clients_to_keep  # it imports what only runs need

    return clients_to_keep(folder)


def _planned_clients(overrides: Sequence[str]) -> int | None:
    """Return the number of clients in the settings of a new run.

    None: it continues another run, or has several, or its settings are wrong, which it will say.
    """
    if _resumed(overrides) is not None:
        return None
    from fl_app import own  # Hydra comes with these
    from fl_app.composition import compose
    from fl_app.override_errors import NOT_COMPOSED

    folders, words = own.taken_from(overrides)
    for folder in folders:
        own.search(folder)
    try:
        planned = compose(words).population.get("clients")
    except NOT_COMPOSED:
        return None
    return planned if isinstance(planned, int) else None


def _resumed(overrides: Sequence[str]) -> Path | None:
    """Return the folder of the run that is continued; None: a new run."""
    found = [each.removeprefix("resume=") for each in overrides if each.startswith("resume=")]
    return Path(found[-1]) if found else None
