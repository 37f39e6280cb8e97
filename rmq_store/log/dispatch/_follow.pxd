# In the place of the dispatcher where another process writes: what comes into its log and its queues becomes readable here. One
# native thread, which looks; it writes nothing.
from libc.stdint cimport int32_t, int64_t

from rmq_store.log.dispatch._dispatch cimport Dispatcher

cdef struct Missing:
    const char *topic           # in a file of the log
    int32_t topic_size
    int32_t queue_id

cdef enum:
    MISSING = 64

cdef struct Follower:
    Dispatcher *d
    int64_t settled             # records before that were walked over when an entry vouched for them
    int64_t at                  # beyond what is vouched for: where the next walk goes on
    int64_t end_before          # where the walk before came to the end of the log
    int64_t seen                # how far any walk came
    int64_t due                 # bytes that a walk from the beginning may cost by now
    bint cut                    # the last one had not come to the end
    int looks
    int64_t cleaned             # under round_lock: records before that were deleted unseen: who has a queue is due; 0: none
    int error                   # atomic: errno of the last look, 0 none
    Missing[MISSING] missing    # queues that are not there, of one look


# settled: all records before that offset have their entries.
cdef Follower *follower_new(Dispatcher *d, int64_t settled) noexcept nogil
cdef void follower_free(Follower *f) noexcept nogil
# Before the start: the log's files of which nothing is known yet are let go, to be opened when the writer has begun with them.
cdef void follower_let_go_ahead(Follower *f) noexcept nogil
cdef int follower_start(Follower *f) noexcept nogil         # dispatcher_stop ends it
# One look, under round_lock: 1 where something has come; 2: it has not come to the end of the log; 0; or -errno. whole: it
# begins with what no entry vouches for yet, and looks into every queue that expects entries. Any thread.
cdef int follower_look(Follower *f, bint whole) noexcept nogil
# The log begins at `start` now, as its files say: what lies before is let go, and where all that was known is gone reading goes
# on there. The queues begin there, too; what cannot be told now is due in the next call. 0 or -errno. Where `cleaned` is not 0,
# every queue that has a directory is to be said (follower_meets), and then `cleaned` to be set to 0, by the same thread.
cdef int follower_begins(Follower *f, int64_t start) noexcept nogil
cdef int follower_meets(Follower *f, const char *topic, int32_t topic_size, int32_t queue_id, bint inner) noexcept nogil
