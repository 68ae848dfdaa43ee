"""The warm process with few libraries, whose clients run the Python program in their arguments."""

import importlib.util
import sys


def run_argument() -> None:
    """Stand in for Flower's command."""
    exec(compile(sys.argv[1], "client", "exec"), {"sys": sys})


if __name__ == "__main__":
    path, *sys.argv[1:] = sys.argv[1:]
    found = importlib.util.spec_from_file_location("warm_process", path)
    assert found is not None
    assert found.loader is not None
    warm = importlib.util.module_from_spec(found)
    sys.modules["warm_process"] = warm
    found.loader.exec_module(warm)
    warm.LIBRARIES = ("numpy", "torch")
    warm.command = lambda: run_argument
    warm.main()
