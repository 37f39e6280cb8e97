"""Opening a store: the rooms in the order of a message's way, each with what the directory already holds.

The opening thread; `open_store` leaves a StoreCore that serves, or everything as it was. Control plane only.
"""
import os
import time
from contextlib import suppress
from typing import Any

from rmq_store.access.core import _building
from rmq_store.access.core._guard import guard_maps
from rmq_store.base.io._dirs import watch
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.machine.limits import descriptors_of_queues, memory_limit
from rmq_store.config.load import Options
from rmq_store.errors import StoreRefusesToLoad, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.log.flush.backend import choose_backend
from rmq_store.log.recovery import checkpoint, lockfile
from rmq_store.log.recovery.checkpoint import Times
from rmq_store.log.recovery.directories import (
    files_missing,
    known_end,
    look_for_directories,
    make_directories,
    missing_end,
    say_empty,
    say_missing,
)
from rmq_store.log.recovery.holes import explained, lost_stretches, whole_end
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.queue_times import Stamp, keep_times, restore_times
from rmq_store.log.recovery.recording import look_at_recorded, record
from rmq_store.log.recovery.recover import OFFSET_MAX, Outcome, Rules, find_end, load_names, make_end, rules_of
from rmq_store.log.recovery.salvage import keep_directories
from rmq_store.log.recovery.versions import code_text, other_version, refusal
from rmq_store.opened.paths import in_the_way
from rmq_store.opened.serving import StoreServes
from rmq_store.opened.tasks import filter_setter
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import Emptied, batch_dirs, load_batch_queues, load_queues, remove_empty
from rmq_store.queues.index.loader import load_index
from rmq_store.replication.beginning import drop_empty_log
from rmq_store.replication.mark import refuse_as_master, refuse_as_slave
from rmq_store.services.cleaning._clean import let_go, note_removed
from rmq_store.services.cleaning.removing import bound_removed, finish_removals, removed_queues
from rmq_store.services.cleaning.rules import used_percent
from rmq_store.services.consumer.filters import open_filters
from rmq_store.services.consumer.tables import batch_topics
from rmq_store.services.integrity.manifest import drop_stale

__all__ = ["open_store"]

_SHORT_READ = ("`rmqstore verify` says what is damaged, `rmqstore repair` brings back what is good: run it before any open for "
               "writing, which cuts the log there and keeps the rest in .salvage/")
_SHORT_CUT = "what is left of it goes to .salvage/, and `rmqstore repair --restore` puts the good records of that again"
NAMES_MARGIN_S = 300        # several times the period of the checkpoint


def open_store(store: StoreServes, root: str, options: Options, io: Any, follows: bool | None) -> int | None:
    """Builds `store` (a StoreCore) on the directory. Returns the lock's descriptor, None where readonly. follows: a slave is to
    follow a master, and not to be promoted; None: of a repair.

    On an error everything taken is given back, the lock last.
    """
    files = ControlFiles(io)
    places = Places(root, options)
    readonly = options.readonly
    lock: int | None = None
    fd = -1
    _refuse_odd(places, [] if readonly else places.tmps)
    look_for_directories(places, readonly, options.follow, options.commitlog_loss_accepted)
    absent = [] if readonly else [place for place in (root, *places.tmps) if not os.path.isdir(place)]
    if not readonly:
        make_directories(files, places)
        lock = lockfile.acquire(files, root, *places.log_elsewhere)
    try:
        if not readonly:
            watch(io, root)
            refuse_as_master(root, options.role)
            if follows and options.role == "slave":
                refuse_as_slave(root)
        times = _load_and_recover(store, files, places, options, io, follows is None)
        if options.guard_maps:
            guard_maps(store)
        if not readonly:
            fd = checkpoint.open_whole(files, places.checkpoint)
            _avoid_full(store, places)
            for place in filter(os.path.isdir, (*places.commitlogs, places.consumequeue, places.index)):
                watch(io, place)
            _building.start(store, fd, times)
            store.checkpoint_fd = fd
    except BaseException:
        store._end_failed_open()
        if fd >= 0:
            files.close(fd)
        for place in reversed(absent):      # what this open made and did not use
            with suppress(OSError):
                os.rmdir(place)
        if lock is not None:
            lockfile.release(files, lock)
        raise
    return lock


