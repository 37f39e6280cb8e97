"""Judges any trace of I/O calls: whoever was told "durable" is covered by a write that completed before a sync of that file
began which succeeded before the telling.

What is told stands in the trace as marks (recorder.py puts them there; a program may put its own):
    ("opened", Store)               a store serves: all of its log below Store.flushed was told durable
    ("flushed", Store.root, P)      `flushed`, what flush() returned, a finished future: all below P is durable
    ("acked", Store.root, begin, end)   that record is durable
    ("closed", Store.root)          close() came back without an error
    ("journal", root, path, entry, promised)    a journal of Spark's commits is about to say this, of which
                                    what is done is durable where that was `promised`
    ("journalled", path)            it has been written, and the commit goes on by it
Rules, by the name that stands in front of a finding:
    durable     bytes told durable are covered, and so are the names of their files and directories
    changed     log bytes told durable are never replaced by others, and no others by anything but zeros: somebody may map them
    rename      what gets its name by a rename was synced first
    offsets     a file of offsets is not written while a message it counts as consumed is not durable
    checkpoint  its times are not ahead of log, queues and index (less `margin_ms`, which recovery goes back)
    vouched     nothing that the checkpoint on the device vouches for is taken out of a queue
    early       files of log, queues and index change only while the abort file is on the device
    abort       a store serves only while its abort file is on the device; it goes when log and queues are
    cut         a file that others may map is never made shorter, unless the kernel has just said that nobody else has it
    beyond      nothing is written behind the end of a file of the log
    journal     a commit is pending only once log, staging files and stores it speaks of are on the device, names too; done only
                once its records, or the new names of its stores, are; and what was written in it stays
    control     a store that is closed leaves no small file (offsets, topics, checkpoint ...) that the device may not have
A write that found no room has written nothing. A sync covers what was complete when it began; of a ring, also what is linked
before it. A failed one covers nothing, nor does a later one cover what it did. Writes with RWF_DSYNC are durable when they are
complete. msync covers its range.
"""
import errno
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmq_store.base.io._io import Call
from tests.trace.contents import Queues, Records, offset_table
from tests.trace.files import File, Names, is_store_file
from tests.trace.journals import SmallFiles

__all__ = ["RULES", "Checker", "Store"]

LINKED = 4 | 8              # IOSQE_IO_LINK, IOSQE_IO_HARDLINK
DSYNC = 0x10000             # RMQ_CALL_DSYNC
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)      # of a write that has written nothing
MARGIN_MS = 3000            # recovery begins so much before the times of the checkpoint
RULES = frozenset({"durable", "changed", "rename", "offsets", "checkpoint", "vouched", "early", "abort", "cut", "beyond",
                   "journal", "control"})
FINDINGS_MAX = 20
PROPERTIES_LENGTH = 2       # a record without properties ends in two zeros


@dataclass(frozen=True)
class Store:
    """An open store, as the marks name it. Directories are absolute."""

    root: str
    log: str
    queues: str
    index: str
    segment: int
    flushed: int = 0
    readonly: bool = False


@dataclass
class _Flight:
    file: File
    write: bool
    length: int
    offset: int
    durable: bool
    after: list[int]            # flights linked before it
    before: bytes | None = None     # what was there
    whole: bool = False


