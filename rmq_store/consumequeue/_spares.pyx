"""Queue files made ahead (upstream makes them when they are needed). Contract in _spares.pxd."""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free

from rmq_store.consumequeue._descriptors cimport FILES_PATH_SIZE
from rmq_store.io._io cimport rmq_io
from rmq_store.io._sync cimport ENOENT, rmq_event, rmq_event_wake, rmq_load, rmq_mutex_lock, rmq_mutex_unlock
from rmq_store.segment._file cimport text_copy


cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW


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


cdef void spares_wish(Spares *s) noexcept nogil:
    cdef rmq_event *maker = <rmq_event *> rmq_load(<const int64_t *> &s.maker)
    rmq_mutex_lock(&s.lock)
    if s.wished + s.end - s.first < SPARES_MAX:
        s.wished += 1
    rmq_mutex_unlock(&s.lock)
    if maker != NULL:
        rmq_event_wake(maker)


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


cdef bint spares_make(Spares *s) noexcept nogil:
    # All are begun before one is synced: the first sync commits the journal for all. One descriptor at a time.
    cdef int wished, made = 0, good = 0, i
    rmq_mutex_lock(&s.lock)
    wished = s.wished
    s.wished = 0
    rmq_mutex_unlock(&s.lock)
    while made < wished and _begin(s, s.end + made) >= 0:
        made += 1
    while good < made and _sync(s, s.end + good) >= 0:
        good += 1
    for i in range(good, made):
        _forget(s, s.end + i)
    rmq_mutex_lock(&s.lock)
    s.end += good
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
