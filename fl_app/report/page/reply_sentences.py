"""What became of the clients' replies, in sentences: lost, rejected, dominant and odd ones."""

from fl_app.records.history import EVALUATION, rejected, skipped
from fl_app.records.rounding import counted, number, share
from fl_app.report.page.clients import odd_updates, ranges, replies
from fl_app.report.page.run_records import RunRecords


def lost(records: RunRecords) -> str:
    """Return how many replies failed or were rejected, and who was lost by the end."""
    failed = sum(len(record["failed"]) for record in records.run.rounds)
    trainings, scores = rejected(records.run.rounds)
    lost = records.run.rounds[-1].get("lost") if records.run.rounds else None
    gone = f"Lost by the end: clients {', '.join(map(str, lost))}." if lost else ""
    refused = trainings + scores
    if not failed + refused:
        return gone
    scores += sum(
        why.startswith(EVALUATION)
        for record in records.run.rounds
        for why in record["failed"].values()
    )
    some = f", {scores} of them in evaluations" if scores else ""
    text = f"{_failed_and_rejected(failed, refused)}{some}; see the table of clients."
    return f"{text} {gone}".rstrip()


def _failed_and_rejected(failed: int, rejected: int) -> str:
    parts = [f"{counted(failed, 'reply', 'replies')} failed"] if failed else []
    if rejected:
        parts.append(f"{counted(rejected, 'reply was', 'replies were')} rejected")
    return " and ".join(parts)


def untrained(records: RunRecords) -> str:
    """Return how many rounds trained no model, and why the last of them did not."""
    told = skipped(records.run.rounds)
    return f"{told.rstrip('.')}." if told else ""


def dominated(records: RunRecords) -> str:
    """Return a sentence on clients that had more than half of the weight of their community."""
    shares: dict[str, float] = {}
    for record in records.run.rounds:
        for client, part in (record.get("dominance") or {}).items():
            shares[client] = max(part, shares.get(client, 0.0))
    if not shares:
        return ""
    first = max(shares, key=shares.__getitem__)
    others = counted(len(shares) - 1, "other client", "other clients")
    text = f"Client {first} had up to {share(shares[first])} of the weight of its community"
    return f"{text}, and {others} more than half." if len(shares) > 1 else f"{text}."


def odd(records: RunRecords) -> str:
    """Return a sentence on clients with odd updates in at least half of their trained rounds."""
    trained, odd = replies(records)[0], odd_updates(records.run.rounds)
    clients = sorted(client for client in odd if 2 * len(odd[client]) >= trained[client])
    if not clients:
        return ""
    sizes = [size for client in clients for size in odd[client]]
    return (
        f"Clients with odd updates in at least half of their rounds: {ranges(clients)}; these "
        f"updates have {number(min(sizes), 1)} to {number(max(sizes), 1)} times the usual norm."
    )
