"""What a trace says of files: which bytes were written when, which of them a sync has covered, which names are on the device.

Coarser than the disk of tests/crash, which knows states: here a byte is durable or not, and it is fast enough to run beside
every test. One file is one File whatever descriptors and names it has. Bytes that a write does not change stay what they were.
"""
import bisect
import functools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["PAGE", "Extent", "File", "Names", "is_store_file"]

PAGE = 4096
_ZEROS = bytes(PAGE)
_NUMBERED = re.compile(r"/\d{17,20}$").search


@functools.lru_cache(maxsize=4096)
def is_store_file(path: str) -> bool:
    """True for the name of a file of log, queue or index: it lies open to other processes."""
    return _NUMBERED(path) is not None and "/timerlog/" not in path and "/.alloc/" not in path and ".alloc/" not in path


@dataclass(slots=True)
class Extent:
    """Bytes [low, high) that no sync has covered yet."""

    low: int
    high: int
    done: int | None            # number of the call at whose end they were written; None: still under way
    lost: bool = False          # a sync that covered them failed: no later one tells anything about them
    flight: int = -1            # number of the ring_write that carries them


class File:
    """One file. `whole`: it is known from its beginning on, what was never written is zeros."""

    def __init__(self, whole: bool, content: bytes = b"") -> None:
        self.whole = whole
        self.pages: dict[int, bytearray] = {}
        self.dirty: list[Extent] = []
        self.size = 0
        self.served = False             # it had a name under which others may map it
        self.alone = False              # nobody else has it, by name, map or descriptor
        self.lost = False               # a sync of it failed
        self.blind = False              # the trace holds none of its bytes
        self.filled = len(content.rstrip(b"\0"))   # behind the last byte that is not 0
        self.reached = 0                # behind the last byte that was written
        self.floor = 0                  # what lies below was told durable before anything of it was known
        if content:
            self._put(0, content)
            self.size = len(content)

    # ---- content

    def read(self, low: int, high: int) -> bytes:
        """What the running program sees; unknown bytes are zeros."""
        out = bytearray()
        for page in range(low // PAGE, -(-high // PAGE)):
            out += self.pages.get(page, _ZEROS)
        begin = low - low // PAGE * PAGE
        return bytes(out[begin:begin + high - low])

    def _put(self, at: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            page, begin = divmod(at + done, PAGE)
            n = min(PAGE - begin, len(data) - done)
            if page not in self.pages:
                self.pages[page] = bytearray(PAGE)
            self.pages[page][begin:begin + n] = data[done:done + n]
            done += n

    def _changed(self, at: int, data: bytes) -> tuple[int, int]:
        """The part of [at, at + len(data)) from the first to the last byte that differs from what is there."""
        before = self.read(at, at + len(data))
        if before == data:
            return at, at
        low = _common(before, data)
        return at + low, at + len(data) - _common(before[::-1], data[::-1])

    def _unchanged_to(self, at: int, data: bytes) -> int:
        """Where the first byte lies that differs from what is there, or of which that is not known."""
        page = at // PAGE
        while page in self.pages and page * PAGE < at + len(data):
            page += 1
        known = max(at, min(page * PAGE, at + len(data)))
        low, high = self._changed(at, data[:known - at])
        return known if low == high else low

    # ---- writing and syncing

    def write(self, at: int, data: bytes | None, length: int, done: int | None, flight: int = -1) -> None:
        """One write. data None: the trace holds no bytes. done None: it is under way, by the ring_write `flight`."""
        low, high = at, at + length
        if data is not None:
            known = self.whole or all(page in self.pages for page in range(at // PAGE, -(-high // PAGE)))
            if known and not self._lost_in(low, high):
                low, high = self._changed(at, data)
            elif not self._lost_in(low, high):
                low = self._unchanged_to(at, data)
            self._put(at, data)
            self.filled = max(self.filled, at + len(data.rstrip(b"\0")))
        else:
            self.blind = True
        if data is None and not self._lost_in(low, high):
            low = max(low, self.reached)        # without bytes: what was written once is taken for unchanged
        self.reached = max(self.reached, high)
        self.size = max(self.size, at + length)
        if not self.whole and low < self.floor:
            low = min(self.floor, high)
        if low >= high:
            return
        if self._lost_in(low, high):
            self._forget(low, high, lambda e: e.lost)
        self.dirty.append(Extent(low, high, done, False, flight))

    def _lost_in(self, low: int, high: int) -> bool:
        return self.lost and any(e.lost and e.low < high and low < e.high for e in self.dirty)

    def landed(self, flight: int, high: int, number: int) -> None:
        """That ring_write is complete up to `high`."""
        for e in [e for e in self.dirty if e.flight == flight]:
            if e.high > high:
                self.dirty.append(Extent(max(high, e.low), e.high, None, False, flight))
                e.high = high
            e.done = number
        self.dirty = [e for e in self.dirty if e.low < e.high]

    def write_failed(self, flight: int) -> None:
        """That ring_write failed: what is there is not known until it is written again, whole."""
        for e in self.dirty:
            if e.flight == flight:
                e.lost = self.lost = True

    def write_refused(self, flight: int, at: int, before: bytes) -> None:
        """That ring_write found no room for what it would have put at `at`: what was there before, `before`, still is."""
        low, high = at, at + len(before)
        if any(e.flight != flight and e.done is None and e.low < high and low < e.high for e in self.dirty):
            self.write_failed(flight)       # another one is under way there: which bytes are whose is not known
            return
        self._put(at, before)
        self.dirty = [e for e in self.dirty if e.flight != flight or e.done is not None]

    def _forget(self, low: int, high: int, which: Callable[[Extent], bool]) -> None:
        kept = []
        for e in self.dirty:
            if not which(e) or e.high <= low or high <= e.low:
                kept.append(e)
                continue
            if e.low < low:
                kept.append(Extent(e.low, low, e.done, e.lost, e.flight))
            if e.high > high:
                kept.append(Extent(high, e.high, e.done, e.lost, e.flight))
        self.dirty = kept

    def synced(self, begin: int, low: int = 0, high: int = 1 << 63, flights: Iterable[int] = ()) -> None:
        """A sync of [low, high) that began as call `begin` succeeded: what was written before is durable; and so are `flights`,
        complete ones that it was linked to."""
        self._forget(low, high, lambda e: (not e.lost and e.done is not None and (e.done < begin or e.flight in flights)))

    def founded(self, floor: int) -> None:
        """What lies below `floor` was durable before anything of this file was known: also where a service of a store that
        opens writes the block anew that it ends in, before the open comes back and says so."""
        self.floor = floor
        self._forget(0, floor, lambda e: True)

    def sync_failed(self, begin: int, low: int = 0, high: int = 1 << 63) -> None:
        for e in self.dirty:
            if e.done is not None and e.done < begin and e.low < high and low < e.high:
                e.lost = self.lost = True

    def cut(self, size: int) -> None:
        """Made `size` bytes long; what is behind becomes zeros."""
        if size < self.size:
            for page in [page for page in self.pages if (page + 1) * PAGE > size]:
                keep = max(0, size - page * PAGE)
                self.pages[page][keep:] = bytes(PAGE - keep)
            self._forget(size, 1 << 63, lambda e: True)
        self.size = size

    def first_dirty(self, low: int, high: int) -> Extent | None:
        """The first bytes of [low, high) that are not durable."""
        found = [e for e in self.dirty if e.low < high and low < e.high]
        return min(found, key=lambda e: e.low) if found else None


def _common(a: bytes, b: bytes) -> int:
    """Length of the common beginning of two strings of one length."""
    return bisect.bisect_left(range(len(a)), True, key=lambda n: a[:n + 1] != b[:n + 1])


@dataclass
class Names:
    """Which path is which file, and which names the device may not have."""

    files: dict[str, File] = field(default_factory=dict)
    inside: dict[str, dict[str, File]] = field(default_factory=dict)    # directory -> path -> file
    new: dict[str, dict[str, int]] = field(default_factory=dict)        # the same -> number of the call that made it
    made: set[str] = field(default_factory=set)             # directories that began empty in this trace

    def create(self, path: str, file: File, number: int) -> None:
        self.add(path, file)
        self.named(path, number)

    def named(self, path: str, number: int) -> None:
        """The name is made, or renamed to, by that call; the device may not have it."""
        self.new.setdefault(os.path.dirname(path), {})[path] = number

    def add(self, path: str, file: File) -> None:
        self.files[path] = file
        self.inside.setdefault(os.path.dirname(path), {})[path] = file
        file.served = file.served or is_store_file(path)

    def remove(self, path: str) -> File | None:
        directory = os.path.dirname(path)
        for names in (self.new, self.inside):
            names.get(directory, {}).pop(path, None)
        return self.files.pop(path, None)

    def move(self, source: str, target: str, number: int) -> None:
        """A directory gets another name."""
        fresh = {path for names in self.new.values() for path in names}
        for path in self.below(source):
            file, moved = self.files[path], target + path[len(source):]
            self.remove(path)
            self.add(moved, file)
            if path in fresh:
                self.named(moved, number)
        self.made = {target + name[len(source):] if name == source or name.startswith(source + "/") else name
                     for name in self.made}
        self.new.get(os.path.dirname(source), {}).pop(source, None)
        self.named(target, number)

    def below(self, directory: str) -> list[str]:
        """The files in a directory and in those below it."""
        return [path for path in self.files if path.startswith(directory + "/")]

    def numbered(self, directory: str) -> dict[int, File]:
        """Files of a log, a queue or an index: offset of the first byte -> file."""
        files = self.inside.get(directory, {})
        return {int(os.path.basename(path)): file for path, file in files.items() if is_store_file(path)}

    def sync_dir(self, directory: str, begin: int) -> None:
        names = self.new.get(directory, {})
        for path in [path for path, number in names.items() if number < begin]:
            del names[path]

    def missing(self, path: str) -> str | None:
        """The first of `path` and its directories whose name is not on the device; None: all are."""
        return next((name for name, directory in _way(path) if name in self.new.get(directory, ())), None)

    def missing_in(self, root: str, path: str) -> str | None:
        """The same of a file of a store. One that a task builds below .spark/ has no name for anybody before its commit."""
        name = self.missing(path)
        return None if name is not None and "/.spark/" in root and len(name) <= len(root) else name


@functools.lru_cache(maxsize=16384)
def _way(path: str) -> list[tuple[str, str]]:
    """`path` and the directories above it, each with the one that holds it."""
    way = []
    while (directory := os.path.dirname(path)) != path:
        way.append((path, directory))
        path = directory
    return way
