"""Pre-allocation of CommitLog files (RocketMQ: AllocateMappedFileService.java). Contract in _allocator.pxd."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from rmq_store.base.io._io cimport rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport (EAGAIN, EINVAL, ENOMEM, ETIMEDOUT, rmq_event_ticket, rmq_event_wait, rmq_event_wake,
                                      rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish, rmq_publish32,
                                      rmq_thread_join, rmq_thread_start)
from rmq_store.base.io._want cimport rmq_is_full
from rmq_store.base.segment._descriptors cimport unflushed_look
from rmq_store.base.segment._file cimport (FileRow, LogFile, log_file_adopt, log_file_faults, log_file_hold, log_file_map,
                                           log_file_open_direct, log_file_release, log_file_sync_dir, log_file_zero,
                                           offset_name, path_join, row_find, row_reserve)
from rmq_store.base.segment._places cimport MakePlace, place_of, places_free


cdef extern from "<fcntl.h>" nogil:
    enum: O_RDWR, O_WRONLY, O_CREAT, O_TRUNC, O_DIRECT, O_NOFOLLOW

cdef extern from "rmq_pages.h" nogil:
    int64_t rmq_page_size()
    int rmq_pages_populate(void *at, size_t n)
    int rmq_pages_cache(void *at, size_t n)
    int rmq_pages_lock(void *at, size_t n)
    int rmq_pages_unlock(void *at, size_t n)

cdef enum:
    PAGE = 4096                     # as direct writes take it; that of the map may be larger
    CHUNK = 256 * 1024              # one write of zeros: the longest a writer at the frontier may have to wait
    AHEAD_AT_OPEN = 16 << 20
    STREAM_AHEAD_MIN = 2 << 20
    AHEAD_LOW = 16 << 20            # zeroing starts below this distance ...
    AHEAD_HIGH = 20 << 20           # ... and continues to this one: more at once, and puts wait behind its sync for longer
    PASS_MARGIN = 1 << 20
    ZEROS_PAY_BYTES = 128 << 10     # a sync of more than that gains less from zeros than their writing costs
    FLUSHES_MIN = 8
    UNDER_WAY = 4                   # files that are made and not in the row yet, at most

cdef int64_t TICK_NS = 20_000_000
# Ahead of a stream. What is there is dirty, and a flush writes it too: of a slow stream it would be a large part.
cdef int64_t STREAM_AHEAD_NS = 40_000_000
cdef int64_t STREAM_GOAL_MIN = (32 << 20) // 25         # of a stream of 32 MiB a second
cdef int64_t STREAM_GOAL_FAST = (160 << 20) // 25       # puts outrun the zeros: one fault shall bring much
cdef int64_t STREAM_LOOK_NS = 1_000_000      # a shorter time says nothing
cdef int64_t FAST_FILE_NS = 2_000_000_000


cdef Allocator *allocator_new(const rmq_io *io, FileRow *row, int prezero, int touch, bint lock_pages) noexcept nogil:
    cdef Allocator *a = <Allocator *> calloc(1, sizeof(Allocator))
    if a == NULL:
        return NULL
    a.io, a.row, a.want, a.locked_from, a.advised = io, row, -1, -1, -1
    a.prezero, a.touch, a.lock_pages = prezero, touch, lock_pages
    if posix_memalign(<void **> &a.zeros, PAGE, CHUNK) != 0:
        free(a)
        return NULL
    memset(a.zeros, 0, CHUNK)
    return a


cdef void allocator_free(Allocator *a) noexcept nogil:
    if a == NULL:
        return
    log_file_release(a.tail)
    places_free(&a.places)
    free(a.zeros)
    free(a)


cdef int _reserve(Allocator *a, int64_t start, char *tmp, int *out) noexcept nogil:
    # Makes `tmp` a file of the right length with its space reserved, on the device. The descriptor in *out stays open.
    cdef const rmq_io *io = a.io
    cdef int rc
    cdef int fd = io.open(io.ctx, tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644)
    if fd < 0:
        return fd
    rc = io.fallocate(io.ctx, fd, 0, a.row.file_size)
    if rc >= 0 and a.prezero == PREZERO_FULL:
        rc = log_file_zero(io, tmp, fd, a.row.file_size, a.zeros, CHUNK)
    if rc >= 0:
        rc = io.fsync(io.ctx, fd)
    if rc < 0:
        io.close(io.ctx, fd)
        io.unlink(io.ctx, tmp)
        return rc
    out[0] = fd
    return 0


cdef LogFile *_make_in(Allocator *a, const MakePlace *place, int64_t start, int *error) noexcept nogil:
    cdef const rmq_io *io = a.io
    cdef char[21] name
    cdef char *tmp
    cdef LogFile *f = NULL
    cdef int fd = -1
    offset_name(start, name)
    tmp = path_join(place.tmp, name)
    if tmp == NULL:
        error[0] = -ENOMEM
        return NULL
    error[0] = _reserve(a, start, tmp, &fd)
    if error[0] == 0:
        f = log_file_adopt(io, place.dir, start, a.row.file_size, fd, True)
        if f == NULL:
            error[0] = -ENOMEM
            io.close(io.ctx, fd)
        else:
            error[0] = io.rename(io.ctx, tmp, f.path)
            if error[0] >= 0:
                error[0] = io.sync_dir(io.ctx, place.dir)
                if error[0] >= 0:
                    error[0] = log_file_map(a.row, f)
                if error[0] >= 0 and a.direct:
                    error[0] = log_file_open_direct(f)
                if error[0] < 0:
                    io.unlink(io.ctx, f.path)
        if error[0] < 0:
            if f == NULL:
                io.unlink(io.ctx, tmp)
            log_file_release(f)
            f = NULL
    free(tmp)
    return f


cdef LogFile *allocator_make(Allocator *a, int64_t start, int *error) noexcept nogil:
    cdef LogFile *f = NULL
    cdef MakePlace *place
    cdef uint64_t refused = 0
    error[0] = row_reserve(a.row, UNDER_WAY)        # the append that takes it could not give it back
    if error[0] < 0:
        return NULL
    while f == NULL:
        place = place_of(&a.places, start // a.row.file_size, refused)
        if place == NULL:
            break                                   # the error of the last one
        f = _make_in(a, place, start, error)
        if f != NULL or not rmq_is_full(error[0]):
            break
        refused |= <uint64_t> 1 << <int> (place - a.places.all)     # full before the control thread saw it
        if a.places.count > 1:
            rmq_publish32(&place.full, 1)
    if f != NULL:
        if a.prezero == PREZERO_WINDOW or a.touch == TOUCH_STREAM:
            f.zeroed_to = 0
        if a.lock_pages:
            _lock(a, f)
    return f


cdef void _lock(Allocator *a, LogFile *f) noexcept nogil:
    # Refused: the pages fault in, as without it; whoever looks at lock_error says so.
    cdef int rc = rmq_pages_lock(f.map, f.size)
    f.locked = rc >= 0
    if rc < 0 and a.lock_error == 0:
        rmq_publish32(&a.lock_error, rc)
    if a.locked_from < 0 or f.start < a.locked_from:
        a.locked_from = f.start


cdef void _lock_tail(Allocator *a, LogFile *tail) noexcept nogil:
    # New files come locked. One that the store began with is locked now, and those before it no longer: more than one where
    # they fill faster than this thread looks.
    cdef LogFile *f
    cdef int rc
    if not tail.locked and a.locked_from != tail.start:
        _lock(a, tail)
    while a.locked_from < tail.start:
        f = row_find(a.row, a.locked_from, &rc)
        if f != NULL:
            if f.locked:
                rmq_pages_unlock(f.map, f.size)
            f.locked = False
            log_file_release(f)
        a.locked_from += a.row.file_size


cdef inline int64_t _zero_end(const LogFile *f) noexcept nogil:
    return f.size & ~(<int64_t> PAGE - 1)       # direct writes take whole pages only


cdef bint _zeros_pay(Allocator *a) noexcept nogil:
    # Zeros spare each sync the file system's own writes for a fresh page, a fixed price, and cost the device every byte of the
    # log once more: at a high rate, with many messages a sync, that is the dearer. Looked at again from burst to burst.
    cdef int64_t flushes = rmq_load(a.flushes), wrote = rmq_load(a.wrote)
    if flushes - a.seen_flushes >= FLUSHES_MIN:
        a.flush_bytes = (wrote - a.seen_wrote) // (flushes - a.seen_flushes)
        a.seen_flushes, a.seen_wrote = flushes, wrote
    return a.flush_bytes < ZEROS_PAY_BYTES


cdef bint _zero_ahead(Allocator *a, LogFile *f) noexcept nogil:
    # One burst of zeros ahead of the writer. Returns True if there was anything to do.
    cdef const rmq_io *io = a.io
    cdef int64_t ahead = max(rmq_load(a.wrote) - f.start, 0), from_position = rmq_load(&f.zeroed_to)
    cdef int64_t n, goal, end = _zero_end(f)
    cdef int rc = 0, fd
    if from_position >= end or rmq_load32(&a.zero_error) != 0:
        return False
    if from_position - ahead >= (AHEAD_LOW if ahead > 0 else AHEAD_AT_OPEN) or not _zeros_pay(a):
        return False
    goal = min(ahead + (AHEAD_HIGH if ahead > 0 else AHEAD_AT_OPEN), end)
    fd = io.open(io.ctx, f.path, O_WRONLY | O_DIRECT | O_NOFOLLOW, 0)
    if fd == -EINVAL:       # a file system without direct I/O
        fd = io.open(io.ctx, f.path, O_WRONLY | O_NOFOLLOW, 0)
    if fd < 0:
        rmq_publish32(&a.zero_error, fd)
        return False
    while rc >= 0 and rmq_load32(&a.stop) == 0:
        rmq_mutex_lock(&a.zero_lock)
        from_position = f.zeroed_to
        if from_position >= goal:
            rmq_mutex_unlock(&a.zero_lock)
            break
        n = min(end - from_position, CHUNK)
        rc = rmq_pwrite_all(io, fd, a.zeros, n, from_position)
        if rc >= 0:
            rmq_publish(&f.zeroed_to, from_position + n)
        rmq_mutex_unlock(&a.zero_lock)
    if rc >= 0:
        rc = io.fdatasync(io.ctx, fd)
        if rc < 0:
            a.sync_failed(a.sync_failed_of, rc)     # it covered what the writer had put there too
    io.close(io.ctx, fd)
    if rc < 0:
        # Nothing was acknowledged on zeros alone. The frontier moves to the end, so that nobody tries again.
        rmq_publish32(&a.zero_error, rc)
        rmq_mutex_lock(&a.zero_lock)
        rmq_publish(&f.zeroed_to, f.size)
        rmq_mutex_unlock(&a.zero_lock)
    return True


cdef bint _touch_ahead(Allocator *a, LogFile *f) noexcept nogil:
    cdef int64_t n, at = max(rmq_load(a.wrote), f.start)
    # Not beyond the zeros: their direct writes would throw these pages out again.
    cdef bint zeroed = a.prezero == PREZERO_WINDOW and rmq_load32(&a.zero_error) == 0
    cdef int64_t end = f.start + (rmq_load(&f.zeroed_to) if zeroed else f.size)
    if a.touched_to < at:
        a.touched_to = f.start + ((at - f.start) & -rmq_page_size())
    if a.touched_to >= end or a.touched_to - at >= AHEAD_LOW:
        return False
    n = min(end - a.touched_to, 1 << 20)
    rmq_pages_cache(f.map + (a.touched_to - f.start), n)
    if a.touch == TOUCH_MAP:
        rmq_pages_populate(f.map + (a.touched_to - f.start), n)
    a.touched_to += n
    return True


cdef inline void _pace(Allocator *a, LogFile *f, int64_t goal) noexcept nogil:
    cdef bint fast = goal >= (STREAM_GOAL_FAST * 3 // 4 if a.fast else STREAM_GOAL_FAST)
    if fast != a.fast:
        a.fast = fast
        log_file_faults(f, f.start if fast else rmq_load(a.wrote), fast)


cdef void _advise(Allocator *a, LogFile *f) noexcept nogil:
    # Not where the log rolls: it waits for whoever maps or unmaps memory of this process.
    cdef int rc
    cdef LogFile *before = row_find(a.row, a.advised, &rc) if a.advised >= 0 else NULL
    if before != NULL:
        log_file_faults(before, before.start, True)     # for readers
        log_file_release(before)
    log_file_faults(f, rmq_load(a.wrote), a.fast)
    a.advised = f.start


cdef bint _stream_ahead(Allocator *a, LogFile *f) noexcept nogil:
    # Woken by allocator_pass, and while the stream goes on by the clock. True: it goes on.
    cdef int64_t at = rmq_load(a.wrote), now = a.io.mono_ns(a.io.ctx), begin, n
    cdef int64_t end = _zero_end(f)
    cdef int64_t took = max(now - a.paced_ns, 1)
    cdef int64_t goal = <int64_t> (<double> (at - a.paced_wrote) / <double> took * <double> STREAM_AHEAD_NS)
    cdef int rc = 0
    if took < STREAM_LOOK_NS:
        return True
    a.paced_wrote, a.paced_ns = at, now
    _pace(a, f, goal)
    if goal < STREAM_GOAL_MIN or rmq_load32(&a.zero_error) != 0:
        return False
    goal = max(STREAM_AHEAD_MIN, min(goal, AHEAD_LOW))
    while rmq_load32(&a.stop) == 0:
        at = max(rmq_load(a.wrote) - f.start, 0)
        rmq_mutex_lock(&a.zero_lock)
        begin = f.zeroed_to
        n = min(CHUNK - begin % CHUNK, end - begin) if at < end and begin - at < goal else 0
        if n > 0:
            a.loose = True
            rc = rmq_pwrite_all(a.io, f.fd, a.zeros, n, begin)
            rmq_publish(&f.zeroed_to, begin + n if rc >= 0 else f.size)
        rmq_mutex_unlock(&a.zero_lock)
        if rc < 0:
            rmq_publish32(&a.zero_error, rc)        # nothing was acknowledged on zeros
        if n <= 0 or rc < 0:
            break
    return rc >= 0


cdef bint _make_wanted(Allocator *a) noexcept nogil:
    # Makes the file asked for, and the one behind it while files fill in less than two seconds.
    cdef int64_t start = -1, now = a.io.mono_ns(a.io.ctx)
    cdef LogFile *f = NULL
    cdef int error = rmq_load32(&a.held)
    rmq_mutex_lock(&a.lock)
    if a.want >= 0 and a.error == 0:
        if a.ready[0] == NULL:
            start = a.want
        elif a.ready[1] == NULL and now < rmq_load(&a.fast_until_ns):
            start = a.ready[0].start + a.row.file_size
    a.making = start >= 0
    rmq_mutex_unlock(&a.lock)
    if start < 0:
        return False
    if error == 0:
        f = allocator_make(a, start, &error)
    rmq_mutex_lock(&a.lock)
    a.making = False
    if f == NULL:
        if a.ready[0] == NULL:
            rmq_publish32(&a.error, error)
        else:
            rmq_publish(&a.fast_until_ns, 0)    # only the spare one failed: it is not needed yet
    else:
        a.ready[0 if a.ready[0] == NULL else 1] = f
    rmq_mutex_unlock(&a.lock)
    rmq_event_wake(&a.done)
    return True


cdef void *_run(void *arg) noexcept nogil:
    cdef Allocator *a = <Allocator *> arg
    cdef LogFile *tail
    cdef int ticket
    cdef bint busy, crowded, streams, ticks = a.prezero == PREZERO_WINDOW or a.touch == TOUCH_CACHE or a.touch == TOUCH_MAP
    while rmq_load32(&a.stop) == 0:
        ticket, streams = rmq_event_ticket(&a.requested), False
        crowded = unflushed_look(&a.unflushed, a.row, rmq_load(&a.want))
        busy = not crowded and _make_wanted(a)
        busy = (a.also != NULL and a.also(a.also_of)) or busy
        rmq_mutex_lock(&a.lock)
        tail = a.tail
        if tail != NULL:
            log_file_hold(tail)
        rmq_mutex_unlock(&a.lock)
        if tail != NULL:
            if a.lock_pages:
                _lock_tail(a, tail)
            if a.prezero == PREZERO_WINDOW:
                busy = _zero_ahead(a, tail) or busy
            if a.touch == TOUCH_STREAM:
                if tail.start != a.advised:
                    _advise(a, tail)
                streams = _stream_ahead(a, tail)
            elif a.touch != TOUCH_OFF:
                busy = _touch_ahead(a, tail) or busy
            log_file_release(tail)
        rmq_event_wake(&a.done)
        if not busy:
            rmq_event_wait(&a.requested, ticket, TICK_NS if ticks or streams or crowded else -1)
    return NULL


cdef int allocator_start(Allocator *a) noexcept nogil:
    a.stop = 0
    a.seen_wrote = a.paced_wrote = rmq_load(a.wrote)
    a.seen_flushes, a.paced_ns = rmq_load(a.flushes), a.io.mono_ns(a.io.ctx)
    cdef int rc = rmq_thread_start(&a.thread, _run, a, b"rmq-allocate")
    a.running = rc == 0
    return rc


cdef int _delete_ready(Allocator *a, int rc, bint again) noexcept nogil:
    # again: the caller tries again what failed.
    # Newest first, and none behind one that stays: a gap between files would make the store refuse to load.
    cdef int i
    for i in range(1, -1, -1):
        if a.ready[i] != NULL:
            if rc == 0:
                rc = a.io.unlink(a.io.ctx, a.ready[i].path)
            # In two directories the names go in this order only where the device is told of each.
            if rc >= 0 and i == 1 and a.places.count > 1:
                rc = log_file_sync_dir(a.ready[i])
            if rc < 0 and again:
                return rc
            log_file_release(a.ready[i])
            a.ready[i] = NULL
    return rc


cdef int allocator_stop(Allocator *a) noexcept nogil:
    cdef int rc = 0, synced
    if a.running:
        rmq_publish32(&a.stop, 1)
        rmq_event_wake(&a.requested)
        rc = rmq_thread_join(&a.thread)
        a.running = False
        if a.loose and rmq_load32(a.fence) == 0:    # a log that was closed is on the device, zeros and all
            synced = a.io.fdatasync(a.io.ctx, a.tail.fd)
            if synced < 0:
                a.sync_failed(a.sync_failed_of, synced)
        if a.also_done != NULL:
            a.also_done(a.also_of)
    return _delete_ready(a, rc, False)


cdef int allocator_forget(Allocator *a) noexcept nogil:
    rmq_mutex_lock(&a.lock)
    rmq_publish(&a.want, -1)
    cdef int rc = -EAGAIN if a.making else _delete_ready(a, 0, True)
    rmq_mutex_unlock(&a.lock)
    return rc


cdef void allocator_request(Allocator *a, int64_t start) noexcept nogil:
    rmq_mutex_lock(&a.lock)
    # Never back: whoever asks late for a file that was taken meanwhile would have it made again, in place of the one in use.
    rmq_publish(&a.want, max(a.want, start))
    rmq_publish32(&a.error, 0)
    rmq_mutex_unlock(&a.lock)
    rmq_event_wake(&a.requested)


cdef LogFile *allocator_take(Allocator *a, int64_t start) noexcept nogil:
    cdef LogFile *f = NULL
    cdef int64_t now
    rmq_mutex_lock(&a.lock)
    if a.ready[0] != NULL and a.ready[0].start == start:
        f = a.ready[0]
        a.ready[0], a.ready[1] = a.ready[1], NULL
        rmq_publish(&a.want, start + a.row.file_size)
    rmq_mutex_unlock(&a.lock)
    if f != NULL:
        now = a.io.mono_ns(a.io.ctx)
        if a.made_ns > 0 and now - a.made_ns < FAST_FILE_NS:
            rmq_publish(&a.fast_until_ns, now + FAST_FILE_NS)
        a.made_ns = now         # the writer's: one takes at a time
        rmq_event_wake(&a.requested)
    return f


cdef int allocator_wait(Allocator *a, int64_t start, int64_t timeout_ns) noexcept nogil:
    cdef int64_t now, deadline = a.io.mono_ns(a.io.ctx) + timeout_ns
    cdef int ticket, error
    cdef bint ready
    allocator_request(a, start)
    while True:
        ticket = rmq_event_ticket(&a.done)
        rmq_mutex_lock(&a.lock)
        # Somebody else may have taken it already: then the log moved on, and the caller looks again.
        ready = (a.ready[0] != NULL and a.ready[0].start >= start) or a.want > start
        error = a.error
        rmq_mutex_unlock(&a.lock)
        if ready or rmq_load32(a.fence) != 0:
            return 0
        if error < 0:
            return error
        now = a.io.mono_ns(a.io.ctx)
        if now >= deadline:
            return -ETIMEDOUT
        rmq_event_wait(&a.done, ticket, deadline - now)


cdef void allocator_follow(Allocator *a, LogFile *tail) noexcept nogil:
    cdef LogFile *before
    log_file_hold(tail)
    rmq_mutex_lock(&a.lock)
    before, a.tail = a.tail, tail
    rmq_publish(&a.unflushed.tail, tail.start)
    rmq_publish32(&a.zero_error, 0)
    rmq_mutex_unlock(&a.lock)
    log_file_release(before)
    rmq_event_wake(&a.requested)


cdef void allocator_pass(Allocator *a, LogFile *f, int64_t position) noexcept nogil:
    cdef int64_t to = ((position + PAGE - 1) & ~(<int64_t> PAGE - 1)) + PASS_MARGIN
    rmq_mutex_lock(&a.zero_lock)
    if f.zeroed_to < to:
        rmq_publish(&f.zeroed_to, to if to < f.size else f.size)
    rmq_mutex_unlock(&a.zero_lock)
    if a.touch == TOUCH_STREAM:
        rmq_event_wake(&a.requested)


cdef void allocator_settle(Allocator *a, int64_t start, int64_t timeout_ns) noexcept nogil:
    cdef int64_t now, at, deadline = a.io.mono_ns(a.io.ctx) + timeout_ns
    cdef int ticket
    allocator_request(a, start)
    if a.lock_pages:
        allocator_wait(a, start, timeout_ns)        # one that cannot be made is told to the put that needs it
    while a.tail != NULL and a.prezero == PREZERO_WINDOW:
        ticket = rmq_event_ticket(&a.done)
        at, now = rmq_load(a.wrote) - a.tail.start, a.io.mono_ns(a.io.ctx)
        if (rmq_load(&a.tail.zeroed_to) - at >= AHEAD_AT_OPEN or rmq_load(&a.tail.zeroed_to) >= _zero_end(a.tail)
                or rmq_load32(&a.zero_error) != 0 or now >= deadline):
            return
        rmq_event_wait(&a.done, ticket, deadline - now)
