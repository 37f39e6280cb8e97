"""The files of a store, copied while it may be open, in an order in which a crash could have left them on the device.

    .moving/, .spark/journal/, checkpoint, queues, index, config/, timer wheel and log, then the log

So nothing that is copied leads behind the log's end, and recovery, which mends what a crash leaves, mends the image. The log is
copied whole file by whole file and walked in the copy: it ends behind its last whole record, with zeros behind that. Files that
cleaning deletes meanwhile are left out, with those before them. The source is only read. Control plane; one thread.
"""
import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rmq_store.access.bulk._columns import Split
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular, read_text
from rmq_store.codec._layout import CHECKPOINT_AT_FLUSHED, CHECKPOINT_AT_PHYSICAL, INDEX_AT_END_TIMESTAMP
from rmq_store.codec.layout import CHECKPOINT_SEAL, get64
from rmq_store.errors import CorruptionError, StoreStateError
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery.lockfile import in_use, set_abort
from rmq_store.log.recovery.places import numbered
from rmq_store.services.backup.content import JOURNALS, copy_file
from rmq_store.services.backup.source import LogPart, Source
from rmq_store.services.compaction import files as disk
from rmq_store.services.integrity.manifest import DIRECTORY as MANIFESTS
from rmq_store.services.integrity.manifest import listed

__all__ = ["Image"]

TRIES = 5                       # of a file that is written while it is copied


