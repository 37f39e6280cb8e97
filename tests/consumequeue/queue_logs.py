"""What the queue tests need of the golden stores beside tests/golden_store.py: the records of the log, and short helpers.

The records are decoded here, in plain Python, on purpose: the tests do not lean on the codec they stand beside.
"""
import gzip
import json
import struct
import zlib
from typing import NamedTuple

from tests.golden_store import GOLDEN, cases, unpack

LOADABLE = [c for c in cases() if not c.endswith("-shortfile")]
CRASHED = [c for c in LOADABLE if "-crash-" in c]

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
DELAYS_MS = [1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)]


class Record(NamedTuple):
    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    store_timestamp: int
    tags_code: int
    queued: bool


def store_of(case, to):
    """The store of a case, with its modification times, under `to`/store."""
    return unpack(case, to).store


def config(case):
    """Upstream options of a case; numbers as int."""
    values = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000,
              "mappedFileSizeConsumeQueueExt": 48 << 20}
    values |= json.loads((GOLDEN / case / "case.json").read_text())["config"]
    return {k: int(v) if str(v).isdecimal() else v for k, v in values.items()}


def expected(case, kind):
    with gzip.open(GOLDEN / case / "expected.jsonl.gz", "rt") as lines:
        return [line for line in map(json.loads, lines) if line["t"] == kind]


def java_hash(text):
    h = 0
    data = text.encode("utf-16-be")
    for i in range(0, len(data), 2):
        h = (31 * h + (data[i] << 8 | data[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


def _tags_code(topic, properties, store_timestamp):
    p = dict(s.split("\x01", 1) for s in properties.decode().split("\x02") if s.find("\x01") > 0)
    level = int(p.get("DELAY", 0))
    if topic == b"SCHEDULE_TOPIC_XXXX" and level > 0:
        return store_timestamp + DELAYS_MS[min(level, 18) - 1]
    return java_hash(p.get("TAGS", ""))


def records(store, file_size):
    """Every good record of the log, and the offset behind the last one: a record with a wrong CRC ends it."""
    out = []
    end = 0
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        start, at = int(path.name), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == MAGIC_BLANK:
                at = file_size
                break
            if magic not in (MAGIC_V1, MAGIC_V2):
                break
            record = _record(data[at:at + size], magic)
            if record is None:
                break
            out.append(record)
            at += size
        end = start + at
        if at < file_size:
            break
    return out, end


def _record(r, magic):
    size, _, crc, queue_id, _, queue_offset, physical, sys_flag, _ = struct.unpack_from(">iIiiiqqiq", r)
    at = 48 + (20 if sys_flag & 0x10 else 8)
    store_timestamp, = struct.unpack_from(">q", r, at)
    at += 8 + (20 if sys_flag & 0x20 else 8) + 12
    body_size, = struct.unpack_from(">i", r, at)
    body = r[at + 4:at + 4 + body_size]
    if body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    at += 4 + body_size
    topic_size, = struct.unpack_from(">B" if magic == MAGIC_V1 else ">H", r, at)
    at += 1 if magic == MAGIC_V1 else 2
    topic = r[at:at + topic_size]
    properties = r[at + topic_size + 2:]
    return Record(physical, size, topic, queue_id, queue_offset, store_timestamp,
                  _tags_code(topic, properties, store_timestamp), sys_flag & 0xC in (0, 8))


def dispatch(table, found):
    for r in found:
        if r.queued:
            table.put(r.topic, r.queue_id, r.offset, r.size, r.tags_code, r.store_timestamp, r.queue_offset)
    table.publish()


def entries(table, topic, queue_id):
    """Everything a reader can get from a queue, from its first valid entry on."""
    at, end, _ = table.offsets(topic, queue_id)
    out = []
    while at < end:
        units = table.read(topic, queue_id, at, 32)
        assert 0 < len(units) <= 32
        out += units
        at += len(units)
    return out


def files(base):
    return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}
