"""What io_uring can do in a directory, found out by doing it. Control plane; the flush back end itself is _ring.pyx."""
import os

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from rmq_store.io._io cimport IoTable, rmq_io

_FLAGS = ("iopoll", "sqpoll", None, "cqsize", "clamp", None, "r_disabled", "submit_all", "coop_taskrun", None, None, None,
          "single_issuer", "defer_taskrun")


def setup_flag_names(unsigned flags):
    """The names of IORING_SETUP_* bits: tuple of str, lower case."""
    return tuple(name for i, name in enumerate(_FLAGS) if name is not None and flags >> i & 1)


cdef class _Probe:
    cdef const rmq_io *io
    cdef unsigned wishes
    cdef void *memory
    cdef size_t size

    def __dealloc__(self):
        free(self.memory)

    cdef int chain(self, int fd, bint durable, int *synced) except *:
        # A write of one block, fixed where that is granted, and a linked sync: 0 or -errno of the write; *synced: of the sync.
        cdef rmq_ring *r = NULL
        cdef int in_sync = 0
        cdef int rc = rmq_ring_new(self.io, 4, self.wishes, 0, &r)
        cdef rmq_flight done
        if rc < 0:
            return rc
        rmq_ring_pool(r, self.memory, self.size, NULL, 0)
        rc = rmq_ring_enable(r)
        if rc == 0:
            with nogil:
                rmq_ring_write(r, -1, fd, self.memory, RMQ_RING_BLOCK, 0, 1, NULL, durable, synced != NULL)
                if synced != NULL:
                    rmq_ring_sync(r, -1, fd, 2, NULL)
                while rc == 0 and rmq_ring_count(r) > 0:
                    rc = rmq_ring_turn(r, 1, &in_sync)
                    while rmq_ring_take(r, &done):
                        pass
                rmq_ring_drain(r)
        rmq_ring_free(r)
        if synced != NULL:
            synced[0] = rc if in_sync else 0
        return 0 if in_sync else rc


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

    "buffers" and "files" are wishes: the back end goes on without. Raises nothing but MemoryError and TypeError. Takes some
    milliseconds (two syncs). Thread-safety: any thread.
    """
    steps = dict.fromkeys(("setup", "buffers", "files", "file", "write", "sync", "direct", "direct_write", "direct_sync",
                           "direct_durable", "align"))
    steps["flags"] = ()
    table = io if io is not None else IoTable()
    cdef _Probe p = _Probe()
    cdef rmq_ring *r = NULL
    cdef int rc, synced = 0, fd, direct = -1
    p.io = (<IoTable> table).table
    p.wishes = (RMQ_RING_SQPOLL if sqpoll else 0) | (RMQ_RING_IOPOLL if iopoll else 0)
    p.size = max(buffer_bytes, RMQ_RING_BLOCK)
    if posix_memalign(&p.memory, RMQ_RING_BLOCK, p.size) != 0:
        p.memory = NULL
        raise MemoryError("probe")
    memset(p.memory, 0x55, p.size)
    rc = rmq_ring_new(p.io, 4, p.wishes, 0, &r)
    steps["setup"] = -rc
    if rc < 0:
        return steps
    rmq_ring_pool(r, p.memory, p.size, NULL, 0)
    facts = rmq_ring_facts_of(r)
    steps["buffers"], steps["files"] = -facts.buffers_error, -facts.files_error
    steps["flags"] = setup_flag_names(facts.setup_flags)
    rmq_ring_free(r)

    cdef bytes name = os.fsencode(os.path.join(directory, f".uring-probe-{os.getpid()}-{id(p):x}"))
    cdef const char *path = name
    with nogil:
        fd = p.io.open(p.io.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        rc = fd
        if fd >= 0:
            rc = p.io.fallocate(p.io.ctx, fd, 0, 4 * RMQ_RING_BLOCK)
    steps["file"] = -rc if rc < 0 else 0
    if fd < 0:
        return steps
    try:
        if rc < 0:
            return steps
        if not iopoll:          # polled completion is for direct I/O only, and has no sync
            steps["write"] = -p.chain(fd, False, &synced)
            if steps["write"] == 0:
                steps["sync"] = -synced
        rc = p.io.direct_align(p.io.ctx, fd)
        if rc >= 0:
            steps["align"] = rc
            direct = rc = p.io.open(p.io.ctx, path, O_RDWR | O_DIRECT | O_NOFOLLOW, 0)
        steps["direct"] = -rc if rc < 0 else 0
        if direct < 0:
            return steps
        if iopoll:
            steps["direct_write"] = -p.chain(direct, False, NULL)
        else:
            steps["direct_write"] = -p.chain(direct, False, &synced)
            if steps["direct_write"] == 0:
                steps["direct_sync"] = -synced
        steps["direct_durable"] = -p.chain(direct, True, NULL)
        return steps
    finally:
        if direct >= 0:
            p.io.close(p.io.ctx, direct)
        p.io.close(p.io.ctx, fd)
        p.io.unlink(p.io.ctx, path)
