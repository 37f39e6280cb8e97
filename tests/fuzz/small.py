"""Damage to the small files: JSON under config/, journals of Spark's commits, manifests, what .salvage/ keeps, lock, abort.

Paths that a file may name lead to the decoys beside the store, never elsewhere.
"""
import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import crc32c

from tests.fuzz.damage import files
from tests.fuzz.odd import decoys

CONFIG = ["consumerOffset.json", "delayOffset.json", "topics.json", "subscriptionGroup.json", "removedQueues.json",
          "reconsumeCounts.json"]
TEXTS = [b"", b"\0" * 100, b"{", b"[]", b"null", b"7", b'"x"', b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"{1:2}",
         b'{"offsetTable":[]}', b'{"offsetTable":{"T@g":7}}', b'{"offsetTable":{"T@g":{0:-1,1:9223372036854775808}}}',
         b'{"offsetTable":{"T":{0:1},"@":{},"a@b@c":{"x":1}}}', b'{"offsetTable":{"T@g":{0:1e400,1:NaN}}}',
         b'{"offsetTable":{1:-5,2:9223372036854775807,99:1}}', b'{"offsetTable":{"T@g":{0:' + b"9" * 5000 + b"}}}",
         b'{"removed":{"T@0":9223372036854775807,"@":1}}', b'{"removed":{"T@0":-1}}', b'{"removed":{"T@x":1}}',
         b'{"removed":[]}', b'{"removed":{"T@0":99999999999999999999}}', b'{"removed":{"T@99999999999":1}}',
         b'{"topicConfigTable":{"T":null}}', b'{"topicConfigTable":{"T":{"perm":"x","readQueueNums":-1}}}',
         b'{"topicConfigTable":{"../../decoys/tree":{}},"dataVersion":7}',
         b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":"x"}}}',
         b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":-1}},"dataVersion":[]}']
VALUES: list[Any] = [None, -1, 0, 1 << 63, 1 << 70, -(1 << 63), "", "x", [], {}, True, 1.5, "../../decoys/tree", ".", "..", "7"]


def _spoil(random: Random, value: Any) -> Any:
    """The same, with one part of it another value."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(sorted(value, key=str))
        return value | {key: _spoil(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.85:
        i = random.randrange(len(value))
        return [*value[:i], _spoil(random, value[i]), *value[i + 1:]]
    return random.choice(VALUES)


def config(random: Random, root: Path) -> str:
    """A config file, its .bak, or both, with other text."""
    name = random.choice(CONFIG)
    place = root / "config"
    place.mkdir(exist_ok=True)
    text = random.choice(TEXTS)
    names = random.choice([[name], [name], [name + ".bak"], [name, name + ".bak"]])
    for each in names:
        (place / each).write_bytes(text)
    return f"config/{' and '.join(names)} = {text[:60]!r}"


def config_value(random: Random, root: Path) -> str:
    """One value of a JSON file that is there."""
    choice = [p for p in files(root) if p.name.endswith((".json", ".bak"))]
    path = random.choice(choice)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):     # another damage of this case was there before
        path.write_bytes(path.read_bytes().replace(b":", b"::", 1))
        return f"{path.relative_to(root)}: two colons"
    new = _spoil(random, content)
    path.write_text(json.dumps(new))
    return f"{path.relative_to(root)} = {json.dumps(new)[:200]}"


def journal(random: Random, root: Path) -> str:
    """A journal of Spark's commits: pending, with parts that are not there, a job that is another directory's name."""
    place = root / ".spark" / "journal"
    place.mkdir(parents=True, exist_ok=True)
    decoy = decoys(root)
    part = {"path": str(decoy / "files" / random.choice(["text", "page", "missing"])),
            "size": random.choice([0, 9, 4096, 1 << 40]), "records": random.choice([0, 1, -1]), "crc": 0}
    entry: dict[str, Any] = {"app": "a", "done": random.choice([None, 0, 1]), "pending": random.choice([2, None, "x"]),
                             "begin": random.choice([0, -1, 1 << 62]), "job": random.choice([
                                 "0" * 32, "../../decoys/tree", str(decoy / "tree"), "../..", "", None, "."]),
                             "parts": random.choice([[], [part], None])}
    if random.random() < 0.3:
        entry = _spoil(random, entry)
    (place / f"{random.randrange(1 << 64):032x}.json").write_text(json.dumps(entry))
    return f"a journal: {json.dumps(entry)[:200]}"


def manifest(random: Random, root: Path) -> str:
    """A manifest whose own checksum is right and which says something else."""
    place = root / ".manifest"
    place.mkdir(exist_ok=True)
    log = random.choice(files(root, "commitlog"))
    start, size = int(log.name), log.stat().st_size
    what = random.choice(["sums", "block", "size", "start", "count", "huge"])
    block = {"block": random.choice([1, 0, (1 << 32) - 1, 512])}.get(what, 65536)
    size = {"size": random.choice([0, -1, size * 2, 1 << 40]), "huge": 1 << 62}.get(what, size)
    count = max(-(-size // max(block, 1)), 0) if what != "count" else random.choice([0, 1000])
    count = min(count, 70_000)
    name = start if what != "start" else start + size
    data = struct.pack(">4sIqqIIIq", b"RMQM", 1, start, size, 0, block, count, 0) + random.randbytes(4) * count
    (place / f"{max(name, 0):020d}").write_bytes(data + struct.pack(">I", crc32c.crc32c(data)))
    return f"manifest of {log.name}: another {what}"


def salvage(random: Random, root: Path) -> str:
    """What an earlier recovery kept aside: noise, a piece of the log, nothing; under names of all sorts."""
    place = root / ".salvage"
    place.mkdir(exist_ok=True)
    name = random.choice(["0" * 20, "00000000000000000777", "99999999999999999999", "x", "09223372036854775807", "-1"])
    log = random.choice(files(root, "commitlog")).read_bytes()[:1 << 20]
    at = random.randrange(max(len(log), 1))
    data = random.choice([b"", random.randbytes(3000), log[:5000], log[at:at + 5000], bytes(9000)])
    (place / name).write_bytes(data)
    return f".salvage/{name}, {len(data)} bytes"


def scrub_state(random: Random, root: Path) -> str:
    place = root / ".manifest"
    place.mkdir(exist_ok=True)
    text = random.choice([b'{"next_offset": -1}', b'{"next_offset": 1e400}', b'{"next_offset": 99999999999999999999999}', b"[]",
                          b"[" * 100_000, b'{"next_offset": "7"}', b"\xff", b""])
    (place / "scrub.json").write_bytes(text)
    return f"scrub.json = {text[:60]!r}"


def live(random: Random, root: Path) -> str:
    """.stats.json of another shape."""
    good = {"format": 1, "pid": 1, "written_ms": 4_000_000_000_000, "interval_ms": 1 << 60, "stats": {}, "recent": {},
            "rates": {}, "groups": {}, "delayed": 0}
    content = random.choice([good, _spoil(random, good), [], {**good, "groups": {"g": 7}}, {**good, "interval_ms": 1e308}])
    text = random.choice([json.dumps(content).encode(), json.dumps(content).encode(), b"[" * 100_000, b"\xff", b"", b"NaN"])
    (root / ".stats.json").write_bytes(text)
    return f".stats.json = {text[:120]!r}"


def lock(random: Random, root: Path) -> str:
    text = random.choice([b"", b"lock", b"lock7", b"lock" + b"9" * 400, b"\xff" * 5000, b"lock-1", bytes(100)])
    (root / "lock").write_bytes(text)
    return f"lock = {text[:20]!r}"


def abort(random: Random, root: Path) -> str:
    path = root / "abort"
    if path.exists():
        path.unlink()
        return "no abort file"
    path.write_bytes(random.choice([b"", b"1", b"99999999999999999999", b"\xff\0"]))
    return "an abort file"


KINDS: list[Callable[[Random, Path], str]] = [
    config, config, config, config_value, config_value, journal, manifest, salvage, scrub_state, live, lock, abort, abort,
    abort]
