"""The user's modules of a finished run, apart from those of the same name of anyone else."""

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from fl_app.own import OPTIONS
from fl_app.own_sources import imports_late, sources


class RunModules:
    """The modules in the folder `project` of a run, each imported once for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        self._names = frozenset(path.stem for path in found if path.name != OPTIONS)
        self._held: dict[str, ModuleType] = {}

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # modules have no copies, and a copied network is of the same run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder,)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Let imports in the block find the modules of the run first.

        If a module of the same name was imported before, such as that of another run, it is removed
        during the block and restored after it. Other modules that the block imports stay imported.
        """
        if not self._names:
            yield
            return
        others = _of(self._names)
        if all(self._held.get(name) is module for name, module in others.items()):
            others = {}
        for name in others:
            del sys.modules[name]
        if not self._held:
            importlib.invalidate_caches()
        sys.modules.update(self._held)
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            self._held = _of(self._names)
            for name in _of({name.partition(".")[0] for name in others}):
                del sys.modules[name]
            sys.modules.update(others)

    def bind(self, owner: object, *names: str) -> None:
        """Let these methods of an object import as in `first`, if functions of the run import.

        Otherwise the methods stay as they are, since exporters and compilers see through them.
        """
        for name in names if self._late else ():
            if (method := getattr(owner, name, None)) is not None:
                with suppress(AttributeError):  # a class with slots has no methods of its own
                    object.__setattr__(owner, name, _Within(method, self))

    @cached_property
    def _late(self) -> bool:
        files = [file for name in self._names for file in self._files(name)]
        return any(imports_late(file, self._names) for file in files)

    def _files(self, name: str) -> list[Path]:
        places = (self.folder / name, self.folder / f"{name}.py")
        return [file for place in places if place.exists() for file in sources(place)]


@dataclass
class _Within:
    """A method that imports as in `RunModules.first` while it runs."""

    method: Callable[..., Any]
    modules: RunModules

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.method)

    @property
    def __code__(self) -> Any:
        return self.method.__code__  # torch.export names arguments by it

    def __call__(self, *given: Any, **named: Any) -> Any:
        with self.modules.first():
            return self.method(*given, **named)


def _of(names: Collection[str]) -> dict[str, ModuleType]:
    """Return the imported modules of some top-level names."""
    every = list(sys.modules.items())
    return {name: module for name, module in every if name.partition(".")[0] in names}
