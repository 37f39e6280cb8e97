"""Kinds of file in the wrong place: links, pipes, sockets, devices, directories, holes, lengths, modes.

Links lead to decoys beside the store and nowhere else: whatever a victim does to what is behind a link, it does it inside the
scratch directory. `make_decoys` lays them out; the judge looks afterwards whether they are as they were.
"""
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

HUGE = 1 << 40
PRECIOUS = ["tree/precious.txt", "tree/inner/also-precious.txt", "tree/7", "tree/00000000000000000000.keep"]
# Names that a store reads or makes, and may not have at the moment.
SMALL = ["abort", "checkpoint", "checkpoint.tmp", "lock", ".stats.json", ".stats.json.tmp", "config/consumerOffset.json",
         "config/consumerOffset.json.bak", "config/delayOffset.json", "config/topics.json", "config/subscriptionGroup.json",
         "config/removedQueues.json", "config/reconsumeCounts.json", ".manifest/00000000000000000000", ".manifest/scrub.json",
         ".salvage/00000000000000000000", ".alloc/x", "config/consumerOffset.json.tmp", "abort.tmp"]


def decoys(root: Path) -> Path:
    return root.parent / "decoys"


def make_decoys(place: Path) -> None:
    """files/: nothing in there may ever change. tree/: directory links lead here; a store may add to it, and change nothing."""
    (place / "files").mkdir(parents=True)
    (place / "tree" / "inner").mkdir(parents=True)
    for name, data in (("text", b"precious\n"), ("empty", b""), ("page", b"p" * 4096), ("log", b"\xda\xa3\x20\xa7" * 4096),
                       ("queue", b"q" * 4000), ("json", b'{"offsetTable":{}}'), ("abort", b"1")):
        (place / "files" / name).write_bytes(data)
    for name in PRECIOUS:
        (place / name).write_bytes(b"precious\n")


def _any(random: Random, root: Path, *kinds: Callable[[Path], bool]) -> Path:
    found = sorted(p for p in root.rglob("*") if any(kind(p) for kind in kinds))
    return random.choice(found)


def _file(random: Random, root: Path) -> Path:
    """A file that is there, or a name that a store looks at; its directory is there."""
    if random.random() < 0.4:
        path = root / random.choice(SMALL)
        path.parent.mkdir(exist_ok=True)
        return path
    return _any(random, root, lambda p: p.is_file() and not p.is_symlink())


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pipe(random: Random, root: Path) -> str:
    path = _file(random, root)
    _clear(path)
    os.mkfifo(path)
    return f"a pipe at {path.relative_to(root)}"


def socket_file(random: Random, root: Path) -> str:
    path = _file(random, root)
    _clear(path)
    os.mknod(path, 0o644 | stat.S_IFSOCK)
    return f"a socket at {path.relative_to(root)}"


def device(random: Random, root: Path) -> str:
    """null, zero or full, which no write harms. Root's alone to make; others get a socket that listens."""
    path = _file(random, root)
    minor = random.choice([3, 5, 7])
    _clear(path)
    before = os.geteuid()
    try:
        os.seteuid(os.getresuid()[2])
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        os.chmod(path, 0o666)
    except PermissionError:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.fspath(path)[-100:] if len(os.fspath(path)) > 100 else os.fspath(path))
        return f"a socket at {path.relative_to(root)}"
    finally:
        os.seteuid(before)
    return f"device 1:{minor} at {path.relative_to(root)}"


def directory(random: Random, root: Path) -> str:
    path = _file(random, root)
    _clear(path)
    path.mkdir()
    if random.random() < 0.5:
        (path / "00000000000000000000").write_bytes(b"x")
    return f"a directory at {path.relative_to(root)}"


def link(random: Random, root: Path) -> str:
    path = _file(random, root)
    place = decoys(root) / "files"
    kind = random.choice(["decoy", "decoy", "twin", "missing", "directory", "itself"])
    if kind == "twin" and path.is_file():           # a store that is moved piece by piece looks like this
        target = place.parent / "twins"
        target.mkdir(exist_ok=True)
        target /= path.name
        shutil.copy2(path, target)
    elif kind == "missing":
        target = place / "missing"
    elif kind == "directory":
        target = place.parent / "tree"
    elif kind == "itself":
        target = path
    else:
        target = place / random.choice(["text", "empty", "page", "log", "queue", "json", "abort"])
    _clear(path)
    path.symlink_to(target)
    return f"a link at {path.relative_to(root)} to {target.relative_to(root.parent)}"


def directory_link(random: Random, root: Path) -> str:
    """One of the directories leads to the decoys' tree."""
    if random.random() < 0.3:
        path = root / random.choice([".alloc", ".manifest", ".salvage", "config", ".spark", "consumequeue_ext"])
    else:
        path = _any(random, root, lambda p: p.is_dir() and not p.is_symlink())
    _clear(path)
    path.symlink_to(decoys(root) / "tree")
    return f"a link at {path.relative_to(root)} to decoys/tree"


def unreadable(random: Random, root: Path) -> str:
    path = _any(random, root, lambda p: not p.is_symlink() and (p.is_file() or p.is_dir()))
    mode = random.choice([0, 0o200, 0o400 if path.is_file() else 0o500, 0o111])
    path.chmod(mode)
    return f"mode {mode:03o} of {path.relative_to(root)}"


def hole(random: Random, root: Path) -> str:
    path = _file(random, root)
    if path.is_symlink() or path.is_dir():
        _clear(path)
    with path.open("ab"):
        pass
    at_end = random.random() < 0.3
    size = random.choice([HUGE, HUGE, 1 << 33, 1 << 31])
    os.truncate(path, size)
    if at_end:
        with path.open("r+b") as f:
            f.seek(size - 5000)
            f.write(random.randbytes(5000))
    return f"{path.relative_to(root)} is a hole of {size} bytes" + (", with noise at its end" if at_end else "")


def length(random: Random, root: Path) -> str:
    path = _file(random, root)
    if not path.is_file():
        _clear(path)
        path.write_bytes(b"")
    size = path.stat().st_size
    new = random.choice([0, max(size - 1, 0), size + 1, max(size - 20, 0), size + 20, max(size - 4096, 0), size + 4096, 3])
    os.truncate(path, new)
    return f"{path.relative_to(root)} from {size} to {new} bytes"


KINDS: list[Callable[[Random, Path], str]] = [
    pipe, pipe, socket_file, device, directory, directory, link, link, link, directory_link, unreadable, hole, length, length]
