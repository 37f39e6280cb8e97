"""The I/O table a store works with: the real system calls, or a probe for tests.

Native code takes `table` and calls it; the control plane goes through ControlFiles (files.py). The methods here are the bare
calls: one each (but for read_all and write_all), with the GIL released, OSError where the table says -errno.
Contract in _io.pxd, native/include/rmq_io.h and rmq_probe.h.
"""
import os
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from rmq_store.errors import reason


cdef extern from "rmq_io.h" nogil:
    rmq_home *rmq_home_new()
    void rmq_home_free(rmq_home *h)
    const rmq_io *rmq_home_table(rmq_home *h)


cdef extern from "rmq_guard.h" nogil:
    int rmq_guard_install()
    int rmq_guard_add(void *at, size_t n, const rmq_identity *file, int writable, rmq_lost *lost)
    void rmq_guard_remove(int number)


cdef extern from *:
    """
    #include <errno.h>
    """
    enum: EAGAIN, ENOMEM, ETIMEDOUT


cdef extern from "rmq_probe.h" nogil:
    enum: RMQ_CALL_KINDS
    ctypedef int rmq_call_kind
    uint64_t RMQ_CALLS(int kind)
    uint64_t RMQ_CALLS_MUTATE
    ctypedef struct rmq_call:
        int kind
        int fd
        int flags
        int ignored
        int64_t offset
        int64_t length
        int64_t result
        int64_t begin
        int64_t time_ns
        const char *path
        const char *target
        const unsigned char *data
        int64_t data_size
    rmq_probe *rmq_probe_new(const rmq_io *below, int keep_bytes)
    void rmq_probe_free(rmq_probe *p)
    const rmq_io *rmq_probe_table(rmq_probe *p)
    int rmq_probe_fail(rmq_probe *p, uint64_t kinds, int64_t nth, int error, const char *path, int sticky)
    int rmq_probe_shorten(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path, int sticky)
    int rmq_probe_freeze(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path)
    void rmq_probe_clear(rmq_probe *p)
    int rmq_probe_frozen(rmq_probe *p)
    int64_t rmq_probe_hits(rmq_probe *p)
    int rmq_probe_hold(rmq_probe *p, uint64_t kinds, const char *path)
    int rmq_probe_wait_held(rmq_probe *p, int n, int64_t timeout_ns)
    ctypedef struct rmq_standing:
        int64_t ticket
        int kind
        int thread
        const char *path
    int rmq_probe_gate(rmq_probe *p, uint64_t kinds, const char *path, int thread)
    void rmq_probe_ungate(rmq_probe *p)
    int rmq_probe_let(rmq_probe *p, int64_t ticket)
    int rmq_probe_standing(rmq_probe *p, int i, rmq_standing *out)
    int rmq_probe_wait_standing(rmq_probe *p, int n, int64_t timeout_ns)
    void rmq_probe_limit(rmq_probe *p, int64_t calls, int64_t bytes)
    int rmq_probe_full(rmq_probe *p)
    void rmq_probe_clock(rmq_probe *p, int real, int64_t ms, int64_t step)
    int rmq_probe_mark(rmq_probe *p, int64_t number)
    int64_t rmq_probe_length(rmq_probe *p)
    int rmq_probe_at(rmq_probe *p, int64_t i, rmq_call *out)
    int64_t rmq_probe_count(rmq_probe *p, rmq_call_kind kind)
    const char *rmq_probe_kind_name(rmq_call_kind kind)


Call = namedtuple("Call", "kind fd path target offset length result flags begin time_ns ignored data note")
Standing = namedtuple("Standing", "ticket kind path thread")


cdef int64_t _check(int64_t rc, object path) except -1:
    if rc < 0:
        raise OSError(-rc, reason(-rc), path)
    return rc


cdef int guard_install() noexcept nogil:
    return rmq_guard_install()


cdef int guard_add(void *at, size_t n, const rmq_identity *file, bint writable, rmq_lost *lost, int *number) noexcept nogil:
    cdef int rc = rmq_guard_add(at, n, file, writable, lost)
    if rc < 0:
        return rc
    number[0] = rc
    return 0


cdef void guard_remove(int *number) noexcept nogil:
    if number[0] != 0:
        rmq_guard_remove(number[0])
        number[0] = 0


