"""The steps of cleaning that touch native parts of an open store; cleaner.py decides (RocketMQ: MappedFileQueue,
CleanCommitLogService, CleanConsumeQueueService).

A commit-log file goes in two steps. Withdrawn, it is no longer in the row: the log begins with the next file, nobody new
finds it, and who holds it keeps it mapped. Deleted, its name is gone and the directory synced, before the next one's turn:
whatever moment the power fails, the files that are left have no gap between them.

One thread at a time (cleaner.py has a lock), beside puts, dispatch, flush and readers; nothing here holds the GIL for long.
"""
import os

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from rmq_store.access.core._core cimport StoreCore
from rmq_store.base.io._io cimport IoTable, rmq_identity, rmq_io
from rmq_store.base.io._sync cimport ENOENT, rmq_event_wake, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish
from rmq_store.base.io._want cimport rmq_is_want
from rmq_store.base.segment._descriptors cimport log_file_have_fd
from rmq_store.base.segment._file cimport (FileRow, LogFile, log_file_hold, log_file_open_again, log_file_release,
                                           log_file_unguard, row_end, row_pop, row_release, row_shift, row_start)
from rmq_store.log.commitlog._log cimport FENCE_SYNC, log_fence, log_lock_begin, log_lock_end
from rmq_store.queues.consumequeue._queue cimport (Queue, queue_correct_min, queue_delete_files, queue_deleting,
                                                   queue_drop_before, queue_empty, queues_at, queues_count, queues_deleting,
                                                   queues_find, queues_hold_sync, queues_let_sync, queues_sync,
                                                   queues_sync_failed)
from rmq_store.queues.index._index cimport index_drop_before

from rmq_store.base.io.wants import late

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef extern from *:
    """
    #include <errno.h>
    #include "rmq_identity.h"
    /* 0 where the name leads to the file, else -ESTALE or another -errno. */
    static int named_so(const rmq_identity *i) {
        struct stat s;
        if (lstat(i->path, &s) < 0) return -errno;
        return i->inode == 0 || rmq_identity_is(i, &s) ? 0 : -ESTALE;
    }
    """
    int named_so(const rmq_identity *i) noexcept nogil

cdef int64_t PAUSE_MAX_NS = 50_000_000
cdef int64_t SLICE = 32 << 20           # unmapped at once: a put that needs a new page waits no longer than for so much


