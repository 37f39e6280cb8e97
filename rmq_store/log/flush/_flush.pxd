# Making it true: pool -> file (commit), file -> device (sync), and who may do it when.
#
# Exactly one thread at a time syncs (Log.sync_lock): the kernel reports a write-back error once per descriptor, and a second,
# concurrent sync could say yes. Exactly one commits (Log.commit_lock). A put that must be durable leads if nobody else does: it
# commits and syncs all that is appended, publishes, wakes the rest; with nobody else about it pays one write and one sync.
# A failed sync raises the fence and is never tried again, and so does a write that fails for another reason than a want. For a
# want commits pause: they are tried again every RMQ_WANT_RETRY_NS, and whoever asks for one meanwhile gets the errno.
from libc.stdint cimport int64_t

from rmq_store.base.io._sync cimport pthread_t
from rmq_store.log.commitlog._log cimport Log

cdef struct Flusher:
    Log *log
    # atomic: reconfigure() changes them
    int64_t flush_interval_ns
    int64_t flush_bytes_min
    int64_t flush_interval_max_ns
    # ----
    pthread_t flush_thread
    pthread_t commit_thread
    bint sync_mode
    bint flush_running
    bint commit_running
    int stop

cdef int flush_commit(Log *log, int64_t to) noexcept nogil          # any thread; 0 or -errno (fenced, or a want)
# Commits all that is appended, if a commit is a write to the page cache and nobody else is at it. False: neither, wake the
# committer. An error is a fence.
cdef bint flush_commit_try(Log *log) noexcept nogil
# Everything appended so far becomes durable: 0 or -errno, as flush_commit.
cdef int flush_all(Log *log) noexcept nogil
# Until `end` is durable: 0; -ETIMEDOUT, also while it lacks something; -errno of the fence.
cdef int flush_wait(Log *log, int64_t end, int64_t timeout_ns) noexcept nogil
cdef Flusher *flusher_new(Log *log) noexcept nogil
cdef int flusher_start(Flusher *f) noexcept nogil
cdef int flusher_stop(Flusher *f) noexcept nogil                    # joins; writes nothing more
