# Recalls that are known, and which messages they name. A recall names topic, UNIQ_KEY and slot of its message. Each is a place
# in the log: its record is read to compare. The timer's thread.
from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq_store.codec._record cimport RecordView
from rmq_store.log.commitlog._log cimport Log

cdef struct Recall:
    uint64_t hash               # of the value of TIMER_DEL_UNIQKEY, topic+key (buildDeleteKey), and of the slot
    int64_t physical            # of the record that has it
    int32_t size                # 0: a free place

cdef struct Recalls:
    Recall *table               # open, at most half full; NULL: none is known
    int64_t places
    int64_t used
    int64_t precision           # ms of a slot


# A record that is not a recall changes nothing. 0 or -errno.
cdef int recalls_add(Recalls *r, const RecordView *v) noexcept nogil
# 1 where a known recall names this message, 0, -errno.
cdef int recalls_name(const Recalls *r, Log *log, const RecordView *v) noexcept nogil
cdef void recalls_forget(Recalls *r) noexcept nogil