def _backend(options: Options, places: Places, io: Any) -> tuple[Options, Any]:
    """The back end that holds, and how it writes. On several disks what each of them can do."""
    if options.readonly or not places.several or options.flush_backend not in ("auto", "io_uring"):
        return choose_backend(options, places.commitlog_tmp, io)
    disks = {os.stat(tmp).st_dev: tmp for tmp in places.commitlog_tmps}
    return min((choose_backend(options, tmp, io) for tmp in disks.values()), key=lambda found: (
        found[1] is not None, *(getattr(found[1], what, 0) for what in ("direct", "durable", "request_bytes"))))


def _avoid_full(store: StoreServes, places: Places) -> None:
    """The first new file of a log in several directories goes to a disk that has room; cleaning looks again and again."""
    for number, path in enumerate(places.growing) if places.several else ():
        _building.set_full(store, number, used_percent(path) > store.options.disk_force_pct)


def _refuse_odd(places: Places, tmps: list[str]) -> None:
    """What stands where a directory of a store belongs is said before anything is made."""
    for place in (*places.commitlogs, places.consumequeue, places.batchconsumequeue, places.consumequeue_ext, places.index,
                  *tmps):
        if os.path.lexists(place) and not os.path.isdir(place) and not (places.several and place in places.missing_links()):
            raise NotADirectoryError(20, "is not a directory, but a store needs a directory there: move it away", place)
    for place in tmps:
        if os.path.islink(place):       # what is in it is deleted
            raise OSError(40, "is a symbolic link, and an open deletes files in this directory: remove the link",
                          place)


class Found:
    """What an open has found out before it changes anything."""

    def __init__(self, times: Times, queues: Any, table: QueueTableOwner, emptied: list[Emptied], recovery: Any, rules: Rules,
                 outcome: Outcome, queued_end: int, lacking_from: int, lost: bool) -> None:
        self.times = times                  # of the checkpoint, as far as they are believed
        self.queues = queues                # QueueRecovery
        self.table, self.emptied = table, emptied
        self.recovery = recovery            # LogRecovery
        self.rules, self.outcome = rules, outcome
        self.queued_end = queued_end        # end of the last record that has an entry, -1: none
        self.lacking_from = lacking_from    # from where on a damaged queue lacks entries; OFFSET_MAX: none does
        self.lost = lost                    # files of the log that something leads to are not there, which was accepted


def _load_and_recover(store: StoreServes, files: ControlFiles, places: Places, options: Options, io: Any, keeps: bool) -> Times:
    """Returns what of the checkpoint's times is believed."""
    readonly = options.readonly
    lives = places.lives()
    clean = lives[0] is None
    before = look_at_recorded(places.root, options, not clean)
    if readonly and not clean and lockfile.in_use(places.root):
        store.in_use, store.writer_pid = True, lockfile.holder(os.path.join(places.root, "lock"))
    if not readonly:
        for tmp in places.tmps:
            _sweep(files, tmp)
    options, how = _backend(options, places, io)
    _building.setup(store, places.root, options, readonly, io, places.commitlogs,
                    zip(places.growing, places.commitlog_tmps, strict=True), how)
    store._setup_put()
    store._setup_get(memory_limit())
    store._apply(options)
    if options.role == "slave" and not readonly:
        drop_empty_log(files, places)
    _load_log(store, places, options, None if readonly else files)
    times = checkpoint.read(files, places.checkpoint)       # before the queues: of those that come later it does not speak
    log_seen = max(_building.log_recovery(store).starts(), default=0)
    table = QueueTableOwner(
        places.consumequeue, ext_dir=places.consumequeue_ext, tmp_dir=places.consumequeue_tmp,
        fd_max=descriptors_of_queues(options.consumequeue_fd_max), file_size=options.consumequeue_file_size_bytes,
        readonly=readonly, io=io,
        ext_file_size=options.consumequeue_ext_file_size_bytes if options.consumequeue_ext_enabled else 0)
    _load_batches(store, files, places, options, table)
    emptied = load_queues(table)
    _building.take_queues(store, table)
    removed = removed_queues(files, places.root)
    for (topic, queue_id), offset in removed.items():
        note_removed(store, topic, queue_id, offset)
    if options.index_enabled:
        index = load_index(io, places.index, places.index_tmp, options.index_slots, options.index_entries_max, readonly)
        _building.take_index(store, index)
    if not clean and not readonly:
        _settle_names(files, places)
    _building.make_dispatcher(store, options.delay_levels, (False, False) if readonly else places.with_log())
    found = _find(store, places, options, table, emptied, clean, times, max(removed.values(), default=-1))
    if not readonly:
        record(files, places.root, options, before, found.outcome.end, keeps)     # before anything is made by them
    if not readonly and options.enable_calc_filter_bit_map and options.consumequeue_ext_enabled:
        store._filters = open_filters(files, places.root, options, filter_setter(store))   # before anything is dispatched
    _settle(store, files, places, found)
    if options.follow:
        outcome = found.outcome
        begin = min(outcome.begin, log_seen - options.segment_size_bytes)
        store._follow(outcome.queued_to if not clean or lives == places.lives() else begin)
    return found.times