cdef class IoTable:
    """Owner of one table of system calls; this class is the real one.

    Thread-safety: every method from any thread. Lifetime: a store keeps a reference as long as any of its threads runs.
    Errors: OSError with the kernel's errno, of which nothing is retried; the path is named where the call has one.
    """

    def __cinit__(self):
        self.home = rmq_home_new()
        if self.home == NULL:
            raise MemoryError("the table of system calls")
        self.table = rmq_home_table(self.home)

    def __dealloc__(self):
        rmq_home_free(self.home)

    @property
    def address(self):
        """Address of the `rmq_io` struct, for native code loaded by tests: int."""
        return <uintptr_t> self.table

    @property
    def clock_slot(self):
        """Address of the `mono_ns` pointer in the `rmq_io` struct, for tests that put a function of theirs there: int."""
        return <uintptr_t> &self.table.mono_ns

    def open(self, path, int flags, int mode=0o644):
        """Opens a file (O_CLOEXEC is added). Returns the descriptor."""
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef int rc
        with nogil:
            rc = self.table.open(self.table.ctx, c_name, flags, mode)
        return _check(rc, path)

    def close(self, int fd):
        """Closes a descriptor."""
        cdef int rc
        with nogil:
            rc = self.table.close(self.table.ctx, fd)
        _check(rc, None)

    def size(self, int fd):
        """Length of a file in bytes."""
        return _check(self.table.size(self.table.ctx, fd), None)

    def modified_ms(self, int fd):
        """Time of the last modification, ms since 1970."""
        return _check(self.table.modified_ms(self.table.ctx, fd), None)

    def alone(self, int fd):
        """True where the file has no name and nobody else has it open or mapped, in whatever process; False where that cannot
        be known, too."""
        return _check(self.table.alone(self.table.ctx, fd), None) > 0

    def next_data(self, int fd, int64_t offset):
        """Start of the first data at or beyond `offset`; the length of the file where only a hole follows."""
        return _check(self.table.next_data(self.table.ctx, fd, offset), None)

    def pread(self, int fd, size_t n, int64_t offset):
        """One read. Returns the bytes read, fewer than `n` where the kernel gave fewer."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n)
        cdef char *to = PyBytes_AS_STRING(out)
        cdef int64_t rc
        with nogil:
            rc = self.table.pread(self.table.ctx, fd, to, n, offset)
        _check(rc, None)
        return out if <size_t> rc == n else out[:rc]

    def read_all(self, int fd, size_t n, int64_t offset):
        """Reads `n` bytes, fewer only at the end of the file: short reads continue, EINTR is repeated (rmq_pread_all)."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n)
        cdef char *to = PyBytes_AS_STRING(out)
        cdef int64_t rc
        with nogil:
            rc = rmq_pread_all(self.table, fd, to, n, offset)
        _check(rc, None)
        return out if <size_t> rc == n else out[:rc]

    def pwrite(self, int fd, const unsigned char[::1] data not None, int64_t offset):
        """One write. Returns the number of bytes written, fewer than given where the kernel took fewer."""
        cdef size_t n = data.shape[0]
        cdef const unsigned char *at = &data[0] if n > 0 else NULL
        cdef int64_t rc
        with nogil:
            rc = self.table.pwrite(self.table.ctx, fd, at, n, offset)
        return _check(rc, None)

    def write_all(self, int fd, const unsigned char[::1] data not None, int64_t offset):
        """Writes everything or raises: short writes continue, EINTR is repeated (rmq_pwrite_all)."""
        cdef size_t n = data.shape[0]
        cdef const unsigned char *at = &data[0] if n > 0 else NULL
        cdef int rc
        with nogil:
            rc = rmq_pwrite_all(self.table, fd, at, n, offset)
        _check(rc, None)

    def mmap(self, int fd, int64_t offset, size_t n, bint writable):
        """Maps a part of a file, shared. Returns its address; the caller must not touch it after munmap."""
        cdef void *at = NULL
        cdef int rc
        with nogil:
            rc = self.table.mmap(self.table.ctx, fd, offset, n, writable, &at)
        _check(rc, None)
        return <uintptr_t> at

    def munmap(self, uintptr_t address, size_t n):
        """Removes a map."""
        cdef int rc
        with nogil:
            rc = self.table.munmap(self.table.ctx, <void *> address, n)
        _check(rc, None)

    def map_store(self, int fd, int64_t offset, uintptr_t address, const unsigned char[::1] data not None):
        """Stores `data` at an address inside a map of the file behind `fd`, at `offset` of the file, and announces it."""
        cdef size_t n = data.shape[0]
        if n == 0:
            return
        memcpy(<void *> address, &data[0], n)
        if self.table.map_store != NULL:
            self.table.map_store(self.table.ctx, fd, offset, <void *> address, n)

    def msync(self, int fd, uintptr_t address, size_t n):
        """Makes a part of a map durable; `address` must be page-aligned."""
        cdef int rc
        with nogil:
            rc = self.table.msync(self.table.ctx, fd, <void *> address, n)
        _check(rc, None)

    def fdatasync(self, int fd):
        """Makes the data of a file durable, and its length."""
        cdef int rc
        with nogil:
            rc = self.table.fdatasync(self.table.ctx, fd)
        _check(rc, None)

    def fsync(self, int fd):
        """Makes data and metadata of a file durable; its name needs sync_dir."""
        cdef int rc
        with nogil:
            rc = self.table.fsync(self.table.ctx, fd)
        _check(rc, None)

    def fallocate(self, int fd, int64_t offset, int64_t n):
        """Reserves the space of a part of a file and makes the file as long as that."""
        cdef int rc
        with nogil:
            rc = self.table.fallocate(self.table.ctx, fd, offset, n)
        _check(rc, None)

    def ftruncate(self, int fd, int64_t n):
        """Sets the length of a file."""
        cdef int rc
        with nogil:
            rc = self.table.ftruncate(self.table.ctx, fd, n)
        _check(rc, None)

    def rename(self, source, target):
        """Renames a file; durable after sync_dir of the target's directory."""
        cdef bytes a = os.fsencode(source), b = os.fsencode(target)
        cdef const char *c_a = a
        cdef const char *c_b = b
        cdef int rc
        with nogil:
            rc = self.table.rename(self.table.ctx, c_a, c_b)
        if rc < 0:
            raise OSError(-rc, reason(-rc), source, None, target)

    def unlink(self, path):
        """Removes a file; durable after sync_dir."""
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef int rc
        with nogil:
            rc = self.table.unlink(self.table.ctx, c_name)
        _check(rc, path)

    def mkdir(self, path, int mode=0o755):
        """Makes one directory; durable after sync_dir of its parent."""
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef int rc
        with nogil:
            rc = self.table.mkdir(self.table.ctx, c_name, mode)
        _check(rc, path)

    def rmdir(self, path):
        """Removes an empty directory."""
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef int rc
        with nogil:
            rc = self.table.rmdir(self.table.ctx, c_name)
        _check(rc, path)

    def sync_dir(self, path):
        """Makes the names inside a directory durable."""
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef int rc
        with nogil:
            rc = self.table.sync_dir(self.table.ctx, c_name)
        _check(rc, path)

    def lock(self, int fd):
        """Takes the write lock on byte 0 of the open file, or the lock of a directory (flock). Returns False if somebody else
        holds it, in any process."""
        cdef int rc = self.table.lock(self.table.ctx, fd, True)
        if rc == -EAGAIN:
            return False
        _check(rc, None)
        return True

    def unlock(self, int fd):
        """Gives the lock up, whoever has a copy of the descriptor."""
        _check(self.table.lock(self.table.ctx, fd, False), None)

    def wall_ms(self):
        """The clock of store timestamps: ms since 1970."""
        return self.table.wall_ms(self.table.ctx)

    def mono_ns(self):
        """The clock of durations and deadlines, ns."""
        cdef int64_t now
        with nogil:     # a probe may hold the call
            now = self.table.mono_ns(self.table.ctx)
        return now


