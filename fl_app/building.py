"""Builds the target of a group; what a user's constructor raises is told in one sentence."""

from typing import Any

from fl_app.reasons import reason_of
from fl_app.schema import Target


def is_ours(part: Target) -> bool:
    """Whether the class or function at the path is the app's own."""
    return part.path.split(".")[0] == "fl_app"


def built(group: str, part: Target, kind: type, *given: Any) -> Any:
    """Return what a target builds of `given` and its options, an object of `kind`.

    Raises ValueError, which names the group, for whatever a user's constructor raises, and for
    an object of another kind.
    """
    try:
        made: object = part.resolve()(*given, **part.options)
    except (Exception, SystemExit) as error:
        if is_ours(part):
            raise
        raise ValueError(failure(group, part, error)) from error
    if not isinstance(made, kind):
        raise ValueError(
            f"{group}._target_ must name a subclass of {kind.__module__}.{kind.__qualname__}, got "
            f"{part.path}; use one of conf/{group}"
        )
    return made


def failure(group: str, part: Target, error: BaseException) -> str:
    """Return the sentence for what a user's constructor has raised."""
    return (
        f"{group}._target_ must accept its settings, got {part.path} with {dict(part.options)}: "
        f"{reason_of(error)}; correct the class or its settings"
    )
