"""Whole stores held against themselves: log, queues, index, manifests, checkpoint. Reads only, also what does not load.

RocketMQ has no such tool. One thread. The store may be open elsewhere: records on their way are not a fault.
"""
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.base.io.wants import limits_named
from rmq_store.base.machine.limits import descriptors_of_queues
from rmq_store.codec._layout import CHECKPOINT_SIZE
from rmq_store.codec.layout import CHECKPOINT, get64
from rmq_store.config.recorded import LIGHT
from rmq_store.config.values import index_file_size
from rmq_store.errors import CorruptionError
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.log.recovery.places import Places, has_light
from rmq_store.log.recovery.recover import OFFSET_MAX
from rmq_store.log.recovery.versions import code_text, other_version
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import batch_dirs, load_batch_queues, load_queues
from rmq_store.queues.index.loader import has_nothing
from rmq_store.services.cleaning.removing import removed_queues
from rmq_store.services.consumer.tables import batch_topics
from rmq_store.services.integrity import manifest
from rmq_store.services.integrity._check import Checker
from rmq_store.services.integrity.again import confirmed
from rmq_store.services.integrity.choosing import chosen_options, told_since
from rmq_store.services.integrity.compacted import compaction_findings
from rmq_store.services.integrity.configured import config_findings
from rmq_store.services.integrity.findings import SEVERITY, Finding, merged
from rmq_store.services.integrity.rows import files_in, missing_directory, missing_log, row_findings, twice_findings
from rmq_store.services.integrity.salvaged import oldest_findings, salvage_findings
from rmq_store.services.integrity.sealing import pacer
from rmq_store.services.integrity.standing_in import StandIns
from rmq_store.services.integrity.timing import timer_findings

__all__ = ["Verification", "verify"]

PIECE = 16 << 20                # of the log, looked at between two reports of progress
Progress = Callable[[str, int, int], None]      # (what, done, of how many)
Note = tuple[str, int, int, int, int, str | None, int]      # of the checker: kind, offset, three numbers, topic, queue id

_INDEX_NAME = re.compile(r"[0-9]{17}").fullmatch


def verify(path: Any, *, manifests: bool = True, files_only: bool = False, bytes_per_s: int | None = None,
           progress: Progress | None = None, _io: IoTable | None = None, **options: Any) -> Iterator[Finding]:
    """Checks every meaningful byte of the store in directory `path`, and yields the findings.

    Log: every record's place, parts, CRC-32 of the body and `__CRC32#`. Queues: each record has its entry (offset, size, tags
    code), each entry its record. Index: each key has its entry, each entry its record, and slots and chains reach all entries.
    Manifests, if there are any: every block; manifests=False skips them. files_only=True: check only that the files of the log
    and the queues exist, without a gap and with the right size (RocketMQ: checkSelf). bytes_per_s: limit of reading; None: no
    limit.
    options: as of MessageStore.open; file sizes are told by the files. progress(what, done, total) is called now and then.
    Writes nothing, and raises nothing for what is damaged. Findings: integrity.findings.SEVERITY. Raises ConfigError, OSError.
    """
    if files_only:
        root, chosen = chosen_options(path, options)
        yield from row_findings(Places(root, chosen), chosen)
        return
    with limits_named(str(path)), Verification(path, options, _io) as v:
        yield from v.run(manifests, pacer(bytes_per_s), progress or (lambda what, done, total: None))


