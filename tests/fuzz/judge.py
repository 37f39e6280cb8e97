"""What must be so, whatever the damage: nothing outside the store changes, a reader changes nothing, what is whole is found."""
import os
import stat
import zlib
from pathlib import Path

from tests.fuzz.cases import Base, Place, What, regular

CHUNK = 1 << 20
Seen = dict[str, tuple[object, ...]]


def _content(path: str, size: int) -> int:
    """CRC-32 of what is there; holes cost nothing, and zeros are one: on tmpfs who reads a hole through a map allocates it."""
    crc, at = 0, 0
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
                at -= at % CHUNK
            except OSError:
                break
            data = os.pread(fd, CHUNK, at)
            if not data:
                break
            if data.count(0) < len(data):
                crc = zlib.crc32(data, zlib.crc32(at.to_bytes(8, "big"), crc))
            at += len(data)
    finally:
        os.close(fd)
    return crc


def snapshot(root: Path) -> Seen:
    """Every name below `root`: kind, mode, length, time of change, content, target."""
    found: Seen = {}
    waiting = [os.fspath(root)]
    while waiting:
        path = waiting.pop()
        s = os.lstat(path)
        more: object = None
        if stat.S_ISLNK(s.st_mode):
            more = os.readlink(path)
        elif stat.S_ISDIR(s.st_mode):
            try:
                waiting += [os.path.join(path, name) for name in os.listdir(path)]
            except PermissionError:
                pass
        elif stat.S_ISREG(s.st_mode):
            try:
                more = _content(path, s.st_size)
            except PermissionError:
                pass
        found[os.path.relpath(path, root)] = (s.st_mode, s.st_size, s.st_mtime_ns, s.st_ino, more)
    return found


def differs(before: Seen, after: Seen, *, added: bool = True) -> str:
    """What changed, in words; "" where nothing did. added=False: what is new does not count, nor a directory's time."""
    def told(entry: tuple[object, ...] | None) -> tuple[object, ...] | None:
        if entry is None or added or not stat.S_ISDIR(int(str(entry[0]))):
            return entry
        return entry[:1]

    changed = [f"{name} {'is gone' if name not in after else 'changed'}" for name in sorted(before)
               if told(before[name]) != told(after.get(name))]
    changed += [f"{name} is new" for name in sorted(after.keys() - before.keys())] if added else []
    return ", ".join(changed[:5])


def _changed_from(base: Base, root: Path) -> tuple[int, int]:
    """Log offsets [begin, end) in which the log is as the base has it; files that are gone at its front are cleaned ones."""
    old = {int(p.name): p for p in (base.root / "commitlog").iterdir() if p.name.isdigit()}
    place = root / "commitlog"
    try:
        names = os.listdir(place) if not place.is_symlink() and place.is_dir() else []
        os.stat(place / ".")
    except (PermissionError, FileNotFoundError):
        return 0, 0
    numbered = [int(n) for n in names if len(n) == 20 and n.isascii() and n.isdigit()]
    there = {start for start in old if regular(place / f"{start:020d}")}
    if not there or min(numbered) < min(old) or min(numbered) < min(there):
        return 0, 0
    begin = end = min(there)
    for start in sorted(old):
        if start < begin:
            continue
        was = old[start].read_bytes()
        path = place / f"{start:020d}"
        if start not in there or path.lstat().st_size != len(was):
            return begin, min(end, start)
        try:
            now = path.read_bytes()
        except PermissionError:
            return 0, 0
        if now != was:
            return begin, start + next(i for i in range(len(was)) if now[i] != was[i])
        end = start + len(was)
    if max(numbered) >= end:        # a file behind the last: what it says of the end is its own
        return begin, end
    return begin, 1 << 63


class Must:
    """What has to be found in a damaged store that opens."""

    def __init__(self, base: Base, root: Path) -> None:
        self.begin, self.end = _changed_from(base, root)
        self.log_whole = self.end == 1 << 63
        whole = {place: what for place, what in base.messages.items()
                 if self.begin <= what[0] and what[0] + what[1] <= self.end}
        self.whole: dict[Place, What] = whole       # once repair is through
        settled = _same(base.root, root, "abort") and _same(base.root, root, "checkpoint")
        self.there: dict[Place, What] = {}          # without that anything is dispatched
        self.now: dict[Place, What] = {}            # as soon as it is open for writing
        before, after = _Entries(base, base.root), _Entries(base, root)
        for place, what in whole.items():
            old, new = before.at(place), after.at(place)
            if old is not None and old == new:
                self.there[place] = self.now[place] = what
            elif old is None and new is None and settled and self.log_whole:
                self.now[place] = what
        self.queues_whole = all(_same_tree(base.root, root, name) for name in ("consumequeue", "consumequeue_ext"))


def _same(a: Path, b: Path, name: str) -> bool:
    x, y = a / name, b / name
    try:
        if not x.exists() or not os.path.lexists(y):
            return x.exists() == os.path.lexists(y)
        return regular(y) and x.stat().st_size == y.stat().st_size and x.read_bytes() == y.read_bytes()
    except PermissionError:
        return False


def _same_tree(a: Path, b: Path, name: str) -> bool:
    def tree(root: Path) -> dict[str, bytes]:
        return {str(p.relative_to(root)): p.read_bytes() if regular(p) and p.stat().st_size < 1 << 24 else b"?"
                for p in root.rglob("*") if not p.is_dir()}
    try:
        return not (b / name).is_symlink() and tree(a / name) == tree(b / name)
    except OSError:
        return False


class _Entries:
    """The queue entries of a store: 20 bytes, None where there are none. Files behind links are not looked at."""

    def __init__(self, base: Base, root: Path) -> None:
        options = base.options
        self.size = int(options.get("consumequeue_file_size_bytes") or options.get("mappedFileSizeConsumeQueue") or 6_000_000)
        self.root = root / "consumequeue"
        self.files: dict[Path, bytes] = {}

    def at(self, place: Place) -> bytes | None:
        topic, queue, offset = place
        path = self.root / topic / str(queue) / f"{offset * 20 // self.size * self.size:020d}"
        if path not in self.files:
            self.files[path] = self._read(path)
        at = offset * 20 % self.size
        found = self.files[path][at:at + 20]
        return found if len(found) == 20 and any(found) else None

    def _read(self, path: Path) -> bytes:
        try:
            linked = any(p.is_symlink() for p in (path, *list(path.parents)[:3]))
            return b"" if linked or not regular(path) or path.stat().st_size > 1 << 24 else path.read_bytes()
        except PermissionError:
            return b""
