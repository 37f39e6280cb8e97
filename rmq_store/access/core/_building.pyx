"""Building a store: the opening thread makes its parts in the order of a message's way, and starts their threads last.

Functions of opened/opening.py, which decides; each fills in what StoreCore holds.
"""
import errno
import os

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from rmq_store.access.core._core cimport StoreCore
from rmq_store.base.io._io cimport IoTable, rmq_pread_all
from rmq_store.base.io._sync cimport ENOMEM, rmq_load, rmq_load32, rmq_publish, rmq_publish32
from rmq_store.base.segment._allocator cimport (PREZERO_FULL, PREZERO_OFF, PREZERO_WINDOW, TOUCH_CACHE, TOUCH_MAP, TOUCH_OFF,
                                                TOUCH_STREAM, allocator_follow, allocator_new, allocator_settle,
                                                allocator_start)
from rmq_store.base.segment._descriptors cimport log_file_drop_fd, log_file_have_fd, row_drop_fds
from rmq_store.base.segment._file cimport (LogFile, file_reserve, log_file_copied, log_file_release, row_absent, row_add_dir,
                                           row_end, row_find, row_leave_out, row_new, row_open, row_push)
from rmq_store.base.segment._places cimport places_add
from rmq_store.log.commitlog._log cimport log_begin, log_new, log_use_allocator
from rmq_store.log.dispatch._dispatch cimport dispatch_reserve, dispatch_to, dispatcher_new, dispatcher_start
from rmq_store.log.flush._flush cimport flusher_new, flusher_start
from rmq_store.log.flush._backends cimport backend_use
from rmq_store.log.pool._pool cimport pool_new
from rmq_store.log.recovery._checkpoint cimport checkpointer_new, checkpointer_start
from rmq_store.log.recovery._queues cimport QueueRecovery
from rmq_store.log.recovery._scan cimport LogRecovery
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport queues_fill, queues_filled, queues_make_ahead, queues_placeless
from rmq_store.queues.index._index cimport index_destroy, index_drop_after, index_end_physical, index_truncate
from rmq_store.queues.index._owner cimport IndexOwner

from rmq_store import errors
from rmq_store.base.io.files import no_room
from rmq_store.base.io.wants import no_thread
from rmq_store.base.machine.limits import huge_pages
from rmq_store.events import Event, emit
from rmq_store.log.pool.memory import lock_error, lock_refused

cdef enum:
    SPINS_MUTEX = 100
    SPINS_SPIN = 20000

cdef int64_t MS = 1_000_000
_PREZERO = {"off": PREZERO_OFF, "window": PREZERO_WINDOW, "full": PREZERO_FULL}


cdef int _check(int rc, object path) except -1:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), path)
    return rc


cdef int _check_thread(int rc, name, object path) except -1:
    if rc < 0:
        raise no_thread(-rc, name, path)
    return rc


def setup(StoreCore store not None, path, options, bint readonly, IoTable io, directories, places, how):
    """Takes memory; opens no file. directories: those of the log, ascending. places: of each that gets new files, ascending, it
    and the directory in which they are made. how: what choose_backend found out."""
    store.path = path
    store.options = options
    store.readonly = readonly
    store._check_puts()
    store.io_owner = io
    store.io = io.table
    store.sync_mode = options.flush_mode == "sync"
    store.compat5 = options.compat == "5.x"
    store.row = row_new(store.io, os.fsencode(directories[0]), options.segment_size_bytes, not readonly)
    if store.row == NULL:
        raise MemoryError("commit-log row")
    for directory in directories[1:]:
        _check(row_add_dir(store.row, os.fsencode(directory)), directory)
    if not readonly and options.write_path == "pool":
        _take_pool(store, options)
    store.log = log_new(store.io, store.row, store.pool,
                        SPINS_SPIN if options.put_lock == "spin" else SPINS_MUTEX)
    if store.log == NULL:
        raise MemoryError("commit log")
    store.backend_owner = how       # what another package gave lives as long as the store uses it
    backend_use(store.log, options, how)
    if readonly:
        return
    store.alloc = allocator_new(store.io, store.row, _PREZERO[options.segment_prezero],
                                _touch(options), options.segment_mlock)
    if store.alloc == NULL:
        raise MemoryError("allocator")
    for directory, tmp in places:
        _check(places_add(&store.alloc.places, os.fsencode(directory), os.fsencode(tmp)), directory)
    if store.log.direct:
        store.alloc.direct = True
        store.alloc.touch = TOUCH_OFF        # files are written around the page cache
    log_use_allocator(store.log, store.alloc)


