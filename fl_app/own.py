"""The user's own options and modules: where they are found, and the copy that stays with a run."""

import importlib.util
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from logging import getLogger
from pathlib import Path
from typing import Any

from hydra.utils import get_object

from fl_app import own_resolvers
from fl_app.command_words import override
from fl_app.own_sources import DOTTED, beside, imported, sources

PROJECT = "project"
"""The folder with the copy, in the output folder of a run and in the bundle of the app."""
OPTIONS = "conf"
"""The folder with the options, inside of a project."""
SUFFIXES = (".py", ".yaml", ".yml", ".json", ".jsonl", ".toml")
"""The kinds of files that are copied: those that Flower's bundles accept."""
SHOWN = 5
"""Files that a warning names."""
log = getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parent
_LIBRARY = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages, of this environment or of one below it."""

searched: list[Path] = []
"""Folders of the user with options, in the order in which Hydra searches them."""
_wrong: list[str] = []
"""What is wrong with the resolvers in these folders."""


def use(folder: Path) -> None:
    """Let this process find the modules of a project and the options in its `conf`."""
    use_modules(folder)
    if (folder.resolve() / OPTIONS).is_dir():
        search(folder.resolve() / OPTIONS)


def use_modules(folder: Path) -> None:
    """Let this process find the modules of a project first, also those that functions import."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))


def search(folder: Path) -> None:
    """Let this process find the options in a folder, after those of the app, and its resolvers."""
    if folder.resolve() not in searched:
        searched.append(folder.resolve())
        if wrong := own_resolvers.register(folder.resolve()):
            _wrong.append(wrong)


def taken_from(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Split a command line into the folders with options that it names, and the rest.

    Folders are named as to every Hydra app: by `--config-dir` or by `hydra.searchpath`.
    """
    folders, rest, words = [], [], iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            folders.append(value if given else next(words, ""))
        elif name == "hydra.searchpath":
            folders += [each.strip(" '\"") for each in value.strip("[]").split(",") if each]
        else:
            rest.append(word)
    return [_folder(each) for each in folders], rest


def _folder(named: str) -> Path:
    """Return the folder of an entry of Hydra's search path."""
    scheme, given, rest = named.partition("://")
    if given and scheme == "pkg":
        found = importlib.util.find_spec(rest.replace("/", "."))
        places = [] if found is None else list(found.submodule_search_locations or ())
        return Path(places[0]) if places else Path(rest)
    return Path(rest if given else named).expanduser().resolve()


def overrides() -> list[str]:
    """Return the override that adds the folders to Hydra's search path, if there are any."""
    folders = [f"file://{folder}" for folder in searched]
    return [override("hydra.searchpath", folders)] if folders else []


def versions() -> tuple[tuple[str, int, int], ...]:
    """Return the path, the time of the last change and the size of each option in the folders."""
    files = [file for folder in searched for file in sorted(folder.rglob("*.yaml"))]
    found = ((file, file.stat()) for file in files if file.is_file())
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in found)


def problems(conf: Path) -> list[str]:
    """Return what is wrong with the folders that are searched beside `conf`."""
    found = list(_wrong)
    for folder in searched:
        if not folder.is_dir():
            found.append(f"--config-dir must be a folder with options, got {folder}; create it")
        for file in sorted(folder.rglob("*.yaml")):
            if (conf / file.relative_to(folder)).exists():
                found.append(f"{file} must not be named like an option of the app; rename it")
    return found


def modules(tree: Any) -> dict[str, Path]:
    """Return the user's top-level modules and packages that a configuration needs, with paths.

    These are the ones that its strings name by a dotted path or that resolvers need, and all that
    they import or name in turn. What is installed, and the app itself, is not the user's.
    """
    found: dict[str, Path] = {}
    resolvers = [folder / own_resolvers.FILE for folder in searched]
    waiting = sorted(
        {text for text in _strings(tree) if DOTTED.fullmatch(text)}
        | {each for file in resolvers if file.is_file() for each in imported(file)}
    )
    while waiting:
        dotted = waiting.pop()
        name = dotted.partition(".")[0]
        path = None if name in found else _of_user(dotted)
        if path is not None:
            found[name] = path
            waiting += sorted({each for file in sources(path) for each in imported(file)})
    return found


def imported_from(path: str) -> Any:
    """Return what a dotted path names; raises ImportError also for a module that ends Python."""
    try:
        return get_object(path)
    except SystemExit as error:
        raise ImportError(
            "its module ends the program when it is imported, as a script does; put what it runs "
            'under `if __name__ == "__main__":`'
        ) from error
    except ImportError as error:
        if missing := lacking(path, error.__cause__):
            raise ImportError(missing) from error.__cause__
        raise


def lacking(path: str, cause: BaseException | None) -> str | None:
    """Return what a module lacks, None if it is the module itself that cannot be imported."""
    place, _, name = path.rpartition(".")
    if not isinstance(cause, ModuleNotFoundError) or cause.name != path or not place:
        return None
    near = get_close_matches(name, vars(sys.modules[place]), n=1)
    return f"there is no {name} in {place}" + (f", but {near[0]}" if near else "")


