"""The flush back ends by name. A new one is a file with its row of functions (Backend in _log.pxd), and a line in ROWS."""
import os

from libc.stdint cimport int64_t

from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.flush._foreign cimport foreign_make
from rmq_store.log.flush._pages cimport fdatasync_make, msync_make
from rmq_store.log.flush._ring cimport (RMQ_RING_IOPOLL, RMQ_RING_SQPOLL, RingWriter, ring_writer_facts, ring_writer_new)

from rmq_store.log.flush.backend import say_ready

# Sets log.backend, and log.backend_state where it needs one. how: what choose_backend found out. Raises OSError.
ctypedef int (*Make)(Log *log, object options, object how) except -1

cdef struct Row:
    const char *name
    Make make


cdef int _ring_make(Log *log, object options, object how) except -1:
    cdef int error = 0
    cdef bint direct = how.direct, durable = how.durable
    cdef unsigned depth = options.uring_depth
    cdef unsigned wishes = (RMQ_RING_SQPOLL if options.uring_sqpoll else 0) | (RMQ_RING_IOPOLL if options.uring_iopoll else 0)
    cdef int64_t request_bytes = how.request_bytes
    cdef RingWriter *w
    with nogil:
        w = ring_writer_new(log, direct, durable, request_bytes, depth, wishes, &error)
    if w == NULL:
        raise OSError(-error, f"{os.strerror(-error)}: making the ring", os.fsdecode(log.row.dir))
    facts = ring_writer_facts(w)[0]
    say_ready(how, facts.depth, facts.setup_flags, log.pool.size, -facts.buffers_error)
    return 0


cdef Row[3] ROWS
ROWS[0] = Row(b"msync", msync_make)
ROWS[1] = Row(b"fdatasync", fdatasync_make)
ROWS[2] = Row(b"io_uring", _ring_make)


cdef int backend_use(Log *log, object options, object how) except -1:
    if options.readonly:
        return fdatasync_make(log, options, how)        # nothing is written, and nothing was tried
    name = options.flush_backend.encode()
    for row in ROWS:
        if row.name == name:
            return row.make(log, options, how)
    return foreign_make(log, options, how)
