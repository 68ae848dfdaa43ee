"""The commands of `fl-app` beside a run: `new`, and those on the folders of runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fl_app import oversight
from fl_app.records import output_folder
from fl_app.schema import ConfigError
from fl_app.use import commands as use


def _words(command: str, arguments: list[str], what: str, does: str) -> list[str]:
    """Return the words after a command that has no options but --help."""
    parser = use.Arguments(prog=f"fl-app {command}", description=does)
    parser.add_argument("words", nargs="*", metavar=what)
    words: list[str] = parser.parse_args(arguments).words
    return words


def _report(arguments: list[str]) -> None:
    """Write the page of each given run, completed or not."""
    from fl_app.report.page import write_page

    does = "Write report.html into output folders of runs, also of runs that continue."
    arguments = _words("report", arguments, "folder", does)
    if not arguments:
        raise ConfigError(["report needs the output folder of a run, as in fl-app report <folder>"])
    for folder in arguments:
        print(write_page(Path(folder)))


def _compare(arguments: list[str]) -> None:
    """Write the page and the tables of the runs in the given folders."""
    from fl_app.report.compare.page import compare

    does = "Compare the completed runs in folders; to=<folder> is where the page and tables go."
    arguments = _words("compare", arguments, "folder|to=folder", does)
    compare(arguments)


def _new(arguments: list[str]) -> None:
    """Write a project of the user's own into the given folder."""
    from fl_app import new

    does = "Write a project with data, network, method and tests of your own into a new folder."
    arguments = _words("new", arguments, "folder", does)
    if len(arguments) != 1:
        raise ConfigError(["new needs one folder, as in fl-app new <folder>"])
    folder = Path(arguments[0]).resolve()
    if fault := new.problem(folder) or output_folder.problem(folder):
        raise ConfigError([fault])
    for file in new.write(folder):
        print(Path(arguments[0]) / file)
    print(f"\ncd {arguments[0]}")
    print(f"fl-app --config-dir conf experiment={new.package_of(folder)}")


@contextmanager
def _as_settings() -> Iterator[None]:
    """Report folders and files that cannot be read or written as configuration errors."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    except OSError as error:
        name, reason = error.filename or "a file", error.strerror or error
        fault = f"{name} must be a file that can be read or written: {reason}"
        raise ConfigError([f"{fault}; correct its name or its permissions"]) from error


def _call(command: Callable[[list[str]], None], arguments: list[str]) -> None:
    """Run a command on the folder of a run."""
    with _as_settings():
        command(arguments)


COMMANDS = {"new": _new}
ON_FOLDERS = {"report": _report, "compare": _compare, **use.COMMANDS, **oversight.COMMANDS}
COMMANDS |= {name: partial(_call, command) for name, command in ON_FOLDERS.items()}
"""Commands of the first argument; without one, a run starts."""
