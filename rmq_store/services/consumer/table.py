"""Named entries in one file under config/: what tables of topics and groups have in common (RocketMQ: ConfigManager).

A table of many entries is not written whole for each change: a change is a line of a ChangeLog, and `settle` writes the file
from time to time. Thread-safety: every method. Locks, in this order: the table's kinds (TopicTable), _writing, which whoever
replaces the file has, and _lock.
"""
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rmq_store.base.io._lock import StoreLock
from rmq_store.errors import StoreClosed, StoreNotWriteable, illegal
from rmq_store.services.consumer.change_log import SIZE_MAX, ChangeLog, Entries, behind
from rmq_store.services.consumer.config_file import ConfigFile, named_if_full
from rmq_store.services.consumer.entries import check_fields, check_key, check_name
from rmq_store.services.consumer.offsets import next_version

__all__ = ["Table"]

LOG_FROM = 100              # entries of a table whose changes are logged: a smaller file is written at once
NAMES_MAX = 4096            # last changes that a table can name


class Table:
    """Named entries under one key of one file; the other keys are kept as they are."""

    key = ""
    what = ""
    name_field = ""
    defaults: Mapping[str, object] = MappingProxyType({})
    defaults_5x: Mapping[str, object] = MappingProxyType({})

    def __init__(self, file: ConfigFile, *, compat: str, readonly: bool) -> None:
        self._file = file
        self._readonly = readonly
        self._lock = StoreLock(file.path, file.name)
        self._defaults = dict(self.defaults) | (dict(self.defaults_5x) if compat == "5.x" else {})
        self._state = compat == "5.x"
        self._entries: dict[str, dict[str, Any]] = {}
        self._more: dict[str, Any] = {}
        self._writing = StoreLock(file.path, "writing " + file.name)
        self._log = ChangeLog(file.files, file.path)
        self._unsaved: set[str] = set()         # entries that changed since the last write
        self._dirty = self._ended = False
        self._whole = True                      # the next write is one of the file
        self._stale = False                     # the file may have what the table has not
        self._recent: deque[str] = deque(maxlen=NAMES_MAX)      # names of the last changes
        self.listeners: list[Callable[[], None]] = []       # called after a change, in its thread, before the change returns
        self.changes = 0            # how often an entry came, changed or went: whoever keeps a copy asks for it first
        lines = self._log.load()                # before the file
        found = file.load(self._take)
        if found is not None:
            self._entries, self._more = found
        if lines:
            self._repeat(behind(lines, self._more.get("dataVersion"), self._entries))
            if any(version == self._more.get("dataVersion") for version, _ in lines):
                self._more["dataVersion"] = dict(lines[-1][0])
            self._dirty = not readonly

    def _repeat(self, entries: Entries) -> None:
        for name, entry in entries.items():
            if entry is None:
                self._entries.pop(name, None)
            else:
                self._entries[name] = entry

    def _take(self, content: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        entries = {}
        for name, entry in content.get(self.key, {}).items():
            if not isinstance(entry, dict):
                raise ValueError(f"{name} is {entry!r}, not an entry")
            entries[name] = entry
        return entries, {name: value for name, value in content.items() if name != self.key}

    def names(self) -> list[str]:
        """Sorted: list of str."""
        with self._lock:
            return sorted(self._entries)

    def get(self, name: str) -> dict[str, Any] | None:
        """A copy of an entry, None where there is none."""
        with self._lock:
            entry = self._entries.get(name)
            return None if entry is None else dict(entry)

    def set(self, name: str, **fields: object) -> dict[str, Any]:
        """Makes or changes an entry; fields by RocketMQ's names. Returns it. Raises StoreNotWriteable, ArgumentIllegal."""
        self._check(name, fields)
        return self._set(name, fields)

    def _set(self, name: str, fields: Mapping[str, object]) -> dict[str, Any]:
        entry, changed = self._change(name, fields)
        if changed:
            self._announce()
        return entry

    def _change(self, name: str, fields: Mapping[str, object]) -> tuple[dict[str, Any], bool]:
        with self._lock:
            before = self._entries.get(name)
            entry = (self._defaults | {self.name_field: name} if before is None else dict(before)) | dict(fields)
            if entry != before:
                self._entries[name] = entry
                self._note(name)
        return dict(entry), entry != before

    def _note(self, name: str) -> None:
        """An entry came, changed or went. Under _lock."""
        self._unsaved.add(name)
        self._dirty = True
        self.changes += 1
        self._recent.append(name)

    def changes_since(self, seen: int) -> tuple[int, dict[str, dict[str, Any] | None] | None]:
        """(changes, the entries that changed since `changes` was `seen`): None for one that is gone; None for all where these
        are too many to name. What is in them is not to be changed."""
        with self._lock:
            count = self.changes - seen
            if count > len(self._recent) or seen < 0:
                return self.changes, None
            names = dict.fromkeys(self._recent[-1 - i] for i in range(count))
            return self.changes, {name: self._entries.get(name) for name in names}

    def _check(self, name: str, fields: Mapping[str, object], named: bool = True) -> None:
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        check_key(self.what, name)
        if named and name not in self._entries:
            check_name(self.what, name)
        for unknown in (f for f in fields if f not in self._defaults):
            raise illegal(unknown, fields[unknown], "a store of compat 4.9 has no attributes: open it with compat='5.x'"
                          if unknown in self.defaults_5x else f"a {self.what} has {', '.join(sorted(self._defaults))}")
        check_fields(fields, self._defaults, self.name_field, name)

    def write_entries(self, entries: Mapping[str, Mapping[str, object]]) -> None:
        """Makes or changes entries and writes them at once: durable when it returns. Raises OSError, StoreClosed: then none has
        changed, and nothing of them is left for a later write."""
        self._write_now(entries)
        self._announce()

    def _write_now(self, entries: Mapping[str, Mapping[str, object]], gone: str | None = None) -> None:
        """write_entries without a word to listeners. gone: an entry that goes."""
        names = [*entries] if gone is None else [*entries, gone]
        with self._writing, self._lock:
            before, dirty, more = {name: self._entries.get(name) for name in names}, self._dirty, dict(self._more)
            for name, fields in entries.items():
                known = before[name]
                whole = self._defaults | {self.name_field: name} if known is None else dict(known)
                self._entries[name] = whole | dict(fields)
            if gone is not None:
                self._entries.pop(gone, None)
            self._dirty = True
            try:
                if self._ended:
                    raise StoreClosed(self._file.path)
                self._write()
            except BaseException:
                self._repeat(before)
                self._dirty, self._more = dirty or self._stale, more
                raise
            for name in names:
                self._note(name)
            self._unsaved.clear()
            self._dirty = False

    def version(self) -> dict[str, Any]:
        """The dataVersion of the file as it was last written or taken over: dict, empty for none."""
        with self._lock:
            known = self._more.get("dataVersion")
            return dict(known) if isinstance(known, dict) else {}

    def replace(self, content: Mapping[str, Any]) -> bool:
        """Makes the table what that of a master is: its entries, and its version. False where the version is the same, and
        nothing changes. Durable when it returns. Raises ValueError for content of another shape, OSError, StoreClosed.
        RocketMQ: SlaveSynchronize."""
        entries, more = self._take(content)
        version = more.get("dataVersion")
        if not isinstance(version, dict):
            raise ValueError(f"the answer has no dataVersion beside {self.key}")
        with self._lock:
            if version == self._more.get("dataVersion") and not self._dirty:
                return False
        self._take_over(entries, version)
        self._announce()
        return True

    def _take_over(self, entries: dict[str, dict[str, Any]], version: dict[str, Any]) -> None:
        with self._writing, self._lock:
            before = self._entries, self._more, self._dirty
            self._entries, self._more = entries, {**self._more, "dataVersion": version}
            try:
                if self._ended:
                    raise StoreClosed(self._file.path)
                self._save()
            except BaseException:
                self._entries, self._more, self._dirty = before
                self._dirty = self._dirty or self._stale
                raise
            self.changes += 1
            self._recent.clear()        # too much changed to name it

    def add(self, name: str, **fields: object) -> dict[str, Any]:
        """Makes an entry unless there is one; returns the one that holds. A group or topic that is in use keeps its name,
        whatever a broker says of it. Raises StoreNotWriteable, ArgumentIllegal."""
        check_key(self.what, name)
        found = self.get(name)
        if found is None:
            self._check(name, fields, named=False)
        return found or self._set(name, fields)

    def remove(self, name: str) -> bool:
        """Forgets an entry; False where there is none."""
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        found = self._forget(name)
        if found:
            self._announce()
        return found

    def _forget(self, name: str) -> bool:
        with self._lock:
            found = self._entries.pop(name, None) is not None
            if found:
                self._note(name)
        return found

    def _announce(self) -> None:
        self._tell()
        for listener in self.listeners:
            listener()

    def _tell(self) -> None:
        """Entries changed; without the lock."""

    def entries(self) -> dict[str, dict[str, Any]]:
        """Copies of all entries by name."""
        with self._lock:
            return {name: dict(entry) for name, entry in self._entries.items()}

    def content(self) -> dict[str, Any]:
        """A copy of what the file holds after the next flush, but for the version, which that flush makes."""
        with self._lock:
            return {"dataVersion": {"counter": 0, "timestamp": 0}} | self._more | {
                self.key: {name: dict(entry) for name, entry in self._entries.items()}}

    def flush(self) -> None:
        """Makes what changed durable, in the log or in the file. Raises OSError, StoreClosed."""
        with self._lock:
            if not self._dirty:
                return
            if self._ended:
                raise StoreClosed(self._file.path)
            if (not self._whole and len(self._entries) >= LOG_FROM and len(self._unsaved) <= NAMES_MAX
                    and self._log.size < SIZE_MAX):
                self._append()
                return
        with self._writing, self._lock:
            if self._dirty and self._ended:
                raise StoreClosed(self._file.path)
            self._write()

    @property
    def unsettled(self) -> bool:
        """Whether changes are durable in the log alone."""
        return self._log.count > 0

    def settle(self) -> None:
        """Writes the file where changes are in the log alone, as a RocketMQ broker reads the file. Other calls do not wait for
        the device meanwhile. Raises OSError."""
        with self._writing:
            with self._lock:
                count = self._log.count
                if count == 0 or self._ended:
                    return
                entries, more = dict(self._entries), dict(self._more)
            self._file.save(self._content(entries, more))
            with self._lock:
                whole, self._whole = self._whole, True
                with named_if_full(self._log.path):
                    self._log.shorten(count, more["dataVersion"])
                self._whole = whole

    def end(self, write: bool) -> None:
        """The store closes: the last write, if any; the directory may be another process's from then on."""
        with self._writing, self._lock:
            try:
                if write:
                    self._write()
            finally:
                self._ended = True

    def _append(self) -> None:
        """A line of the log. Under _lock."""
        version = next_version(self._more.get("dataVersion"), state=self._state)
        self._whole = True              # unless it succeeds
        with named_if_full(self._log.path):
            self._log.append(version, {name: self._entries.get(name) for name in self._unsaved})
        self._more["dataVersion"] = version
        self._unsaved.clear()
        self._dirty = self._whole = False

    def _write(self) -> None:
        """The file, if anything changed. Under _writing and _lock."""
        if self._dirty:
            self._more["dataVersion"] = next_version(self._more.get("dataVersion"), state=self._state)
        if self._dirty or self._log.count:
            self._save()

    def _save(self) -> None:
        self._whole = True              # unless it succeeds
        self._file.save(self._content(self._entries, self._more))
        self._stale = True
        with named_if_full(self._log.path):
            self._log.begins(self._more.get("dataVersion") or {})
        self._unsaved.clear()
        self._dirty = self._whole = self._stale = False

    def _content(self, entries: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]) -> dict[str, Any]:
        content = {**more, self.key: {name: dict(sorted(entry.items())) for name, entry in entries.items()}}
        return dict(sorted(content.items()))
