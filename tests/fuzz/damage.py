"""Damage to a store's directory, chosen by a seeded generator: what bit rot, broken copies and hostile hands do.

Each function takes (random, root) and says what it did; `damage` picks one to three of them, most aimed at bytes that mean
something: records, queue entries, index headers, slots and entries, the checkpoint.
"""
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

FOREIGN = ["foo", "00000000000000000000", "00000000000000000001", "99999999999999999999", "09223372036854775807", "0" * 17,
           "18446744073709551616", "٠" * 20, "²" * 17, "20240101000000000", "-0000000000000000001", "a" * 255, ".hidden",
           "x.tmp",           "0", "17", "2147483648", "00", "%RETRY%x", "sp ace", "ü", "\udcff\udcfe"]
HOSTILE_32 = [0, 1, -1, 7, 8, 90, 91, 0x7FFFFFFF, -0x80000000, 0x7FFFFFF0, 0x10000, 0xFFFF, -2, 1 << 30]
HOSTILE_64 = [0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 32, 1 << 40, -2147483649, -2147483650, (1 << 63) - 65536, 1 << 62]
MAGICS = [0xDAA320A7, 0xDAA320AB, 0xCBD43194, 0]
RECORD_FIELDS = [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 8), (28, 8), (36, 4), (40, 8), (48, 8), (56, 8), (84, 4)]


def files(root: Path, *rooms: str) -> list[Path]:
    """Regular files of the store, in a fixed order."""
    places = [root / r for r in rooms] if rooms else [root]
    found = [Path(at) / name for place in places for at, _, names in os.walk(place) for name in names]
    return sorted(p for p in found if not p.is_symlink())


def directories(root: Path) -> list[Path]:
    return sorted(Path(at) for at, _, _ in os.walk(root))


def used(random: Random, data: bytes) -> int:
    """A position, usually where something stands that is not zero."""
    end = len(data.rstrip(b"\0"))
    return random.randrange(min(end + 40, len(data)) if end and random.random() < 0.9 else max(len(data), 1))


def records(data: bytes) -> list[int]:
    """Where records begin in a commit-log file."""
    found, at = [], 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in MAGICS[:3] or size < 8:
            break
        found.append(at)
        at += size
    return found


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as f:
        f.seek(at)
        f.write(data)


def flip_bits(random: Random, root: Path) -> str:
    path = random.choice(files(root))
    data = bytearray(path.read_bytes())
    if not data:
        return f"{path.name} is empty"
    at = [used(random, data) for _ in range(random.choice([1, 1, 1, 2, 8, 50]))]
    for a in at:
        data[a] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"bits of {path.relative_to(root)} at {at[:4]}"


def overwrite(random: Random, root: Path) -> str:
    path = random.choice(files(root))
    data = path.read_bytes()
    if not data:
        return f"{path.name} is empty"
    size = random.choice([1, 4, 8, 20, 40, 512, 4096])
    at = used(random, data)
    new = random.choice([bytes(size), b"\xff" * size, random.randbytes(size), data[:size]])[:len(data) - at]
    patch(path, at, new)
    return f"{len(new)} bytes of {path.relative_to(root)} at {at}"


