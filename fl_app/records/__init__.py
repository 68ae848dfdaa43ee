"""Writes and reads the output folder of a run."""

from fl_app.records.checkpoint import Checkpoint, CheckpointError
from fl_app.records.environment import git_commit, versions
from fl_app.records.history import History, read_rounds
from fl_app.records.snapshot import Snapshot, read_snapshots, write_snapshot
from fl_app.records.summary import build_summary, read_summary, write_summary

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "History",
    "Snapshot",
    "build_summary",
    "git_commit",
    "read_rounds",
    "read_snapshots",
    "read_summary",
    "versions",
    "write_snapshot",
    "write_summary",
]
