"""What the bytes in a trace say: records of the log, queue entries, offset files. Only files that are known from their
beginning are read; a record counts once it is whole."""
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.trace.files import File, Names

__all__ = ["Queues", "Record", "Records", "offset_table"]

_HEAD = struct.Struct(">iiiiiqqiq")     # size, magic, body crc, queue id, flag, queue offset, offset, system flag, born
_MAGIC = (-626843481, -626843477)


@dataclass(frozen=True, slots=True)
class Record:
    start: int          # of its file
    offset: int
    size: int
    stored: int         # ms since 1970
    topic: str
    queue_id: int
    queue_offset: int
    queued: bool        # it gets an entry in its queue

    def leads(self, path: str, place: int) -> bool:
        """True where the entry at `place` of that queue file is this record's."""
        directory, name = os.path.split(path)
        return (directory.endswith(f"/{self.topic}/{self.queue_id}")
                and int(name) + place == self.queue_offset * 20)


@dataclass
class Records:
    """The records of one log, as far as a trace has written them."""

    files: dict[int, File] = field(default_factory=dict)
    found: dict[int, Record] = field(default_factory=dict)      # by offset
    ends: dict[int, int] = field(default_factory=dict)          # file's start -> where to look on, in the file

    def look(self, files: dict[int, File]) -> None:
        """Reads on where it stopped; files that are gone take their records along."""
        for start in [s for s in self.files if files.get(s) is not self.files[s]]:
            del self.files[start]
            self.ends.pop(start, None)
            self.found = {o: r for o, r in self.found.items() if r.start != start}
        for start, file in files.items():
            if file.whole:
                self.files[start] = file
                self._read(start, file)

    def _read(self, start: int, file: File) -> None:
        at = self.ends.get(start, 0)
        while True:
            head = file.read(at, at + _HEAD.size)
            size, magic, _, queue_id, _, queue_offset, offset, flag, _ = _HEAD.unpack(head)
            if magic not in _MAGIC or size < 91 or offset != start + at:
                break           # zeros, or the blank record at the file's end
            data = file.read(at, at + size)
            stored_at = 48 + (20 if flag & 0x10 else 8)
            body_at = stored_at + 8 + (20 if flag & 0x20 else 8) + 12
            stored = int.from_bytes(data[stored_at:stored_at + 8], "big")
            topic_at = body_at + 4 + int.from_bytes(data[body_at:body_at + 4], "big")
            width = 1 if magic == _MAGIC[0] else 2
            length = int.from_bytes(data[topic_at:topic_at + width], "big")
            topic = data[topic_at + width:topic_at + width + length]
            if not topic or len(topic) < length or not stored:
                break           # not written to its end yet
            self.found[offset] = Record(start, offset, size, stored, topic.decode("latin-1"), queue_id, queue_offset,
                                        flag & 0xC in (0, 8))
            at += size
        self.ends[start] = at

    def at(self, offset: int) -> Record | None:
        return self.found.get(offset)

    def all(self) -> Iterator[Record]:
        yield from self.found.values()

    def until(self, stored: int) -> Iterator[Record]:
        """Records that were stored before that time."""
        return (r for r in self.found.values() if r.stored < stored)


class Queues:
    """The queue files of one store."""

    def __init__(self, directory: str, names: Names) -> None:
        self._directory, self._names = directory, names

    def durable(self, record: Record) -> bool:
        """Whether the entry of this record is on the device; True as well where its file is not known."""
        place = record.queue_offset * 20
        directory = os.path.join(self._directory, record.topic, str(record.queue_id))
        if directory not in self._names.made:
            return True
        files = self._names.numbered(directory)
        start = max((s for s in files if s <= place), default=None)
        if start is None:
            return bool(files)          # cleaned
        path, file = os.path.join(directory, f"{start:020d}"), files[start]
        if not file.whole:
            return True
        at = place - start
        return (file.read(at, at + 8) == record.offset.to_bytes(8, "big") and file.first_dirty(at, at + 20) is None
                and self._names.missing(path) is None)


def offset_table(name: str, text: bytes) -> dict[tuple[str, int], int]:
    """(topic, queue id) -> highest next offset of any group."""
    content: Any = json.loads(re.sub(rb'([{,])(-?\d+):', rb'\1"\2":', text))
    out: dict[tuple[str, int], int] = {}
    for key, value in content.get("offsetTable", {}).items():
        pairs = [("SCHEDULE_TOPIC_XXXX", int(key) - 1, value)] if name == "delayOffset.json" else \
            [(key.partition("@")[0], int(queue), offset) for queue, offset in value.items()]
        for topic, queue, offset in pairs:
            out[topic, queue] = max(out.get((topic, queue), 0), offset)
    return out
