"""Messages into a store exactly once, whatever is broken off: how far it is stands in the target, in one small file.

    TO/.moving/<name>.json     position: all of the source before it is in the target, on the device, below log offset `begin`

Before a piece is appended the log is flushed and the file is written; so what a crash leaves of the piece lies behind `begin`,
in order, and whoever comes again compares it with the source and appends the rest. What others put meanwhile stands behind it
and ends the comparison. Control plane; one thread, which has the target open.
"""
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

from rmq_store.access.bulk._moved import append_moved, batch_topics_of, in_common
from rmq_store.base.io.files import ControlFiles, read_text
from rmq_store.config.options import BY_NAME
from rmq_store.errors import ConfigError, CorruptionError, StoreStateError
from rmq_store.services.backup.content import JOURNALS
from rmq_store.services.backup.source import Source
from rmq_store.store import MessageStore

__all__ = ["Appender", "Journal", "use_unless_given"]


class Journal:
    """How far one movement is. `content` is what the file holds, or what a new one begins with."""

    def __init__(self, files: ControlFiles, root: str, identity: dict[str, Any]) -> None:
        self._files, self._root = files, root
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        self._name = f"{identity['kind']}-{name}.json"
        self.path = os.path.join(root, JOURNALS, self._name)
        self.content = self._read(identity)
        self.known = self.content is not None
        if self.content is None:
            self.content = {**identity, "position": 0, "begin": None, "records": 0, "appending": False}

    def _read(self, identity: dict[str, Any]) -> Any:
        try:
            content = json.loads(read_text(self.path))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise CorruptionError(self.path, None, "how far a copy is", str(error)) from error
        wrong = not isinstance(content, dict) or any(content.get(k) != v for k, v in identity.items())
        if wrong or not _whole(content):
            raise CorruptionError(self.path, None, "how far a copy is", f"{str(content)[:80]}")
        return content

    def save(self) -> None:
        """Durable when it returns. Raises OSError."""
        directory = os.path.join(self._root, JOURNALS)
        if self._files.mkdir(directory):
            self._files.sync_dir(self._root)
        self._files.write_new(directory, self._name, json.dumps(self.content).encode())


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _whole(content: dict[str, Any]) -> bool:
    """Whether a journal holds what is written there."""
    levels, met, seen = content.get("levels"), content.get("met", [0, 0]), content.get("seen", [])
    numbers = ["position", "begin", "records"]
    if content.get("phase", "log") != "log" or (content.get("waiting") is not None and levels is not None):
        numbers += ["waiting", "waiting_to"]
    if content.get("phase", "log") != "log":
        numbers.append("log_position")
    return (all(_number(content.get(name)) for name in numbers)
            and all(_number(content.get(name, 0)) for name in ("crc", "born"))
            and (content.get("waiting") is None or _number(content["waiting"]))
            and content.get("phase", "log") in ("log", "waiting")
            and (levels is None or (isinstance(levels, dict)
                                    and all(k.isdecimal() and _number(v) for k, v in levels.items())))
            and isinstance(met, list) and len(met) == 2 and type(met[0]) is type(met[1]) is int
            and isinstance(seen, list) and all(isinstance(each, str) for each in seen)
            and isinstance(content.get("settings", {}), dict)
            and all(isinstance(sums, list) for sums in content.get("settings", {}).values()))


class Appender:
    """Appends pieces of records to the target, each with the position in the source behind each of its records."""

    def __init__(self, store: MessageStore, journal: Journal, as_is: bool,
                 note: Callable[[int], dict[str, Any]] = lambda position: {}) -> None:
        """note(position): what else the journal is to say of that position."""
        self._note = note
        self._store, self._journal, self._as_is = store, journal, as_is
        self.position: int = journal.content["position"]
        self.records: int = journal.content["records"]
        self.found = 0              # of `records`, what a call that was broken off had appended already
        self.begun = self.records
        begin = journal.content["begin"]
        cleaned = begin is not None and begin < store.min_log_offset < store.max_log_offset
        if cleaned and not journal.content.get("appending", True):
            begin, cleaned = None, False        # that call came to its end: nothing of it lies behind `begin`
        if cleaned:
            raise StoreStateError(f"{store.path} was cleaned since the copy into it was broken off: what was copied last "
                                  f"cannot be told from what was not. Copy into a new store (see {journal.path})")
        if begin is not None and begin > store.max_log_offset:
            raise StoreStateError(f"the log of {store.path} ends at {store.max_log_offset}, and messages were copied up to "
                                  f"{begin}: it has lost some since. Copy into a new store (see {journal.path})")
        self._stored = b""
        self._more = (iter(()) if begin is None
                      else (b"".join(b.raw(i) for i in range(len(b.topics)))
                            for b in Source.of(store.path, store.options).blocks(begin, store.max_log_offset) if b.topics))
        self._comparing = begin is not None

    def append(self, data: bytes, positions: list[int]) -> None:
        """positions: of the source, behind each of the records of `data`. Raises what append_moved raises, OSError."""
        view = memoryview(data)
        while self._comparing and view:
            if not self._stored:
                self._stored = next(self._more, b"")
            count, used, matched = in_common(view, self._stored, as_is=self._as_is)
            if count:
                self.position, positions = positions[count - 1], positions[count:]
                self.records += count
                self.found += count
            view, self._stored = view[used:], self._stored[matched:]
            self._comparing = bool(matched) and (not view or not self._stored)
        if view:
            self._take_batches(view)
            self._save(appending=True)
            append_moved(self._store, view, as_is=self._as_is, path="a message")
            self.position, self.records = positions[-1], self.records + len(positions)

    def _take_batches(self, records: memoryview) -> None:
        """Topics of inner batches have batch queues in the target, too, before the first one comes. Raises ConfigError."""
        for name in sorted(batch_topics_of(records)):
            topic = name.decode("utf-8", "surrogateescape")
            if not self._store._has_batch_queues(topic):
                try:
                    self._store.topic_table.set_queue_type(topic, "BatchCQ")
                except ValueError as error:         # it has other queues, or compat is 4.9
                    raise ConfigError(f"{topic} has inner batches, and cannot get batch queues in {self._store.path} "
                                      f"({error}): copy into another store, or leave this topic out") from error

    def passed(self, position: int) -> None:
        """What lies before `position` and was not appended is not wanted."""
        self.position = position

    def end(self) -> None:
        """All that was appended is on the device, and so is the word on it. Raises OSError."""
        self._save(appending=False)

    def _save(self, appending: bool) -> None:
        self._store.flush()
        self._journal.content.update(position=self.position, records=self.records, begin=self._store.max_log_offset,
                                     appending=appending, **self._note(self.position))
        self._journal.save()
        _step("journal")


def use_unless_given(options: dict[str, Any], name: str, value: Any) -> None:
    """An option of the target that nobody named, by our name or by RocketMQ's."""
    if not options.keys() & {name, *BY_NAME[name].upstream}:
        options[name] = value


def _step(name: str) -> None:
    """A step is over. Tests stop here."""
