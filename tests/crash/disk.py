"""A model of a disk that is fed a recorded trace of I/O calls and knows which directories a power cut may leave.

The rules, kept stricter than any file system we know of, within what POSIX promises:
- A 512-byte sector written since the last sync of its file holds any of its versions since then, independently of all others.
- A sync makes durable what was there when it began. A failed one makes nothing durable, and no later one of that descriptor
  does for what it covered (Linux marks the pages clean): that has to be written again. Every other descriptor that was open at
  the time would be told of lost pages by its next sync (errseq_t); if that one succeeds, none were lost.
- A file's length changes when it is synced; until then it is the old one or any later one, independently of its data.
- A name (made, renamed, removed) is durable after a sync of its directory; until then, of the changes in one directory a prefix
  survives, independently of other directories. A rename is atomic. A file's own sync does not make its name durable.
Ring writes may reach the disk from their submission on; a ring sync covers what was complete when it was submitted and what is
linked before it.
"""
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmq_store.base.io._io import Call

__all__ = ["SECTOR", "Disk", "Image", "read_directory"]

SECTOR = 512
ZERO = bytes(SECTOR)
LINKED = 4 | 8          # IOSQE_IO_LINK, IOSQE_IO_HARDLINK
DSYNC = 0x10000         # RMQ_CALL_DSYNC
OF_A_MAP = -1           # the descriptor of what is stored and synced through a map

# What a state is once it is written out: path relative to the root -> bytes, None for a directory.
Image = dict[str, bytes | None]


@dataclass
class Version:
    """What one write left in one sector."""

    data: bytes
    done: int | None        # number of the call at whose end the write was complete; None: still under way
    lost: tuple[int, int] | None = None     # descriptor and number of a failed sync that covered it


