# The CommitLog: one append path under one lock, and the positions everybody else goes by.
#
#   flushed <= committed <= wrote,   dispatched <= visible
#
# wrote      end of the last record encoded (into the mapped file, or into the pool)
# committed  end of what the file holds; on the mmap write path always equal to wrote
# flushed    end of what is on the device
# Each is stored with rmq_publish after the bytes it covers, and only ever grows. A failed write or sync sets `fence`: from then
# on nothing is appended, committed or flushed; what was readable stays readable, and of a pool so does what it has beyond
# `committed` (_unwritten.pxd). A commit that lacks something is no failure: the pool keeps the bytes, and the same bytes go to
# the same place again. `want` says so until they are there.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.histogram._histogram cimport rmq_histogram
from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_event, rmq_load, rmq_mutex, rmq_put_lock, rmq_waiters
from rmq_store.base.segment._allocator cimport Allocator
from rmq_store.base.segment._file cimport FileRow, LogFile
from rmq_store.codec._record cimport RecordArgs
from rmq_store.log.pool._pool cimport Pool
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum FenceStep:
    FENCE_NONE = 0
    FENCE_WRITE = 1
    FENCE_SYNC = 2

cdef enum AppendStatus:
    APPEND_OK = 0
    APPEND_NEED_ROOM = 1    # the pool is full: release the lock, log_wait_room, try again
    APPEND_NEED_FILE = 2    # the next file is not ready: release the lock, log_wait_file, try again
    APPEND_FENCED = 3       # log.fence holds the errno
    APPEND_ERROR = 4        # out of memory while rolling

cdef enum LogPin:
    PIN_DISPATCH = 0
    PIN_SEND = 1            # to slaves
    PINS = 2

cdef struct Log

