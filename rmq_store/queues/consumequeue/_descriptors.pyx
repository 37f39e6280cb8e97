"""The bounded cache of descriptors that all queues of a store share. Contract in _descriptors.pxd."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strlen

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport (rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_mutex_lock, rmq_mutex_unlock)
from rmq_store.base.segment._file cimport offset_name, path_join


cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    """
    enum: O_RDWR, O_RDONLY, O_NOFOLLOW, ENAMETOOLONG

cdef enum:
    NAME_SIZE = 20


cdef FileCache *file_cache_new(const rmq_io *io, const char *tmp_dir, int capacity, bint readonly) noexcept nogil:
    cdef FileCache *c = <FileCache *> calloc(1, sizeof(FileCache))
    cdef int i, buckets = 1
    if c == NULL:
        return NULL
    # One user at a time holds one descriptor; the sync thread may hold its own for long while another must continue.
    c.capacity = capacity if capacity > 2 else 2
    while buckets < c.capacity:
        buckets *= 2
    c.io = io
    c.readonly = readonly
    c.mask = buckets - 1
    c.newest = c.oldest = -1
    c.new_path = path_join(tmp_dir, b"consumequeue.new")
    c.slots = <Descriptor *> calloc(c.capacity, sizeof(Descriptor))
    if c.slots != NULL:
        for i in range(c.capacity):
            c.slots[i].fd = -1          # before anything else can fail: what is freed is closed
            c.slots[i].next = i + 1 if i + 1 < c.capacity else -1
    c.buckets = <int *> malloc(buckets * sizeof(int))
    if c.new_path == NULL or c.slots == NULL or c.buckets == NULL:
        file_cache_free(c)
        return NULL
    for i in range(buckets):
        c.buckets[i] = -1
    return c


cdef void file_cache_free(FileCache *c) noexcept nogil:
    cdef int i
    if c == NULL:
        return
    if c.slots != NULL:
        for i in range(c.capacity):
            _close(c, c.slots[i].fd)
    free(c.slots)
    free(c.buckets)
    free(c.new_path)
    free(c)


cdef inline void _close(FileCache *c, int fd) noexcept nogil:
    # Nothing depends on the result: data is made durable by sync only. An error of write-back that nobody has seen yet is kept
    # by the kernel for the next descriptor of the file, which files_sync opens.
    if fd >= 0:
        c.io.close(c.io.ctx, fd)


