"""Rejects replies with more in them than a client is asked for, and lists in place of values."""

from flwr.app import RecordDict

from fl_app.ingress.rejection import LONGEST, RejectionError, printable, shown

MOST_FIELDS = 10_000
"""Limit of the fields of a reply, far above what any method asks for."""


def check_extent(reply: RecordDict, *, arrays: str | None) -> None:
    """Raise RejectionError for arrays beside those named `arrays`, or more than MOST_FIELDS fields.

    Nobody would read them, but Flower has received and unpacked them: their sender must be known.
    """
    others = sorted(name for name in reply.array_records if name != arrays)
    if others:
        rule = f"without arrays beside {arrays}" if arrays else "without arrays"
        raise RejectionError("the reply", rule, f"{len(others)} more records of arrays")
    count = len(reply)
    for records in (reply.config_records, reply.metric_records):
        count += sum(len(record) for record in records.values())
    if count > MOST_FIELDS:
        raise RejectionError("the reply", f"of at most {MOST_FIELDS} fields", str(count))


def check_single(reply: RecordDict, record: str) -> None:
    """Raise RejectionError for a field of a record that has a list.

    Flower does not read such a record, and would not say which field is wrong.
    """
    for name, value in reply.config_records.get(record, {}).items():
        if isinstance(value, list):
            raise RejectionError(printable(name, LONGEST), "a single value", shown(value))