_NAMES = tuple(rmq_probe_kind_name(k).decode() for k in range(RMQ_CALL_KINDS))
_SETS = {name: (name,) for name in _NAMES if name != "mark"}
_SETS["write"] = ("pwrite", "ring_write")
_SETS["sync"] = ("msync", "fdatasync", "fsync", "sync_dir", "ring_sync")
_SETS["any"] = tuple(_SETS)[:RMQ_CALL_KINDS - 1]


cdef uint64_t _kinds(str kind) except? 0:
    # One kind, a set's name, or several joined by "|".
    cdef uint64_t bits = 0
    for part in kind.split("|"):
        if part == "mutate":
            bits |= RMQ_CALLS_MUTATE
            continue
        if part not in _SETS:
            raise ValueError(f"unknown kind of call {part!r}: one of {', '.join([*_SETS, 'mutate'])}")
        for name in _SETS[part]:
            bits |= RMQ_CALLS(_NAMES.index(name))
    return bits


cdef int _check_rule(int rc, object kind, object nth) except -1:
    if rc == -ENOMEM:
        raise MemoryError("rule")
    if rc < 0:
        raise ValueError(f"no call of kind {kind!r} can be number {nth} of this rule")
    return 0


cdef inline const char *_text(bytes path) noexcept:
    # Lives as long as `path`.
    return NULL if path is None else PyBytes_AS_STRING(path)


