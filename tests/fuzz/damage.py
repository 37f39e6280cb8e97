"""Damage to a store's directory, chosen by a seeded generator: what bit rot, broken copies and hostile hands do to files of
any kind. Each function takes (random, root), says what it did, and does the same again to a copy of the same store.
"""
import os
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

FOREIGN = ["foo", "00000000000000000000", "00000000000000000001", "99999999999999999999", "09223372036854775807", "0" * 17,
           "18446744073709551616", "٠" * 20, "²" * 17, "20240101000000000", "-0000000000000000001", "a" * 255, ".hidden",
           "x.tmp", "0", "17", "2147483648", "00", "%RETRY%x", "sp ace", "ü", "\udcff\udcfe"]
SIZE_MAX = 16 << 20         # of a file that is read to be damaged
HOSTILE_32 = [0, 1, -1, 7, 8, 90, 91, 0x7FFFFFFF, -0x80000000, 0x7FFFFFF0, 0x10000, 0xFFFF, -2, 1 << 30]
HOSTILE_64 = [0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 32, 1 << 40, -2147483649, -2147483650, (1 << 63) - 65536, 1 << 62]
MAGICS = [0xDAA320A7, 0xDAA320AB, 0xCBD43194, 0]
RECORD_FIELDS = [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 8), (28, 8), (36, 4), (40, 8), (48, 8), (56, 8), (84, 4)]


def files(root: Path, *rooms: str) -> list[Path]:
    """Regular files of the store that are not huge, in a fixed order."""
    places = [root / r for r in rooms] if rooms else [root]
    found = [Path(at) / name for place in places for at, _, names in os.walk(place) for name in names]
    return sorted(p for p in found if stat.S_ISREG((is_at := p.lstat()).st_mode) and is_at.st_size <= SIZE_MAX)


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
    kind = random.choice(["file", "file", "directory", "fifo"])
    try:
        if kind == "directory":
            path.mkdir()
            (path / "0").mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            size = random.choice([0, 1, 20, 4096, 65536])
            path.write_bytes(random.choice([bytes(size), random.randbytes(size)]))
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


KINDS: list[Callable[[Random, Path], str]] = [
    flip_bits, flip_bits, flip_bits, overwrite, resize, remove, plant, swap, swap, rename, turn]
