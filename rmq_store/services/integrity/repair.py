"""Repair of a store that verification finds damaged: what can be done is listed, and, when asked for, done.

Nothing is deleted: what is replaced lies under <root>/.salvage/ afterwards. Each step is safe to break off and to repeat. One
thread, the only one with the store.
"""
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.base.io.wants import limits_named
from rmq_store.codec._codec import DecodedRecord
from rmq_store.codec._layout import (
    FLAG_BORN_V6,
    FLAG_STORE_V6,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rmq_store.config.load import Options
from rmq_store.config.recorded import LIGHT, NAME, RECORDED, read_recorded, recorded_path
from rmq_store.errors import CorruptionError, PutError, StoreStateError
from rmq_store.log.recovery import checkpoint, lockfile
from rmq_store.log.recovery.directories import files_missing, known_end, look_for_directories, missing_end
from rmq_store.log.recovery.holes import lost_rows, padded_looks_whole, rows_text
from rmq_store.log.recovery.places import Places, completing, refuse_size
from rmq_store.log.recovery.salvage import DIRECTORY as SALVAGE
from rmq_store.log.recovery.salvage import keep, offset_of, refuse_undoing
from rmq_store.log.recovery.versions import refusal
from rmq_store.services.integrity import bridging, manifest, replacing
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.services.integrity.findings import Finding
from rmq_store.services.integrity.salvaged import whole_records
from rmq_store.services.integrity.sealing import pacer
from rmq_store.services.integrity.standing_in import StandIn, StandIns, keep_file, lost_files, refuse_odd, rows_of, told_by
from rmq_store.services.integrity.undoing import Journal
from rmq_store.services.integrity.verification import Verification

__all__ = ["RepairResult", "Step", "repair"]

DERIVED = {"queue_file", "queue_missing", "queue_other", "queue_tags", "queue_wrong", "index_file", "index_missing",
           "index_behind", "index_wrong", "index_chain", "index_slot", "index_header", "checkpoint"}

_PIECE = 1 << 20


@dataclass(frozen=True)
class Step:
    """One thing that is done, or that nothing can be done about (kind "none")."""

    kind: str                       # extend, remove, replace, bridge, cut, rebuild, restore, none
    path: str
    detail: str
    offset: int | None = None
    size: int | None = None
    count: int | None = None        # messages: tombstones, restored ones
    lost: list[dict[str, Any]] | None = None        # where tombstones stand: topic, queue_id, begin and end of queue offsets

    def as_dict(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass
class RepairResult:
    """What was found, what was done (or would be), and what is still wrong then (empty for a dry run)."""

    dry_run: bool
    findings: list[Finding] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)


@limits_named()
def repair(path: Any, *, dry_run: bool, restore: bool = False, say: Callable[[Step], None] | None = None,
           open_store: Callable[..., Any] | None = None, _io: IoTable | None = None, **options: Any) -> RepairResult:
    """Repairs the store in directory `path`, which nobody has open; dry_run=True only tells what it would do.

    extend: the last commit-log file is too short, it gets its length back. bridge: damaged stretches of the log, in front of
    good records, are copied to .salvage/ and replaced, so that what follows is kept; a message that is lost leaves a tombstone
    at its queue offset (property DAMAGED). replace: a file of the log that is not there, or has another length, gets its place
    back, and what is lost of it is bridged. cut: what stands behind the end of the log goes, as in recovery. rebuild: queues,
    index and checkpoint are moved to .salvage/ and built again from the log. restore (only if asked for): messages that an
    earlier recovery cut off and kept in .salvage/ are put again, as new ones, unless the log has them. What nothing can be done
    about is a step of kind "none". say(step) is called before each.
    open_store: MessageStore.open.

    Raises UnknownVersion, StoreRefusesToLoad for another segment_size_bytes than the log's, StoreLocked, ConfigError, OSError.
    Options as of MessageStore.open.
    """
    root, chosen = chosen_options(path, options)
    io = _io if _io is not None else IoTable()
    files = ControlFiles(io)
    result = RepairResult(dry_run)

    def step(*arguments: Any, **more: Any) -> None:
        result.steps.append(Step(*arguments, **more))
        if say:
            say(result.steps[-1])

    with _locked(files, root, dry_run), closing(StandIns(files, root, dry_run)) as stands:
        work = _Repair(root, options, io, files, dry_run, step, stands)
        places = Places(root, chosen)
        refuse_odd(places)
        refuse_size(places, chosen)
        look_for_directories(places, False, accepted=chosen.commitlog_loss_accepted)
        log, size = places.log_files(), chosen.segment_size_bytes
        if places.several and not chosen.commitlog_loss_accepted and (missing := files_missing(places, chosen, [
                int(os.path.basename(path)) for path, _ in log])) is not None:
            raise missing
        stands.make(lost_files(log, size, work.extend(places, chosen)), size)
        result.findings = work.look()
        work.journal.expect([*(end for _, end in work._lost_ends()), work.verification.end])
        work.refuse_half(chosen)
        work.refuse_version()
        work.bridge(any(f.kind in DERIVED for f in result.findings))
        work.drop_manifests(result.findings)
        rebuild = work.rebuild(result.findings)
        if rebuild is not None and not dry_run and work.verification.starts:
            work.journal.note("cut", file=work.verification.places.commitlog, start=work.verification.starts[0])
    if rebuild is not None and not dry_run:
        _reopen(open_store, root, options, rebuild, io)
    if restore:
        work.restore(open_store, rebuild or {})
    if not dry_run:
        with Verification(root, options | (rebuild or {}), io) as v:
            result.left = [f for f in v.run(True, pacer(None), lambda what, done, total: None) if f.severity != "note"]
            work.journal.end(v.end)
    return result


@contextmanager
def _locked(files: ControlFiles, root: str, dry_run: bool) -> Iterator[None]:
    if dry_run:
        refuse_undoing(root)
        yield
        return
    lock = lockfile.acquire(files, root)
    try:
        yield
    finally:
        lockfile.release(files, lock)


def _reopen(open_store: Callable[..., Any] | None, root: str, options: dict[str, Any], sizes: dict[str, Any],
            io: IoTable) -> None:
    _opener(open_store)(root, _io=io, _services=None, **completing(root) | sizes | options).close()


def _opener(open_store: Callable[..., Any] | None) -> Callable[..., Any]:
    if open_store is None:
        raise StoreStateError("repair has to open the store: give it open_store=MessageStore.open")
    return open_store


class _Repair:
    def __init__(self, root: str, options: dict[str, Any], io: IoTable, files: ControlFiles, dry_run: bool,
                 step: Callable[..., None], stands: StandIns) -> None:
        self.root, self.options, self.io, self.files, self.dry_run, self.step = root, options, io, files, dry_run, step
        self.stands, self.salvage = stands, os.path.join(root, SALVAGE)
        self.verification: Verification
        self.bridged = self.extended = False
        self.misfits: list[bridging.Misfit] = []
        self.given: Callable[[str], bool] = chosen_options(root, options)[1].given
        self.journal = Journal(files, root)

    # ---- a last file that is too short

    def _made_ahead(self, path: str, size: int) -> bool:
        """Whether a file of the log is whole and holds nothing yet: a broker makes the next one ahead. All of it is read."""
        with open(path, "rb", opener=open_regular) as file:
            pieces = iter(lambda: file.read(_PIECE), b"")
            return os.fstat(file.fileno()).st_size == size and not any(piece.count(0) < len(piece) for piece in pieces)

    def extend(self, places: Places, options: Options) -> set[str]:
        """Returns the paths of the files that are done with."""
        done, log, size = set(), places.log_files(), options.segment_size_bytes
        for number, (path, length) in enumerate(log):
            later = [other for other, _ in log[number + 1:]]
            if length >= size or not all(self._made_ahead(other, size) for other in later):
                continue
            if length and padded_looks_whole(path, int(os.path.basename(path)), length, size):
                continue
            done.add(path)
            if length == 0 and not later:
                self.step("remove", path, "the file is empty: the next open removes it")
                self.extended = True
                continue
            start = int(os.path.basename(path))
            rows = lost_rows(places, options, [(start + length, start + size)])
            self.step("extend", path, f"zeros extend the file from {length} to {size} bytes"
                      + (f"; lost from the ends of queues: {rows_text(rows)}" if rows else ""),
                      offset=length, size=size - length, lost=[row._asdict() for row in rows] or None)
            self.extended = True
            if not self.dry_run:
                self.journal.note("extend", file=path, length=length)
                self._mark_open()       # first: whoever opens what a kill leaves here recovers it
                fd = self.files.open(path, os.O_RDWR)
                try:
                    self.io.fallocate(fd, 0, size)      # really: puts go through a map, where a full disk would be a SIGBUS
                    self.files.sync(fd)
                finally:
                    self.files.close(fd)
        return done

    def _mark_open(self) -> None:
        """The next open recovers."""
        if not os.path.exists(os.path.join(self.root, "abort")):
            lockfile.set_abort(self.files, self.root, "4.9")

    def look(self) -> list[Finding]:
        with Verification(self.root, self.options, self.io, self.stands) as v:
            self.verification = v
            return list(v.run(True, pacer(None), lambda what, done, total: None))

    def refuse_half(self, chosen: Options) -> None:
        """Where files of the log are not there, nothing is built again from the rest of it, unless their loss is accepted."""
        v, size = self.verification, chosen.segment_size_bytes
        starts = [int(os.path.basename(path)) for path, _ in v.places.log_files()]
        known = known_end(v.places, checkpoint.read(self.files, v.places.checkpoint), v.clean, v._queued_end(), 0)
        missing_end(v.places, chosen.inferred({"readonly": False}), max((start + size for start in starts), default=0), known)

    def refuse_version(self) -> None:
        v = self.verification
        if v.unknown is not None:
            start = int(os.path.basename(v._log_path(v.unknown[0])))
            raise refusal(v.places.log_dir(start), start, *v.unknown)

    # ---- damaged stretches of the log

    def bridge(self, rebuild: bool) -> None:
        v = self.verification
        size, first = v.options.segment_size_bytes, v.starts[0] if v.starts else 0
        stretches = []
        for begin, end in sorted({*v.holes, *((at, at + n) for at, n in v.bad_records), *self._lost_ends()}):
            while begin < end:                      # one stretch a file
                file_end = first + ((begin - first) // size + 1) * size
                stretches.append(bridging.Stretch(begin, min(end, file_end), min(end, file_end) == file_end))
                begin = min(end, file_end)
        if not (stretches or rebuild or self.stands.of):
            return
        lost, self.misfits = bridging.find_lost(self._read, [(s, s + size) for s in v.starts], stretches, told_by(v))
        for m in self.misfits:
            self.step("none", v._log_path(m.offset), f"{m.topic}/{m.queue_id}: queue offset {m.queue_offset} follows "
                      f"{m.before}: the header of a record is damaged; building the queues again would shift later messages",
                      offset=m.offset)
        of_files = {start: list(of_file) for start, of_file in itertools.groupby(
            stretches, lambda stretch: first + (stretch.begin - first) // size * size)}
        for start in sorted({*of_files, *(s for s in self.stands.of if s in v.starts)}):
            found = [self._bridge(v._log_path(start), stretch, lost[stretch]) for stretch in of_files.get(start, ())]
            parts = [part for part in found if part is not None]
            whole = start not in self.stands.of or self._stand_in(self.stands.of[start], len(parts) == len(found))
            if (parts or start in self.stands.of) and whole and not self.dry_run:
                self._replace(v._log_path(start), parts)

    def _lost_ends(self) -> list[tuple[int, int]]:
        """What is lost of files behind which no record follows, and queues lead there: no hole, as nothing ends it."""
        v, size = self.verification, self.verification.options.segment_size_bytes
        ends = [(max(v.end, start), start + size) for start in self.stands.of if v.end < start + size]
        return [(a, b) for a, b in ends if any(a <= entry[0] < b for entry in v.astray)]

    def _stand_in(self, lost: StandIn, whole: bool) -> bool:
        """Says what is done about a lost file, and keeps what is there of it. whole: each stretch of it is bridged."""
        size = self.verification.options.segment_size_bytes
        if not whole:
            return False
        has = "the file is not there" if lost.length is None else f"the file has {lost.length} bytes, not {size}"
        more = ("if the file is in another directory, name that in commitlog_path instead" if lost.length is None else
                f"{SALVAGE} keeps the file")
        self.step("replace", lost.path, f"{has}: a file of {size} bytes with what is left of it takes its place, so that later "
                  f"files can be read; {more}", offset=lost.start, size=size)
        self.bridged = True
        return True

    def _read(self, at: int, n: int) -> bytes:
        return self.verification.log_bytes(at, n)

    def _bridge(self, path: str, stretch: bridging.Stretch, lost: list[bridging.Lost]) -> tuple[int, bytes, str] | None:
        """What is to stand in the file at this position of it, and the name under which what stands there is kept; None where
        it does not fit."""
        v = self.verification
        data = bridging.fill(stretch, lost, self._time_before(stretch.begin), crc_property=v.options.record_crc_required)
        size = stretch.end - stretch.begin
        if data is None:
            self.step("none", path, f"{size} damaged bytes are too few for the tombstones in their place: "
                      "recovery cuts the log here", offset=stretch.begin, size=size)
            return None
        whole = int(os.path.basename(path)) in self.stands.of       # then all of the file is kept
        where = [row._asdict() for row in rows_of(lost)]
        self.step("bridge", path, (f"{size} bytes are lost" if whole else f"{size} damaged bytes move to {SALVAGE}/"
                  f"{stretch.begin:020d}.damaged") + f", {len(lost)} tombstones replace them, and later records stay"
                  + (f"; lost: {rows_text(rows_of(lost))}" if where else ""), offset=stretch.begin, size=size,
                  count=sum(message.messages or 1 for message in lost), lost=where or None)
        self.bridged = True
        kept = "" if self.dry_run or whole else self._keep(f"{stretch.begin:020d}.damaged", self._read(stretch.begin, size))
        return stretch.begin - int(os.path.basename(path)), data, kept

    def _replace(self, path: str, parts: list[tuple[int, bytes, str]]) -> None:
        """Puts a file with other bytes at these positions in the place of one of the log. A new one, not the same: a reader in
        another process that has it mapped continues to see what was there, and never another message's bytes."""
        new = os.path.join(self.verification.places.log_tmp(os.path.dirname(path)), "repaired")
        if self.files.mkdir(os.path.dirname(new)):
            self.files.sync_dir(os.path.dirname(os.path.dirname(new)))
        start = int(os.path.basename(path))
        stand_in = self.stands.path(start)
        replacing.copy_with(self.io, stand_in or path, new, [(position, data) for position, data, _ in parts],
                            sparse=stand_in is not None)
        if start in manifest.listed(self.root):
            self._drop_manifest(manifest.path_of(self.root, start))     # it tells of the damaged bytes
        if stand_in is not None:
            self.journal.note("replace", file=path, copy=keep_file(self.io, self.root, self.stands.of[start]))
        else:
            self.journal.note("bridge", file=path, parts=[(position, name) for position, _, name in parts])
        self._mark_open()
        self.files.rename(new, path)
        self.files.sync_dir(os.path.dirname(path))

    def _time_before(self, offset: int) -> int:
        """A store time that fits: of the record in front of the stretch, in its file or one before; else of the first one."""
        v, found = self.verification, 0
        size = v.options.segment_size_bytes
        for begin in (s for s in reversed(v.starts) if s <= offset):
            with suppress(CorruptionError):
                for at, record in bridging.records(self._read, begin, min(offset, begin + size)):
                    if at >= offset:
                        break
                    found = record.store_timestamp
            if found:
                return found
        for begin in v.starts:
            with suppress(CorruptionError, StopIteration):
                return next(bridging.records(self._read, begin, begin + size))[1].store_timestamp
        return 0

    def _keep(self, name: str, data: bytes) -> str:
        return os.path.basename(keep(self.files, self.root, name, data))

    def _drop_manifest(self, path: str) -> None:
        with open(path, "rb", opener=open_regular) as f:
            kept = self._keep(f"{os.path.basename(path)}.manifest", f.read(manifest.LONGEST))
        self.journal.note("manifest", file=path, copy=kept)
        self.files.unlink(path)
        self.files.sync_dir(os.path.dirname(path))

    def _drop_recorded(self, path: str) -> None:
        self.step("remove", path, f"the file is damaged: it moves to {SALVAGE}, and the next open goes by what the other files "
                  "tell, and makes another")
        if not self.dry_run:
            with open(path, "rb", opener=open_regular) as f:
                kept = self._keep(NAME, f.read(_PIECE))
            self.journal.note("manifest", file=path, copy=kept)
            self.files.unlink(path)
            self.files.sync_dir(os.path.dirname(path))

    def drop_manifests(self, findings: list[Finding]) -> None:
        """Damaged ones: they tell nothing, and the next scrub or the store makes new ones. And those of lost oldest files."""
        for finding in findings:
            if finding.kind not in ("manifest_damaged", "log_oldest"):
                continue
            self.step("remove", finding.path, f"the manifest is damaged: it moves to {SALVAGE}, the next open makes another"
                      if finding.kind == "manifest_damaged" else f"{finding.detail}; only a copy of the store has that file; "
                      f"the manifest moves to {SALVAGE}", offset=finding.offset, size=finding.size)
            if not self.dry_run:
                self._drop_manifest(finding.path)

    # ---- queues, index, checkpoint

    def rebuild(self, findings: list[Finding]) -> dict[str, Any] | None:
        """Moves aside what is built again by the next open; the sizes that open needs then, None where it has nothing to do."""
        v = self.verification
        wrong = sorted({f.kind for f in findings if f.kind in DERIVED})
        # What the queues that move aside cannot tell any more. Light queues are filled where there are some, also where the
        # writer has turned them off since: each record says its place in them.
        sizes = {name: v.light if name in LIGHT else v.options[name] for name in RECORDED if not self.given(name)}
        for finding in findings:
            if finding.kind == "log_gap" and self.extended and self.dry_run:
                continue            # the file that is missing gets its length back
            if finding.kind in ("log_gap", "manifest_mismatch") and not self._is_bridged(finding):
                self.step("none", finding.path, f"{finding.kind}: {finding.detail}; only a copy of the store can give back "
                          "the lost bytes", offset=finding.offset, size=finding.size)
            elif finding.kind == "timer_unit":
                self.step("none", finding.path, finding.detail, offset=finding.offset, size=finding.size)
            elif finding.kind == "config_file" and finding.path == recorded_path(self.root) and read_recorded(self.root).spoilt:
                self._drop_recorded(finding.path)
            elif finding.kind == "config_file":
                self.step("none", finding.path, f"{finding.detail}; correct the file by hand, or move it away")
        tail = next((f for f in findings if f.kind == "log_tail"), None)
        if tail is not None:
            self.step("cut", tail.path, f"{tail.size} bytes after the end of the data are not records: they move to "
                      f"{SALVAGE}, and zeros replace them", offset=tail.offset, size=tail.size)
            if not self.dry_run:
                self._mark_open()       # a store closed in order is not looked at behind its end
        if self.misfits or not (wrong or self.bridged):
            return sizes if self.extended or self.bridged or tail is not None else None
        aside = os.path.join(self.salvage, f"rebuilt-{time.time_ns() // 1_000_000}")
        places = [p for p in (v.places.consumequeue, v.places.batchconsumequeue, v.places.consumequeue_ext, v.places.index,
                              v.places.checkpoint) if os.path.exists(p)]
        why = ", ".join(wrong) or "the log was bridged"
        what = ", ".join(os.path.relpath(p, self.root) for p in places) or "queues and index"
        self.step("rebuild", self.root, f"{what}: built again from the log ({why}); the old files move to "
                  f"{os.path.relpath(aside, self.root)}")
        if self.dry_run:
            return sizes
        self.journal.note("rebuild", aside=aside, names=[os.path.relpath(p, self.root) for p in places])
        self._mark_open()               # first: whatever is interrupted, the next open builds all of it again
        for directory in (self.salvage, aside):
            if self.files.mkdir(directory):
                self.files.sync_dir(os.path.dirname(directory))
        for place in places:
            self.files.rename(place, os.path.join(aside, os.path.basename(place)))
            self.files.sync_dir(aside)      # before the old name is gone for good
            self.files.sync_dir(os.path.dirname(place))
        return sizes

    def _is_bridged(self, finding: Finding) -> bool:
        if finding.offset is None or finding.size is None:
            return False
        v = self.verification
        return any(begin < finding.offset + finding.size and end > finding.offset
                   for begin, end in itertools.chain(v.holes, ((at, at + n) for at, n in v.bad_records)))

    # ---- what an earlier recovery cut off

    def restore(self, open_store: Callable[..., Any] | None, sizes: dict[str, Any]) -> None:
        if not os.path.isdir(self.salvage):
            return
        for name in sorted(n for n in os.listdir(self.salvage) if offset_of(n) is not None):
            path = os.path.join(self.salvage, name)
            size = self.verification.options.segment_size_bytes
            with open(path, "rb", opener=open_regular) as f:
                data = f.read(size + 1)
            if len(data) > size:
                self.step("none", path, f"not a copy that a recovery made: the file is longer than a log file of {size} bytes")
                continue
            begin = offset_of(name) or 0
            found = list(whole_records(data, begin))
            if self.dry_run:
                self.step("restore", path, "messages that a recovery cut off are put again", count=len(found))
                continue
            done = 0
            with closing(_opener(open_store)(self.root, _io=self.io, _services=None, **sizes | self.options)) as store:
                for at, record in found:
                    there = store.message_at(at)
                    if there is not None and there.raw == data[at - begin:at - begin + record.size]:
                        continue
                    del there
                    try:
                        done += self._put(store, record)
                    except PutError as error:
                        self.step("none", path, f"a message cannot be put again: {error}", offset=at)
                store.flush()
            self.journal.note("restore", file=path)
            self.step("restore", path, "messages that a recovery cut off were put again", count=done)
            self.files.rename(path, path + ".restored")
            self.files.sync_dir(self.salvage)

    @staticmethod
    def _put(store: Any, record: DecodedRecord) -> int:
        if record.sys_flag & TRANSACTION_ROLLBACK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return 0
        store.put(record.topic, bytes(record.body), queue_id=record.queue_id, properties=record.properties_bytes,
                  flag=record.flag, sys_flag=record.sys_flag & ~(FLAG_BORN_V6 | FLAG_STORE_V6),
                  born_timestamp=record.born_timestamp, born_host=record.born_host, reconsume_times=record.reconsume_times,
                  prepared_transaction_offset=record.prepared_transaction_offset, wait=False)
        return 1
