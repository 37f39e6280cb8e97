# Which copies the log has already, of messages that timercheck does not count as delivered: there was a crash, or the store is
# a backup. Their copies are known by their content. Of messages with the same content one is as good as the other, so what
# counts is how many there are. The timer's thread, or no thread yet.
from libc.stdint cimport int64_t, uint64_t

from rmq_store.codec._record cimport RecordArgs, RecordView
from rmq_store.log.commitlog._log cimport Log

cdef struct Copies:
    uint64_t content            # 0: a free place
    int64_t count

cdef struct Once:
    Copies *table               # open, at most half full; NULL: nothing is known
    int64_t places
    int64_t used
    int64_t left                # copies that no message has claimed yet
    int64_t until_ms            # no slot from here on is among them
    int64_t until               # nor a message that lies in the log from here on


# Reads the log from `begin` on (negative: nothing is known), over records that are damaged. 0; 1: it is more than `most` bytes,
# and nothing was read; -errno.
cdef int once_learn(Once *o, Log *log, int64_t begin, int64_t most) noexcept nogil
# One copy; a record without TIMER_DEQUEUE_MS is none. 0 or -errno.
cdef int once_add(Once *o, const RecordView *v) noexcept nogil
# True where the log has this copy; it is claimed by that.
cdef bint once_claim(Once *o, const RecordArgs *a) noexcept nogil
cdef void once_forget(Once *o) noexcept nogil
