"""The resolvers of OmegaConf that a user registers, in a file beside the options."""

from pathlib import Path
from runpy import run_path

from fl_app.reasons import reason_of

FILE = "resolvers.py"
"""The file in a folder with options, which travels with them to all processes of a run."""


def register(folder: Path) -> str | None:
    """Run the file of a folder, if it has one; return what is wrong with it, None for nothing."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        run_path(str(file))
    except (Exception, SystemExit) as error:  # a user's file can raise anything
        return (
            f"{file} must register resolvers of OmegaConf, got {reason_of(error)}; correct it, and "
            "give replace=True, because a resumed run registers them twice"
        )
    return None