cdef class ProbeIo(IoTable):
    """A table for tests: records every call, and spoils those it is told to. See native/include/rmq_probe.h.

    `kind` is the name of a call ("pwrite", "fsync", …), several joined by "|", or a set: "write", "sync", "any", or "mutate"
    (what changes the directory). `path`: only calls on paths that contain it; write "/commitlog/", as the name of a test's own
    directory may contain "commitlog". Rules count from the moment they are set.
    keep_bytes=False: the trace holds no written bytes. calls_max, bytes_max: there the trace ends (`full`); calls continue.

    Thread-safety: every method from any thread; rules, holds and clock reach native threads at once.
    Lifetime: outlives every store, descriptor and map made through it.
    """

    def __cinit__(self, *, bint keep_bytes=True, int64_t calls_max=0, int64_t bytes_max=0):
        self.notes = []
        self.probe = rmq_probe_new(self.table, keep_bytes)
        if self.probe == NULL:
            raise MemoryError("probe")
        rmq_probe_limit(self.probe, calls_max, bytes_max)
        self.table = rmq_probe_table(self.probe)

    def __dealloc__(self):
        rmq_probe_free(self.probe)

    def fail(self, kind, int64_t nth=1, errno=None, path=None, *, bint short=False, bint sticky=False):
        """The nth such call fails with `errno` without being made, or, short=True, transfers half of its bytes.

        sticky: every later one as well. ValueError where nothing could match.
        """
        cdef bytes name = None if path is None else os.fsencode(path)
        cdef uint64_t kinds = _kinds(kind)
        cdef int rc
        if short == (errno is not None):
            raise ValueError("either errno or short=True")
        if short:
            rc = rmq_probe_shorten(self.probe, kinds, nth, _text(name), sticky)
        else:
            rc = rmq_probe_fail(self.probe, kinds, nth, errno, _text(name), sticky)
        _check_rule(rc, kind, nth)

    def freeze(self, kind="mutate", int64_t nth=0, path=None):
        """The nth such call is the last that the directory sees: afterwards calls claim success and change nothing.

        nth=0: from now on. What is left is what `kill -9` at that call leaves; the store above can be closed in order.
        """
        cdef bytes name = None if path is None else os.fsencode(path)
        _check_rule(rmq_probe_freeze(self.probe, _kinds(kind), nth, _text(name)), kind, nth)

    def clear(self):
        """Forgets every rule. A freeze stays."""
        rmq_probe_clear(self.probe)

    @property
    def frozen(self):
        """True after a freeze: bool."""
        return rmq_probe_frozen(self.probe) != 0

    @property
    def hits(self):
        """Number of calls that a rule touched so far: int."""
        return rmq_probe_hits(self.probe)

    def hold(self, kind, path=None):
        """From now on such calls wait before they are made, until release(). One hold at a time; a new one replaces it."""
        cdef bytes name = None if path is None else os.fsencode(path)
        if rmq_probe_hold(self.probe, _kinds(kind), _text(name)) < 0:
            raise MemoryError("hold")

    def release(self):
        """Lets held calls continue."""
        rmq_probe_hold(self.probe, 0, NULL)

    def wait_held(self, int count=1, double timeout=10.0):
        """Waits until `count` calls are held; TimeoutError after `timeout` seconds."""
        cdef int64_t timeout_ns = <int64_t> (timeout * 1e9)
        cdef int rc
        with nogil:
            rc = rmq_probe_wait_held(self.probe, count, timeout_ns)
        if rc == -ETIMEDOUT:
            raise TimeoutError(f"fewer than {count} calls were held after {timeout} s")

    def gate(self, kind, path=None, int thread=0):
        """From now on such calls stand still, each by itself, until `let`; one more gate beside those that are there.

        kind: as above, and "mono_ns", a thread's look at the clock; a "ring_reap" stands with the completion in its hand.
        thread: only calls of that native thread id.
        """
        cdef bytes name = None if path is None else os.fsencode(path)
        if rmq_probe_gate(self.probe, _kinds(kind), _text(name), thread) < 0:
            raise MemoryError("gate")

    def ungate(self):
        """Takes all gates away and lets everything continue."""
        rmq_probe_ungate(self.probe)

    def standing(self):
        """What stands at a gate: list of Standing(ticket, kind, path, thread), oldest first."""
        cdef rmq_standing s
        out = []
        while rmq_probe_standing(self.probe, <int> len(out), &s) == 0:
            out.append(Standing(s.ticket, _NAMES[s.kind], None if s.path == NULL else os.fsdecode(s.path), s.thread))
        return out

    def let(self, int64_t ticket):
        """Lets one call continue. ValueError where it does not stand."""
        if rmq_probe_let(self.probe, ticket) < 0:
            raise ValueError(f"no call with ticket {ticket} stands at a gate")

    def wait_standing(self, int count=1, double timeout=10.0):
        """Waits until `count` calls stand at gates; TimeoutError after `timeout` seconds."""
        cdef int64_t timeout_ns = <int64_t> (timeout * 1e9)
        cdef int rc
        with nogil:
            rc = rmq_probe_wait_standing(self.probe, count, timeout_ns)
        if rc == -ETIMEDOUT:
            raise TimeoutError(f"fewer than {count} calls stood at gates after {timeout} s")

    @property
    def full(self):
        """True where the trace ended at calls_max or bytes_max: bool."""
        return rmq_probe_full(self.probe) != 0

    @property
    def length(self):
        """Number of calls in the trace: int."""
        return max(0, rmq_probe_length(self.probe))

    def set_clock(self, ms, int64_t step=0):
        """wall_ms gives `ms`, then `ms` + step, then …; a negative step runs backwards. None: the real clock again."""
        rmq_probe_clock(self.probe, ms is None, 0 if ms is None else ms, step)

    def mark(self, note):
        """Puts `note` into the trace, as a call of kind "mark"."""
        self.notes.append(note)
        if rmq_probe_mark(self.probe, len(self.notes) - 1) < 0:
            raise MemoryError("trace")

    def trace(self, int64_t start=0, int64_t stop=-1):
        """The calls from number `start` on, up to `stop` (-1: the end): a list of Call, in the order in which they ended."""
        cdef int64_t i, n = rmq_probe_length(self.probe)
        cdef rmq_call c
        if n < 0:
            raise MemoryError("the trace has a hole: memory ran out")
        if 0 <= stop < n:
            n = stop
        out = []
        for i in range(start, n):
            rmq_probe_at(self.probe, i, &c)
            kind = _NAMES[c.kind]
            path = None if c.path == NULL else os.fsdecode(c.path)
            target = None if c.target == NULL else os.fsdecode(c.target)
            out.append(Call(
                kind, c.fd, path, target, c.offset, c.length, c.result, c.flags, c.begin, c.time_ns, c.ignored != 0,
                None if c.data == NULL else PyBytes_FromStringAndSize(<const char *> c.data, c.data_size),
                self.notes[c.offset] if kind == "mark" else None))
        return out

    def counts(self):
        """How often each kind was called so far: dict of name to int; kinds never called are absent."""
        return {name: n for k, name in enumerate(_NAMES) if (n := rmq_probe_count(self.probe, k)) > 0 and name != "mark"}