def _load_batches(store: StoreServes, files: ControlFiles, places: Places, options: Options, table: QueueTableOwner) -> None:
    """Batch queues, of the topics that config/topics.json names, or else have such queues. Raises StoreRefusesToLoad."""
    size = options.batch_consumequeue_file_size_bytes
    topics = _batch_topics(files, places)
    while True:
        try:
            load_batch_queues(table, places.batchconsumequeue, size, [os.fsencode(name) for name in topics])
            break
        except StoreRefusesToLoad:
            said, topics = topics, _batch_topics(files, places)
            if not options.readonly or said == topics:      # else a writer has made a topic one with batch queues meanwhile
                raise
    if options.follow:
        table.batched(places.batchconsumequeue, size, ())   # the writer may make some
    store._take_batches(places.batchconsumequeue, size, topics)


def _batch_topics(files: ControlFiles, places: Places) -> frozenset[str]:
    found = batch_topics(files, places.root)
    return frozenset(os.fsdecode(topic) for topic in batch_dirs(places.batchconsumequeue)) if found is None else found


def _find(store: StoreServes, places: Places, options: Options, table: QueueTableOwner, emptied: list[Emptied], clean: bool,
          times: Times, removed_end: int) -> Found:
    """Where log and queues end, and what is damaged. removed_end: queues that led so far were removed. Changes nothing on the
    disk."""
    recovery, queues = _building.log_recovery(store), _building.queue_recovery(store)
    rules = rules_of(options, clean, os.path.exists(places.checkpoint), times)
    if clean:
        queued_end, lacking_from = queues.find_ends()
        _look_again(store, places, options)
        outcome = find_end(recovery, rules, queued_end)
        known = known_end(places, times, True, queued_end, outcome.last_timestamp)
        outcome = _reach(store, places, options, outcome, known)
        cut_short = _refuse_version(store, places, recovery, outcome)
        believed_end, rotten_from = queues.settle_newest()
        lacking_from = min([lacking_from, rotten_from, *(table.max_physical_offset(e.topic, e.queue_id) for e in emptied)])
        if max(believed_end, removed_end) < max((s for s in recovery.starts() if s < outcome.end), default=-1):
            lacking_from = min(lacking_from, believed_end)      # all that the log's last file holds
        if outcome.last_timestamp > 0:      # a time ahead of the log would be ahead for ever
            physical, logics, index = (min(t, outcome.last_timestamp) for t in times[:3])
            times = (physical, logics, index, *times[3:])
        if queued_end > outcome.end and not cut_short:
            emit(Event.LOG_SHORT, path=places.root, queued=queued_end, offset=outcome.end, size=queued_end - outcome.end,
                 cure=_SHORT_READ if store.readonly else _SHORT_CUT)
        return Found(times, queues, table, emptied, recovery, rules, outcome, believed_end, lacking_from,
                     _files_lost(store, options, known))
    if not store.readonly:
        emit(Event.RECOVERY_STARTED, path=places.root, kind="abnormal", file=places.commitlog)
    outcome = find_end(recovery, rules, -1)
    _refuse_version(store, places, recovery, outcome)
    told = times
    if (rules := outcome.believed or rules) is outcome.believed:
        times = (rules.physical_timestamp, rules.logics_timestamp, rules.index_timestamp, *times[3:5], rules.flushed_offset)
    known, lacking_from = queues.find_ends(outcome.begin)
    _look_again(store, places, options)
    known = known_end(places, times if places.several else told, False, known, outcome.last_timestamp,
                      _lead_beyond(store, options, queues))
    outcome = _reach(store, places, options, outcome, known)
    queued_end, rotten_from = queues.settle_from(outcome.begin, log_end=outcome.end)
    if rotten_from < outcome.begin:     # of a queue that nothing was put to since: dispatch would never come to it
        lacking_from = min(lacking_from, rotten_from)
    if store.readonly and not store.in_use:
        emit(Event.NEEDS_RECOVERY, path=places.root, kind="abnormal", file=places.commitlog, offset=queued_end)
    return Found(times, queues, table, emptied, recovery, rules, outcome, queued_end, lacking_from,
                 _files_lost(store, options, known))


