"""The engines tell a strategy what happened by its methods, and write into none of its parts."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_app import engines

STRATEGIES = {"method", "strategy", "communities"}
"""The names that the engines have for a strategy."""
CHANGES = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "setdefault", "sort", "update",
}  # fmt: skip
"""Methods of lists, dicts and sets that change them."""
FOLDER = Path(engines.__file__).parent


def _inside(node: ast.expr, aliases: set[str]) -> bool:
    """Return whether an expression is a part of a strategy: an attribute or an entry inside it."""
    parts = 0
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and node.attr in STRATEGIES and _is_self(node.value):
            return parts > 0
        node, parts = node.value, parts + 1
    if not isinstance(node, ast.Name):
        return False
    return node.id in aliases or (node.id in STRATEGIES and parts > 0)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    elif isinstance(node, ast.Delete):
        found = node.targets
    else:
        return []
    return [inner for each in found for inner in getattr(each, "elts", [each])]


def writes(source: str) -> Iterator[str]:
    """Yield the statements of each function that write into a part of a strategy."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        aliases = {
            node.targets[0].id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if _inside(node.value, set())
        }
        for node in ast.walk(function):
            written = [t for t in _targets(node) if not isinstance(t, ast.Name)]
            if isinstance(node, ast.AugAssign):  # |= changes a set or dict in place
                written = [node.target]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                written = [node.func.value] if node.func.attr in CHANGES else []
            if any(_inside(each, aliases) for each in written):
                yield ast.unparse(node)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_no_engine_writes_into_a_strategy(file: Path) -> None:
    assert list(writes(file.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "self.method.evaluation.scores.overall = 1",
        "self.method.evaluation.choices[3] = row",
        "self.method.evaluation.choices |= placed",
        "method.events.append(1)",
        "strategy.participation = 1.0",
        "members = self.method.state.communities.members; members[3] = 1",
        "models = self.communities.state.models; models += 1",
        "del method.state.removed[3]",
        "first, self.method.weighting = 1, 'uniform'",
    ],
)
def test_such_a_write_is_found(line: str) -> None:
    assert list(writes(f"def f(self, method, strategy):\n    {line}\n")) != []


@pytest.mark.parametrize(
    "line",
    [
        "self.method, self.context = strategy, strategy.context",
        "known = {*self.method.state.communities.members}; known.add(3)",
        "self.method.chose(placed)",
        "method.evaluation.handed_over(rejections)",
    ],
)
def test_a_call_of_a_method_is_none(line: str) -> None:
    assert list(writes(f"def f(self, method, strategy):\n    {line}\n")) == []