def _touch(options):
    """Which pages of the log are touched ahead of the writer."""
    if options.segment_warm:
        return TOUCH_MAP
    if options.flush_mode == "sync":
        return TOUCH_CACHE
    stream = options.write_path == "mmap" and options.role != "slave" and options.segment_prezero != "window"
    return TOUCH_STREAM if stream else TOUCH_OFF        # whose files are written, not mapped, takes large pages by itself


def _take_pool(StoreCore store not None, options):
    """A lock that was asked for and is refused is an error with the cure; what only a profile wants is done without."""
    cdef int error = 0
    cdef int64_t size = store._pool_size(options)
    store.pool = pool_new(size, options.pool_mlock, options.pool_hugepages, &error)
    if store.pool == NULL and options.pool_mlock:
        refusal = lock_refused(options, size, -error)
        if refusal is not None:
            raise refusal
        store.pool = pool_new(size, False, options.pool_hugepages, &error)
    if store.pool == NULL:
        raise OSError(-error, f"{os.strerror(-error)}: pool of {size} bytes: lower pool_window_count or "
                      "pool_window_size_bytes")
    if options.pool_hugepages:
        reason = huge_pages() if store.pool.huge else "madvise refused"     # the advice is taken even where it is of no use
        if reason is not None:
            emit(Event.HUGEPAGES_REFUSED, size=size, reason=reason)


cdef object _no_room(int error, path):
    if -error in errors.DiskFull.codes:
        return no_room(-error, path)
    return OSError(-error, os.strerror(-error), path)


def add_file(StoreCore store not None, int64_t start, bint gaps):
    """Opens one existing commit-log file; ascending. gaps: files may be missing before it (leave_out)."""
    cdef int error = 0
    cdef LogFile *f
    with nogil:
        f = row_open(store.row, start, &error)
    if f == NULL:
        raise OSError(-error, os.strerror(-error), f"{os.fsdecode(store.row.dir)}/{start:020d}")
    if f.writable:          # the one in which the log ends gets its space in any case (begin)
        error = file_reserve(store.io, f.fd, f.size, False)
        if error < 0:
            path = os.fsdecode(f.path)
            log_file_release(f)
            raise _no_room(error, path)
    if gaps and store.row.count > 0:
        error = row_leave_out(store.row, start)
    if error >= 0:
        error = row_push(store.row, f)
    if error >= 0:
        with nogil:
            log_file_drop_fd(store.row, f)
    else:
        log_file_release(f)
        raise errors.StoreRefusesToLoad(f"{os.fsdecode(store.row.dir)}/{start:020d}", 0, "files without a gap between them",
                                        f"a gap before offset {start}")


def add_rest(StoreCore store not None, int64_t start, path, int64_t size):
    """For reading: the first `size` bytes of a file of the log that has another length, and zeros behind them. Files may be
    missing before it."""
    cdef IoTable io = store.io_owner
    cdef LogFile *f
    cdef int64_t got = 0
    cdef int error = 0
    cdef int fd = io.open(path, os.O_RDONLY | os.O_NOFOLLOW, 0)
    try:
        size = min(size, store.row.file_size)
        f = log_file_copied(store.io, start, 1)
        if f == NULL:
            raise MemoryError(path)
        free(f.map)
        f.map = <unsigned char *> calloc(1, store.row.file_size)    # pages that nobody writes take no memory
        f.size = store.row.file_size
        f.data_end = start + size
        if f.map == NULL:
            error = -ENOMEM
        with nogil:
            if error == 0:
                got = rmq_pread_all(store.io, fd, f.map, size, 0)
                error = <int> got if got < 0 else 0
            if error == 0 and store.row.count > 0:
                error = row_leave_out(store.row, start)
            if error == 0:
                error = row_push(store.row, f)
        if error < 0:
            log_file_release(f)
            raise OSError(-error, os.strerror(-error), path)
    finally:
        io.close(fd)