def _lead_beyond(store: StoreServes, options: Options, queues: Any) -> bool:
    """After a crash: whether queues lead behind the last file of the log, and not by one damaged entry."""
    starts = _building.log_recovery(store).starts()
    return bool(starts) and queues.lead_beyond(starts[-1] + options.segment_size_bytes) > 1


def _files_lost(store: StoreServes, options: Options, known: int) -> bool:
    """Whether something leads to files that are not there, and an open that continues takes away what leads there."""
    starts = _building.log_recovery(store).starts()
    return not starts or (options.commitlog_loss_accepted and known > starts[-1] + options.segment_size_bytes)


def _reach(store: StoreServes, places: Places, options: Options, outcome: Outcome, known: int) -> Outcome:
    """The end that queues or checkpoint know, `known`, where the files at the end of the log are not there: none of what leads
    there is damaged. Raises LogDirectoryMissing for writing."""
    starts = _building.log_recovery(store).starts()
    end = max((s + options.segment_size_bytes for s in starts), default=0)
    if not missing_end(places, options, end, known) or outcome.end < end or not starts:
        return outcome
    _building.leave_out(store, known)
    return outcome._replace(end=known)


def _refuse_version(store: StoreServes, places: Places, recovery: Any, outcome: Outcome) -> bool:
    """Records of another version of the format would be cut, and are good: they are left to who knows them. True where the log
    has such and is opened for reading, which is said. Raises UnknownVersion."""
    start = max((s for s in recovery.starts() if s <= outcome.end), default=-1)
    end = start + recovery.file_size()
    if start < 0 or outcome.end >= end or (magic := other_version(recovery.read, outcome.end, end)) is None:
        return False
    if not store.readonly:
        raise refusal(places.log_dir(start), start, outcome.end, magic)
    emit(Event.VERSION_UNKNOWN, path=places.root, offset=outcome.end, magic=code_text(magic))
    return True


def _load_log(store: StoreServes, places: Places, options: Options, files: ControlFiles | None) -> None:
    """Opens the log's files. files None: for reading. A listing is then of no one moment: what a writer in another process
    makes and deletes meanwhile may look like a gap, or be gone, but not twice the same. Raises StoreRefusesToLoad, OSError."""
    said, size = "", options.segment_size_bytes
    while True:
        try:
            rests: dict[int, str] = {}
            starts = load_names(places.commitlogs, size, options.compat, files, rests if options.skip_holes else None)
            missing = files_missing(places, options, starts)
            passes = places.several or options.skip_holes
            if missing is not None and (files is not None or options.follow or not passes or str(missing) != said):
                raise missing
            for start in starts:
                if start in rests:
                    _building.add_rest(store, start, rests[start], whole_end(rests[start], start, size))
                else:
                    _building.add_file(store, start, missing is not None)
            break
        except (FileNotFoundError, StoreRefusesToLoad) as error:
            if files is not None or str(error) == said:
                if isinstance(error, StoreRefusesToLoad):
                    explained(error, places, options)
                raise
            said = str(error)
            let_go(store)
    say_empty(places, len(starts))
    if (missing is not None or rests) and (lost := lost_stretches(places, size)):
        say_missing(places, lost)


def _look_again(store: StoreServes, places: Places, options: Options) -> None:
    """For reading alone: takes what the log has got since it was listed. A writer may have opened the store meanwhile, and the
    queues, whose ends were read behind that, may lead there: else they seemed to lead nowhere, and were taken for damaged."""
    size, end = options.segment_size_bytes, max(_building.log_recovery(store).starts(), default=-1)
    if not store.readonly or end < 0:
        return
    found = {int(os.path.basename(path)) for path, length in places.log_files() if length == size}
    while (end := end + size) in found:
        try:
            _building.add_file(store, end, False)
        except FileNotFoundError:       # made ahead, and taken away since
            return