class Image:
    """known(name, stat of the source's file) -> path of the same bytes in an earlier backup, or None."""

    def __init__(self, io: IoTable, source: Source, to: str, known: Callable[[str, os.stat_result], str | None],
                 progress: Callable[[int], None]) -> None:
        self.io, self.files, self.source, self.to = io, ControlFiles(io), source, to
        self._known, self._progress = known, progress
        self.sources: dict[str, os.stat_result] = {}    # of log files: what the source's file was
        self.linked: list[str] = []
        self.copied_bytes = 0
        self.begin = self.end = 0
        self.live = False
        self._last_time = 0

    def take(self, least: int = 0) -> None:
        """least: the log reaches at least so far. Raises CorruptionError (a damaged source), StoreStateError, OSError."""
        places = self.source.places
        self.live = in_use(self.source.root) or os.path.exists(places.abort)
        # These tell of messages that are in the log then.
        self._directory_of_small(JOURNALS)
        self._sink_journals()
        with suppress(FileNotFoundError):
            self._copy(places.checkpoint, "checkpoint")
        for name, base in (("consumequeue", places.consumequeue), ("batchconsumequeue", places.batchconsumequeue),
                           ("consumequeue_ext", places.consumequeue_ext)):
            self._queues(name, base)
        self._index(places.index)
        self._directory_of_small("config")
        self._timers()
        begin, queues = self.source.begin(), self._compaction()
        self._log()
        if queues and self.begin > begin:       # what was fed since then is neither in this copy nor in the log
            raise StoreStateError(f"the log of {self.source.root} was cleaned while it was copied, and a compaction log has "
                                  "what was deleted: back it up again")
        if self.end < least:
            raise StoreStateError(f"the log of {self.source.root} is flushed up to {least}, and its files end at {self.end}: "
                                  "another program changes them")
        self._manifests()
        self._settle_checkpoint()
        if self.live:
            set_abort(self.files, self.to, self.source.options.compat)
        self._sync_dirs()
        self.source.look_again()

    def _copy(self, source: str, name: str, stop: int | None = None) -> os.stat_result:
        about = copy_file(self.io, source, os.path.join(self.to, name), stop, self._count)
        return about

    def _count(self, size: int) -> None:
        self.copied_bytes += size
        self._progress(self.copied_bytes)

    def _directory(self, name: str) -> None:
        if name and not os.path.isdir(os.path.join(self.to, name)):
            self._directory(os.path.dirname(name))
            self.files.mkdir(os.path.join(self.to, name))

    # ---- what is derived from the log

    def _queues(self, name: str, base: str) -> None:
        for topic in sorted(os.listdir(base)) if os.path.isdir(base) else ():
            with suppress(FileNotFoundError, NotADirectoryError):       # removed meanwhile
                for queue_id in sorted(os.listdir(os.path.join(base, topic))):
                    if queue_id.isascii() and queue_id.isdecimal():
                        self._row(os.path.join(base, topic, queue_id), os.path.join(name, topic, queue_id))

    def _row(self, directory: str, name: str) -> None:
        made: list[str] = []
        for path, _ in numbered(directory, 20):
            self._directory(name)
            target = os.path.join(name, os.path.basename(path))
            try:
                self._copy(path, target)
                made.append(target)
            except FileNotFoundError:       # cleaned: so are those before it
                for gone in [*made, target]:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.to, gone))
                made = []

    def _index(self, directory: str) -> None:
        """Of an open store only full files that the checkpoint vouches for: recovery makes the others from the log."""
        if not self.source.options.index_enabled:
            return
        found = [path for path, _ in numbered(directory, 17)]
        safe = checkpoint.read(self.files, os.path.join(self.to, "checkpoint"))[2]
        for path in found[:-1] if self.live else found:
            with suppress(FileNotFoundError):
                if self.live and self._newest_time(path) > safe:
                    return
                self._directory("index")
                self._copy(path, os.path.join("index", os.path.basename(path)))

    def _newest_time(self, path: str) -> int:
        fd = self.files.open(path, os.O_RDONLY)
        try:
            return get64(self.files.read(fd, INDEX_AT_END_TIMESTAMP, 8), 0)
        finally:
            self.files.close(fd)

    def _directory_of_small(self, part: str) -> None:
        directory = os.path.join(self.source.root, part)
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not name.endswith(".tmp") and not (name == "replica.json" and _promoted(path)):
                self._directory(part)
                with suppress(FileNotFoundError):       # a .bak is replaced
                    self._copy(path, os.path.join(part, name))

    def _timers(self) -> None:
        """Behind config/timercheck: what is delivered from there on is found in the log by its mark. The timer log last, as the
        slots of the wheel lead into it."""
        with suppress(FileNotFoundError):
            self._copy(os.path.join(self.source.root, "timerwheel"), "timerwheel")
        self._row(os.path.join(self.source.root, "timerlog"), "timerlog")

    def _sink_journals(self) -> None:
        """Which versions of an application Spark's sink has stored, so that it does not store them again. Not a version that is
        on its way, as its staging files are not taken, nor where the log was."""
        part = os.path.join(".spark", "journal")
        directory = os.path.join(self.source.root, part)
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            if not name.endswith(".json"):
                continue
            self._directory(part)
            try:
                entry = json.loads(read_text(os.path.join(directory, name)))
                kept = {key: entry[key] for key in ("app", "done", "records", "query", "once") if key in entry}
            except FileNotFoundError:           # of a write that nobody can repeat
                continue
            except (ValueError, TypeError, RecursionError):     # the sink refuses it, there as here
                self._copy(os.path.join(directory, name), os.path.join(part, name))
                continue
            if kept.get("done") is not None:
                self.files.write_new(os.path.join(self.to, part), name, json.dumps(kept).encode())

    def _manifests(self) -> None:
        for start in listed(self.source.root):
            if self.begin <= start and start + self.source.options.segment_size_bytes <= self.end:
                self._directory(MANIFESTS)
                name = os.path.join(MANIFESTS, f"{start:020d}")
                with suppress(FileNotFoundError):
                    self._copy(os.path.join(self.source.root, name), name)

    def _compaction(self) -> int:
        """The compaction logs, as they count at one moment. Returns how many."""
        root = self.source.root
        queues = [disk.Places(root, *name) for name in disk.queues_on_disk(root)]
        for places in queues:
            for _ in range(TRIES):
                with suppress(FileNotFoundError):
                    if self._compacted(places):
                        break
            else:
                raise StoreStateError(f"the compaction log at {places.log} changed each time it was copied: back it up again")
        if queues:
            self._directory_of_small(disk.DIRECTORY)
            with suppress(FileNotFoundError):
                for places in queues:       # what it would move is in its place here
                    os.unlink(os.path.join(self.to, os.path.relpath(places.replacing, root)))
        return len(queues)

    def _compacted(self, places: disk.Places) -> bool:
        """Entries before their records: they lead to nothing that is not there."""
        pairs, made = disk.pairs_of(self.files, places), []
        before, same = disk.identity(pairs), False
        try:
            for pair in pairs:
                for directory, of in ((pair.entry_dir, places.entries), (pair.log_dir, places.log)):
                    name = os.path.join(os.path.relpath(of, self.source.root), f"{pair.start:020d}")
                    self._directory(os.path.dirname(name))
                    made.append(name)
                    self._copy(os.path.join(directory, f"{pair.start:020d}"), name)
            same = disk.pairs_of(self.files, places) == pairs and disk.identity(pairs) == before
        finally:
            for name in () if same else made:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.to, name))
        return same

    def _settle_checkpoint(self) -> None:
        """The image's log is on the device up to its end: with that recovery has nothing to write again."""
        path = os.path.join(self.to, "checkpoint")
        if not os.path.exists(path) or not self._last_time:
            return
        fd = self.files.open(path, os.O_RDWR)
        try:
            self.files.write(fd, CHECKPOINT_AT_PHYSICAL, struct.pack(">q", self._last_time))
            seal = self._last_time ^ self.end ^ CHECKPOINT_SEAL
            self.files.write(fd, CHECKPOINT_AT_FLUSHED, struct.pack(">qq", self.end, seal))
            self.files.sync(fd)
        finally:
            self.files.close(fd)

    # ---- the log

    def _log(self) -> None:
        self._directory("commitlog")
        for _ in range(TRIES):
            parts = self.source.parts()     # those that come later are of the next backup
            made: list[LogPart] = []
            for part in parts:
                try:
                    self._part(part)
                    made.append(part)
                except FileNotFoundError:       # cleaned, and those before it: the log begins behind
                    for gone in [*made, part]:
                        with suppress(FileNotFoundError):
                            os.unlink(self._path(gone))
                    made = []
            if made or not parts:
                self.begin = made[0].start if made else 0
                return
        raise StoreStateError(f"the log of {self.source.root} was cleaned faster than it could be copied: back it up when less "
                              "is going on")

    def _path(self, part: LogPart) -> str:
        return os.path.join(self.to, "commitlog", os.path.basename(part.path))

    def _part(self, part: LogPart) -> None:
        name = os.path.join("commitlog", os.path.basename(part.path))
        about = os.stat(part.path)
        earlier = None if part.newest else self._known(name, about)
        if earlier is not None and self._link(earlier, name):
            self.linked.append(name)
            self.sources[name] = about
            self.end = part.end
            return
        said: CorruptionError | None = None
        for _ in range(TRIES):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.to, name))
            about = self._copy(part.path, name, self._data_end(part) if part.newest else None)
            wrong = self._walk(part)
            if wrong is None:
                if self.end == part.end:
                    self.sources[name] = about
                return
            if said is not None and str(said) == str(wrong) and not self.live:
                raise wrong
            said = wrong
        assert said is not None
        raise said

    def _link(self, earlier: str, name: str) -> bool:
        try:
            os.link(earlier, os.path.join(self.to, name))
        except OSError:         # another user's file, or a file system without links: it is copied
            return False
        return True

    def _data_end(self, part: LogPart) -> int:
        """Where in the newest file its whole records end now. What is behind that is not copied: it is a half-written record,
        or nothing, for which room is reserved."""
        with Split(part.path, part.start, part.start, part.end, newest=True, aligned=True, verify="none",
                   mapped=False) as split:
            while not split.done:
                split.skip()
                split.take_bad()
            return split.position - part.start

    def _walk(self, part: LogPart) -> CorruptionError | None:
        """Where the log ends in the copy. What is wrong may be on its way still."""
        path = self._path(part)
        with Split(path, part.start, part.start, part.end, newest=part.newest, aligned=True, verify="crc") as split:
            bad: Any = None
            end, records = part.start, 0
            while (batch := split.batch(["physicalOffset", "storeSize", "storeTimestamp"], max_rows=8192)) is not None:
                if bad is not None and split.records > records:
                    return self._damage(part, bad)
                if batch[0]:
                    end = memoryview(batch[1]["physicalOffset"]).cast("q")[-1] + memoryview(batch[1]["storeSize"]).cast("i")[-1]
                    self._last_time = memoryview(batch[1]["storeTimestamp"]).cast("q")[-1] // 1000
                records = split.records
                bad = bad or next(iter(split.take_bad()), None)
            bad = bad or next(iter(split.take_bad()), None)
            if not part.newest:
                if bad is not None or split.position != part.end:
                    return self._damage(part, bad)
                self.end = part.end
                return None
            ended = bad is None and split.tail is None and split.position == part.end       # it is full
        self.end = part.end if ended else end
        self._refuse_version(part, self.end)
        return None

    def _refuse_version(self, part: LogPart, at: int) -> None:
        # In the store's own file: of the newest one the copy has only what is known. One that was cleaned was copied whole.
        path = part.path if os.path.exists(part.path) else self._path(part)
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            self.source.refuse_version(part, file.fileno(), at)

    def _damage(self, part: LogPart, bad: Any) -> CorruptionError:
        where = part.start if bad is None else bad.begin
        self._refuse_version(part, where)
        error = CorruptionError(part.path, where, "a record", "the end of the data" if bad is None else f"none ({bad.kind})")
        error.add_note("a damaged store is not backed up, as its backup would lack what lies behind: `rmqstore repair` "
                       "first, or copy its files as they are (cp -a --sparse=always)")
        return error

    def _sync_dirs(self) -> None:
        for place, _, _ in os.walk(self.to, topdown=False):
            self.files.sync_dir(place)


def _promoted(path: str) -> bool:
    """Whether this config/replica.json is that of a promoted master. A backup has none then, as that of any master: what is
    made of it may be a slave of that master."""
    try:
        return json.loads(read_text(path))["role"] in ("master", "sync_master")
    except (OSError, ValueError, TypeError, KeyError, RecursionError):      # who opens the copy for writing is told
        return False
