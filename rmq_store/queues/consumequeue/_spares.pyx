"""Queue files made ahead (RocketMQ makes them when they are needed). Contract in _spares.pxd."""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport (ENOENT, RMQ_SWEEP_THREADS, rmq_event, rmq_event_wake, rmq_load, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_sweep_all)
from rmq_store.base.segment._file cimport text_copy


cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW


cdef enum:
    AT_ONCE = 512


cdef Spares *spares_new(const rmq_io *io, const char *dir, int64_t file_size) noexcept nogil:
    cdef Spares *s = <Spares *> calloc(1, sizeof(Spares))
    if s == NULL:
        return NULL
    s.io = io
    s.file_size = file_size
    s.dir = text_copy(dir)
    if s.dir == NULL:
        free(s)
        return NULL
    return s


cdef void spares_free(Spares *s) noexcept nogil:
    if s != NULL:
        free(s.dir)
        free(s)


cdef inline void _path(const Spares *s, int64_t number, char *out) noexcept nogil:
    # Too long a path ends early and cannot be opened: then no spare is made.
    snprintf(out, FILES_PATH_SIZE, b"%s/consumequeue.next.%lld", s.dir, <long long> number)


cdef void _wish(Spares *s, int64_t more, int64_t most) noexcept nogil:
    cdef rmq_event *maker = <rmq_event *> rmq_load(<const int64_t *> &s.maker)
    rmq_mutex_lock(&s.lock)
    more = min(more, most - (s.wished + s.making + s.end - s.first))
    if more > 0:
        s.wished += <int> more
    rmq_mutex_unlock(&s.lock)
    if maker != NULL and more > 0:
        rmq_event_wake(maker)


cdef void spares_wish(Spares *s) noexcept nogil:
    _wish(s, 1, SPARES_NEXT_MAX)


cdef void spares_wish_first(Spares *s) noexcept nogil:
    cdef int64_t target
    s.new_queues += 1
    target = min(2 * s.new_queues, SPARES_MAX)
    if s.new_queues < FIRST_FEW:
        return
    if s.opening:
        if s.first == s.end:
            _wish(s, target, min(target, AT_ONCE))
            spares_make(s)
    elif s.new_queues % SPARES_LOW == 0:
        _wish(s, target, target)


cdef int _begin(Spares *s, int64_t number) noexcept nogil:
    # A file of the right length, not synced; or -errno and no file.
    cdef char[FILES_PATH_SIZE] path
    cdef int fd, rc
    _path(s, number, path)
    fd = s.io.open(s.io.ctx, path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644)
    if fd < 0:
        return fd
    rc = s.io.ftruncate(s.io.ctx, fd, s.file_size)
    s.io.close(s.io.ctx, fd)
    if rc < 0:
        s.io.unlink(s.io.ctx, path)
    return rc


cdef int _sync(Spares *s, int64_t number) noexcept nogil:
    cdef char[FILES_PATH_SIZE] path
    cdef int fd, rc
    _path(s, number, path)
    fd = s.io.open(s.io.ctx, path, O_RDWR | O_NOFOLLOW, 0)
    if fd < 0:
        return fd
    rc = s.io.fdatasync(s.io.ctx, fd)
    s.io.close(s.io.ctx, fd)
    return rc


cdef void _forget(Spares *s, int64_t number) noexcept nogil:
    cdef char[FILES_PATH_SIZE] path
    _path(s, number, path)
    s.io.unlink(s.io.ctx, path)


cdef int _sync_one(void *spares, int64_t i) noexcept nogil:
    return _sync(<Spares *> spares, (<Spares *> spares).end + i)


cdef bint spares_make(Spares *s) noexcept nogil:
    # All are begun before one is synced: the first sync commits the journal for all, and what else the device has to do for
    # each it does for several at a time. Not all that are wished for at once: who waits may have some.
    cdef int64_t good = 0
    cdef int wished, made = 0, i
    rmq_mutex_lock(&s.lock)
    wished = min(s.wished, AT_ONCE)
    s.wished -= wished
    s.making = wished
    rmq_mutex_unlock(&s.lock)
    while made < wished and _begin(s, s.end + made) >= 0:
        made += 1
    if made > 0:
        rmq_sweep_all(made, _sync_one, s, RMQ_SWEEP_THREADS, &good)
    for i in range(<int> good, made):
        _forget(s, s.end + i)
    rmq_mutex_lock(&s.lock)
    s.end += good
    s.making = 0
    if made < wished:
        s.wished = 0
    rmq_mutex_unlock(&s.lock)
    return wished > 0


cdef void spares_clear(Spares *s) noexcept nogil:
    while s.first < s.end:
        _forget(s, s.first)
        s.first += 1


cdef int spares_take(Spares *s, const char *path) noexcept nogil:
    cdef char[FILES_PATH_SIZE] spare
    cdef int64_t number
    cdef int fd, rc
    rmq_mutex_lock(&s.lock)
    number = s.first
    if number == s.end:
        rmq_mutex_unlock(&s.lock)
        return -ENOENT
    s.first = number + 1
    rmq_mutex_unlock(&s.lock)
    _path(s, number, spare)
    fd = s.io.open(s.io.ctx, spare, O_RDWR | O_NOFOLLOW, 0)
    if fd < 0:
        return fd
    rc = s.io.rename(s.io.ctx, spare, path)
    if rc < 0:
        s.io.close(s.io.ctx, fd)
        s.io.unlink(s.io.ctx, spare)
        return rc
    return fd