def leave_out(StoreCore store not None, int64_t end):
    """For reading: the log continues to `end` in files that are not there. The rest is readable."""
    if store.row.count > 0:
        _check(row_leave_out(store.row, end), store.path)


def set_full(StoreCore store not None, int number, bint full):
    """Whether the disk of directory `number` of those that get new files is full. It then gets none while another is not."""
    if store.alloc != NULL and 0 <= number < store.alloc.places.count:
        rmq_publish32(&store.alloc.places.all[number].full, full)


def take_queues(StoreCore store not None, QueueTableOwner owner not None):
    """The table that consumequeue.loader filled."""
    store.queues_owner = owner
    store.queues = owner.table


def take_index(StoreCore store not None, IndexOwner owner not None):
    """The index that index.loader filled."""
    store.index_owner = owner
    store.index = owner.index


def drop_index_after(StoreCore store not None, int64_t index_timestamp):
    """After a crash: index files newer than the checkpoint go; returns how many. Dispatch builds them again."""
    cdef int rc
    with nogil:
        rc = index_drop_after(store.index, index_timestamp)
    return _check(rc, store.path)


def index_end(StoreCore store not None):
    """Log offset up to which the index has keys, -1: none, or no index."""
    return -1 if store.index == NULL else index_end_physical(store.index)


def truncate_index(StoreCore store not None, int64_t end):
    cdef int rc = 0
    if store.index != NULL:
        with nogil:
            rc = index_truncate(store.index, end)
    _check(rc, store.path)


def destroy_index(StoreCore store not None):
    """The log is gone: the index leads nowhere."""
    cdef int rc = 0
    if store.index != NULL:
        with nogil:
            rc = index_destroy(store.index)
    _check(rc, store.path)


def log_recovery(StoreCore store not None):
    recovery = LogRecovery()
    (<LogRecovery> recovery).attach(store.io_owner, store.row)
    return recovery


def make_dispatcher(StoreCore store not None, delays_ms, with_log):
    # with_log: whether queues, and index, lie on the log's disk.
    cdef Py_ssize_t i, n = len(delays_ms)
    store.dispatcher = dispatcher_new(store.log, store.queues, store.index)
    if store.dispatcher == NULL:
        raise MemoryError("dispatcher")
    store.dispatcher.delay_ms = <int64_t *> calloc(n + 1, sizeof(int64_t))
    if store.dispatcher.delay_ms == NULL:
        raise MemoryError("delay levels")
    for i in range(n):
        store.dispatcher.delay_ms[i] = delays_ms[i]
    store.dispatcher.delay_levels = <int> n
    store.dispatcher.light = store.options.enable_lmq and store.options.enable_multi_dispatch
    store.dispatcher.mirrors = store.options.role == "slave" and not store.readonly
    store.log.durable_only = store.options.visibility == "durable" and not store.readonly
    store.dispatcher.queues_with_log, store.dispatcher.index_with_log = with_log


def queue_recovery(StoreCore store not None):
    queues = QueueRecovery()
    options = store.options
    (<QueueRecovery> queues).attach(store.queues_owner, store.row,
                                    options.recover_thread_pool_nums if options.recover_concurrently else 1)
    return queues


def reserve_offsets(StoreCore store not None):
    """The queue offsets of what waits for the confirm offset are taken. A slave gives none away, and its queues may begin
    anew."""
    if not store.dispatcher.mirrors:
        _check(dispatch_reserve(store.dispatcher, store.log.wrote), store.path)


def placeless(StoreCore store not None):
    """(count, log offset of the last one) of records that say a queue offset that no queue can have."""
    cdef int64_t at = 0
    count = queues_placeless(store.queues, &at)
    return count, at


