# In the place of the dispatcher where another process writes: what comes into its log and its queues becomes readable here. One
# native thread, which looks; it writes nothing.
from libc.stdint cimport int64_t

from rmq_store.log.dispatch._dispatch cimport Dispatcher

cdef struct Follower:
    Dispatcher *d
    int64_t unresolved          # a record whose queue was not there when it was looked for; -1 none
    int64_t budget              # how many records one look may walk over
    int64_t seen                # how far the last walk came
    int64_t rest                # looks before the next walk: what is long is walked over seldom
    bint cut                    # there is more behind that
    int looks
    int error                   # atomic: errno of the last look, 0 none


cdef Follower *follower_new(Dispatcher *d) noexcept nogil
cdef void follower_free(Follower *f) noexcept nogil
# Before the start: the log's files of which nothing is known yet are let go, to be opened when the writer has begun with them.
cdef void follower_let_go_ahead(Follower *f) noexcept nogil
cdef int follower_start(Follower *f) noexcept nogil         # dispatcher_stop ends it
# One look, under round_lock: 1 where something has come, 0, or -errno. Any thread.
cdef int follower_look(Follower *f) noexcept nogil
# The log begins at `start` now, as its files say: what lies before is let go, and where all that was known is gone reading goes
# on there. Any thread.
cdef void follower_begins(Follower *f, int64_t start) noexcept nogil