class Checker(SmallFiles):
    """Fed with the calls of one or several traces; `findings` says what is wrong."""

    def __init__(self, rules: Iterable[str] = RULES, margin_ms: int = MARGIN_MS) -> None:
        self.rules = frozenset(rules)
        self.margin_ms = margin_ms
        self.findings: list[str] = []
        self.told = 0                               # how many tellings were judged
        self.names = Names()
        self.open: dict[int, File] = {}
        self.flights: dict[int, _Flight] = {}
        self.chain: list[int] = []
        self.stores: dict[str, Store] = {}
        self.known: dict[str, Store] = {}           # closed ones too
        self.flushed: dict[str, int] = {}           # root -> what was told durable
        self.records: dict[str, Records] = {}       # log directory -> what lies in it
        self.number = 0
        self.first = 0
        self.stopped = False

    def know(self, root: str, image: dict[str, bytes | None]) -> None:
        """What the directory held, durably, before the trace (tests.crash.disk.read_directory)."""
        self.names.made.add(root)
        for path, data in image.items():
            place = os.path.join(root, path)
            if data is None:
                self.names.made.add(place)
            else:
                self.names.add(place, File(True, data))

    def next_trace(self) -> None:
        """What follows is the trace of another process: descriptors begin anew, bytes and names are what they were."""
        self.open.clear()
        self.flights.clear()
        self.chain.clear()
        self.stores.clear()
        self.known.clear()
        self.flushed.clear()
        self.first = self.number
        self.stopped = False

    def feed(self, calls: Iterable[Call]) -> None:
        for call in calls:
            number = self.number
            self.number += 1
            if call.ignored:
                self.stopped = True                 # a freeze: the process is dead, whatever it says now
            if self.stopped or len(self.findings) >= FINDINGS_MAX:
                continue
            if call.kind == "mark":
                self._mark(call.note, number)
            elif call.result >= 0 or call.kind in ("msync", "fdatasync", "fsync", "ring_reap"):
                handler = getattr(self, f"_{call.kind}", None)
                if handler is not None:
                    handler(call, number)

    def _found(self, rule: str, text: str, number: int) -> None:
        if rule in self.rules:
            self.findings.append(f"{rule}: {text} (call {number - self.first})")

    # ---- files

    def _open(self, call: Call, number: int) -> None:
        assert call.path is not None
        if call.flags & os.O_DIRECTORY == os.O_DIRECTORY:
            return
        path = os.path.normpath(call.path)
        file = self.names.files.get(path)
        if file is None:
            new = bool(call.flags & os.O_CREAT) and (os.path.dirname(path) in self.names.made or bool(call.flags & os.O_TRUNC))
            file = File(new)
            if new:
                self._touched(path, number)
                self.names.create(path, file, number)
            else:
                self.names.add(path, file)
        elif call.flags & os.O_TRUNC:
            self._shrink(path, file, 0, number)
        self.open[call.fd] = file

    def _close(self, call: Call, number: int) -> None:
        self.open.pop(call.fd, None)

    def _mkdir(self, call: Call, number: int) -> None:
        assert call.path is not None
        path = os.path.normpath(call.path)
        self.names.made.add(path)
        self.names.named(path, number)

    def _sync_dir(self, call: Call, number: int) -> None:
        assert call.path is not None
        self.names.sync_dir(os.path.normpath(call.path), self.first + call.begin)

    def _rename(self, call: Call, number: int) -> None:
        assert call.path is not None and call.target is not None
        source, target = os.path.normpath(call.path), os.path.normpath(call.target)
        if source in self.names.made:
            self.names.move(source, target, number)
            return
        file = self.names.remove(source) or File(False)
        extent = file.first_dirty(0, 1 << 63)
        if extent is not None and not target.endswith("/.stats.json"):      # that one is for who looks now
            self._found("rename", f"{target} gets its name before its bytes {extent.low} to {extent.high} are synced", number)
        self._touched(target, number)
        self.names.create(target, file, number)
        if target.endswith(("/consumerOffset.json", "/delayOffset.json")):
            self._offsets_written(target, file, number)

    def _unlink(self, call: Call, number: int) -> None:
        assert call.path is not None
        path = os.path.normpath(call.path)
        file = self.names.remove(path)
        if os.path.basename(path) == "abort":
            self._left_in_order(os.path.dirname(path), number)
        elif is_store_file(path) and file is not None:     # one that the trace does not know may be empty
            self._touched(path, number)
            self._entries_gone(path, file, 0, None, number)

    def _fallocate(self, call: Call, number: int) -> None:
        file = self.open.get(call.fd)
        if file is not None:
            file.size = max(file.size, call.offset + call.length)

    def _alone(self, call: Call, number: int) -> None:
        file = self.open.get(call.fd)
        if file is not None:
            file.alone = call.result == 1

    def _ftruncate(self, call: Call, number: int) -> None:
        file = self.open.get(call.fd)
        if file is not None and file.alone:
            file.alone = False              # it has no name and nobody else: asked for each piece
            file.cut(call.length)
        elif file is not None:
            self._shrink(call.path or "", file, call.length, number)

    def _shrink(self, path: str, file: File, size: int, number: int) -> None:
        if file.served and (size < file.size or not file.whole):
            self._found("cut", f"{path} is made {size} bytes long, others may map it", number)
            self._touched(path, number)
            self._entries_gone(path, file, size, None, number)
        file.cut(size)

    # ---- writes

    def _of(self, call: Call) -> File | None:
        """The file of a call; of one by a map, whose file may be closed, by its name."""
        if call.fd >= 0 or call.path is None:
            return self.open.get(call.fd)
        return self.names.files.get(os.path.normpath(call.path))

    def _pwrite(self, call: Call, number: int) -> None:
        file = self._of(call)
        if file is None or call.result == 0:
            return
        path = call.path or ""
        self._before_write(path, file, call, number)
        if call.kind == "pwrite" and call.flags & DSYNC:
            file.write(call.offset, call.data, call.result, number, number)
            file.synced(self.first + call.begin, call.offset, call.offset + call.result, flights=(number,))
        else:
            file.write(call.offset, call.data, call.result, number)
        if path.endswith("/checkpoint") and call.data is not None and len(call.data) >= 40:
            self._checkpoint_written(path, call.data, number)

    _map_store = _pwrite

    def _before_write(self, path: str, file: File, call: Call, number: int) -> None:
        if not is_store_file(path):
            return
        self._touched(path, number)
        if file.whole and "/commitlog/" in path and 0 < file.size < call.offset + call.length:
            self._found("beyond", f"{path} of {file.size} bytes is written up to {call.offset + call.length}", number)
        if call.data is not None:
            self._entries_gone(path, file, call.offset, call.data, number)
            self._log_changed(path, file, call, number)

    def _ring_submit(self, call: Call, number: int) -> None:
        self.chain = []

    def _ring_write(self, call: Call, number: int) -> None:
        file = self.open.get(call.fd)
        if file is None:
            return
        self._before_write(call.path or "", file, call, number)
        before = file.read(call.offset, call.offset + call.length) if file.whole and call.data is not None else None
        file.write(call.offset, call.data, call.length, None, number)
        self._enter(number, call, _Flight(file, True, call.length, call.offset, bool(call.flags & DSYNC), [], before))

    def _ring_sync(self, call: Call, number: int) -> None:
        file = self.open.get(call.fd)
        if file is not None:
            self._enter(number, call, _Flight(file, False, 0, 0, False, []))

    def _enter(self, number: int, call: Call, flight: _Flight) -> None:
        flight.after = list(self.chain)
        self.flights[number] = flight
        self.chain = [*self.chain, number] if call.flags & LINKED else []

    def _ring_reap(self, call: Call, number: int) -> None:
        submitted = self.first + call.begin
        flight = self.flights.get(submitted)
        if flight is None:
            return
        if flight.write:
            if call.result > 0:
                flight.whole = call.result == flight.length
                flight.file.landed(submitted, flight.offset + call.result, number)
                if not flight.whole and flight.before is not None:      # its rest goes again, or is refused
                    flight.file.write_refused(submitted, flight.offset + call.result, flight.before[call.result:])
                if flight.durable:      # its bytes, and so what was written there before and is not told apart from them
                    flight.file.synced(submitted, flight.offset, flight.offset + call.result, flights=(submitted,))
            elif flight.before is not None and -call.result in NO_ROOM:
                flight.file.write_refused(submitted, flight.offset, flight.before)
            else:
                flight.file.write_failed(submitted)
        elif call.result >= 0:
            flight.file.synced(submitted, flights=[n for n in flight.after if self.flights[n].whole])
        else:
            flight.file.sync_failed(submitted)

    # ---- syncs

    def _fsync(self, call: Call, number: int) -> None:
        file, begin = self._of(call), self.first + call.begin
        if file is None:
            return
        low, high = 0, 1 << 63
        if call.kind == "msync" and call.offset >= 0:
            low, high = call.offset, call.offset + call.length
        if call.result < 0:
            file.sync_failed(begin, low, high)
        else:
            file.synced(begin, low, high)

    _fdatasync = _fsync
    _msync = _fsync

    # ---- what was told

    def _mark(self, note: Any, number: int) -> None:
        if not isinstance(note, tuple) or not note:
            return
        if note[0] == "opened" and isinstance(note[1], Store):
            self._opened(note[1], number)
        elif note[0] == "flushed" and note[1] in self.stores:
            self._durable(self.stores[note[1]], 0, note[2], number)
            self.flushed[note[1]] = max(self.flushed[note[1]], note[2])
        elif note[0] == "acked" and note[1] in self.known:
            self._durable(self.known[note[1]], note[2], note[3], number)
        elif note[0] == "closed":
            self.stores.pop(note[1], None)
            self.flushed.pop(note[1], None)
            self._control_files(note[1], number)
        elif note[0] == "journal":
            self._journal(*note[1:], number)
        elif note[0] == "journalled":
            self._there("journal", note[1], "a commit goes by it", number)

    def _opened(self, store: Store, number: int) -> None:
        if store.readonly:
            return
        self.stores[store.root] = self.known[store.root] = store
        self.flushed[store.root] = store.flushed
        for start, file in self.names.numbered(store.log).items():
            if not file.whole:
                file.founded(max(0, store.flushed - start))
        self._durable(store, 0, store.flushed, number)
        if missing := self._missing_abort(store.root):
            self._found("abort", f"{store.root} serves, {missing}", number)

    def _missing_abort(self, root: str) -> str | None:
        path = f"{root}/abort"
        if path not in self.names.files:
            return "it has no abort file" if root in self.names.made else None
        missing = self.names.missing_in(root, path)
        return f"the name {missing} is not on the device" if missing else None

    def _durable(self, store: Store, begin: int, end: int, number: int) -> None:
        self.told += 1
        for start, file in self.names.numbered(store.log).items():
            low, high = max(begin - start, 0), min(end - start, store.segment)
            if low >= high:
                continue
            if missing := self.names.missing_in(store.root, os.path.join(store.log, f"{start:020d}")):
                self._found("durable", f"log {begin} to {end} was told durable, {missing} has no name on the device", number)
            if file.whole and not file.blind and high < store.segment and high - PROPERTIES_LENGTH > file.filled:
                self._found("durable", f"log {begin} to {end} was told durable, from {start + file.filled} on it was never "
                            "written", number)
            extent = file.first_dirty(low, high)
            if extent is not None:
                why = ("its write is under way" if extent.done is None else "a sync of it failed" if extent.lost
                       else f"no sync began after its write ended (call {extent.done - self.first})")
                self._found("durable", f"log {begin} to {end} was told durable, {start + extent.low} to "
                            f"{start + extent.high} is not: {why}", number)

    def _log_changed(self, path: str, file: File, call: Call, number: int) -> None:
        data = call.data
        if not file.whole or data is None or "/commitlog/" not in path:
            return
        before = file.read(call.offset, call.offset + len(data))
        if before == data or not any(before):
            return
        start = int(os.path.basename(path))
        store = next((s for s in self.stores.values() if os.path.dirname(path) == s.log), None)
        told = max(0, self.flushed[store.root] - start - call.offset) if store is not None else 0
        if before[:told] != data[:told]:
            end = start + call.offset + min(told, len(data))
            self._found("changed", f"log {start + call.offset} to {end} was told durable and is replaced", number)
        elif any(was and now and was != now for was, now in zip(before, data, strict=True)):
            self._found("changed", f"{path} gets other bytes at {call.offset}, others may map it", number)

    # ---- abort, checkpoint, offsets

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def _root_of(path: str) -> str | None:
        """The root of the store that a file of log, queue or index belongs to, where they lie as usual."""
        for name in ("commitlog", "consumequeue", "index"):
            root, found, _ = path.partition(f"/{name}/")
            if found:
                return None if "/.salvage/" in root + "/" else root        # a copy is no store's file
        return None

    def _touched(self, path: str, number: int) -> None:
        root = self._root_of(path) if is_store_file(path) else None
        if root is None or root not in self.names.made:
            return
        if missing := self._missing_abort(root):
            self._found("early", f"{path} changes, {missing}", number)

    def _left_in_order(self, root: str, number: int) -> None:
        for path, file in self.names.files.items():
            if not is_store_file(path) or not path.startswith(root + "/") or "/index/" in path:
                continue
            extent = file.first_dirty(0, 1 << 63)
            if extent is not None:
                self._found("abort", f"it goes while {path} is not durable from {extent.low} to {extent.high}", number)

    def _records_of(self, log: str) -> Records:
        known = self.records.setdefault(log, Records())
        known.look(self.names.numbered(log))
        return known

    def _layout(self, root: str) -> tuple[str, str]:
        store = self.stores.get(root)
        return (store.log, store.queues) if store else (os.path.join(root, "commitlog"), os.path.join(root, "consumequeue"))

    def _checkpoint_written(self, path: str, data: bytes, number: int) -> None:
        root = os.path.dirname(path)
        log, queues = self._layout(root)
        physical, logics = (int.from_bytes(data[i:i + 8], "big", signed=True) - self.margin_ms for i in (0, 8))
        records = self._records_of(log)
        for record in records.until(max(physical, logics)):
            file = records.files[record.start]
            extent = file.first_dirty(record.offset - record.start, record.offset - record.start + record.size)
            if record.stored < physical and extent is not None:
                self._found("checkpoint", f"its log time covers the record at {record.offset}, which is not durable", number)
                return
            if record.stored < logics and record.queued and not Queues(queues, self.names).durable(record):
                self._found("checkpoint", f"its queue time covers {record.topic} {record.queue_id} {record.queue_offset}, "
                            "whose entry is not durable", number)
                return

    def _entries_gone(self, path: str, file: File, at: int, data: bytes | None, number: int) -> None:
        """Entries [at, at + len(data)), or all from `at` on, of a queue's file are replaced."""
        root = self._root_of(path)
        if "vouched" not in self.rules or root is None or not path.startswith(f"{root}/consumequeue/"):
            return
        checkpoint = self.names.files.get(f"{root}/checkpoint")
        if checkpoint is None or not file.whole or file.blind:
            return
        covered = min(int.from_bytes(checkpoint.read(i, i + 8), "big", signed=True) for i in (0, 8)) - self.margin_ms
        if covered <= 0:
            return
        records = self._records_of(self._layout(root)[0])
        low = -(-at // 20) * 20
        high = file.size if data is None else min(at + len(data), file.size)
        for place in range(low, high - 19, 20):
            before = file.read(place, place + 20)
            after = None if data is None else data[place - at:place - at + 20]
            record = records.at(int.from_bytes(before[:8], "big"))
            if (before != after and record is not None and record.queued and record.stored < covered
                    and record.leads(path, place)):
                self._found("vouched", f"the entry of {record.topic} {record.queue_id} {record.queue_offset} is taken out "
                            "while the checkpoint covers it", number)
                return

    def _offsets_written(self, path: str, file: File, number: int) -> None:
        root = os.path.dirname(os.path.dirname(path))
        if file.blind:
            return
        table = offset_table(os.path.basename(path), file.read(0, file.size))
        records = self._records_of(self._layout(root)[0])
        for record in records.all():
            if record.queue_offset >= table.get((record.topic, record.queue_id), 0) or not record.queued:
                continue
            found = records.files[record.start].first_dirty(record.offset - record.start,
                                                            record.offset - record.start + record.size)
            if found is not None:
                self._found("offsets", f"{os.path.basename(path)} counts {record.topic} {record.queue_id} "
                            f"{record.queue_offset} as consumed, its record at {record.offset} is not durable", number)
                return
