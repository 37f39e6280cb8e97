"""What the tests of the index share: golden stores, their records, and the bytes of index files, read without the package."""
from array import array
from pathlib import Path

from rmq_store.codec._codec import Blank, decode_record
from rmq_store.codec._layout import TRANSACTION_ROLLBACK

HEADER, SLOT, ENTRY = 40, 4, 20


def big(data, at, size):
    return int.from_bytes(data[at:at + size], "big", signed=True)


class IndexedCase:
    """What a test of the index needs of a golden case: the geometry, Java's index files, the records of the log."""

    def __init__(self, golden):
        self.slots, self.entries = int(golden.config["maxHashSlotNum"]), int(golden.config["maxIndexNum"])
        self.expected = list(golden.expected())
        self.index_dir = golden.store / "index"
        self.records = list(_records(golden.store / "commitlog"))
        self.offsets = array("q", [r.physical_offset for r in self.records])
        self.times = array("q", [r.store_timestamp for r in self.records])

    def put_all(self, index, start=0, end=1 << 62):
        for r in self.records:
            if start <= r.physical_offset < end:
                put_record(index, r)


def _records(commitlog):
    for file in sorted(commitlog.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data) and data[at:at + 4] != bytes(4):
            record = decode_record(data, at)
            if isinstance(record, Blank):
                break
            yield record
            at += record.size


def put_record(index, record):
    """What dispatch does with a record (IndexService.buildIndex)."""
    properties = record.properties
    if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
        return
    uniq_key, keys = (properties[n].encode() if n in properties else None for n in ("UNIQ_KEY", "KEYS"))
    if uniq_key is not None or keys is not None:
        index.put(record.topic.encode(), uniq_key, keys, record.physical_offset, record.store_timestamp)


class Bytes:
    """An index file as bytes; `used` ends behind its last entry."""

    def __init__(self, data, slots):
        self.data, self.slots = data, slots
        self.begin, self.end, self.begin_physical, self.end_physical = (big(data, at, 8) for at in (0, 8, 16, 24))
        self.slot_count, self.count = big(data, 32, 4), big(data, 36, 4)
        self.used = data[:HEADER + SLOT * slots + ENTRY * max(self.count, 1)]

    def entry(self, number):
        at = HEADER + SLOT * self.slots + ENTRY * number
        return big(self.data, at, 4), big(self.data, at + 4, 8), big(self.data, at + 12, 4), big(self.data, at + 16, 4)

    def entries(self):
        return [self.entry(e) for e in range(1, self.count)]


def files_of(path, slots):
    return [Bytes(p.read_bytes(), slots) for p in sorted(Path(path).iterdir())] if Path(path).exists() else []