def resize(random: Random, root: Path) -> str:
    path = random.choice(files(root))
    size = path.stat().st_size
    new = random.choice([0, 1, 7, size // 2, max(size - 1, 0), size + 1, size * 2, random.randrange(size + 100), 20, 40, 4096])
    os.truncate(path, new)
    return f"{path.relative_to(root)} from {size} to {new} bytes"


def remove(random: Random, root: Path) -> str:
    if random.random() < 0.8:
        path = random.choice(files(root))
        path.unlink()
    else:
        path = random.choice(directories(root)[1:])
        shutil.rmtree(path)
    return f"no {path.relative_to(root)}"


def plant(random: Random, root: Path) -> str:
    path = random.choice(directories(root)) / random.choice(FOREIGN)
    if os.path.lexists(path):
        return f"{path.name!r} is there"
    kind = random.choice(["file", "file", "directory", "link", "dangling", "loop", "fifo"])
    try:
        if kind == "directory":
            path.mkdir()
            (path / "0").mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "file":
            size = random.choice([0, 1, 20, 4096, 65536])
            path.write_bytes(random.choice([bytes(size), random.randbytes(size)]))
        else:
            path.symlink_to({"link": random.choice(files(root) or [root]), "dangling": "nowhere", "loop": path.name}[kind])
    except OSError as error:
        return f"{path.name!r}: {error.strerror}"
    return f"{kind} {str(path.relative_to(root))!r}"


def swap(random: Random, root: Path) -> str:
    a, b = random.choice(files(root)), random.choice(files(root))
    if a == b:
        return "the same file twice"
    mode = random.choice(["swap", "copy", "rename"])
    if mode == "copy":
        shutil.copyfile(a, b)
    elif mode == "rename":
        a.replace(b)
    else:
        hold = a.read_bytes()
        shutil.copyfile(b, a)
        b.write_bytes(hold)
    return f"{mode} {a.relative_to(root)} {b.relative_to(root)}"


def rename(random: Random, root: Path) -> str:
    path = random.choice(files(root))
    name = path.name
    if name.isdigit():
        name = str(int(name) + random.choice([1, -1, 20, 65536, path.stat().st_size, 7 * path.stat().st_size, 1 << 40])) \
            .rjust(len(name), "0")
    else:
        name = random.choice(FOREIGN[:4])
    if name.startswith("-") or (path.parent / name).exists():
        return f"{path.name} stays"
    path.rename(path.parent / name)
    return f"{path.relative_to(root)} is now {name}"


def turn(random: Random, root: Path) -> str:
    """A file where a directory should be, or the other way round."""
    if random.random() < 0.5:
        path = random.choice(directories(root)[1:])
        shutil.rmtree(path)
        path.write_bytes(b"x")
        return f"{path.relative_to(root)} is a file"
    path = random.choice(files(root))
    path.unlink()
    path.mkdir()
    return f"{path.relative_to(root)} is a directory"


def abort(random: Random, root: Path) -> str:
    path = root / "abort"
    if path.exists():
        path.unlink()
        return "no abort file"
    path.write_bytes(random.choice([b"", b"1", b"99999999999999999999", b"\xff\0"]))
    return "an abort file"


def hostile_record(random: Random, root: Path) -> str:
    choice = files(root, "commitlog")
    path = random.choice(choice) if choice else None
    data = path.read_bytes() if path else b""
    starts = records(data)
    if path is None or not starts:
        return "no record"
    at = random.choice(starts)
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


def hostile_entry(random: Random, root: Path) -> str:
    choice = files(root, "consumequeue", "consumequeue_ext")
    if not choice:
        return "no queue"
    path = random.choice(choice)
    size = path.stat().st_size
    count = max(len(path.read_bytes().rstrip(b"\0")) // 20, 1)
    at = random.choice([0, count - 1, count, count + 1, random.randrange(count)]) * 20
    field, width = random.choice([(0, 8), (8, 4), (12, 8)])
    value = (random.choice(HOSTILE_64 + [65536, 131072]).to_bytes(8, "big", signed=True) if width == 8
             else random.choice(HOSTILE_32).to_bytes(4, "big", signed=True))
    if at + field + width > size:
        return "beyond the file"
    patch(path, at + field, value)
    return f"{path.relative_to(root)}: entry {at // 20}, byte {field} = {value.hex()}"


def hostile_index(random: Random, root: Path) -> str:
    choice = files(root, "index")
    if not choice:
        return "no index"
    path = random.choice(choice)
    data = path.read_bytes()
    at = random.choice([0, 8, 16, 24, 32, 36, 40 + 4 * random.randrange(100), used(random, data) // 4 * 4 if data else 0])
    value = (random.choice(HOSTILE_64).to_bytes(8, "big", signed=True) if at < 32
             else random.choice(HOSTILE_32 + [2, 3, 5, 50, 95, 96, 97]).to_bytes(4, "big", signed=True))
    if at + len(value) > len(data):
        return "beyond the file"
    patch(path, at, value)
    return f"{path.relative_to(root)}: byte {at} = {value.hex()}"


def hostile_checkpoint(random: Random, root: Path) -> str:
    path = root / "checkpoint"
    if not path.is_file() or path.stat().st_size < 40:
        return "no checkpoint"
    field = random.randrange(5)
    value = random.choice([*HOSTILE_64, 4_000_000_000_000])
    patch(path, 8 * field, value.to_bytes(8, "big", signed=True))
    return f"checkpoint: field {field} = {value}"


KINDS: list[Callable[[Random, Path], str]] = [
    flip_bits, flip_bits, overwrite, resize, remove, plant, plant, swap, rename, turn, abort, hostile_record, hostile_record,
    hostile_record, hostile_entry, hostile_entry, hostile_index, hostile_index, hostile_checkpoint]


def damage(random: Random, root: Path) -> list[str]:
    """Damages the store at `root`; what was done, in words."""
    done = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        kind = random.choice(KINDS)
        try:
            done.append(f"{kind.__name__}: {kind(random, root)}")
        except (IndexError, FileNotFoundError, IsADirectoryError, NotADirectoryError, OverflowError):
            done.append(f"{kind.__name__}: nothing left to damage")
    return done
