"""What io_uring can do in a directory, found out by doing it. Control plane; the flush back end itself is _ring.pyx."""
import os

from libc.errno cimport ETIMEDOUT
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from rmq_store.base.io._io cimport IoTable, rmq_io
from rmq_store.log.flush._ring cimport (RMQ_RING_BLOCK, RMQ_RING_IOPOLL, RMQ_RING_SQPOLL, rmq_ring_facts, rmq_ring_look,
                                        rmq_ring_try)


cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDWR, O_CREAT, O_EXCL, O_DIRECT, O_NOFOLLOW

_FLAGS = ("iopoll", "sqpoll", None, "cqsize", "clamp", None, "r_disabled", "submit_all", "coop_taskrun", None, None, None,
          "single_issuer", "defer_taskrun")


def setup_flag_names(unsigned flags):
    """The names of IORING_SETUP_* bits: tuple of str, lower case."""
    return tuple(name for i, name in enumerate(_FLAGS) if name is not None and flags >> i & 1)


cdef class _Memory:
    # Aligned memory for one probe.
    cdef void *at
    cdef size_t size

    def __dealloc__(self):
        free(self.at)


def uring_probe(directory, IoTable io=None, *, int64_t buffer_bytes=1 << 20, bint sqpoll=False, bint iopoll=False):
    """Tries, step by step, what the io_uring back end needs, on a temporary file in `directory`, which is removed again.

    buffer_bytes: memory to register as a fixed buffer (what the memlock limit is asked for). sqpoll, iopoll: make the ring so.
    io: the table of system calls; None: the real one.

    Returns a dict, in the order of the steps, of str to int (an errno, 0 where the step works) or None (not tried, because an
    earlier step failed): "setup" (io_uring_setup; EPERM, ENOSYS under seccomp or kernel.io_uring_disabled), "buffers" (ENOMEM:
    memlock), "files", "file" (making the temporary file), "write" and "sync" (a buffered write linked to fdatasync), "direct"
    (opening with O_DIRECT, and EOPNOTSUPP where the file system has none that deserves the name), "direct_write",
    "direct_sync", "direct_durable" (RWF_DSYNC). Besides: "align" (bytes; 0 where the kernel does not say; None not known) and
    "flags" (tuple of str: the set-up flags that were taken).

    "buffers" and "files" are wishes: the back end continues without. Raises nothing but MemoryError and TypeError. Takes some
    milliseconds (two syncs); a kernel that answers nothing has 5 s (ETIMEDOUT). Thread-safety: any thread.
    """
    steps = dict.fromkeys(("setup", "buffers", "files", "file", "write", "sync", "direct", "direct_write", "direct_sync",
                           "direct_durable", "align"))
    steps["flags"] = ()
    table = io if io is not None else IoTable()
    cdef const rmq_io *calls = (<IoTable> table).table
    cdef unsigned wishes = (RMQ_RING_SQPOLL if sqpoll else 0) | (RMQ_RING_IOPOLL if iopoll else 0)
    cdef _Memory memory = _Memory()
    cdef int rc, synced = 0, fd, direct = -1
    memory.size = max(buffer_bytes, RMQ_RING_BLOCK)
    if posix_memalign(&memory.at, RMQ_RING_BLOCK, memory.size) != 0:
        memory.at = NULL
        raise MemoryError("probe")
    memset(memory.at, 0x55, memory.size)
    cdef rmq_ring_facts facts
    rc = rmq_ring_look(calls, wishes, memory.at, memory.size, &facts)
    steps["setup"] = -rc
    if rc < 0:
        return steps
    steps["buffers"], steps["files"] = -facts.buffers_error, -facts.files_error
    steps["flags"] = setup_flag_names(facts.setup_flags)

    cdef bytes name = os.fsencode(os.path.join(directory, f".uring-probe-{os.getpid()}-{id(memory):x}"))
    cdef const char *path = name
    with nogil:
        fd = calls.open(calls.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        rc = fd
        if fd >= 0:
            rc = calls.fallocate(calls.ctx, fd, 0, 4 * RMQ_RING_BLOCK)
    steps["file"] = -rc if rc < 0 else 0
    if fd < 0:
        return steps
    try:
        if rc < 0:
            return steps
        if not iopoll:          # polled completion is for direct I/O only, and has no sync
            with nogil:
                rc = rmq_ring_try(calls, wishes, memory.at, memory.size, fd, False, &synced)
            steps["write"] = -rc
            if rc == -ETIMEDOUT:
                return steps            # nor would it answer the others
            if rc == 0:
                steps["sync"] = -synced
        rc = calls.direct_align(calls.ctx, fd)
        if rc >= 0:
            steps["align"] = rc
            direct = rc = calls.open(calls.ctx, path, O_RDWR | O_DIRECT | O_NOFOLLOW, 0)
        steps["direct"] = -rc if rc < 0 else 0
        if direct < 0:
            return steps
        with nogil:
            rc = rmq_ring_try(calls, wishes, memory.at, memory.size, direct, False, NULL if iopoll else &synced)
        steps["direct_write"] = -rc
        if rc == 0 and not iopoll:
            steps["direct_sync"] = -synced
        with nogil:
            rc = rmq_ring_try(calls, wishes, memory.at, memory.size, direct, True, NULL)
        steps["direct_durable"] = -rc
        return steps
    finally:
        if direct >= 0:
            calls.close(calls.ctx, direct)
        calls.close(calls.ctx, fd)
        calls.unlink(calls.ctx, path)
