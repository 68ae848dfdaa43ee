"""What the sources of the user's modules import and name."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from fl_app.types import LONGEST_NAME

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def sources(path: Path) -> list[Path]:
    """Return the modules in a file or a folder."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [file for file in files if file.suffix == ".py"]


def imported(file: Path) -> set[str]:
    """Return the dotted paths that a file imports or that its strings name."""
    found = {text for text in _constants(file) if DOTTED.fullmatch(text)}
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imports_late(file: Path, names: Collection[str]) -> bool:
    """Return whether a function of a file imports one of some top-level modules when it runs."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inside = (each for node in _nodes(file) if isinstance(node, functions)
              for each in ast.walk(node))  # fmt: skip
    return any(_imports(node, names) for node in inside)


def _imports(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in names for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return bool(node.level) or (node.module or "").partition(".")[0] in names
    by_name = getattr(node, "id", None) or getattr(node, "attr", None)
    return by_name in ("import_module", "__import__")


def _constants(file: Path) -> list[str]:
    nodes = (node for node in _nodes(file) if isinstance(node, ast.Constant))
    return [node.value for node in nodes if isinstance(node.value, str)]


def _nodes(file: Path) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):  # not Python, so nobody imports it
        return []


def beside(file: Path) -> Iterator[Path]:
    """Yield the files in the folder of a module that its strings name."""
    for text in _constants(file):
        # such as Path(__file__).with_name("words.txt")
        named = file.parent / text
        short = len(text.encode(errors="replace")) <= LONGEST_NAME
        is_name = short and Path(text).name == text
        if is_name and named.suffix != ".py" and named.is_file():
            yield named