class Verification:
    """One store opened for verification. Use as a context. stands: what it looks at in place of lost files of the log."""

    def __init__(self, path: Any, options: dict[str, Any], io: IoTable | None = None, stands: StandIns | None = None) -> None:
        self.root, self.options = chosen_options(path, options)
        self.asked, self.stands = options, stands
        self.places = Places(self.root, self.options)
        self.io = io if io is not None else IoTable()
        self.files = ControlFiles(self.io)
        self.checker: Checker | None = None
        self.queues: QueueTableOwner | None = None
        self.starts, self.index_names = list[int](), list[int]()
        self.log_end: int | None = None                 # where it is known without a walk over all of the log
        self.clean = not os.path.exists(self.places.abort)
        self.live = False               # somebody has it open for writing
        self.removed: dict[tuple[str, int], int] = {}   # queue -> where the log ended when it was removed
        # Each record says its place in them, whether or not the writer fills them now.
        self.light = has_light(self.places.consumequeue) or all(self.options[name] for name in LIGHT)
        self.holes: list[tuple[int, int]] = []          # unreadable stretches of the log, once it was walked
        self.bad_records: list[tuple[int, int]] = []    # (offset, size) of records with a wrong checksum
        # Queue entries that lead to no record: log offset, size, topic, queue id, queue offset.
        self.astray: list[tuple[int, int, str, int, int]] = []
        self.unknown: tuple[int, int] | None = None     # where records of another version begin, and their magic code
        self.checkpoint: bytes | OSError = b""

    def __enter__(self) -> "Verification":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.checker is not None:
            self.checker.close()

    def again(self) -> "Verification":
        """The same store, with everything opened anew."""
        anew = Verification(self.root, self.asked, self.io, self.stands)
        anew.log_end = self.end
        return anew

    def run(self, manifests: bool, pace: manifest.Pace, progress: Progress) -> Iterator[Finding]:
        """Every finding, in the order log files, log, queues, index, manifests."""
        yield from confirmed(self, self.load())
        yield from merged(confirmed(self, self._walk_log(pace, progress)))
        yield from merged(confirmed(self, self._walk_queues(progress)))
        yield from merged(confirmed(self, self._walk_index(progress)))
        yield from oldest_findings(self.files, self.places, self.options)
        yield from salvage_findings(self.root, self.options.segment_size_bytes, self.log_bytes)
        yield from compaction_findings(self.files, self.root, self.options)
        yield from timer_findings(self.files, self.root)
        yield from self.checkpoint_findings()
        yield from config_findings(self.files, self.root, self.options)
        if manifests:
            yield from confirmed(self, self._manifests(pace, progress))

    def load(self) -> Iterator[Finding]:
        """Opens what there is; yields what is wrong with files as such."""
        while True:
            found = list(self._load())
            if not self._told_since():
                yield from found
                return

    def _told_since(self) -> bool:
        options = told_since(self.root, self.asked, self.options)
        self.options = options or self.options
        return options is not None

    def _load(self) -> Iterator[Finding]:
        self.__exit__()
        self.index_names = []
        self._read_checkpoint()         # before the log: it never is ahead of that
        if not self.clean:
            self.live = in_use(self.root)
            moves = "the store is open for writing: its end moves during the check"
            yield self._finding("not_closed", self.places.abort, detail=moves if self.live else "the store was not closed "
                                "cleanly: the next open recovers, and adds the missing entries of queues and index")
        try:
            self.removed = removed_queues(self.files, self.root)
        except CorruptionError as error:
            yield self._finding("config_file", str(error.path), expected=error.expected, found=error.found,
                                detail=f"{error.found}: verify counts removed queues as lost")
        yield from self._open_log()
        yield from self._load_queues()
        if not (self.live or self.options.commitlog_loss_accepted):
            yield from missing_log(self.places, self.files, self.clean, self.options.segment_size_bytes, self.queues)
        yield from self._load_index() if self.options.index_enabled else ()

    def _finding(self, kind: str, path: str, **more: Any) -> Finding:
        return Finding(kind, SEVERITY[kind], path, **more)

    # ---- what there is

    def _open_log(self) -> Iterator[Finding]:
        """Lists the log's files and opens them, again where some of them are gone before they are open."""
        while True:
            findings = list(self.log_files())
            first = [self.stands.directory] if self.stands is not None and self.stands.directory is not None else []
            self.checker = Checker(self.io, [*first, *self.places.commitlogs], self.options.segment_size_bytes,
                                   list(self.options.delay_levels), self.options.record_crc_required, self.light)
            try:
                for start in self.starts:
                    self.checker.add_file(start)
            except FileNotFoundError:
                self.checker.close()
                continue
            yield from findings
            return

    def log_files(self) -> list[Finding]:
        """Lists the log's files: what is wrong with them. A listing is of no one moment: files that another process makes and
        deletes meanwhile may look like a gap, but not twice like the same one."""
        said: list[Finding] = []
        while True:
            found = list(self._log_files())
            if found and self._told_since():
                continue
            gaps = [f for f in found if f.kind == "log_gap"]
            if gaps in ([], said):
                return found
            said = gaps

    def _log_files(self) -> Iterator[Finding]:
        size = self.options.segment_size_bytes
        self.starts, stands = [], self.stands.of if self.stands is not None else {}
        listed: list[tuple[str, list[int]]] = []
        for directory in self.places.commitlogs:
            if self.places.several and not os.path.isdir(directory):
                yield missing_directory(directory)
                continue
            listed.append((directory, []))
            odd = files_in(directory, size, listed[-1][1])
            yield from (f for f in odd if f.kind != "log_file" or int(os.path.basename(f.path)) not in stands)
        yield from twice_findings(listed)
        found = sorted({*stands, *(start for _, starts in listed for start in starts)})
        for start in found:
            if self.starts and start != self.starts[-1] + size:
                yield self._finding("log_gap", self.places.commitlog, offset=self.starts[-1] + size,
                                    size=start - self.starts[-1] - size,
                                    detail="files are missing: verify checks only the files after them; if nothing has them, "
                                    "`rmqstore repair` makes the later files readable again")
                self.starts = []
            self.starts.append(start)

    def _load_queues(self) -> Iterator[Finding]:
        o, p = self.options, self.places
        bad: list[CorruptionError] = []
        self.queues = QueueTableOwner(
            p.consumequeue, ext_dir=p.consumequeue_ext, tmp_dir="", fd_max=descriptors_of_queues(o.consumequeue_fd_max),
            file_size=o.consumequeue_file_size_bytes, readonly=True, io=self.io,
            ext_file_size=o.consumequeue_ext_file_size_bytes if o.consumequeue_ext_enabled else 0)
        try:
            topics = batch_topics(self.files, self.root)
            names = (batch_dirs(p.batchconsumequeue) if topics is None
                     else [topic.encode("utf-8", "surrogateescape") for topic in topics])
            load_batch_queues(self.queues, p.batchconsumequeue, o.batch_consumequeue_file_size_bytes, names, bad.append)
            load_queues(self.queues, bad.append)
        except OSError as error:
            yield self._finding("queue_file", p.consumequeue, detail=str(error))
        for damage in bad:
            yield self._finding("queue_file", str(damage.path), expected=damage.expected, found=damage.found,
                                detail=f"expected {damage.expected}, found {damage.found}: the store does not load")
        self.queues.recover(True, OFFSET_MAX)         # holes further down are looked at entry by entry
        assert self.checker is not None
        self.checker.use_queues(self.queues)

    def _load_index(self) -> Iterator[Finding]:
        o, directory = self.options, self.places.index
        size = index_file_size(o.index_slots, o.index_entries_max)
        names = sorted(e.name for e in os.scandir(directory)) if os.path.isdir(directory) else []
        for name in names:
            path = os.path.join(directory, name)
            try:
                about = os.lstat(path)
                if not (name.isascii() and _INDEX_NAME(name)) or not stat.S_ISREG(about.st_mode):
                    yield self._finding("foreign_file", path, detail="not an index file: move it away")
                elif about.st_size != size and has_nothing(path, self.live):
                    yield self._finding("foreign_file", path, detail="an index file of another size, without an entry")
                elif about.st_size != size:
                    yield self._finding("index_file", path, expected=size, found=about.st_size,
                                        detail=f"the file has {about.st_size} bytes, but {o.index_slots} slots and "
                                        f"{o.index_entries_max} entries need {size}: the store does not load")
                else:
                    assert self.checker is not None
                    self.checker.add_index(directory, int(name), o.index_slots, o.index_entries_max)
                    self.index_names.append(int(name))
            except FileNotFoundError:
                continue            # deleted since it was listed

    # ---- walking

    def _walk_log(self, pace: manifest.Pace, progress: Progress) -> Iterator[Finding]:
        c = self.checker
        assert c is not None
        at = c.start()
        total = (self.starts[-1] + self.options.segment_size_bytes - at) if self.starts else 0
        begin = at
        while at >= 0:
            before = at
            at, notes = c.log(at, PIECE)
            yield from self._noted(notes)
            pace((at if at >= 0 else c.end) - before)
            progress("log", (at if at >= 0 else c.end) - begin, total)
        if c.unindexed and self.options.index_enabled:
            yield self.unindexed(c.unindexed, c.first_unindexed)

    def _walk_queues(self, progress: Progress) -> Iterator[Finding]:
        assert self.queues is not None
        for n, name in enumerate(names := self.queues.queues()):
            yield from self.queue_findings(*name)
            progress("queues", n + 1, len(names))

    def _walk_index(self, progress: Progress) -> Iterator[Finding]:
        for i in range(len(self.index_names)):
            yield from self.index_findings(i)
            progress("index", i + 1, len(self.index_names))

    def record_findings(self, offset: int) -> list[Finding]:
        """What is wrong with the record at this offset, or with what stands in its place."""
        c = self.checker
        assert c is not None
        c.seek_index(offset)
        return list(self._noted(c.log(offset, 1)[1]))

    def derived_findings(self, begin: int, end: int) -> Iterator[Finding]:
        """Which records of the log in [begin, end) have no entries of their own; a record lies at `begin`."""
        c = self.checker
        assert c is not None
        c.seek_index(begin)
        while 0 <= begin < end:
            begin, notes = c.log(begin, min(PIECE, end - begin))
            yield from self._noted(n for n in notes if n[0].startswith(("queue_", "index_")))

    def tail_findings(self, end: int) -> Iterator[Finding]:
        """What stands behind the end of the data, which is `end`."""
        assert self.checker is not None
        yield from (self._log_note(note) for note in self.checker.log(end, 1)[1] if note[0] == "log_tail")

    def unindexed(self, count: int, first: int) -> Finding:
        """So many records with keys, the first of them at offset `first`, stand behind the index's last entry."""
        if not self.index_names:
            return self._finding("no_index", self.places.index, count=count, offset=first,
                                 detail="records have keys, but there is no index file")
        return self._finding("index_behind" if self.clean else "not_dispatched", self.places.index, count=count, offset=first,
                             detail="the index ends before the log does")

    def _noted(self, notes: Iterable[Note]) -> Iterator[Finding]:
        for note in notes:
            kind, offset, *_, topic, queue_id = note
            # What lies below the end of the log at which its queue was removed has no entries, and its places may be taken.
            if kind in ("queue_missing", "queue_other", "queue_tags") and offset < self.removed.get((topic or "", queue_id), 0):
                continue
            yield self._log_note(note)

    def _log_note(self, note: Note) -> Finding:
        kind, offset, a, b, c, topic, queue_id = note
        path = self._log_path(offset)
        if kind in ("log_hole", "log_tail") and (magic := self._other_version(offset)) is not None:
            self.unknown = self.unknown or (offset, magic)
            return self._finding("log_version", path, offset=offset, size=a - offset, found=magic,
                                 detail=f"records of magic code {code_text(magic)}, a version that this library does not know: "
                                 "an open for writing and repair refuse this store; their queue entries are not checked")
        if kind == "log_hole":
            self.holes.append((offset, a))
            return self._finding(kind, path, offset=offset, size=a - offset,
                                 detail=f"no record can be read up to {a}, good ones follow; recovery would cut the log here")
        if kind == "log_tail":
            severity = "log_tail" if self.clean else "not_closed"
            return self._finding(severity, path, offset=offset, size=a - offset,
                                 detail="there are bytes after the end of the data: a writer is writing them" if self.live else
                                 "there are bytes after the end of the data that are not records; the next open cuts them")
        if kind == "record_header":
            self.bad_records.append((offset, a))
            return self._finding(kind, path, offset=offset, size=a, topic=topic, queue_id=queue_id, queue_offset=b,
                                 detail="the record names an impossible queue: no queue and no index gets an entry for it")
        if kind in ("body_crc", "record_crc"):
            self.bad_records.append((offset, a))
            return self._finding(kind, path, offset=offset, size=a, topic=topic, queue_id=queue_id, queue_offset=b,
                                 detail="the checksum of the record is wrong; recovery would cut the log here")
        if kind == "index_missing":
            return self._finding(kind, self.places.index, offset=offset, expected=a,
                                 detail=f"the record's key with hash {a} is not in the index")
        queue = self._queue_dir(topic or "", queue_id)
        common = {"offset": offset, "topic": topic, "queue_id": queue_id, "queue_offset": a}
        if kind == "queue_missing":
            late = not self.clean and self.queues is not None and offset >= self._queued_end()
            return self._finding("not_dispatched" if late else kind, queue, **common, detail="the record has no queue entry")
        if kind == "queue_other":
            return self._finding(kind, queue, **common, expected=offset, found=b,
                                 detail=f"the queue entry of the record points to offset {b}, {c} bytes")
        return self._finding(kind, queue, **common, expected=c, found=b,
                             detail=f"the tags code of the entry is {b}, the tags code of the record is {c}")

    def _other_version(self, offset: int) -> int | None:
        end = int(os.path.basename(self._log_path(offset))) + self.options.segment_size_bytes
        return other_version(lambda begin, stop: self.log_bytes(begin, stop - begin), offset, end)

    def _beyond(self, offset: int) -> bool:
        """Whether nobody can say what should lie there: records of another version do."""
        return self.unknown is not None and offset >= self.unknown[0]

    def _queue_dir(self, topic: str, queue_id: int) -> str:
        batched = self.queues is not None and self.queues.is_batched(topic.encode("utf-8", "surrogateescape"))
        return os.path.join(self.places.batchconsumequeue if batched else self.places.consumequeue, topic, str(queue_id))

    def _queued_end(self) -> int:
        if not hasattr(self, "_queued"):
            assert self.queues is not None
            self._queued = max((self.queues.max_physical_offset(t, q) for t, q in self.queues.queues()), default=-1)
        return self._queued

    def _log_path(self, offset: int) -> str:
        start = self.starts[0] + (offset - self.starts[0]) // self.options.segment_size_bytes * self.options.segment_size_bytes
        return self.places.log_path(start)

    def log_file(self, offset: int) -> str:
        """What is read at this offset of the log: its file, or the stand-in for it."""
        path = self._log_path(offset)
        return (self.stands and self.stands.path(int(os.path.basename(path)))) or path

    def log_bytes(self, offset: int, size: int) -> bytes:
        """Bytes of one file of the log; fewer, or none, where there is no such place."""
        if not self.starts or offset < self.starts[0]:
            return b""
        path = self.log_file(offset)
        try:
            fd = self.files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return self.files.read(fd, offset - int(os.path.basename(path)), size)
        finally:
            self.files.close(fd)

    @property
    def end(self) -> int:
        """Behind the last record, as far as it is known."""
        return self.log_end or (self.checker.end if self.checker is not None else 0)

    def queue_findings(self, topic: bytes, queue_id: int, entries: range | None = None) -> Iterator[Finding]:
        """Entries of a queue that lead to no record of it; entries: only those."""
        c, queues = self.checker, self.queues
        assert c is not None and queues is not None
        at, high, _ = queues.offsets(topic, queue_id)
        if entries is not None:
            at, high = max(at, entries.start), min(high, entries.stop)
        while 0 <= at < high:
            at, notes = c.queue(topic, queue_id, at, min(high, at + 100_000))
            for _, offset, index, size, _, name, _ in notes:
                if self._beyond(offset):
                    continue
                beyond = not self.clean and offset >= self.end
                path = self._queue_dir(name or "", queue_id)
                self.astray.append((offset, size, name or "", queue_id, index))
                yield self._finding(
                    "not_closed" if beyond else "queue_wrong", path, offset=offset, size=size, topic=name,
                    queue_id=queue_id, queue_offset=index,
                    detail=f"the entry points to offset {offset}, {size} bytes, but no such record is there")

    def index_findings(self, i: int) -> Iterator[Finding]:
        """What is wrong in the index file that is the `i`th of index_names: entries that lead to no record with their key;
        header, slots and chains."""
        c = self.checker
        assert c is not None
        path, at = os.path.join(self.places.index, f"{self.index_names[i]:017d}"), 1
        while at:
            at, notes = c.index_file(i, at)
            for _, offset, entry, key_hash, _, _, _ in notes:
                if self._beyond(offset):
                    continue
                beyond = not self.clean and offset >= self.end
                yield self._finding(
                    "not_closed" if beyond else "index_wrong", path, offset=offset, found=key_hash,
                    detail=f"entry {entry} points to a record that has no key with hash {key_hash}")
        for kind, offset, a, b, expected, _, _ in c.index_chains(i):
            what = {"index_chain": f"entry {a} follows {b}", "index_slot": f"slot {a} points to {b}",
                    "index_header": f"byte {a} of the header is {b}"}[kind]
            yield self._finding(kind, path, offset=offset or None, expected=expected, found=b,
                                detail=f"{what}, but should be {expected}")

    def _read_checkpoint(self) -> None:
        try:
            with open(self.places.checkpoint, "rb", opener=open_regular) as f:
                self.checkpoint = f.read(5000)
        except OSError as error:
            self.checkpoint = error

    def checkpoint_findings(self) -> Iterator[Finding]:
        path, data = self.places.checkpoint, self.checkpoint
        if isinstance(data, OSError):
            if self.starts:
                yield self._finding("checkpoint", path, detail=f"{data.strerror}: after a crash all of the log is recovered")
            return
        if len(data) != CHECKPOINT_SIZE:
            yield self._finding("checkpoint", path, expected=CHECKPOINT_SIZE, found=len(data),
                                detail=f"the file has {len(data)} bytes, not {CHECKPOINT_SIZE}")
            return
        assert self.checker is not None
        for field in CHECKPOINT[:3]:
            name, value = field.name, get64(data, field.offset or 0)
            ahead = self.unknown is None and self.starts and value > self.checker.last_timestamp > 0
            if value < 0 or ahead:
                yield self._finding("checkpoint", path, expected=self.checker.last_timestamp, found=value,
                                    detail=f"{name} is {value}, the newest record was stored at {self.checker.last_timestamp}")

    # ---- manifests

    def _manifests(self, pace: manifest.Pace, progress: Progress) -> Iterator[Finding]:
        starts = manifest.listed(self.root)
        for n, start in enumerate(starts):
            yield from self.manifest_findings(start, pace)
            progress("manifests", n + 1, len(starts))

    def manifest_findings(self, start: int, pace: manifest.Pace) -> Iterator[Finding]:
        """What is not as it was when the file at `start` was sealed."""
        path = self.places.log_path(start)
        try:
            made = manifest.read(self.root, start)
        except CorruptionError as error:
            yield self._finding("manifest_damaged", str(error.path), detail=f"expected {error.expected}, found {error.found}")
            return
        try:
            fd = self.files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return          # cleaned since
        try:
            if made is not None:
                for at, size, expected, found in manifest.compare(made, lambda at, n: self.files.read(fd, at, n), pace):
                    yield self._finding("manifest_mismatch", path, offset=start + at, size=size, expected=expected, found=found,
                                        detail=f"CRC-32C of these {size} bytes was {expected:#010x} when the file was sealed")
        finally:
            self.files.close(fd)