def _settle_names(files: ControlFiles, places: Places) -> None:
    """A killed process may have made files whose names the device does not have yet: they are served now, so they must stay.

    Of the queues, which may be a hundred thousand, only directories that changed since shortly before the last checkpoint are
    synced; those before were synced with it. The root's own names are synced with the abort file.
    """
    try:
        since = os.stat(places.checkpoint).st_mtime - NAMES_MARGIN_S
    except FileNotFoundError:
        since = 0.0
    for directory in (*places.commitlogs, places.index):
        if os.path.isdir(directory):
            files.sync_dir(directory)
    for base in (places.consumequeue, places.batchconsumequeue, places.consumequeue_ext):
        for level in reversed(_levels(base)):
            files.sync_dirs([path for path, changed in level if changed >= since])


def _levels(base: str) -> list[list[tuple[str, float]]]:
    """The directory of all queues, those of topics, and those of queues, each with its time of modification."""
    try:
        levels = [[(base, os.stat(base).st_mtime)]]
    except FileNotFoundError:
        return []
    for _ in range(2):
        found = []
        for parent, _ in levels[-1]:
            with os.scandir(parent) as entries:
                found += [(entry.path, entry.stat(follow_symlinks=False).st_mtime) for entry in entries
                          if entry.is_dir(follow_symlinks=False)]
        levels.append(found)
    return levels


def _settle(store: StoreServes, files: ControlFiles, places: Places, found: Found) -> None:
    """Log, queues and index are made to agree; dispatch catches up, where it is bounded to the confirm offset."""
    outcome, clean, readonly = found.outcome, found.rules.clean, store.readonly
    store.needs_recovery = not clean and not store.in_use
    stamps: dict[str, Stamp] = {}
    first = next(iter(found.recovery.starts()), 0)
    if readonly:        # nothing is dispatched here: what the queues have is all there is
        if found.queued_end > outcome.end:
            if store.options.follow and not store.in_use:
                raise StoreStateError(
                    f"the store at {places.root} cannot be followed yet: its log has whole records up to offset {outcome.end}, "
                    f"its queues lead to {found.queued_end}, and the next writer cuts them off; wait until that has opened it, "
                    "or read what is there: open it without follow=True, or with `rmqstore get`")
            found.queues.truncate(outcome.end)
        dispatch_from = outcome.end if clean else max(min(found.queued_end, outcome.end), first)
        if store.options.follow:        # what no entry vouches for yet is taken in when one does
            outcome = outcome._replace(end=dispatch_from)
    else:
        _mark(store, files, places, found)
        if found.queued_end > (outcome.end if clean else outcome.queued_to):
            stamps = keep_times(places.consumequeue, store._queue_ends())
        dispatch_from = _mend(store, files, places, found, first)
    _building.begin(store, outcome.end, dispatch_from, outcome.last_timestamp)
    if store.options.duplication_enabled and not readonly:
        # What has a queue entry was confirmed when it got it. Nothing beyond the log is: other records may come to lie there.
        _building.bound_dispatch(store, min(max(found.times[4], found.queued_end, 0), outcome.end))
    if not readonly:
        try:
            _fill(store, files, places, found, dispatch_from)
        except NotADirectoryError:
            raise in_the_way(places) from None
        if stamps:
            restore_times(stamps, store._queue_ends())
        if not clean:
            emit(Event.RECOVERED, path=places.root, kind="abnormal", max_offset=outcome.end, records=outcome.records,
                 seconds=time.monotonic() - store.open_begun)
    found.queues.correct()
    if not readonly:        # which gives none away, and may lack files of the log
        _building.reserve_offsets(store)
    count, last = _building.placeless(store)
    if count:
        emit(Event.RECORDS_PLACELESS, path=places.root, count=count, offset=last)


