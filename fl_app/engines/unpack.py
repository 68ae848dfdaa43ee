"""Unpacks the app of a packed bundle, once on each node.

Flower extracts all files of a bundle anew for each message: 80 ms of processor time for the 500
files of the app, 8 ms for one. So a packed bundle has the app in one file, and this module
at the head of those that Flower starts. It imports only the standard library.
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp

PACKED = "app.json"
"""The text of each file of the app, by its path with slashes."""
UNPACKED = "unpacked"
"""The folder of these files, beside the file."""


def use(bundle: Path) -> None:
    """Let this process import the app of an installed bundle, which is unpacked if it was not.

    The folder appears at once, so that processes that start together see all of it or nothing.
    """
    folder = bundle / UNPACKED
    if not folder.is_dir():
        made = Path(mkdtemp(dir=bundle))
        try:
            for name, text in json.loads((bundle / PACKED).read_text("utf-8")).items():
                file = made / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8", newline="")
            made.rename(folder)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not folder.is_dir():  # else another process was faster
                raise
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
