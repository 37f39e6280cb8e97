"""Damage that knows the formats: records, queue entries, ext units, index chains, the checkpoint, names.

What is made here is often well-formed: sizes and checksums agree, and one field says what no store would.
"""
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from rmq_store.queues.index.geometry import find_geometry
from tests.fuzz.damage import HOSTILE_32, HOSTILE_64, MAGICS, RECORD_FIELDS, files, patch, records, used

EXT = [-(1 << 63), -(1 << 63) + 20, -(1 << 63) + 4000, -(1 << 63) + (1 << 40), -2147483649, -2147483650]
TOPICS = [b"", b".", b"..", b"../../decoys/tree", b"a/b", b"/", b"T\0x", b"\xff\xfe", "ü".encode(), b"x" * 127, b"x" * 255,
          b"%RETRY%x", b"SCHEDULE_TOPIC_XXXX", b"T", b"New", b"topic-2"]


class Shape:
    """Where the parts of one record lie, as its own lengths tell."""

    def __init__(self, raw: bytes) -> None:
        flag = struct.unpack_from(">i", raw, 36)[0]
        self.raw = raw
        self.body_at = 88 + (12 if flag & 0x10 else 0) + (12 if flag & 0x20 else 0)
        body = struct.unpack_from(">i", raw, self.body_at - 4)[0]
        self.body = raw[self.body_at:self.body_at + body]
        at = self.body_at + body
        self.wide = 2 if struct.unpack_from(">I", raw, 4)[0] == MAGICS[1] else 1
        size = int.from_bytes(raw[at:at + self.wide], "big")
        self.topic = raw[at + self.wide:at + self.wide + size]
        at += self.wide + size
        self.properties = raw[at + 2:at + 2 + int.from_bytes(raw[at:at + 2], "big")]

    def made(self, body: bytes, topic: bytes, properties: bytes, **fields: int) -> bytes:
        """A record of these parts, lengths and checksum in order; fields by position, as at20=7."""
        head = bytearray(self.raw[:self.body_at])
        struct.pack_into(">i", head, self.body_at - 4, len(body))
        struct.pack_into(">i", head, 8, zlib.crc32(body) & 0x7FFFFFFF if body else 0)
        for name, value in fields.items():
            at = int(name[2:])
            struct.pack_into(">q" if at in (20, 28, 40, 56) else ">i", head, at, value)
        made = bytes(head) + body + len(topic).to_bytes(self.wide, "big") + topic
        made += len(properties).to_bytes(2, "big") + properties
        return struct.pack(">i", len(made)) + made[4:]


def _log(random: Random, root: Path) -> tuple[Path, bytes, list[int]]:
    """A file of the log with records, its bytes, where they begin. IndexError where there is none."""
    found = [(p, data, at) for p in files(root, "commitlog") if p.stat().st_size < 1 << 24
             for data in [p.read_bytes()] if (at := records(data))]
    return random.choice(found[-2:] if random.random() < 0.6 else found)


def record(random: Random, root: Path) -> str:
    """One field of one record."""
    path, data, starts = _log(random, root)
    at = random.choice(starts[-3:] if random.random() < 0.4 else starts)
    if random.random() < 0.2:
        other = random.choice(starts)
        size = struct.unpack_from(">i", data, other)[0]
        patch(path, at, data[other:other + min(size, len(data) - at)])
        return f"{path.name}: the record of {other} at {at}"
    field, width = random.choice(RECORD_FIELDS)
    size = struct.unpack_from(">i", data, at)[0]
    near = [len(data) - at, len(data) - at + 1, size - 1, size + 1, size + 8, -size, len(data) - at - 8]
    if field == 4:
        value = struct.pack(">I", random.choice(MAGICS))
    elif width == 4:
        value = struct.pack(">i", random.choice(HOSTILE_32 + near))
    else:
        value = struct.pack(">q", random.choice(HOSTILE_64 + near))
    if field == 84 and random.random() < 0.5:       # lengths behind the body: topic, properties
        body = max(struct.unpack_from(">i", data, at + 84)[0], 0)
        field = 88 + body + random.choice([0, 1, 2, 20])
        value = random.choice([b"\xff", b"\x7f\xff", b"\x80\x00", b"\0", b"\xff\xff"])
    patch(path, min(at + field, len(data) - 8), value)
    return f"{path.name}: record {at}, byte {field} = {value.hex()}"


