"""What a ClientApp does with a message before its client sees it, and with its failures."""

from logging import getLogger

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fl_app.data.population import own
from fl_app.ingress.attached import attach_answers, detach
from fl_app.ingress.carried import read_address
from fl_app.ingress.rejection import shown
from fl_app.run_config import of_run
from fl_app.wiring import masking, privacy

log = getLogger(__name__)
CLIENT = "partition-id"
"""The setting of a node that is the id of its client."""
_NODES = "num-partitions"


class WithheldError(RuntimeError):
    """A failure of which the server is told the kind, and nothing that depends on data."""


def as_addressed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the client that a message names, on a simulated node that carries several.

    Each of them has its own part of the node's state.
    """
    config = of_run(context.run_config, on_client=True)
    client_id = read_address(
        message.content,
        clients=config.population.options["clients"],
        nodes=int(context.node_config.get(_NODES, 0)),
        own_data=config.population.resolve() is own,
    )
    if client_id is None:
        return call_next(message, context)
    mark = f"client {client_id}: "
    held = {name: record for name, record in context.state.items() if name.startswith(mark)}
    client = Context(
        context.run_id,
        context.node_id,
        {**context.node_config, CLIENT: client_id},
        RecordDict({name.removeprefix(mark): record for name, record in held.items()}),
        context.run_config,
    )
    reply = call_next(message, client)
    for name, record in client.state.items():
        context.state[mark + name] = record
    return reply


def as_attached(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer the evaluations that are attached to a training message, then train.

    So the client evaluates with what it has of its own from before the training. An evaluation
    that fails has a reason in the reply, and the client trains all the same.
    """
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    questions, training = detach(message.content), message.content
    answers: list[RecordDict | str] = []
    try:
        message.metadata.message_type = MessageType.EVALUATE
        for question in questions:
            message.content = question
            answers.append(_answered(message, context, call_next))
    finally:
        message.metadata.message_type, message.content = MessageType.TRAIN, training
    reply = call_next(message, context)
    if reply.has_content():
        attach_answers(reply.content, answers)
    return reply


def _answered(message: Message, context: Context, call_next: ClientAppCallable) -> RecordDict | str:
    """Return the content of the answer, or why there is none, as an engine words it."""
    try:
        reply = call_next(message, context)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {shown(error)}"
    return reply.content if reply.has_content() else str(reply.error.reason)


def as_private(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer; with masks or a privacy, tell the server only the kind of a failure.

    The text of any exception, also one of a user's code, can have numbers of the client's data in
    it, on which no noise is. It stays in the client's own log. Raises WithheldError in its place,
    without a cause, since engines send the whole traceback.
    """
    config = of_run(context.run_config, on_client=True)
    if privacy(config).kind == "none" and not masking(config.masking).masks:
        return call_next(message, context)
    try:
        reply = call_next(message, context)
        if not reply.has_error():
            return reply
        kind, text = "failure", str(reply.error.reason)
    except (Exception, SystemExit) as error:
        kind, text = type(error).__name__, str(error)
        log.debug("client %s failed", context.node_config[CLIENT], exc_info=error)
    log.warning("client %s failed: %s: %s", context.node_config[CLIENT], kind, text)
    raise WithheldError(f"{kind}, whose text is in the client's log only")