class Node:
    """One file, whatever its name."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = {k: content[k * SECTOR:(k + 1) * SECTOR].ljust(SECTOR, b"\0")
                        for k in range(-(-len(content) // SECTOR))}
        self.pending: dict[int, list[Version]] = {}
        self.durable_size = len(content)
        self.sizes: list[tuple[int, int]] = []      # (number of the call, length) since the last sync
        self.opened: dict[int, int] = {}            # descriptor -> number of the call that opened it last

    @property
    def size(self) -> int:
        return self.sizes[-1][1] if self.sizes else self.durable_size

    def sector(self, k: int) -> bytes:
        return self.pending[k][-1].data if k in self.pending else self.durable.get(k, ZERO)

    def write(self, offset: int, data: bytes, number: int, done: int | None) -> list[Version]:
        made = []
        for k in range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)):
            begin, end = max(offset, k * SECTOR), min(offset + len(data), (k + 1) * SECTOR)
            before = self.sector(k)
            now = before[:begin - k * SECTOR] + data[begin - offset:end - offset] + before[end - k * SECTOR:]
            made.append(Version(now, done))
            self.pending.setdefault(k, []).append(made[-1])
        self.grow(offset + len(data), number)
        return made

    def grow(self, size: int, number: int) -> None:
        if size > self.size:
            self.sizes.append((number, size))

    def truncate(self, size: int, number: int) -> None:
        if size < self.size:
            for k in range(size // SECTOR, -(-self.size // SECTOR)):
                kept = max(0, size - k * SECTOR)
                now = self.sector(k)[:kept].ljust(SECTOR, b"\0")
                if now != self.sector(k):
                    self.pending.setdefault(k, []).append(Version(now, number))
        if size != self.size:
            self.sizes.append((number, size))

    def _told(self, v: Version, fd: int) -> bool:
        return v.lost is not None and (fd == v.lost[0] or self.opened[fd] > v.lost[1])

    def sync(self, fd: int, covered: Callable[[Version], bool], begin: int, low: int = 0, high: int | None = None) -> None:
        for k in [k for k in self.pending if low <= k and (high is None or k < high)]:
            versions = self.pending[k]
            last = next((i for i in range(len(versions) - 1, -1, -1)
                         if covered(versions[i]) and not self._told(versions[i], fd)), None)
            if last is not None:
                self.durable[k] = versions[last].data
                del versions[:last + 1]
                if not versions:
                    del self.pending[k]
        while self.sizes and self.sizes[0][0] < begin:
            self.durable_size = self.sizes.pop(0)[1]

    def lose(self, fd: int, begin: int) -> None:
        for versions in self.pending.values():
            for v in versions:
                if v.done is not None and v.done < begin:
                    v.lost = (fd, begin)

    def render(self, size: int, picks: dict[int, bytes]) -> bytes:
        out = bytearray(size)
        for chosen in (self.durable, picks):
            for k, data in chosen.items():
                if k * SECTOR < size:
                    out[k * SECTOR:(k + 1) * SECTOR] = data[:size - k * SECTOR]
        return bytes(out)


@dataclass
class NameChange:
    """One change of names, in the directory whose sync makes it durable."""

    directory: str
    number: int
    apply: Callable[[dict[str, Node | None]], None]
    durable: bool = False


@dataclass
class Flight:
    """A submitted ring entry."""

    node: Node
    versions: list[Version]     # of a write
    length: int
    after: list["Flight"]       # linked before it, oldest first
    dsync: bool = False
    done: bool = False


@dataclass
class Slot:
    """One thing that a power cut decides; option 0 is what is durable, the last one the newest."""

    options: int
    node: Node | None = None
    sector: int = -1            # -1: the length
    directory: str = ""
    values: list[bytes] = field(default_factory=list)


class Disk:
    """Fed with calls in the order of their trace; at any time asked for the states that a power cut now may leave."""

    def __init__(self, root: str | os.PathLike[str], content: Image | None = None) -> None:
        self.root = os.path.normpath(os.fspath(root))
        self.base: dict[str, Node | None] = {path: None if data is None else Node(data)
                                             for path, data in (content or {}).items()}
        self.names = dict(self.base)        # as the running program sees them
        self.changes: list[NameChange] = []
        self.open: dict[int, Node] = {}
        self.flights: dict[int, Flight] = {}
        self.chain: list[Flight] = []
        self.number = 0                     # calls fed so far; numbers go on over several traces
        self.first = 0                      # number of the first call of the current trace

    # ---- feeding

    def next_trace(self) -> None:
        """What follows is the trace of another program on the same directory: descriptors begin anew."""
        self.open.clear()
        self.flights.clear()
        self.chain.clear()
        self.first = self.number

    def feed(self, call: Call) -> None:
        """The next call of the trace."""
        number = self.number
        self.number += 1
        if call.ignored:
            return
        if call.kind != "mark":
            handler = getattr(self, f"_{call.kind}", None)
            if handler is not None and (call.result >= 0 or call.kind in ("msync", "fdatasync", "fsync", "ring_reap")):
                handler(call, number)

    def absorb(self, image: Image) -> None:
        """Takes over what a killed program stored through maps in the instant of its freeze, when it was no longer asked."""
        assert self.current().keys() == image.keys()
        for path, data in image.items():
            node = self.names[path]
            if node is not None and data is not None:
                assert node.size == len(data), f"{path} has {len(data)} bytes, the trace says {node.size}"
                for k in range(-(-len(data) // SECTOR)):
                    now = data[k * SECTOR:(k + 1) * SECTOR]
                    if now != node.sector(k)[:len(now)]:
                        node.write(k * SECTOR, now, self.number, self.number)
        self.number += 1

    def _relative(self, path: str | None) -> str:
        assert path is not None
        path = os.path.normpath(path)
        if path == self.root:
            return ""
        assert path.startswith(self.root + "/"), f"{path} is outside of {self.root}"
        return path[len(self.root) + 1:]

    def _change(self, path: str, number: int, apply: Callable[[dict[str, Node | None]], None]) -> None:
        apply(self.names)
        self.changes.append(NameChange(os.path.dirname(path), number, apply))

    def _open(self, call: Call, number: int) -> None:
        if call.flags & os.O_DIRECTORY:
            return              # opened to be locked
        path = self._relative(call.path)
        node = self.names.get(path)
        if path not in self.names:
            assert call.flags & os.O_CREAT, f"the trace opens {path}, which the model does not know"
            node = Node()
            made = node
            self._change(path, number, lambda names: names.__setitem__(path, made))
        elif call.flags & os.O_TRUNC and node is not None:
            node.truncate(0, number)
        if node is not None:
            self.open[call.fd] = node
            node.opened[call.fd] = number
            node.opened.setdefault(OF_A_MAP, number)

    def _close(self, call: Call, number: int) -> None:
        self.open.pop(call.fd, None)

    def _node(self, call: Call) -> Node:
        """The file of a call; of one by a map, whose descriptor is closed, by its name."""
        return (self.open[call.fd] if call.fd != OF_A_MAP else self.names.get(self._relative(call.path))) or Node()

    def _pwrite(self, call: Call, number: int) -> None:
        if call.result > 0:
            assert call.data is not None, "a trace without bytes has no states"
            made = {id(v) for v in self._node(call).write(call.offset, call.data, number, number)}
            if call.kind == "pwrite" and call.flags & DSYNC:
                self.open[call.fd].sync(call.fd, lambda v: id(v) in made, number)

    _map_store = _pwrite

    def _fallocate(self, call: Call, number: int) -> None:
        self.open[call.fd].grow(call.offset + call.length, number)

    def _ftruncate(self, call: Call, number: int) -> None:
        self.open[call.fd].truncate(call.length, number)

    def _fsync(self, call: Call, number: int) -> None:
        begin = self.first + call.begin
        node = self.open[call.fd]
        if call.result < 0:
            node.lose(call.fd, begin)
        else:
            node.sync(call.fd, lambda v: v.done is not None and v.done < begin, begin)

    _fdatasync = _fsync

    def _msync(self, call: Call, number: int) -> None:
        begin = self.first + call.begin
        node = self._node(call)
        if call.result < 0:
            node.lose(call.fd, begin)
        else:
            assert call.offset >= 0, "msync of memory that was not mapped through the table"
            node.sync(call.fd, lambda v: v.done is not None and v.done < begin, begin, call.offset // SECTOR,
                      -(-(call.offset + call.length) // SECTOR))

    def _rename(self, call: Call, number: int) -> None:
        source, target = self._relative(call.path), self._relative(call.target)
        node = self.names[source]
        assert node is not None, "directories are never renamed"

        def apply(names: dict[str, Node | None]) -> None:
            if names.get(source) is node:
                del names[source]
            names[target] = node

        self._change(target, number, apply)

    def _unlink(self, call: Call, number: int) -> None:
        path = self._relative(call.path)
        self._change(path, number, lambda names: names.pop(path, None))

    _rmdir = _unlink

    def _mkdir(self, call: Call, number: int) -> None:
        path = self._relative(call.path)
        if path:
            self._change(path, number, lambda names: names.__setitem__(path, None))

    def _sync_dir(self, call: Call, number: int) -> None:
        directory, begin = self._relative(call.path), self.first + call.begin
        for change in self.changes:
            if change.directory == directory and change.number < begin:
                change.durable = True

    # rings

    def _enter(self, call: Call, number: int, flight: Flight) -> None:
        flight.after = list(self.chain)
        self.flights[number] = flight
        self.chain = [*self.chain, flight] if call.flags & LINKED else []

    def _ring_submit(self, call: Call, number: int) -> None:
        self.chain = []

    def _ring_write(self, call: Call, number: int) -> None:
        if call.data is None:
            return
        node = self.open[call.fd]
        self._enter(call, number, Flight(node, node.write(call.offset, call.data, number, None), call.length, [],
                                         bool(call.flags & DSYNC)))

    def _ring_sync(self, call: Call, number: int) -> None:
        self._enter(call, number, Flight(self.open[call.fd], [], 0, []))

    def _ring_reap(self, call: Call, number: int) -> None:
        submitted = self.first + call.begin
        flight = self.flights.get(submitted)
        if flight is None:
            return
        if flight.versions:
            if call.result == flight.length:
                flight.done = True
                for v in flight.versions:
                    v.done = number
                if flight.dsync:
                    mine = {id(v) for v in flight.versions}
                    flight.node.sync(call.fd, lambda v: id(v) in mine, submitted + 1)
        elif call.result < 0:
            flight.node.lose(call.fd, submitted)
        else:
            linked = {id(v) for f in flight.after if f.done for v in f.versions}
            flight.node.sync(call.fd, lambda v: id(v) in linked or (v.done is not None and v.done < submitted), submitted)

    # ---- states

    def current(self) -> Image:
        """The directory as the running program sees it."""
        return self._image(self.names, {}, {})

    def slots(self) -> list[Slot]:
        """What a power cut now decides."""
        out = []
        pending: dict[str, int] = {}
        for change in self.changes:
            if not change.durable:
                pending[change.directory] = pending.get(change.directory, 0) + 1
        out += [Slot(n + 1, directory=d) for d, n in pending.items()]
        for node in self._nodes():
            if node.sizes:
                out.append(Slot(len(node.sizes) + 1, node))
            for k, versions in node.pending.items():
                values = list(dict.fromkeys([node.durable.get(k, ZERO), *(v.data for v in versions)]))
                if len(values) > 1:
                    if versions[-1].data != values[-1]:     # written back to an earlier value
                        values.append(versions[-1].data)
                    out.append(Slot(len(values), node, k, values=values))
        return out

    def _nodes(self) -> list[Node]:
        """Files that have, had or may again have a name."""
        found = {id(n): n for n in [*self.names.values(), *self.base.values()] if n is not None}
        for change in self.changes:
            names: dict[str, Node | None] = {}
            change.apply(names)
            found |= {id(n): n for n in names.values() if n is not None}
        return list(found.values())

    def states(self, limit: int, rnd: random.Random) -> Iterator[Image]:
        """All states if there are at most `limit`; else the two extremes, some that lose or keep one thing, random ones."""
        slots = self.slots()
        total = 1
        for slot in slots:
            total *= slot.options
        if total <= limit:
            for n in range(total):
                picks = []
                for slot in slots:
                    n, pick = divmod(n, slot.options)
                    picks.append(pick)
                yield self._state(slots, picks)
            return
        oldest, newest = [0] * len(slots), [s.options - 1 for s in slots]
        yield self._state(slots, oldest)
        yield self._state(slots, newest)
        for i in range(2, limit):
            picks = list(newest if i % 2 else oldest)
            for k in [rnd.randrange(len(slots))] if i % 3 else range(len(slots)):
                picks[k] = rnd.randrange(slots[k].options)
            yield self._state(slots, picks)

    def _state(self, slots: list[Slot], picks: Iterable[int]) -> Image:
        sectors: dict[int, dict[int, bytes]] = {}
        sizes: dict[int, int] = {}
        kept: dict[str, int] = {}
        for slot, pick in zip(slots, picks, strict=True):
            if slot.node is None:
                kept[slot.directory] = pick
            elif slot.sector >= 0:
                sectors.setdefault(id(slot.node), {})[slot.sector] = slot.values[pick]
            else:
                sizes[id(slot.node)] = slot.node.sizes[pick - 1][1] if pick else slot.node.durable_size
        names = dict(self.base)
        for change in self.changes:
            if not change.durable:
                kept[change.directory] -= 1
                if kept[change.directory] < 0:
                    continue
            change.apply(names)
        return self._image(names, sectors, sizes, durable=True)

    @staticmethod
    def _image(names: dict[str, Node | None], sectors: dict[int, dict[int, bytes]], sizes: dict[int, int],
               durable: bool = False) -> Image:
        out: Image = {}
        for path in sorted(names):      # a directory before what is in it
            parent = os.path.dirname(path)
            if parent and parent not in out:
                continue                # its directory was lost
            node = names[path]
            if node is None:
                out[path] = None
            elif durable:
                out[path] = node.render(sizes.get(id(node), node.durable_size), sectors.get(id(node), {}))
            else:
                out[path] = node.render(node.size, {k: v[-1].data for k, v in node.pending.items()})
        return out


def read_directory(root: str | os.PathLike[str]) -> Image:
    """A directory as an image."""
    out: Image = {}
    for place, directories, files in os.walk(root):
        for name in directories:
            out[os.path.relpath(os.path.join(place, name), root)] = None
        for name in files:
            path = os.path.join(place, name)
            out[os.path.relpath(path, root)] = Path(path).read_bytes()
    return out
