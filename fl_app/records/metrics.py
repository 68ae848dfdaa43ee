"""A Prometheus endpoint of the server: the numbers of the last round, and totals of the run.

It reads the records of the rounds only. Labels have few values: nothing that a client sent is one.
"""

import errno
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

from fl_app.records.history import untrained, was_skipped
from fl_app.records.plain import spent_epsilon

log = getLogger(__name__)
PHASES = {"training": "training_s", "aggregation": "server_s", "evaluation": "evaluation_s"}
"""Label of a phase, and its field in `time` of a record."""
OUTCOMES = ("asked", "answered", "failed", "rejected", "lost")
MOST_RULES = 30
"""Different rules of rejections; further ones count as `other`."""
STATES = ("running", "completed", "interrupted", "failed")
LAST_SCRAPE_S, LATE = 90.0, 1.5
"""How long the end of a run waits for its last scrape: at most these seconds, and intervals."""
POLL_S = 0.2
RETRY_S = 5.0
"""How long an endpoint whose port is taken waits before it tries again."""
_FIELD = re.compile(r"(?:[a-z_]+[ .:]+)*([a-z_]{1,40})")
"""What stands before the first `must be` of a reason, unless it quotes what a client sent."""


class Metrics:
    """The metrics of one run in a registry of their own."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], rounds: int) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.folder = folder
        self.registry = CollectorRegistry()
        self._rules = set[str]()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"fl_app_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fl_app_{name}", text, labels, registry=self.registry)

        named = {name: str(value) for name, value in identity.items()}
        gauge("run", "1; the labels describe the run", *named).labels(**named).set(1)
        gauge("rounds_planned", "Rounds of the run").set(rounds)
        self.state = gauge("run_state", "1 for the state of the run", "state")
        self.round_number = gauge("round", "Last completed round")
        self.skipped = counter("rounds_skipped", "Rounds in which no model was trained")
        told = "End of the last trained round; before the first one, the start of the run"
        self.finished = gauge("round_end_timestamp_seconds", told)
        self.finished.set(time.time())  # an alert compares it with the present time
        self.seconds = gauge("round_seconds", "Seconds of the last round", "phase")
        self.total_seconds = counter("seconds", "Seconds of all rounds", "phase")
        self.clients = gauge("clients", "Clients of the last round", "outcome")
        self.replies = counter("replies", "Clients of all rounds", "outcome")
        self.rejections = counter("rejections", "Rejected replies by the field at fault", "rule")
        self.accuracy = gauge("accuracy", "Last measured accuracy over the clients", "statistic")
        told = "Highest mean of the accuracy since this process of the run has started"
        self.best = gauge("accuracy_best", told)
        self._best = 0.0
        self.loss = gauge("train_loss", "Training loss of the last round")
        self.communities = gauge("communities", "Communities")
        self.bytes = counter("transferred_bytes", "Bytes of models", "direction")
        self.epsilon = gauge("epsilon_spent", "Largest epsilon that a client has spent")
        self.stored = gauge("stored_bytes", "Bytes of the output folder", "part")
        self.set_state("running")

    def set_state(self, state: str) -> None:
        """Say how the run goes on, as in the summary."""
        for each in STATES:
            self.state.labels(each).set(each == state)

    def trained(self) -> None:
        """Note that a round is trained, whose record comes after the next one's training."""
        self.finished.set(time.time())

    def round(self, record: Mapping[str, Any]) -> None:
        """Take over the record of a round."""
        self.round_number.set(record["round"])
        self.trained()
        self.skipped.inc(was_skipped(record))
        for phase, field in PHASES.items():
            self.seconds.labels(phase).set(record["time"][field])
            self.total_seconds.labels(phase).inc(record["time"][field])
        for outcome, count in outcomes(record).items():
            self.clients.labels(outcome).set(count)
            self.replies.labels(outcome).inc(count)
        for why in record["rejected"].values():
            self.rejections.labels(self._rule(str(why))).inc()
        for direction, count in record["bytes"].items():
            self.bytes.labels(direction).inc(count)
        if record["train_loss"] is not None:
            self.loss.set(record["train_loss"])
        if record["accuracy"]:
            for statistic in ("mean", "std"):
                self.accuracy.labels(statistic).set(record["accuracy"][statistic])
            self._best = max(self._best, record["accuracy"]["mean"])
            self.best.set(self._best)
        if record["communities"]:
            self.communities.set(record["communities"]["count"])
        if record["privacy"]:
            self.epsilon.set(spent_epsilon(record["privacy"]["epsilon"]["max"]))
        for part in (".", "checkpoint"):
            self.stored.labels("all" if part == "." else part).set(size(self.folder / part))

    def _rule(self, why: str) -> str:
        found = _FIELD.fullmatch(why.partition(" must be ")[0])
        rule = found[1] if found else "other"
        if rule not in self._rules and len(self._rules) >= MOST_RULES:
            return "other"
        self._rules.add(rule)
        return rule


