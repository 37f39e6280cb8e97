"""What lies in the files beside the log: queue entries, extension units, index files, checkpoint, abort, lock.

Each reader yields Items: a decoded unit with its fields (codec/layout.py names them), or a finding. Bounded by the file's
length, whatever the file says. Control plane, the main thread only.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rmq_store.cli.files import StoreFile, queue_of
from rmq_store.codec import _layout, layout
from rmq_store.codec.layout import FieldValue
from rmq_store.queues.index.geometry import find_geometry

EXT_BASE = 1 << 63              # an extension address is the position in the extension files minus this


@dataclass
class Item:
    """One unit of a file. `facts`: what the place and the file add to its fields. `finding` is not empty where something is
    wrong."""

    kind: str
    position: int
    size: int = 0
    fields: list[FieldValue] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    finding: str = ""


def number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def values(fields: list[FieldValue]) -> dict[str, int]:
    """The numbers of the fields by name; what is no number of 1, 2, 4 or 8 bytes is left out."""
    return {f.name: number(f.data) for f in fields if len(f.data) in (1, 2, 4, 8)}


def rest(file: StoreFile, at: int, reason: str) -> Iterator[Item]:
    """What follows the last unit: nothing, or bytes that no reader will ever see."""
    stray = file.first_nonzero(at)
    yield Item("end", at, file.size - at, facts={"reason": reason})
    if stray is not None:
        yield Item("finding", stray, finding=f"bytes follow the end of the data at {at}")


def consumequeue(file: StoreFile, first: int) -> Iterator[Item]:
    """Entries of 20 bytes from entry `first` of the file on."""
    topic, queue_id = queue_of(file.path)
    unit = _layout.UNIT_SIZE
    if file.size % unit:
        yield Item("finding", 0, finding=f"the size {file.size} is not a multiple of {unit}")
    at = first * unit
    while at + unit <= file.size:
        fields = layout.describe_fields(layout.CONSUME_QUEUE_UNIT, file.read(at, unit))
        v = values(fields)
        if v["commitLogOffset"] < 0 or v["size"] <= 0:
            yield from rest(file, at, "no entry")
            return
        facts: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "queue_offset": (file.start + at) // unit}
        if v["size"] == _layout.UNIT_FILLER:
            facts["filler"] = True
        elif v["tagsCode"] <= layout.EXT_ADDRESS_MAX:
            facts["ext_position"] = v["tagsCode"] + EXT_BASE
        yield Item("entry", at, unit, fields, facts)
        at += unit
    yield Item("end", at, file.size - at, facts={"reason": "the file is full"})


def consumequeue_ext(file: StoreFile, first: int) -> Iterator[Item]:
    """Extension units from position `first` on; each says how long it is."""
    topic, queue_id = queue_of(file.path)
    at = first
    while at + 2 <= file.size:
        size = number(file.read(at, 2))
        if size == _layout.EXT_END_OF_FILE:
            yield Item("end", at, file.size - at, facts={"reason": "the file is full"})
            return
        if size < 1:
            yield from rest(file, at, "no unit")
            return
        if size < _layout.EXT_UNIT_SIZE_MIN or at + size > file.size:
            yield Item("finding", at, finding=f"a unit of {size} bytes does not fit: {_layout.EXT_UNIT_SIZE_MIN} to "
                       f"{file.size - at} do")
            return
        fields = layout.describe_fields(layout.CONSUME_QUEUE_EXT_UNIT, file.read(at, size))
        item = Item("unit", at, size, fields, {"topic": topic, "queue_id": queue_id, "address": file.start + at - EXT_BASE})
        stated, there = number(fields[3].data), size - _layout.EXT_UNIT_SIZE_MIN
        if stated != there:
            item.finding = f"bitMapSize is {stated}, the unit has room for {there}"
        yield item
        at += size


def index(file: StoreFile, first: int, slots: int | None) -> Iterator[Item]:
    """Header, then the entries from number `first` (at least 1) on. `slots`: None finds out."""
    if file.size < _layout.INDEX_HEADER_SIZE:
        yield Item("finding", 0, finding=f"{file.size} bytes are not an index file: its header has {_layout.INDEX_HEADER_SIZE}")
        return
    fields = layout.describe_fields(layout.INDEX_HEADER, file.read(0, _layout.INDEX_HEADER_SIZE))
    head = values(fields)
    count = max(head["indexCount"], 1)
    if slots is None and (found := find_geometry(file.read, file.size, file.data)):
        slots = found[0]
    facts: dict[str, Any] = {}
    if slots is not None:
        facts = {"slots": slots, "entries_max": (file.size - _entry_at(slots, 0)) // _layout.INDEX_ENTRY_SIZE}
    yield Item("header", 0, _layout.INDEX_HEADER_SIZE, fields, facts)
    if count == 1:
        return
    if slots is None:
        yield Item("finding", _layout.INDEX_HEADER_SIZE,
                   finding="the number of slots cannot be told from the file: give it with --index-slots")
        return
    for n in range(max(first, 1), count):
        at = _entry_at(slots, n)
        if at + _layout.INDEX_ENTRY_SIZE > file.size:
            yield Item("finding", at, finding=f"indexCount {count} leads past the end of the file")
            return
        fields = layout.describe_fields(layout.INDEX_ENTRY, file.read(at, _layout.INDEX_ENTRY_SIZE))
        v = values(fields)
        item = Item("entry", at, _layout.INDEX_ENTRY_SIZE, fields, {
            "number": n, "slot": v["keyHash"] % slots, "time": head["beginTimestamp"] + v["timeDiff"] * 1000})
        if v["keyHash"] < 0 or v["phyOffset"] < 0 or not 0 <= v["prevIndex"] < n:
            item.finding = "a hash or an offset below zero, or a chain that does not lead back"
        yield item


def _entry_at(slots: int, n: int) -> int:
    return _layout.INDEX_HEADER_SIZE + _layout.INDEX_SLOT_SIZE * slots + _layout.INDEX_ENTRY_SIZE * n


def checkpoint(file: StoreFile) -> Iterator[Item]:
    if file.size < _layout.CHECKPOINT_AT_FLUSHED:
        yield Item("finding", 0, finding=f"{file.size} bytes are not a checkpoint: it has {_layout.CHECKPOINT_SIZE}")
        return
    fields = layout.describe_fields(layout.CHECKPOINT, file.read(0, _layout.CHECKPOINT_FIELDS_SIZE))
    yield Item("checkpoint", 0, file.size, fields)
    if file.size != _layout.CHECKPOINT_SIZE:
        yield Item("finding", 0, finding=f"the size is {file.size}, expected {_layout.CHECKPOINT_SIZE}")


def text_file(file: StoreFile) -> Iterator[Item]:
    """abort (empty, or a process id) and lock (`lock`, then the holder's process id where it tells)."""
    raw = file.read(0, min(file.size, 4096))
    text = raw.decode("ascii", "backslashreplace").strip("\0\n ")
    yield Item(file.kind, 0, file.size, [FieldValue(1, "text", 0, raw, text)] if raw else [])
    if file.kind == "lock" and raw and not raw.startswith(b"lock"):
        yield Item("finding", 0, finding="a lock file begins with the four bytes `lock`")
