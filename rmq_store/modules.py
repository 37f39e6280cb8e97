"""Where Python finds the extension modules of this package: in one shared object, rmq_store._extensions.

A file for each of them would cost a broker a hundred calls of the dynamic loader before it serves. rmq_store/__init__.py puts
the finder in place, before anything else of the package is imported. Any thread; the import lock orders the imports.
"""
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object         # importlib.abc would have to be loaded

__all__ = ["Extensions", "install"]

WHOLE = "rmq_store._extensions"


class Extensions(Loader):
    """A finder and a loader in one, for sys.meta_path."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that the shared object has; None for all others."""
        if not name.startswith("rmq_store.") or name[name.rindex(".") + 1] != "_" or name == WHOLE:
            return None
        from rmq_store import _extensions

        if name not in _extensions.NAMES:
            return None
        spec = ModuleSpec(name, self, origin=_extensions.__file__)
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from rmq_store import _extensions

        return _extensions.create(spec)

    def exec_module(self, module: ModuleType) -> None:
        from rmq_store import _extensions

        _extensions.execute(module)


def install() -> None:
    """Once in a process. In front of the finder that searches directories, and behind what a program has put before that."""
    before = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(before, Extensions())