def begin(StoreCore store not None, int64_t end, int64_t dispatched, int64_t timestamp):
    """Positions after recovery: the log ends at `end`, dispatch continues at `dispatched`."""
    cdef int error = 0
    cdef LogFile *tail = NULL
    if row_end(store.row) > end and not row_absent(store.row, end):
        tail = row_find(store.row, end, &error)
        if tail == NULL:
            raise OSError(-error, os.strerror(-error), store.path)
        if store.alloc != NULL and not tail.writable:
            raise OSError(errno.EROFS, "read-only file system, and the log ends in this file: mount the disk for writing",
                          os.fsdecode(tail.path))
        if store.alloc != NULL:
            with nogil:
                error = log_file_have_fd(tail)
                if error >= 0:
                    error = file_reserve(store.io, tail.fd, tail.size, True)
            if error < 0:
                path = os.fsdecode(tail.path)
                log_file_release(tail)
                raise _no_room(error, path)
        tail.zeroed_to = tail.size
        if store.alloc != NULL and (store.alloc.prezero == PREZERO_WINDOW or store.alloc.touch == TOUCH_STREAM):
            tail.zeroed_to = (end - tail.start + 4095) // 4096 * 4096
    row_drop_fds(store.row, 0, end if tail == NULL else tail.start)     # that recovery took
    log_begin(store.log, end, tail, timestamp)
    rmq_publish(&store.log.dispatched, dispatched)
    if store.log.backend.prime != NULL:
        _check(store.log.backend.prime(store.log), store.path)
    if store.alloc != NULL and tail != NULL:
        allocator_follow(store.alloc, tail)


def bound_dispatch(StoreCore store not None, int64_t offset):
    rmq_publish(&store.log.confirm, offset)


def catch_up(StoreCore store not None, int64_t end, int64_t begin, bint filling):
    """Dispatches from `begin` to `end`, or to the confirm offset, in this thread; on a slave to a queue that begins anew, which
    is settled later (replication/anew.py). filling: an entry that would leave a gap is not made. Returns from where on a
    queue lacks entries then, 2^63 - 1: none does."""
    cdef int64_t lacking_from = 0
    cdef int rc
    end = min(end, rmq_load(&store.log.confirm))
    rmq_publish(&store.log.dispatched, begin)
    # An earlier pass may have begun later than this one: no key may be missing.
    store.dispatcher.indexed = store.dispatcher.counted = 0
    queues_fill(store.queues, filling, begin, end)
    with nogil:
        rc = dispatch_to(store.dispatcher, end)
        if rc >= 0:
            rc = queues_filled(store.queues, &lacking_from)
    _check(rc, store.path)
    if store.dispatcher.last_timestamp == 0 and store.log.dispatched == store.log.wrote:
        rmq_publish(&store.dispatcher.last_timestamp, store.log.wrote_timestamp)    # of all that is there
    return lacking_from


def start(StoreCore store not None, int checkpoint_fd, times):
    """Starts the native threads. `times`: what the checkpoint says."""
    options = store.options
    store.flusher = flusher_new(store.log)
    store.checkpointer = checkpointer_new(store.dispatcher, checkpoint_fd)
    if store.flusher == NULL or store.checkpointer == NULL:
        raise MemoryError("threads")
    store.flusher.sync_mode = store.sync_mode
    store._apply(options)
    t = &store.checkpointer.times
    t.physical, t.logics, t.index, t.master_flushed, t.confirm, t.flushed = times
    store.started = True
    queues_make_ahead(store.queues, store.alloc)
    _check_thread(allocator_start(store.alloc), "allocator", store.path)
    _check_thread(flusher_start(store.flusher), "flush", store.path)
    _check_thread(dispatcher_start(store.dispatcher), "dispatch", store.path)
    _check_thread(checkpointer_start(store.checkpointer), "checkpoint", store.path)
    if options.role != "slave" or store.row.count > 0:     # where an empty slave begins its master says
        with nogil:
            allocator_settle(store.alloc, row_end(store.row) if store.row.count > 0 else store.log.position, 2000 * MS)
    if rmq_load32(&store.alloc.lock_error) != 0 and options.given("segment_mlock"):
        raise lock_error("segment_mlock", 2 * options.segment_size_bytes, -rmq_load32(&store.alloc.lock_error))
