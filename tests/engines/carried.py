"""Records as a deployment carries them: as bytes of single objects, put together at the far end."""

from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fl_app.engines.inprocess import InProcessGrid


def carried(record: RecordDict) -> RecordDict:
    """Return what arrives of a record."""
    contents = {key: each.deflate() for key, each in get_all_nested_objects(record).items()}
    found = inflate_object_from_contents(record.object_id, contents)
    assert isinstance(found, RecordDict)
    return found


class CarryingGrid(InProcessGrid):
    """The in-process engine, with all messages and replies carried so."""

    def _answer(self, message: Message) -> Any:
        message.content = carried(message.content)
        reply = super()._answer(message)
        if reply.has_content():
            reply.content = carried(reply.content)
        return reply
