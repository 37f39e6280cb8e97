"""The checker's rules for small files: what a closed store leaves, and what journals of Spark's commits say."""
import os
from collections.abc import Callable
from typing import Any

from tests.trace.files import Names, is_store_file

__all__ = ["SmallFiles"]

UNSYNCED = {".stats.json", "lock", "abort"}     # for who looks now; empty; on the way
ASIDE = ("alloc/", "/.spark/")      # half made; a commit's


class SmallFiles:
    """A part of Checker (checker.py), which says what the marks and the rules are."""

    names: Names
    known: dict[str, Any]
    told: int
    _found: Callable[[str, str, int], None]
    _durable: Callable[[Any, int, int, int], None]

    def _there(self, rule: str, path: str, why: str, number: int, root: str = "") -> None:
        """That file, of the store `root`, is durable, its name too."""
        file = self.names.files.get(path)
        if file is None:
            if os.path.dirname(path) in self.names.made:
                self._found(rule, f"{why}: there is no {path}", number)
            return
        extent, missing = file.first_dirty(0, 1 << 63), self.names.missing_in(root, path)
        if extent is not None:
            self._found(rule, f"{why}: {path} is not durable from {extent.low} to {extent.high}", number)
        elif missing is not None:
            self._found(rule, f"{why}: the name {missing} is not on the device", number)

    def _control_files(self, root: str, number: int) -> None:
        for path in self.names.below(root):
            if path.endswith(".tmp"):       # of a write that failed: whether it is there says nothing
                continue
            if not is_store_file(path) and os.path.basename(path) not in UNSYNCED and not any(
                    part in path[len(root):] for part in ASIDE):
                self._there("control", path, f"{root} is closed", number, root)

    def _journal(self, root: str, path: str, entry: dict[str, Any], promised: bool, number: int) -> None:
        self.told += 1
        store = self.known.get(root)
        if entry.get("pending") is not None:
            if store is not None and "begin" in entry:
                self._durable(store, 0, entry["begin"], number)
            for made in entry.get("shards", ()):
                for below in self.names.below(os.path.join(root, made)):
                    if os.path.basename(below) not in UNSYNCED:
                        self._there("journal", below, "a commit is pending", number)
            for part in entry.get("parts", ()):
                self._there("journal", part["path"], "a commit is pending", number)
        elif store is not None and promised and "end" in entry:
            self._durable(store, entry["begin"], entry["end"], number)
        elif store is None and entry.get("done") is not None:
            for name in self.names.made:
                if os.path.dirname(name) == root and (missing := self.names.missing(name)) is not None:
                    self._found("journal", f"a commit is done: the name {missing} is not on the device", number)