def record_at_the_end(random: Random, root: Path) -> str:
    """The last record of a file, made to end a few bytes before the file does, or with it; what followed is gone."""
    path, data, starts = _log(random, root)
    good = [at for at in starts if struct.unpack_from(">I", data, at + 4)[0] != MAGICS[2] and len(data) - at > 200]
    at, gap = random.choice(good[-3:]), random.choice([0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 91])
    shape = Shape(data[at:at + struct.unpack_from(">i", data, at)[0]])
    without = len(shape.made(b"", shape.topic, shape.properties))
    new = shape.made(bytes(len(data) - gap - at - without), shape.topic, shape.properties)
    patch(path, at, new + bytes(gap))
    return f"{path.name}: record {at} ends {gap} bytes before the file"


def record_behind(random: Random, root: Path) -> str:
    """One more record behind the last one: whole, with one thing in it that no store would say."""
    path, data, starts = _log(random, root)
    last = starts[-1]
    at = last + struct.unpack_from(">i", data, last)[0]
    if struct.unpack_from(">I", data, last + 4)[0] == MAGICS[2]:
        at = last
    source = random.choice([s for s in starts if struct.unpack_from(">I", data, s + 4)[0] != MAGICS[2]])
    shape = Shape(data[source:source + struct.unpack_from(">i", data, source)[0]])
    topic, properties, fields = shape.topic, shape.properties, {}
    what = random.choice(["topic", "queue", "offset", "born", "stored", "flags", "properties", "nothing"])
    if what == "topic":
        topic = random.choice(TOPICS)[:255]
    elif what == "queue":
        fields["at12"] = random.choice([-1, 0x7FFFFFFF, -0x80000000, 1 << 20, 99])
    elif what == "offset":
        fields["at20"] = random.choice([-1, (1 << 63) - 1, -(1 << 63), 1 << 40, 1 << 31, 0, (1 << 63) // 20,
                                        (1 << 63) // 20 + 1])
    elif what == "born":
        fields["at40"] = random.choice(HOSTILE_64)
    elif what == "stored" and shape.body_at == 88:
        fields["at56"] = random.choice([0, -1, (1 << 63) - 1, -(1 << 63), 1])
    elif what == "flags":
        fields["at36"] = random.choice([4, 8, 12, 0x40, 0x80, 0x700, 1, 0x101, 0x201, 0x301, -1]) & ~0x30
    elif what == "properties":
        properties = random.choice([
            b"\1" * 50, b"\2" * 50, b"KEYS\1" + b" ".join(b"k%d" % i for i in range(900)) + b"\2", b"KEYS\1" + b"x" * 30000,
            b"UNIQ_KEY\1\2", b"DELAY\x0199999999999\2", b"DELAY\x01-1\2", b"REAL_TOPIC\1../../decoys/tree\2REAL_QID\x01-1\2",
            b"__CRC32#\x010000000000\2", b"TAGS\1" + bytes(300), b"TAGS\1a", b"\xff\1\xfe\2", b"INNER_NUM\x01-7\2"])
    new = shape.made(shape.body, topic, properties, at28=int(path.name) + at, **fields)
    if at + len(new) + 8 > len(data):
        return f"{path.name} has no room behind {at}"
    patch(path, at, new)
    return f"{path.name}: a record of another {what} {fields or topic or properties[:20]!r} behind the last, at {at}"


def end_of_file(random: Random, root: Path) -> str:
    """An end-of-file record where there is none, or one with another size."""
    path, data, starts = _log(random, root)
    last = starts[-1]
    size = struct.unpack_from(">i", data, last)[0]
    at = random.choice([last, last + max(size, 0), random.choice(starts)])
    at = min(at, len(data) - 8)
    left = len(data) - at
    value = random.choice([left, left, left - 1, left + 1, 8, 0, 7, -8, 0x7FFFFFFF, left // 2])
    patch(path, at, struct.pack(">iI", value, MAGICS[2]))
    return f"{path.name}: an end-of-file record of {value} at {at}, {left} are left"


def entry(random: Random, root: Path) -> str:
    """One field, or one bit, of one queue entry; mostly of those at either end."""
    path = random.choice(files(root, "consumequeue"))
    data = path.read_bytes()
    count = max(len(data.rstrip(b"\0")) // 20, 1)
    at = random.choice([0, count - 1, count - 1, count, count + 1, len(data) // 20 - 1, random.randrange(count)]) * 20
    if at + 20 > len(data):
        return "beyond the file"
    if random.random() < 0.4:
        byte = at + random.randrange(20)
        patch(path, byte, bytes([data[byte] ^ 1 << random.randrange(8)]))
        return f"{path.relative_to(root)}: a bit of entry {at // 20}, byte {byte - at}"
    field, width = random.choice([(0, 8), (8, 4), (12, 8)])
    near = [65536, 131072, int.from_bytes(data[at:at + 8], "big", signed=True) + random.choice([-1, 1, 20, 91])]
    value = (random.choice(HOSTILE_64 + near + EXT).to_bytes(8, "big", signed=True) if width == 8
             else random.choice(HOSTILE_32).to_bytes(4, "big", signed=True))
    patch(path, at + field, value)
    return f"{path.relative_to(root)}: entry {at // 20}, byte {field} = {value.hex()}"


def entries(random: Random, root: Path) -> str:
    """A run of entries: zeros, fillers, each other's places, another queue's."""
    path = random.choice(files(root, "consumequeue"))
    data = path.read_bytes()
    count = max(len(data.rstrip(b"\0")) // 20, 1)
    begin = random.randrange(count)
    n = min(random.choice([1, 2, 5, count - begin]), count - begin)
    what = random.choice(["zeros", "fillers", "reversed", "another's", "again", "bits set"])
    old = [data[(begin + i) * 20:(begin + i + 1) * 20] for i in range(n)]
    other = random.choice(files(root, "consumequeue")).read_bytes()[begin * 20:(begin + n) * 20].ljust(n * 20, b"\0")
    new = {"zeros": bytes(20 * n), "fillers": struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * n, "reversed": b"".join(reversed(old)),
           "another's": other, "again": old[0] * n, "bits set": b"\xff" * 20 * n}[what]
    patch(path, begin * 20, new[:len(data) - begin * 20])
    return f"{path.relative_to(root)}: entries {begin} to {begin + n} are {what}"


def ext(random: Random, root: Path) -> str:
    """One field of one ext unit, or its size."""
    path = random.choice(files(root, "consumequeue_ext"))
    data = path.read_bytes()
    starts, at = [], 0
    while at + 2 <= len(data) and (size := struct.unpack_from(">h", data, at)[0]) >= 20:
        starts.append(at)
        at += size
    at = random.choice([*starts, at])
    field, width = random.choice([(0, 2), (0, 2), (2, 8), (10, 8), (18, 2)])
    value = (random.choice([0, -1, 1, 19, 20, 21, 0x7FFF, -0x8000, len(data) - at, 4096]) if width == 2
             else random.choice(HOSTILE_64 + EXT))
    low, high = -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1
    patch(path, at + field, min(max(value, low), high).to_bytes(width, "big", signed=True)[:max(len(data) - at - field, 0)])
    return f"{path.relative_to(root)}: unit {at}, byte {field} = {value}"


def _index(random: Random, root: Path) -> tuple[Path, bytes, int, int]:
    """An index file, its bytes, slots, and how many entries it says it has."""
    path = random.choice([p for p in files(root, "index") if p.stat().st_size < 1 << 24])
    data = path.read_bytes()
    found = find_geometry(lambda at, n: data[at:at + n], len(data))
    return path, data, found[0] if found else 100, max(struct.unpack_from(">i", data.ljust(40, b"\0"), 36)[0], 2)


def index_word(random: Random, root: Path) -> str:
    path, data, _, _ = _index(random, root)
    at = random.choice([0, 8, 16, 24, 32, 36, 40 + 4 * random.randrange(100), used(random, data) // 4 * 4 if data else 0])
    value = (random.choice(HOSTILE_64).to_bytes(8, "big", signed=True) if at < 32
             else random.choice([*HOSTILE_32, 2, 3, 5, 50, 95, 96, 97]).to_bytes(4, "big", signed=True))
    if at + len(value) > len(data):
        return "beyond the file"
    patch(path, at, value)
    return f"{path.relative_to(root)}: byte {at} = {value.hex()}"


def index_chain(random: Random, root: Path) -> str:
    """A chain that leads to itself, to a later entry, to another chain, beyond the end; a slot that leads astray."""
    path, data, slots, count = _index(random, root)
    base = 40 + 4 * slots
    a, b = random.randrange(1, count), random.randrange(1, count)
    what = random.choice(["itself", "circle", "later", "beyond", "negative", "slot", "offset", "hash"])
    at = base + 20 * a
    if base + 20 * max(a, b) + 20 > len(data):
        return "beyond the file"
    if what == "slot":
        patch(path, 40 + 4 * random.randrange(slots), struct.pack(">i", random.choice([a, count, count + 1, -1, 1 << 30])))
    elif what == "offset":
        patch(path, at + 4, struct.pack(">q", random.choice(HOSTILE_64)))
    elif what == "hash":
        patch(path, at, struct.pack(">i", random.choice(HOSTILE_32)))
    else:
        beyond = count + random.choice([0, 1, 1 << 20])
        to = {"itself": a, "circle": b, "later": max(a, b), "beyond": beyond, "negative": -a}[what]
        patch(path, at + 16, struct.pack(">i", to))
        if what == "circle":
            patch(path, base + 20 * b + 16, struct.pack(">i", a))
    return f"{path.relative_to(root)}: {what}, entries {a} and {b} of {count}, {slots} slots"


def checkpoint(random: Random, root: Path) -> str:
    path = root / "checkpoint"
    if not path.is_file() or path.stat().st_size < 40:
        return "no checkpoint"
    value = random.choice([*HOSTILE_64, 4_000_000_000_000, 1_700_000_000_000])
    fields = random.choice([[0], [1], [2], [3], [4], [0, 1, 2], [0, 1, 2, 3, 4]])
    for field in fields:
        patch(path, 8 * field, value.to_bytes(8, "big", signed=True))
    return f"checkpoint: fields {fields} = {value}"


def far_name(random: Random, root: Path) -> str:
    """A file of the log, of a queue or of the index named as no store could reach; a topic or a queue id likewise."""
    room = random.choice(["commitlog", "consumequeue", "consumequeue", "index", "consumequeue_ext", "queue", "topic"])
    if room in ("queue", "topic"):
        choice = sorted((root / "consumequeue").glob("*/*" if room == "queue" else "*"))
        path = random.choice(choice)
        name = random.choice(
            ["2147483647", "2147483648", "-1", "007", "99999999999999999999", "٧", "x", "1 "] if room == "queue"
            else ["ü", "a b", "%", "x" * 255, "T\n", "..T", "\udcff", "SCHEDULE_TOPIC_XXXX", "%LMQ%x"])
    else:
        path = random.choice(files(root, room))
        size = path.stat().st_size
        far = [(1 << 63) - size, ((1 << 63) // max(size, 1) - 1) * size, (1 << 63) - 1 - 2 * size, (1 << 63) - 1, 1 << 62,
               (1 << 62) // max(size, 1) * size, 10 * size, 1 << 40, size - 20, size // 2, 20]
        name = str(max(random.choice(far), 0)).rjust(len(path.name), "0")[-len(path.name):]
    if os.path.lexists(path.parent / name):
        return f"{name!r} is there"
    path.rename(path.parent / name)
    return f"{str(path.relative_to(root))!r} is now {name!r}"


KINDS: list[Callable[[Random, Path], str]] = [
    record, record, record, record_at_the_end, record_at_the_end, record_behind, record_behind, end_of_file, entry, entry,
    entry, entries, entries, ext, index_word, index_chain, index_chain, checkpoint, checkpoint, far_name, far_name]
