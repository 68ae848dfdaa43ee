"""The end of a run that went on by itself after a fault, beside an undisturbed run."""

from collections.abc import Callable
from pathlib import Path

from fl_app.records import run_state
from fl_app.records.summary import read_summary

Until = Callable[[str, Callable[[], bool]], None]
"""Waits for what is named until a function returns True; raises TimeoutError."""


def ended(folder: Path, until: Until) -> tuple[str, str]:
    """Wait for the end of the run in a folder; return its status, and what is to be seen of it."""

    def over() -> bool:
        state = run_state.read(folder)
        return state is not None and not state.unfinished

    until(f"the end of {folder.name}", over)
    state, summary = run_state.read(folder), read_summary(folder)
    assert state is not None
    assert summary is not None
    told = f"{summary['rounds']} rounds, submitted again {state.restarts} times"
    return str(summary["status"]), told


def same_models(folder: Path, like: str) -> str:
    """Return whether the run in a folder has the models of the run `like` beside it."""
    models, undisturbed = (
        (each / "models.safetensors").read_bytes() for each in (folder, folder.with_name(like))
    )
    return f"the same models as undisturbed: {models == undisturbed}"
