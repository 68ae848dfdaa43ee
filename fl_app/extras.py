"""How the packages are installed that only some functions need."""

import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires


def installation(extra: str) -> str:
    """Return the remedy for an absent extra of the project: `install the extra hub ...`."""
    try:
        declared = requires("fl-app") or []
    except PackageNotFoundError:  # the code of a run on a node, where fl-app is not installed
        declared = []
    belongs = re.compile(rf"extra == ['\"]{extra}['\"]")
    packages = [each.partition(";")[0].strip() for each in declared if belongs.search(each)]
    command = shlex.join([sys.executable, "-m", "pip", "install", *packages])
    return f"install the extra {extra} of fl-app" + (f": {command}" if packages else "")
