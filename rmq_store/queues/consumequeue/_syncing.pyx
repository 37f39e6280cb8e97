"""Entries on their way to the device (RocketMQ: FlushConsumeQueueService). Contract in _syncing.pxd."""
from libc.stdint cimport int64_t

from rmq_store.base.io._sync cimport (ENOMEM, RMQ_SWEEP_ALONE, rmq_cas32, rmq_fence, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish32, rmq_sweep_all)
from rmq_store.base.io._want cimport rmq_is_want
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles
from rmq_store.queues.consumequeue._entries cimport entries_note_unsynced
from rmq_store.queues.consumequeue._files cimport (NEW_IN_BASE, NEW_IN_PARENT, NEW_IN_TOPIC, files_dir_synced, files_sync,
                                                   files_sync_base, files_sync_dirs)
from rmq_store.queues.consumequeue._rest cimport state_hold, state_let
from rmq_store.queues.consumequeue._state cimport QueueState, TableState, state_of
from rmq_store.queues.consumequeue._structs cimport Queue

cdef enum:
    PAGE = 4096
    SYNC_AT_ONCE = 4096


cdef inline bint _due(const UnitFiles *f, int64_t to, int64_t pages_min) noexcept nogil:
    cdef int64_t synced = rmq_load(&f.synced)
    return pages_min <= 0 or to // PAGE - synced // PAGE >= pages_min or to // f.file_size != synced // f.file_size


cdef struct Syncing:
    TableState *t
    int64_t pages_min
    bint many                           # queues wait: those that are new do so no longer
    int base_dirs                       # NewDirs of their directories; under sync_lock
    int ext_dirs
    int want                            # atomic: what a queue lacked, which is looked at again; 0 nothing
    Queue *queues[SYNC_AT_ONCE]


cdef int _sync_files(TableState *t, UnitFiles *f, int64_t to, bint all_dirs, int *base_dirs) noexcept nogil:
    # A queue's files, then its directories; unless all_dirs, that of all queues is left to the end. Where dispatch notes more
    # meanwhile, all are synced once more.
    cdef int dirs
    cdef int rc = files_sync(t.cache, f, to)
    if rc < 0:
        return rc
    dirs = rmq_load32(&f.new_dirs)
    base_dirs[0] = 0 if all_dirs else dirs & (NEW_IN_BASE | NEW_IN_PARENT)
    rc = files_dir_synced(t.cache, files_sync_dirs(t.cache, f, dirs & ~base_dirs[0]))
    if rc >= 0:
        rmq_cas32(&f.new_dirs, dirs, 0)
    return rc


cdef int _sync_queue(void *ctx, int64_t i) noexcept nogil:
    # Of one queue, beside others: what a device makes of several syncs at a time is one.
    cdef Syncing *x = <Syncing *> ctx
    cdef QueueState *s = state_hold(x.t, x.queues[i])
    cdef int rc
    if s == NULL:
        return files_dir_synced(x.t.cache, -ENOMEM)       # it has left the chain
    rc = _sync_held(x, x.queues[i], s)
    state_let(x.t, x.queues[i])
    return rc


cdef int _sync_held(Syncing *x, Queue *q, QueueState *s) noexcept nogil:
    cdef TableState *t = x.t
    cdef int64_t to
    cdef int base_dirs = 0, ext_dirs = 0, rc
    rmq_mutex_lock(&t.sync_lock)
    rmq_publish32(&s.unsynced, 0)
    rmq_mutex_unlock(&t.sync_lock)
    rmq_fence()
    if rmq_load32(&s.deleting) != 0:
        return 0                        # it was removed, and its files are to go
    to = rmq_load(&s.batch_end) if s.batched else rmq_load(&q.max_offset) * UNIT_SIZE
    if not _due(&s.entries, to, x.pages_min) and not (x.many and rmq_load32(&s.entries.new_dirs) & NEW_IN_TOPIC):
        entries_note_unsynced(t, q)
        return 0
    rc = _sync_files(t, &s.entries, to, s.batched, &base_dirs)     # those of batch queues are not those of the others
    if rc >= 0 and t.ext_file_size > 0:
        rc = _sync_files(t, &s.ext, rmq_load(&s.ext.written), False, &ext_dirs)
    if base_dirs | ext_dirs:
        rmq_mutex_lock(&t.sync_lock)
        x.base_dirs |= base_dirs
        x.ext_dirs |= ext_dirs
        rmq_mutex_unlock(&t.sync_lock)
    if rmq_is_want(rc) and rmq_load32(&t.cache.sync_failed) == 0:
        entries_note_unsynced(t, q)
        rmq_publish32(&x.want, rc)
        return 0                        # the others have their turn
    return rc


cdef int entries_sync(TableState *t, int64_t pages_min) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&t.run_lock)
    rc = _sync(t, pages_min)
    rmq_mutex_unlock(&t.run_lock)
    return rc


cdef bint _many(const Queue *chain) noexcept nogil:
    cdef int n = 0
    while chain != NULL and n < RMQ_SWEEP_ALONE:
        chain = state_of(chain).next_unsynced
        n += 1
    return n == RMQ_SWEEP_ALONE


cdef int _sync_bases(FileCache *c, const char *dir, const char *ext_dir) noexcept nogil:
    cdef int rc = files_dir_synced(c, files_sync_base(c, dir, c.base_due))
    if rc < 0:
        return rc
    c.base_due = 0
    rc = files_dir_synced(c, files_sync_base(c, ext_dir, c.ext_due))
    if rc >= 0:
        c.ext_due = 0
    return rc


cdef int _sync(TableState *t, int64_t pages_min) noexcept nogil:
    # A failed sync is final for the table: the kernel reports an error once, and what it dropped cannot be told from what it
    # kept. For want of a descriptor none was tried: the next call does. Dispatch and readers keep half of the descriptors.
    cdef Syncing x
    cdef Queue *chain
    cdef int64_t n
    cdef int rc = 0
    if t.sync_error == 0 and rmq_load32(&t.cache.sync_failed) != 0:
        t.sync_error = -rmq_load32(&t.cache.sync_failed)        # of a directory whose files were deleted
    if t.sync_error < 0:
        return t.sync_error
    rmq_mutex_lock(&t.sync_lock)
    chain = t.unsynced
    t.unsynced = NULL
    rmq_mutex_unlock(&t.sync_lock)
    x.t = t
    x.pages_min = pages_min
    x.many = _many(chain)
    x.base_dirs = x.ext_dirs = x.want = 0
    while chain != NULL and rc >= 0:
        n = 0
        while chain != NULL and n < SYNC_AT_ONCE:       # a queue is entered in no other chain before its turn
            x.queues[n] = chain
            chain = state_of(chain).next_unsynced
            n += 1
        rc = rmq_sweep_all(n, _sync_queue, &x, t.cache.capacity // 2, NULL)
    t.cache.base_due |= x.base_dirs
    t.cache.ext_due |= x.ext_dirs
    if rc >= 0:
        rc = rmq_load32(&x.want)
    if rc >= 0:
        rc = _sync_bases(t.cache, t.dir, t.ext_dir)
    if rc < 0 and (rmq_load32(&t.cache.sync_failed) != 0 or not rmq_is_want(rc)):
        t.sync_error = rc
    return rc