cdef struct Backend:
    # A flush back end is a row of functions; each returns 0 or -errno. Its file makes the row, flush/_backends.pyx names it.
    int (*commit)(Log *log, int64_t to) noexcept nogil      # pool -> file; commit_lock is held. NULL on the mmap write path
    int (*sync)(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil        # file -> device; sync_lock is held
    # These may be NULL:
    int (*reach)(Log *log, int64_t to) noexcept nogil       # commits for any thread that asks, instead of the plain way
    int (*prime)(Log *log) noexcept nogil                   # before the first put, when it is known where the log ends
    int (*start)(Log *log, bint sync_mode) noexcept nogil   # a thread of its own commits, and flushes where sync_mode is true
    int (*stop)(Log *log) noexcept nogil                    # joins it; what is under way is completed first
    void (*free)(Log *log) noexcept nogil

cdef struct Log:
    # Grouped by who writes how often, each group in cache lines of its own: a put would else fetch back what the committer and
    # the dispatcher have written beside what it reads.
    # ---- fixed after log_new
    const rmq_io *io
    FileRow *row
    Allocator *alloc
    Pool *pool                  # NULL: mmap write path
    const Backend *backend
    void *backend_state         # the back end's own
    int64_t busy_after_ms
    int64_t commit_bytes_min    # atomic: who commits in the background waits for so much, or for commit_interval_max_ns
    # ---- read by every put, seldom written
    bint direct                 # bytes go around the page cache: what is recent is read from the pool, not from the map
    bint durable_only           # readers see what is flushed: before that there is nothing to dispatch
    int fence                   # errno of the first failed write or sync, 0 none
    int fence_step              # a FenceStep; whoever sees `fence` sees it
    int want                    # atomic: errno of what the last commit lacked, and is tried again for; 0 nothing
    int commit_asleep           # the committer sleeps without a timeout: whoever appends must wake it
    int flush_asleep
    int flush_eager             # atomic: asynchronous flush: an append wakes the flush thread (flush_wake = eager)
    int dispatch_asleep
    int readers                 # threads that sleep until a message comes: atomic
    void (*dispatch_here)(void *dispatcher) noexcept nogil      # see log_dispatch; NULL: no dispatcher runs
    void *dispatcher
    int64_t commit_interval_max_ns
    # ---- under the put lock
    rmq_put_lock lock
    LogFile *tail
    int64_t position            # == wrote, without the fence
    int64_t last_timestamp      # store times never run backwards inside a log
    int64_t lock_since_ms       # wall clock when the lock was taken; 0 free (RocketMQ: beginTimeInLock)
    int64_t timed_since         # monotonic ns when the lock was taken, of one append in 64; else 0
    int lock_phase
    char[12] line_of_lock
    # ---- published by puts; the counters by rmq_count
    int64_t wrote
    int64_t wrote_timestamp     # store time of the newest record below wrote
    int64_t puts
    int64_t put_bytes
    int put_cpu                 # the processor of one append in 64
    char[28] line_of_puts
    # ---- published by commits
    int64_t committed
    int64_t reusable            # pool: bytes below it may be overwritten. == committed, or, direct, somewhere below
    char[48] line_of_commits
    # ---- published by flushes and the dispatcher
    int64_t flushed
    int64_t flushed_timestamp   # store time of the newest record that is surely below flushed
    int64_t dispatched
    int64_t confirm             # dispatch stops here, also a recovery's; INT64_MAX unless duplication is on
    # ---- who owns commit and sync: commit_lock for pool -> file, sync_lock for the device; sync_lock is taken first
    rmq_mutex commit_lock
    rmq_mutex sync_lock
    rmq_mutex reclaim_lock      # `reusable` moves, `pinned` changes
    int64_t[PINS] pinned        # who reads the pool from where on; INT64_MAX: it does not
    # ---- waking
    rmq_event commit_wanted
    rmq_event flush_wanted
    rmq_event dispatch_wanted
    rmq_event room              # committed moved, or the fence is up
    rmq_waiters durable         # who waits for flushed to pass an offset, or for the fence
    # ---- counters: rmq_add
    int64_t room_waits
    int64_t file_waits
    int64_t slow_locks          # put lock held longer than 500 ms
    int64_t slow_lock_since     # of the last one: lock_since_ms,
    int64_t slow_lock_ms        # how long it was seen held,
    int64_t slow_lock_phase     # and in which phase
    int64_t flushes
    int64_t commits
    rmq_histogram commit_times      # ns of a commit by write or copy; under commit_lock
    rmq_histogram flush_times       # ns of a flush, its commit and all its syncs; under sync_lock
    rmq_histogram lock_times        # ns that an append waited for the put lock, of those that found it taken; under it
    rmq_histogram append_times      # ns that the put lock was held, of one append in 64; under it

cdef struct Appended:
    int64_t offset
    int64_t queue_offset
    int64_t store_timestamp

cdef enum LockPhase:
    PHASE_NONE = 0
    PHASE_ENCODE = 1
    PHASE_ROLL = 2

cdef Log *log_new(const rmq_io *io, FileRow *row, Pool *pool, int put_lock_spins) noexcept nogil
# Before the allocator is started, which reads how far the log is written and how often flushed. Its syncs cover the log's bytes
# too: one that fails is the log's failure.
cdef void log_use_allocator(Log *log, Allocator *alloc) noexcept nogil
cdef void log_free(Log *log) noexcept nogil
# Sets every position to `end`; tail is the file that holds it (held for the log), or NULL while the first file is to come.
cdef void log_begin(Log *log, int64_t end, LogFile *tail, int64_t timestamp) noexcept nogil
# Appends one record; the put lock is held, log_lock_begin gave `now`. No system call, no allocation, unless a file rolls.
cdef AppendStatus log_append(Log *log, RecordArgs *a, Queue *q, int64_t now, Appended *out) noexcept nogil
# Makes sure `size` bytes and the end-of-file record fit where the log stands, or rolls (a batch lies in one file).
cdef AppendStatus log_reserve(Log *log, int64_t size) noexcept nogil
cdef int64_t log_reserve_max(const Log *log) noexcept nogil     # so much has room, sooner or later, wherever the log stands
cdef int64_t log_lock_begin(Log *log) noexcept nogil        # takes the lock (may sleep); returns the store time
cdef bint log_lock_try(Log *log, int64_t *now) noexcept nogil
cdef void log_lock_end(Log *log) noexcept nogil             # releases it, wakes whoever sleeps for good, or log_dispatch
# The halves of log_lock_end: what can wait until the caller has done something more urgent, can.
cdef void log_lock_leave(Log *log) noexcept nogil
cdef void log_lock_left(Log *log) noexcept nogil
# The same for callers with the GIL. True: log_dispatch is still to be called, without the GIL.
cdef bint log_lock_end_quick(Log *log) noexcept nogil
# For a thread with `pending` bytes to do behind a stream of puts: off their processor, if it runs there. `moved` is its own.
cdef void log_make_way(Log *log, int64_t pending, int64_t *moved) noexcept nogil
# What may be read has grown: wakes the dispatcher if it sleeps.
cdef void log_dispatch_wake(Log *log) noexcept nogil
cdef void log_commit_seen(Log *log) noexcept nogil          # the same behind a commit
# The same; where a reader waits, this thread dispatches what it can and wakes the reader itself: one wake-up less on the
# message's way. Writes to queue files.
cdef void log_dispatch(Log *log) noexcept nogil
# 0, -ETIMEDOUT, -errno of the fence or of what commits lack
cdef int log_wait_room(Log *log, int64_t size, int64_t timeout_ns) noexcept nogil
# Until `size` bytes have room in the present file or the next one is there: 0, -ETIMEDOUT, -errno.
cdef int log_wait_file(Log *log, int64_t size, int64_t timeout_ns) noexcept nogil
cdef void log_fence(Log *log, int error, int step) noexcept nogil
# A write of what the pool has, or what it needs, failed with `error`: a pause for a want, else the fence. Not of a write that
# syncs as well. Returns `error`.
cdef int log_unwritable(Log *log, int error) noexcept nogil
# Pool bytes reached the file up to `at`: publishes it and gives their room back. One committer at a time.
cdef void log_committed(Log *log, int64_t at) noexcept nogil
# Everything below `to` is on the device: publishes it with the newest store time it covers. Under sync_lock.
cdef void log_flushed(Log *log, int64_t to, int64_t timestamp, int64_t begun_ns) noexcept nogil
# Direct: gives pool room back, all that may be (wanted), or what leaves half of the pool to those who read what is recent.
cdef void log_reclaim(Log *log, bint wanted) noexcept nogil
# Direct: bytes from `at` on stay in the pool until log_unpin. False: they are gone, read the file. reader: a LogPin, of which
# one thread reads at a time.
cdef bint log_pin(Log *log, int reader, int64_t at) noexcept nogil
cdef void log_unpin(Log *log, int reader) noexcept nogil
# Direct: copies [offset, offset + size) out of the pool; False: not there any more, or not committed. Any thread.
cdef bint log_copy(Log *log, int64_t offset, int64_t size, unsigned char *to) noexcept nogil
cdef bint log_busy(Log *log) noexcept nogil                 # the put lock is held longer than busy_after_ms


cdef inline int64_t log_shown(Log *log) noexcept nogil:
    # Slaves may have what lies below.
    return rmq_load(&log.flushed) if log.durable_only else rmq_load(&log.committed)