def unfound(dotted: str) -> str | None:
    """Return an error for a module that cannot be found; None if it can be found.

    A folder of that name in the current one is no such module, as that of a project has its name.
    """
    name, _, inside = dotted.partition(".")
    if not name.isidentifier():
        return None
    spec, inner = PathFinder.find_spec(name), _first(inside)
    places = [] if spec is None else [Path(each) for each in spec.submodule_search_locations or ()]
    known = getattr(sys.modules.get(name), "__file__", None)
    origin: str | None = known or (None if spec is None else spec.origin)
    if name in sys.builtin_module_names:
        origin = None
    if mine := _hidden(name, inner, origin):
        there = origin or "Python itself"
        return f"the module {name} of {there} is found before {mine}; rename {mine.name}"
    if spec is not None and (spec.origin is not None or any(_has(p, inner) for p in places)):
        return None
    if projects := [each.parent for each in searched if _offers(each.parent, name, inner)]:
        return f"there is no module {name}; start fl-app in {projects[0]} or set PYTHONPATH"
    module = f"{name}.{inner}" if places else name
    file = f"{module.replace('.', '/')}.py"
    return f"there is no module {module}; start fl-app in the folder of {file} or set PYTHONPATH"


def _hidden(name: str, inner: str, origin: str | None) -> Path | None:
    """Return the user's file or folder of this name, if a module in another file is found."""
    if origin is None and name not in sys.builtin_module_names:
        return None
    folders = [Path.cwd(), *(each.parent.resolve() for each in searched)]
    mine = next((folder / name for folder in folders if _offers(folder, name, inner)), None)
    if mine is None or (origin and Path(origin).resolve().parent in (mine, mine.parent)):
        return None
    return mine if mine.is_dir() else mine.with_suffix(".py")


def keep(tree: Any, folder: Path) -> None:
    """Copy the user's options and the modules of a configuration into `folder`.

    The former content is lost. If there is nothing to copy, no folder is written.
    """
    taken, folder = modules(tree), folder.resolve()
    if folder in (path.parent for path in [*taken.values(), *searched]):
        return  # a resumed run uses its own copy
    _tell_of_unkept(taken.values())
    shutil.rmtree(folder, ignore_errors=True)
    if taken or searched:
        (folder / OPTIONS).mkdir(parents=True)
    for path in taken.values():
        _copy(path, folder / path.name)
    for options in reversed(searched):  # the first one has precedence
        _copy(options, folder / OPTIONS)


def _copy(path: Path, to: Path) -> None:
    for file in _files(path):
        if file.suffix in SUFFIXES:  # a compiled module must be installed wherever it is needed
            target = to / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


def _files(path: Path) -> list[Path]:
    """Return a file, or the files in a folder and below it that are not hidden."""
    if path.is_file():
        return [path]
    inside = ((file, file.relative_to(path).parts) for file in sorted(path.rglob("*")))
    hidden = (".", "__pycache__")
    return [
        f for f, parts in inside if f.is_file() and not any(p.startswith(hidden) for p in parts)
    ]


def _tell_of_unkept(taken: Iterable[Path]) -> None:
    """Log the files of packages, and those that modules name beside them, without a copy."""
    found: set[Path] = set()
    for path in taken:
        inside = set(_files(path))
        found |= {file for file in inside if file.suffix not in SUFFIXES}
        found |= {each for file in sources(path) for each in beside(file)} - inside
    if found:
        names = [str(file) for file in sorted(found)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        log.warning(
            "the run keeps no copy of %s%s: resuming or evaluating it elsewhere, and the nodes of "
            "a deployment, need the same files; a .json or .yaml file in a package is copied",
            ", ".join(names[:SHOWN]), more,
        )  # fmt: skip


def _strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        yield from (text for value in tree.values() for text in _strings(value))
    elif isinstance(tree, Iterable):
        yield from (text for value in tree for text in _strings(value))


def _of_user(dotted: str) -> Path | None:
    """Return the file or the folder of a top-level module, None if it is not the user's."""
    name, _, inside = dotted.partition(".")
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    path = Path(places[0] if places else spec.origin or "").resolve()
    if spec.origin is None and not _has(path, _first(inside)):
        return None  # a folder of that name without the module
    installed = bool(_INSTALLED & set(path.parts))
    installed |= any(path.is_relative_to(folder) for folder in _LIBRARY)
    return None if installed or path.is_relative_to(_PACKAGE) or not path.exists() else path


def _first(dotted: str) -> str:
    return dotted.partition(".")[0]


def _offers(folder: Path, name: str, inner: str) -> bool:
    """Whether a folder has a module or a package, or else a folder of that name with `inner`."""
    files = (folder / f"{name}.py", folder / name / "__init__.py")
    return any(file.exists() for file in files) or _has(folder / name, inner)


def _has(folder: Path, name: str) -> bool:
    return bool(name) and ((folder / f"{name}.py").exists() or (folder / name).is_dir())