cdef inline int _bucket(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    cdef uint64_t h = (<uint64_t> f >> 4) * <uint64_t> 0x9E3779B97F4A7C15 + <uint64_t> start
    h ^= h >> 29
    h *= <uint64_t> 0xBF58476D1CE4E5B9
    return <int> (h >> 33) & c.mask


cdef int _find(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    cdef int i = c.buckets[_bucket(c, f, start)]
    while i >= 0 and (c.slots[i].files != f or c.slots[i].start != start):
        i = c.slots[i].next
    return i


cdef void _unlink_bucket(FileCache *c, int i) noexcept nogil:
    cdef int *link = &c.buckets[_bucket(c, c.slots[i].files, c.slots[i].start)]
    while link[0] != i:
        link = &c.slots[link[0]].next
    link[0] = c.slots[i].next
    c.slots[i].known = False


cdef void _unlink_unused(FileCache *c, int i) noexcept nogil:
    cdef Descriptor *d = &c.slots[i]
    if d.newer >= 0:
        c.slots[d.newer].older = d.older
    else:
        c.newest = d.older
    if d.older >= 0:
        c.slots[d.older].newer = d.newer
    else:
        c.oldest = d.newer


cdef int _free_slot(FileCache *c, int i) noexcept nogil:
    # Returns the descriptor that was in it; the caller closes it without the lock.
    cdef int fd = c.slots[i].fd
    c.slots[i].fd = -1
    c.slots[i].refs = 0
    c.slots[i].next = c.free
    c.free = i
    c.open_count -= 1
    return fd


cdef int _reserve(FileCache *c, int *old) noexcept nogil:
    # A slot for a descriptor about to be opened; *old is to be closed first. -1: every one is in use. Under the lock.
    cdef int i = c.free
    old[0] = -1
    if i >= 0:
        c.free = c.slots[i].next
        c.open_count += 1
    elif c.oldest >= 0:
        i = c.oldest
        _unlink_unused(c, i)
        _unlink_bucket(c, i)
        old[0] = c.slots[i].fd
        c.slots[i].fd = -1
    else:
        return -1
    c.slots[i].refs = 1
    c.slots[i].known = False
    return i


cdef void _wait_for_slot(FileCache *c) noexcept nogil:
    # Enters and leaves with the lock held.
    cdef int ticket = rmq_event_ticket(&c.freed)
    c.waiters += 1
    rmq_mutex_unlock(&c.lock)
    rmq_event_wait(&c.freed, ticket, -1)
    rmq_mutex_lock(&c.lock)
    c.waiters -= 1


cdef void _publish_slot(FileCache *c, int i, UnitFiles *f, int64_t start, int fd) noexcept nogil:
    cdef Descriptor *d = &c.slots[i]
    cdef int b = _bucket(c, f, start)
    d.files = f
    d.start = start
    d.fd = fd
    d.known = True
    d.next = c.buckets[b]
    c.buckets[b] = i


cdef int files_path(const UnitFiles *f, int64_t start, char *out) noexcept nogil:
    cdef size_t n = strlen(f.dir)
    if n + NAME_SIZE + 2 > FILES_PATH_SIZE:
        return -ENAMETOOLONG
    memcpy(out, f.dir, n)
    out[n] = c"/"
    offset_name(start, out + n + 1)
    return 0


cdef int descriptor_acquire(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    # The slot of an open descriptor of the file; released soon. A thread never holds two.
    cdef char[FILES_PATH_SIZE] path
    cdef int i, other, fd, old
    cdef int64_t forgotten
    rmq_mutex_lock(&c.lock)
    while True:
        i = _find(c, f, start)
        if i >= 0:
            if c.slots[i].refs == 0:
                _unlink_unused(c, i)
            c.slots[i].refs += 1
            rmq_mutex_unlock(&c.lock)
            return i
        i = _reserve(c, &old)
        if i >= 0:
            break
        _wait_for_slot(c)
    forgotten = c.forgotten
    rmq_mutex_unlock(&c.lock)
    _close(c, old)
    fd = files_path(f, start, path)
    if fd == 0:
        fd = c.io.open(c.io.ctx, path, (O_RDONLY if c.readonly else O_RDWR) | O_NOFOLLOW, 0)
    rmq_mutex_lock(&c.lock)
    other = _find(c, f, start) if fd >= 0 else -1
    if fd < 0 or other >= 0:        # not there, or another thread was faster
        _free_slot(c, i)
        if other >= 0:
            if c.slots[other].refs == 0:
                _unlink_unused(c, other)
            c.slots[other].refs += 1
        old = c.waiters
        rmq_mutex_unlock(&c.lock)
        _close(c, fd)
        if old > 0:
            rmq_event_wake(&c.freed)
        return other if fd >= 0 else fd
    if forgotten == c.forgotten:
        _publish_slot(c, i, f, start, fd)
    else:
        c.slots[i].fd = fd          # perhaps of a file deleted since: good for this once
    rmq_mutex_unlock(&c.lock)
    return i


cdef void descriptor_release(FileCache *c, int i) noexcept nogil:
    cdef Descriptor *d = &c.slots[i]
    cdef int fd = -1, waiters = 0
    rmq_mutex_lock(&c.lock)
    d.refs -= 1
    if d.refs == 0:
        waiters = c.waiters
        if d.known:
            d.older = c.newest
            d.newer = -1
            if c.newest >= 0:
                c.slots[c.newest].newer = i
            else:
                c.oldest = i
            c.newest = i
        else:
            fd = _free_slot(c, i)
    rmq_mutex_unlock(&c.lock)
    _close(c, fd)
    if waiters > 0:
        rmq_event_wake(&c.freed)


cdef void descriptor_forget(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    # The file was deleted: nobody may find its descriptor again.
    rmq_mutex_lock(&c.lock)
    c.forgotten += 1
    rmq_mutex_unlock(&c.lock)
    descriptor_close(c, f, start)


cdef void descriptor_close(FileCache *c, UnitFiles *f, int64_t start) noexcept nogil:
    cdef int i, fd = -1
    rmq_mutex_lock(&c.lock)
    i = _find(c, f, start)
    if i >= 0:
        _unlink_bucket(c, i)
        if c.slots[i].refs == 0:
            _unlink_unused(c, i)
            fd = _free_slot(c, i)
    rmq_mutex_unlock(&c.lock)
    _close(c, fd)


cdef int descriptor_reserve(FileCache *c) noexcept nogil:
    cdef int i, old
    rmq_mutex_lock(&c.lock)
    while True:
        i = _reserve(c, &old)
        if i >= 0:
            break
        _wait_for_slot(c)
    rmq_mutex_unlock(&c.lock)
    _close(c, old)
    return i


cdef void descriptor_settle(FileCache *c, int i, UnitFiles *f, int64_t start, int fd) noexcept nogil:
    if fd >= 0:
        rmq_mutex_lock(&c.lock)
        _publish_slot(c, i, f, start, fd)
        rmq_mutex_unlock(&c.lock)
    descriptor_release(c, i)