cdef void _give_back(const rmq_io *io, LogFile *f) noexcept nogil:
    # The space of a file goes piece by piece, with a pause as long as each piece took: puts stood still for a second where ten
    # files of 1 GiB were given back at once, each discarded in one go. Only where it is nobody's any more, neither by a name
    # nor by a map or descriptor in whatever process: cut under a reader's map it is a SIGBUS there. Else the last close frees
    # all of it, whoever makes it.
    cdef int64_t size = f.size, begun, took
    if rmq_load32(&f.forked) != 0:
        return                      # a child of fork shares the open file: no kernel tells it from this process
    if f.direct_fd >= 0:            # counts as somebody else's; nobody holds the file but the caller
        io.close(io.ctx, f.direct_fd)
        f.direct_fd = -1
    while size > SLICE and f.fd >= 0 and io.alone(io.ctx, f.fd) == 1:
        size -= SLICE
        begun = io.mono_ns(io.ctx)
        if io.ftruncate(io.ctx, f.fd, size) < 0:
            return
        took = io.mono_ns(io.ctx) - begun
        usleep(<unsigned int> ((took if took < PAUSE_MAX_NS else PAUSE_MAX_NS) // 1000))


def release_idle(StoreCore store not None, int64_t reserve):
    """Gives back the memory of sealed files of the log that nobody has read since the call before, but for the `reserve`
    newest: how many. Raises OSError. RocketMQ: MappedFileQueue.swapMap."""
    cdef int64_t n
    store._enter()
    store.calls += 1
    with nogil:
        n = row_release(store.row, INT64_MAX if store.readonly else rmq_load(&store.log.flushed), reserve)
    store.calls -= 1
    _check(n, store.path)
    store.released_maps += n
    return n


cdef int _check(int64_t rc, object path) except -1:
    if rc < 0:
        raise late(<int> -rc, "cleaning", path)
    return 0


@cython.final
@cython.no_gc_clear
cdef class Withdrawn:
    """A commit-log file that the log has given up, with the hold that the row had on it.

    Lifetime: its bytes stay readable for message views as long as they live, also after `delete`.
    """

    cdef LogFile *file
    cdef IoTable io
    cdef readonly int64_t start
    cdef readonly int64_t size
    cdef readonly str path
    cdef readonly int64_t since_ns          # monotonic
    cdef int error                          # of the directory's sync, after which nothing more may be deleted
    cdef set names                          # the store's `withdrawn`

    def __dealloc__(self):
        log_file_release(self.file)

    @property
    def users(self):
        """How many others hold it: leases of message views, mostly. Nobody new can join them."""
        return 0 if self.file == NULL else rmq_load32(&self.file.refs) - 1

    def delete(self):
        """Removes the name and syncs the directory. The mapping goes piece by piece where nobody else holds it.

        Raises OSError: after a failed unlink it can be tried again, after a failed sync every later call fails the same.
        """
        cdef const rmq_io *io = self.io.table
        cdef LogFile *f = self.file
        cdef int64_t at = 0, n
        cdef int rc
        directory = os.path.dirname(self.path)
        name = os.fsencode(directory)
        cdef const char *text = name
        _check(self.error, directory)
        with nogil:
            if f.size > SLICE:
                log_file_have_fd(f)     # for _give_back; without one the last unmap frees all of it
            rc = named_so(&f.identity)      # the name may be another file's by now
            if rc == 0:
                rc = io.unlink(io.ctx, f.path)
        _check(0 if rc == -ENOENT else rc, self.path)       # somebody has removed it by hand
        with nogil:
            rc = io.sync_dir(io.ctx, text)
            if rmq_load32(&f.refs) == 1 and f.map != NULL:
                log_file_unguard(f)
                while at < f.size:
                    n = f.size - at if f.size - at < SLICE else SLICE
                    io.munmap(io.ctx, f.map + at, n)    # nothing depends on the result, as in log_file_release
                    at += n
                f.map = NULL
            if rc >= 0 and rmq_load32(&f.refs) == 1:
                _give_back(io, f)
            log_file_release(f)
        self.file = NULL
        self.error = rc
        if rc >= 0:
            self.names.discard(self.start)
        _check(rc, directory)


cdef int64_t _limit(StoreCore store) noexcept:
    # Files that end at or below it are of no use to commit, flush and dispatch any more.
    cdef int64_t limit = rmq_load(&store.log.flushed)
    cdef int64_t dispatched = rmq_load(&store.log.dispatched)
    return dispatched if dispatched < limit else limit


cdef LogFile *_first_from(FileRow *row, int64_t start) noexcept nogil:
    # The file that begins at `start`, held; not mapped, as nobody wants to read it.
    cdef LogFile *f = NULL
    cdef int64_t i
    rmq_mutex_lock(&row.lock)
    if row.count > 0 and start >= row.files[0].start:
        i = (start - row.files[0].start) // row.file_size
        if i < row.count:
            f = row.files[i]
            log_file_hold(f)
    rmq_mutex_unlock(&row.lock)
    return f


cdef int64_t _modified_ms(const LogFile *f) noexcept nogil:
    cdef int64_t modified
    cdef int fd = log_file_open_again(f, False)
    if fd < 0:
        return fd
    modified = f.io.modified_ms(f.io.ctx, fd)
    f.io.close(f.io.ctx, fd)
    return modified


def log_files(StoreCore store not None):
    """Yields the commit-log files that may go as far as the store itself is concerned, oldest first: (start, time of the last
    modification in ms). The newest file and what is not flushed and dispatched now are not among them. Raises OSError."""
    cdef int64_t start, limit, modified, size
    cdef LogFile *f
    cdef bint absent
    store._enter()
    limit = _limit(store)
    size = store.row.file_size
    start = row_start(store.row)
    while 0 <= start and start + size <= limit and start + size < row_end(store.row):
        f = _first_from(store.row, start)
        if f == NULL:
            break
        absent = f.absent or f.copied       # of a read-only store over several directories, one of which is gone
        modified = 0 if absent else _modified_ms(f)
        absent = absent or (store.readonly and modified == -ENOENT)     # its writer cleaned it; this store does not follow
        log_file_release(f)
        if not absent:
            _check(modified, store.path)
            yield start, modified
        start += size
        store._enter()          # it may be closed by now


def withdraw(StoreCore store not None, int64_t start):
    """Takes the oldest file, which begins at `start`, out of the log. Returns a Withdrawn."""
    cdef Withdrawn w = Withdrawn.__new__(Withdrawn)
    cdef LogFile *f
    store._enter()
    if row_start(store.row) != start or start + store.row.file_size > _limit(store):
        raise ValueError(f"the commit-log file at {start} is not the oldest one, or in use")
    w.io = store.io_owner
    w.start = start
    if store.withdrawn is None:
        store.withdrawn = set()
    w.names = store.withdrawn
    w.names.add(start)          # before it leaves the row (begins_on_disk)
    f = row_shift(store.row)
    w.file = f
    w.size = f.size
    w.path = os.fsdecode(f.path)
    w.since_ns = f.io.mono_ns(f.io.ctx)
    return w


def begins_on_disk(StoreCore store not None):
    """Where the log begins for whoever opens it next: a file that was withdrawn counts until its name is gone for good: int."""
    cdef int64_t start = max(row_start(store.row), 0)       # first: a file that leaves the row was noted before
    return min(start, *store.withdrawn) if store.withdrawn else start


def sync_queues(StoreCore store not None):
    """Makes all queue entries that are there durable. Raises OSError."""
    cdef int rc
    store._enter()
    store.calls += 1
    with nogil:
        rc = queues_sync(store.queues, 0)
    store.calls -= 1
    _check(rc, store.path)


def correct_queues(StoreCore store not None, int64_t physical_min):
    """Makes every queue begin with its first entry at or beyond `physical_min`. Returns (topic, queue id, min before, min now)
    of each queue that moved."""
    cdef int64_t i = 0, before, now
    cdef Queue *q
    cdef int rc = 0
    moved = []
    store._enter()
    while i < queues_count(store.queues):
        q = queues_at(store.queues, i)
        before = rmq_load(&q.min_offset)
        store.calls += 1
        with nogil:         # remove_queue waits: else the files go while they are read, or the queue begins anew in the middle
            queues_hold_sync(store.queues)
            rc = queue_correct_min(store.queues, q, physical_min)
            queues_let_sync(store.queues)
        store.calls -= 1
        _check(rc, store.path)
        now = rmq_load(&q.min_offset)
        if now > before:
            name, number = <bytes> q.topic[:q.topic_size], q.queue_id
            moved.append((name.decode("utf-8", "replace"), number, before, now))
        store._enter()
        i += 1
    return moved


def queue_total(StoreCore store not None):
    """How many queues there are: int."""
    store._enter()
    return queues_count(store.queues)


def drop_queue_files(StoreCore store not None, int64_t number, int64_t physical_min):
    """Deletes the files of the queue with that number that lead below `physical_min`; returns how many."""
    cdef Queue *q
    cdef int rc
    store._enter()
    q = queues_at(store.queues, number)
    store.calls += 1
    with nogil:             # as correct_queues
        queues_hold_sync(store.queues)
        rc = queue_drop_before(store.queues, q, physical_min)
        queues_let_sync(store.queues)
    store.calls -= 1
    _check(rc, store.path)
    return rc


def queue_ends(StoreCore store not None):
    """Every queue that has or had an entry: list of (its number, topic, queue id, log offset behind its newest record, queue
    offset behind its newest entry)."""
    cdef int64_t i = 0, end, following
    cdef int32_t number
    cdef bytes name
    cdef Queue *q
    found = []
    store._enter()
    while i < queues_count(store.queues):
        q = queues_at(store.queues, i)
        if rmq_load(&q.max_offset) > 0:
            following = rmq_load(&q.max_offset)
            name, number, end = q.topic[:q.topic_size], q.queue_id, rmq_load(&q.max_physical_offset)
            found.append((i, name.decode("utf-8", "surrogatepass"), number, end, following))
            store._enter()
        i += 1
    return found


def topic_ends(StoreCore store not None, wanted):
    """As queue_ends, of the topics in `wanted` and of what was put so far, dispatched or not: the log's end stands for the
    newest record, and the queue offset is the one that the next put would get. Dispatch need not come to an end for it, which a
    full disk may hold up, while the deletion is to make room."""
    cdef int64_t i = 0, end, following
    cdef int32_t number
    cdef bytes name
    cdef Queue *q
    found = []
    store._enter()
    while i < queues_count(store.queues):
        q = queues_at(store.queues, i)
        name = q.topic[:q.topic_size]
        topic = name.decode("utf-8", "surrogatepass")
        if topic in wanted:
            store._enter()
            with nogil:
                log_lock_begin(store.log)
                number, end, following = q.queue_id, store.log.position, q.next_offset
                log_lock_end(store.log)
            if following > 0 or rmq_load(&q.max_offset) > 0:
                found.append((i, topic, number, end, following))
        store._enter()
        i += 1
    return found


def let_go(StoreCore store not None):
    """While the store opens: gives up the commit-log files it has, as they are to be listed again."""
    cdef LogFile *f = row_pop(store.row)
    while f != NULL:
        log_file_release(f)
        f = row_pop(store.row)


def note_removed(StoreCore store not None, str topic not None, int32_t queue_id, int64_t offset):
    """While the store opens: the queue was removed when the log ended at `offset`; records below get no entry."""
    cdef bytes name = topic.encode("utf-8", "surrogatepass")
    cdef Queue *q = queues_find(store.queues, name, <int32_t> len(name), queue_id, True)
    if q == NULL:
        raise MemoryError("queue")
    q.removed_below = offset


cdef int _delete_files(StoreCore store, Queue *q) noexcept nogil:
    cdef int rc
    queues_hold_sync(store.queues)
    rc = queue_delete_files(store.queues, q)
    queues_let_sync(store.queues)
    if rc < 0 and queues_sync_failed(store.queues):
        log_fence(store.log, rc, FENCE_SYNC)
    return rc


def remove_queue(StoreCore store not None, int64_t number, int64_t physical_below, int64_t following=-1):
    """Empties the queue with that number and deletes its files, unless its next message would get another queue offset than
    `following`, as one came meanwhile, or a record of it ends beyond `physical_below`; returns whether it did. The next message
    gets queue offset 0, and records below `physical_below` that are not dispatched yet get no entry. following: -1 of a slave's
    queue, where the master numbers.

    For want of something the files stay for a while, and nobody reads them: delete_files tries again, and so does dispatch
    before the queue gets an entry. Puts and dispatch wait for the change in memory only. Raises OSError: for want of memory,
    the queue is as it was; for another reason, it is empty, and its files are tried again, unless a sync failed, which is a
    fence.
    """
    cdef Queue *q
    cdef int rc = 0
    cdef bint gone = False
    store._enter()
    q = queues_at(store.queues, number)
    store.calls += 1
    with nogil:
        rmq_mutex_lock(&store.dispatcher.round_lock)
        queues_hold_sync(store.queues)
        log_lock_begin(store.log)
        if (following < 0 or q.next_offset == following) and q.max_physical_offset <= physical_below:
            rc = queue_empty(store.queues, q)
            gone = rc >= 0
            if gone:
                rmq_publish(&q.removed_below, physical_below)       # whoever reads its files now sees why they are gone
        log_lock_end(store.log)
        queues_let_sync(store.queues)
        rmq_mutex_unlock(&store.dispatcher.round_lock)
        if gone:
            rc = _delete_files(store, q)
        rmq_event_wake(&q.arrived)
    store.calls -= 1
    store.queues_removed += gone
    if not gone or not rmq_is_want(rc) or queues_sync_failed(store.queues):
        _check(rc, store.path)
    return gone


def deleting(StoreCore store not None):
    """The queues that were removed, and whose files are still to be deleted: set of (topic, queue id)."""
    cdef int64_t i, count = queue_total(store)
    cdef bytes name
    cdef Queue *q
    found = set()
    if not queues_deleting(store.queues):
        return found
    for i in range(count):
        q = queues_at(store.queues, i)
        if queue_deleting(q):
            name = q.topic[:q.topic_size]
            found.add((name.decode("utf-8", "surrogatepass"), q.queue_id))
            store._enter()          # it may be closed by now
    return found


def delete_files(StoreCore store not None):
    """Tries again to delete the files of removed queues. What it lacks still it lacks for the next call. Raises OSError for
    another reason, after all of them had their turn."""
    cdef int64_t i, count = queue_total(store)
    cdef int rc = 0, error = 0
    if not queues_deleting(store.queues):
        return
    store.calls += 1
    with nogil:
        for i in range(count):
            if queue_deleting(queues_at(store.queues, i)):
                rc = _delete_files(store, queues_at(store.queues, i))
                if rc < 0 and (not rmq_is_want(rc) or queues_sync_failed(store.queues)):
                    error = rc
    store.calls -= 1
    _check(error, store.path)


def drop_index_files(StoreCore store not None, int64_t physical_min):
    """Deletes the index files that lead below `physical_min`; returns how many."""
    cdef int rc = 0
    store._enter()
    if store.index == NULL:
        return 0
    store.calls += 1
    with nogil:
        rc = index_drop_before(store.index, physical_min)
    store.calls -= 1
    _check(rc, store.path)
    return rc
