"""What a user's code raises, as a part of a sentence."""

from hydra.errors import InstantiationException

LONGEST = 500


def reason_of(error: BaseException) -> str:
    """Return the type and the text of an exception in one line of at most LONGEST characters.

    Where Hydra has called a class, it is what the class itself has raised.
    """
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        error = error.__cause__
    told = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}..."