class Endpoint:
    """Serves the metrics of a run over HTTP until `close`; `hurry` says whether it must end.

    It tries a port that is taken again until it is free: of a run that was submitted again, the
    lost process can still have it.
    """

    def __init__(
        self, metrics: Metrics, *, host: str, port: int, hurry: Callable[[], bool]
    ) -> None:
        from prometheus_client import Gauge, start_http_server

        self.metrics, self.hurry, self._host = metrics, hurry, host
        self._serving: tuple[WSGIServer, threading.Thread] | None = None
        self._scrapes = Scrapes()
        told = "Times that the metrics of the run were read"
        Gauge("fl_app_scrapes", told, registry=metrics.registry).set_function(self._scrapes.note)
        self._serve = partial(start_http_server, port, host, registry=metrics.registry)
        self._over = threading.Event()
        self._starter = threading.Thread(target=self._start_when_free, daemon=True)
        try:
            self._start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            log.error(
                "no metrics endpoint until port %d is free, the run continues: %s", port, error
            )
            self._starter.start()

    def _start(self) -> None:
        self._serving = self._serve()
        log.info("metrics: http://%s:%d/metrics", self._host, self.port)

    def _start_when_free(self) -> None:
        while not self._over.wait(RETRY_S):
            with suppress(OSError):
                return self._start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._serving is not None
        return self._serving[0].server_port

    def close(self, status: str) -> None:
        """State how the run ended, let who scrapes the run read this once, and stop."""
        self._over.set()
        if self._starter.is_alive():
            self._starter.join()
        due = 0.0 if status == "interrupted" else self._scrapes.due()
        self.metrics.set_state(status)
        before, end = self._scrapes.count, time.monotonic() + due
        while self._scrapes.count == before and time.monotonic() < end and not self.hurry():
            time.sleep(POLL_S)
        if self._scrapes.count > before:
            time.sleep(POLL_S)  # for the answer to be sent
        if self._serving is not None:
            server, thread = self._serving
            server.shutdown()
            server.server_close()
            thread.join()


class Scrapes:
    """Counts how often the metrics of a run are read, and knows when the next time is due."""

    def __init__(self) -> None:
        self.count = 0
        self._last = self._gap = 0.0

    def note(self) -> float:
        """Note that the metrics are read, and return how often they were."""
        now = time.monotonic()
        self._gap, self._last = now - self._last, now
        self.count += 1
        return float(self.count)

    def due(self) -> float:
        """Return the seconds within which the next scrape must come; 0: nobody scrapes."""
        if self.count < 2:
            return 0.0
        left = self._last + LATE * self._gap - time.monotonic()
        return min(max(left, 0.0), LAST_SCRAPE_S)


def outcomes(record: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of clients by outcome; OUTCOMES are the names.

    Asked and answered are about training; failed and rejected count evaluations too, and replies of
    an attempt that was repeated.
    """
    asked = {str(client) for client in record["sampled"] or ()}
    failed, rejected = (set(record[name] or ()) for name in ("failed", "rejected"))
    answered = asked - untrained(record)
    counts = map(len, (asked, answered, failed, rejected, record["lost"] or ()))
    return dict(zip(OUTCOMES, counts, strict=True))


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file that vanishes meanwhile counts 0."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def started(monitor: Callable[[Path], Endpoint] | None, folder: Path) -> Endpoint | None:
    """Start the endpoint of a folder; a run continues without one that cannot start."""
    if monitor is None:
        return None
    try:
        return monitor(folder)
    except (OSError, OverflowError) as error:
        log.error("no metrics endpoint, the run continues; give another metrics.port: %s", error)
        return None
