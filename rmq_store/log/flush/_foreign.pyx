"""Flush back ends of other packages: a row over the functions of an rmq_backend. Contract in rmq_backend.h."""
import os

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from rmq_store.base.segment._file cimport LogFile
from rmq_store.log.commitlog._log cimport FENCE_WRITE, Backend, Log, log_fence
from rmq_store.log.flush._pages cimport pages_commit, pages_write
from rmq_store.log.pool._pool cimport pool_at

from rmq_store.errors import BackendUnavailable

cdef extern from "rmq_backend.h" nogil:
    enum: RMQ_BACKEND_VERSION
    const char *RMQ_BACKEND_CAPSULE
    ctypedef struct rmq_backend:
        uint32_t version
        int (*open)(const char *directory, void **state) noexcept nogil
        int (*write)(void *state, int fd, const void *source, size_t size, int64_t offset) noexcept nogil
        int (*sync)(void *state, int fd, void *map, int64_t begin, int64_t end) noexcept nogil
        void (*close)(void *state) noexcept nogil

cdef struct Foreign:
    const rmq_backend *it
    void *state


cdef int _write(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    cdef Foreign *b = <Foreign *> log.backend_state
    cdef int rc
    if b.it.write == NULL:
        return pages_write(log, f, begin, end)
    rc = b.it.write(b.state, f.fd, pool_at(log.pool, begin), end - begin, begin - f.start)
    if rc < 0:
        log_fence(log, rc, FENCE_WRITE)         # also for a want: it may sync as well, and no sync is tried again
    return rc


cdef int _commit(Log *log, int64_t to) noexcept nogil:
    return pages_commit(log, to, _write)


cdef int _sync(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    cdef Foreign *b = <Foreign *> log.backend_state
    return b.it.sync(b.state, f.fd, f.map, begin - f.start, end - f.start)


cdef void _free(Log *log) noexcept nogil:
    cdef Foreign *b = <Foreign *> log.backend_state
    log.backend_state = NULL
    if b != NULL:
        if b.it.close != NULL:
            b.it.close(b.state)
        free(b)


cdef Backend _POOL = Backend(_commit, _sync, NULL, NULL, NULL, NULL, _free)
cdef Backend _MAP = Backend(NULL, _sync, NULL, NULL, NULL, NULL, _free)


cdef int foreign_make(Log *log, object options, object how) except -1:
    cdef const rmq_backend *it
    cdef Foreign *b
    cdef int rc = 0
    name = options.flush_backend
    if not PyCapsule_IsValid(how, RMQ_BACKEND_CAPSULE):
        raise BackendUnavailable(name, f"its package gives a {type(how).__name__}",
                                 f"it has to give a PyCapsule named {RMQ_BACKEND_CAPSULE.decode()}: see rmq_backend.h")
    it = <const rmq_backend *> PyCapsule_GetPointer(how, RMQ_BACKEND_CAPSULE)
    if it.version != RMQ_BACKEND_VERSION or it.sync == NULL:
        reason = f"it is of version {it.version} of rmq_backend.h, and this is {RMQ_BACKEND_VERSION}"
        raise BackendUnavailable(name, "it has no function sync" if it.sync == NULL else reason,
                                 "install a release of it for this rmq_store")
    b = <Foreign *> calloc(1, sizeof(Foreign))
    if b == NULL:
        raise MemoryError("back end")
    b.it = it
    if it.open != NULL:
        with nogil:
            rc = it.open(log.row.dir, &b.state)
    if rc < 0:
        free(b)
        raise OSError(-rc, f"{os.strerror(-rc)}: opening flush_backend {name}", os.fsdecode(log.row.dir))
    log.backend = &_MAP if log.pool == NULL else &_POOL
    log.backend_state = b
    return 0