def _mark(store: StoreServes, files: ControlFiles, places: Places, found: Found) -> None:
    """What follows is more than one step, and a crash between two of them is no clean exit. Where queues are damaged, only the
    damage tells: before it is taken away the checkpoint, too, must cease to say that their entries are safe."""
    if found.lacking_from < OFFSET_MAX or found.emptied:
        found.times = (found.times[0], 0, *found.times[2:])
    if found.times[5] > found.outcome.end:
        found.times = (*found.times[:5], 0)
    checkpoint.take_back(files, places.checkpoint, found.times)
    lockfile.set_abort(files, places.root, store.options.compat)


def _mend(store: StoreServes, files: ControlFiles, places: Places, found: Found, first: int) -> int:
    """Takes away what is not to be believed, from log, queues and index. Returns from where dispatch has to fill them again."""
    outcome, clean = found.outcome, found.rules.clean
    if found.lost and (copy := keep_directories(
            files, places.root, f"queues-{outcome.end:020d}",
            (places.consumequeue, places.batchconsumequeue, places.consumequeue_ext, places.index))) is not None:
        emit(Event.QUEUES_COPIED, path=places.root, copy=copy, offset=outcome.end)
    if not found.recovery.starts():
        found.queues.destroy()
        _building.destroy_index(store)
    remove_empty(found.table, found.emptied)
    damaged = found.lacking_from < OFFSET_MAX
    if damaged or not clean:
        found.queues.cut()
    finish_removals(store, files, places.root, found.table)
    dispatch_from = max(found.queued_end, first, 0) if clean else min(outcome.begin, max(found.queued_end, first))
    # Entries that no sync is known to cover may be torn, and what is left of one may look whole: they are written again.
    whole_to = outcome.end if clean else min(outcome.queued_to, outcome.end)
    if found.queued_end > whole_to:
        # Light queues alike, where dispatch fills them again; else nobody does.
        light = store.options.enable_lmq and store.options.enable_multi_dispatch
        lacking_from = found.queues.truncate(whole_to, -1 if light else outcome.end)
        if clean:
            dispatch_from = min(dispatch_from, max(lacking_from, first, 0))
    # Behind the queues: entries that lead to files which are gone would look like a disk that is, if this is broken off.
    store.cut_bytes = make_end(found.recovery, files, places.root, outcome, found.rules, found.queued_end)
    bound_removed(store, files, outcome.end)
    drop_stale(files, places.root, outcome.end)
    if damaged:
        dispatch_from = min(dispatch_from, max(found.lacking_from, first, 0))
        emit(Event.QUEUES_SPOILT, path=places.consumequeue, offset=dispatch_from)
    if store.options.index_enabled and not clean:
        if dropped := _building.drop_index_after(store, found.times[2]):
            emit(Event.INDEX_FILES_DROPPED, count=dropped)
        # Index files that were lost may have covered more than the file recovery starts from.
        dispatch_from = max(min(dispatch_from, _building.index_end(store)), first)
    if found.queued_end > outcome.end or store.cut_bytes or _building.index_end(store) >= outcome.end:
        _building.truncate_index(store, outcome.end)
    return min(dispatch_from, outcome.end)


def _fill(store: StoreServes, files: ControlFiles, places: Places, found: Found, begin: int) -> None:
    """Dispatches what lies between `begin` and the end. A gap in a queue says that entries before it are lost: once more from
    there, or from further back where the newest entry that is left leads to no record. A gap that is left is the log's."""
    lacking_from = _building.catch_up(store, found.outcome.end, begin, True)
    if lacking_from == OFFSET_MAX:
        return
    found.lacking_from = min(lacking_from, found.queues.settle_from(-1, True)[1])
    _mark(store, files, places, found)
    found.queues.cut()
    while lacking_from < OFFSET_MAX:
        back_to = max(s for s in found.recovery.starts() if s <= max(found.lacking_from, found.recovery.starts()[0]))
        filling, begin = back_to < begin, min(back_to, begin)
        emit(Event.QUEUES_SPOILT, path=places.consumequeue, offset=begin)
        lacking_from = found.lacking_from = _building.catch_up(store, found.outcome.end, begin, filling)


def _sweep(files: ControlFiles, tmp: str) -> None:
    """What a crash left half made."""
    for entry in os.scandir(tmp):
        if entry.is_dir(follow_symlinks=False):
            emit(Event.FOREIGN_FILE_SKIPPED, file=entry.path, reason="a store makes no directory there")
        else:
            files.unlink(entry.path)
