"""Writes the output folder of a run while the run proceeds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fl_app.params import Layout
from fl_app.records import checkpoint as checkpoints
from fl_app.records.atomic import replacing
from fl_app.records.audit import AuditLog, actor, digest_of
from fl_app.records.checkpoint import DAMAGED, FILE, Checkpoint, CheckpointError
from fl_app.records.history import History
from fl_app.records.metrics import Endpoint, started
from fl_app.records.models import FILE as MODELS
from fl_app.records.models import StateForm, write_models
from fl_app.records.names import (
    CHECKPOINTS,
    CLIENT_NAMES,
    CONFIG,
    DATA_FORM,
    OVERRIDES,
    RESUMED,
)
from fl_app.records.plain import dumps
from fl_app.records.reading import check_names
from fl_app.records.releases import ReleaseLog
from fl_app.records.results import summarise
from fl_app.records.round_log import log_round
from fl_app.records.run_state import SupersededError
from fl_app.records.serving import FORM, Served, community_name, write_serving
from fl_app.records.snapshot import FOLDER as SNAPSHOTS
from fl_app.records.snapshot import write_snapshot
from fl_app.records.structured_logs import words
from fl_app.records.tracking import NoTracker, Tracked, Tracker, Tracking
from fl_app.types import Labels, Matrix, Vectors

log = getLogger(__name__)
OPEN_ROUND = "open_round"
"""In the state of a checkpoint: the last round, if it was not evaluated yet."""
NO_CHECKPOINT = "but cannot be resumed until one can be written"
Serve = Callable[[], Served]


class Recorder:
    """Writes rounds, snapshots, checkpoints and the summary of one run into one folder.

    `identity` has the strategy, engine and seed for the summary. `track` builds the tracker that
    receives the rounds too. `form` describes the state dict of a saved model, and `use` what is
    needed to use it elsewhere, as JSON values, among them the form of the data. `monitor` starts
    the metrics endpoint of the folder, and `started_by` is who says to have started the run.
    `restarts` is how often a lost run was submitted again; then it continues from its checkpoint if
    it has one. `superseded` says whether such a submission has taken the folder over from this
    process. `overrides` are those of a run that Flower's own command has submitted, None if another
    process writes them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        identity: Mapping[str, Any],
        config_yaml: str,
        checkpoint_every: int,
        snapshot_rounds: Collection[int],
        resume: bool,
        track: Callable[[Tracked], Tracker] = NoTracker,
        form: StateForm | None = None,
        use: Mapping[str, Any] | None = None,
        monitor: Callable[[Path], Endpoint] | None = None,
        started_by: str | None = None,
        restarts: int = 0,
    ) -> None:
        self.use = use or {}
        self.folder = folder
        self.identity = identity
        self.checkpoint_every = checkpoint_every
        self.snapshot_rounds = snapshot_rounds
        self.form = form
        self.restarts = restarts
        self.superseded: Callable[[], bool] = lambda: False
        self.overrides: list[str] | None = None
        self._checkpoints = folder / CHECKPOINTS
        resume = resume or (restarts > 0 and checkpoints.exists(self._checkpoints))
        self.releases = ReleaseLog(folder)
        self._written: tuple[int, bool] | None = None  # the round, and whether it was whole
        self._saved: Checkpoint | None = None
        self._config, self._resumed = config_yaml, ""
        folder.mkdir(parents=True, exist_ok=True)
        if resume:
            check_names(folder, [*self.names.values()])
            self._saved = self._resume()
        else:
            checkpoints.retire(self._checkpoints)
        done = self._saved.state["history"] if self._saved else []
        self.history = History(folder, done)
        run = Tracked(folder, len(done), identity, yaml.safe_load(config_yaml) or {})
        self.tracking = Tracking(lambda: track(run))
        self.audit = AuditLog(folder)
        event = "resumed" if resume else "started"
        told = {"by": started_by, "process_of": actor(), "round": len(done), **identity}
        self.audit.append(event, **told, **({"restart": restarts} if restarts else {}))
        self._endpoint = started(monitor, folder)

    def _resume(self) -> Checkpoint:
        """Return the newest intact checkpoint; raises CheckpointError."""
        found = checkpoints.find(self._checkpoints)
        if found.fault is None:
            self._written = found.checkpoint.round, OPEN_ROUND not in found.checkpoint.state
        elif checkpoints.set_aside(self._checkpoints):
            log.warning("%s %s; it was renamed to %s", FILE, found.fault, DAMAGED)
        self._resumed = f"{found}\n"
        return found.checkpoint

    @property
    def resumes(self) -> str:
        """The sentence on the checkpoint from which the run continues; empty: it is a new run."""
        return self._resumed.strip()

    def restored(self) -> Checkpoint | None:
        """Return the checkpoint of a resumed run, only once; None for a new run."""
        saved, self._saved = self._saved, None  # frees memory: it can contain all updates
        return saved

    def begin(self) -> None:
        """Write the configuration, and from which checkpoint the run continues.

        Until now a resumed run has fitted its checkpoint; one that does not must leave the folder
        as it was. It can have other settings than before.
        """
        given, names = self.overrides, [*self.names.values()]
        form = {name: self.use[name] for name in FORM if name in self.use}
        files = {
            RESUMED: self._resumed,
            CONFIG: self._config,
            OVERRIDES: "" if given is None else yaml.safe_dump(given),
            CLIENT_NAMES: dumps(names) + "\n" if names else "",
            DATA_FORM: dumps(form) + "\n" if form else "",
        }
        for name, text in files.items():
            if text:
                with replacing(self.folder / name) as temporary:
                    temporary.write_text(text, encoding="utf-8")

    def check_owner(self) -> None:
        """Raise SupersededError if this process stood still and was thought to be lost."""
        if self.superseded():
            raise SupersededError(
                f"{self.folder} must belong to this submission of the run, got a later one; follow "
                f"that with fl-app watch {self.folder}, this process writes no more"
            )

    def trained(self) -> None:
        """Note that a round is trained, whose record waits for its scores."""
        if self._endpoint is not None:
            self._endpoint.metrics.trained()

    def round(self, record: dict[str, Any]) -> None:
        """Append the record of a finished round to rounds.jsonl, then send it to the tracker.

        Raises SupersededError.
        """
        self.check_owner()
        self.history.append(record)
        written = self.history.rounds[-1]
        self.tracking.round(written)
        if self._endpoint is not None:
            self._endpoint.metrics.round(written)
        former = self.history.rounds[-2:-1]
        log_round(written, former[0] if former else None, self.audit)

    @property
    def names(self) -> Mapping[int, str]:
        """The clients' own names by id, empty if the data have none."""
        return dict(enumerate(self.use.get("client_names", ())))

    @property
    def has_snapshots(self) -> bool:
        """Whether any snapshot exists."""
        return any((self.folder / SNAPSHOTS).glob("*"))

    def snapshot(
        self,
        server_round: int,
        ids: Labels,
        similarity: Matrix,
        labels: Labels,
        groups: Labels,
        distance: Matrix | None,
    ) -> None:
        """Write the similarity matrix of a round for the figures."""
        write_snapshot(
            self.folder,
            round=server_round,
            ids=ids,
            similarity=similarity,
            labels=labels,
            groups=groups,
            distance=distance,
        )
        self.tracking.matrix(server_round, similarity, labels)

    def checkpoint(
        self,
        arrays: dict[str, np.ndarray],
        state: dict[str, Any],
        open_round: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the server state and the history so far as one checkpoint.

        `open_round` is that after the history, whose `record` has no scores yet. A checkpoint that
        cannot be written is logged as an error, and the run continues. The round is that of the
        history, since an interrupt can come before the loop has counted it. Raises SupersededError.
        """
        self.check_owner()
        rounds = self.history.rounds
        last = rounds[-1] if rounds else {"round": 0}
        done = int((last if open_round is None else open_round["record"])["round"])
        if (done, open_round is None) == self._written:
            return
        more = {} if open_round is None else {OPEN_ROUND: open_round}
        saved = Checkpoint(done, arrays, state | {"history": rounds} | more)
        try:
            checkpoints.write(self._checkpoints, saved)
        except (CheckpointError, OSError) as error:
            left = "older ones remain" if checkpoints.exists(self._checkpoints) else NO_CHECKPOINT
            log.error("no checkpoint of round %d; the run continues, %s: %s", done, left, error)
            return
        self._written = done, open_round is None
        self.audit.append("checkpoint written", round=done)

    def finish(
        self,
        status: str,
        *,
        clients: int,
        assignment: Mapping[int, int],
        agreement: Mapping[str, float],
        groups: Mapping[int, int],
        removed: Sequence[int],
        models: Vectors,
        layout: Layout,
        serve: Serve | None = None,
        reason: str | None = None,
    ) -> None:
        """Write the models, which client uses which, and summary.json; end the tracking.

        `agreement` has the measures of the assignment that replace those of the last record,
        `groups` the planted group of each client that told one. `serve` returns the models that
        clients use now. `reason` is why the run failed or ended early; without it, the last record
        may tell. A completed run whose models cannot be written has failed.
        """
        try:
            self._write_models(models, layout, serve)
        except (OSError, ValueError) as error:  # the summary must still be written
            log.error("%s could not be written: %s", MODELS, error)
            if status == "completed":
                status = "failed"
                reason = f"{MODELS} could not be written: {error}; resume the run to write it"
        summary = summarise(
            self.folder,
            status,
            identity=self.identity,
            rounds=self.history.rounds,
            clients=clients,
            assignment=assignment,
            agreement=agreement,
            groups=groups,
            removed=removed,
            names=self.names,
            restarts=self.restarts,
            reason=reason,
        )
        found = summary["accuracy"] | summary["communities"]
        shown = {"rounds": summary["rounds"], "accuracy": found["mean"]}
        shown |= {name: each["mean"] for name, each in summary["metrics"].items()}
        shown |= {name: found[name] for name in ("before_clustering", "ari")}
        log.info("%s: %s", status, words(shown | {"communities": found["count"]}))
        self.tracking.close(status)
        self.audit.append("ended", status=status, round=len(self.history.rounds))
        if self._endpoint is not None:
            self._endpoint.close(status)

    def _write_models(self, models: Vectors, layout: Layout, serve: Serve | None) -> None:
        named = {community_name(row): model for row, model in enumerate(models)}
        used = self._served(serve)
        named |= used.models
        write_models(self.folder, named, layout, self.form)
        rounds = self.history.rounds
        done = rounds[-1]["round"] if rounds else 0
        self.audit.append(
            "models written", file=MODELS, sha256=digest_of(self.folder / MODELS), round=done
        )
        write_serving(self.folder, used, list(named), self.use, done)

    def _served(self, serve: Serve | None) -> Served:
        if serve is None:
            return Served()
        try:
            return serve()
        except Exception:  # a user's method can fail, and the models must still be written
            log.exception("the models of the clients are not known")
            return Served()
