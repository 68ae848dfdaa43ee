"""What the log and the audit log say of a round."""

from collections.abc import Mapping
from logging import getLogger
from typing import Any

from fl_app.records.audit import AuditLog
from fl_app.records.history import means
from fl_app.records.metrics import outcomes
from fl_app.records.structured_logs import FIELDS, words

log = getLogger(__name__)


def log_round(record: Mapping[str, Any], former: Mapping[str, Any] | None, audit: AuditLog) -> None:
    """Log a round, and write what an audit asks for: who was rejected, removed or lost.

    `former` is the record of the round before, if there was one.
    """
    now, scores = record["round"], means(record)
    shown = {
        "phase": record["phase"],
        "loss": record["train_loss"],
        "accuracy": scores.pop("accuracy", None),
        "communities": (record["communities"] or {}).get("count"),
    }
    fields = {"round": now, **shown, "metrics": scores or None, **outcomes(record)}
    shown |= {name: mean for name, mean in scores.items() if name not in shown}
    log.info("round %d is done: %s", now, words(shown), extra={FIELDS: fields})
    for client, why in (record["rejected"] or {}).items():
        audit.append("rejected", who=client, why=why, round=now)
    for each in record["events"] or ():
        if each["kind"] == "removed":
            audit.append("removed", clients=each["clients"], why=each["detail"], round=now)
    if (lost := record["lost"] or []) != ((former or {}).get("lost") or []):
        audit.append("lost", clients=lost, round=now)
