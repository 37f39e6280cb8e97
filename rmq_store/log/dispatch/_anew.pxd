# Queues that begin anew in the log of a slave. Its master has removed them (RocketMQ: deleteTopics,
# cleanExpiredConsumerQueue), which no record says: a record with queue offset 0 does, where the queue has other messages.
#
# The dispatcher stops in front of such a record (Dispatcher.anew_at) until a thread of the control plane has removed the queue,
# durably, and notes where it begins.
#
# A first record may also say that the topic has queues of the other kind now: its master has deleted the topic, and uses the
# name for plain messages in place of inner batches, or the other way round. Dispatch stops there, too.
from libc.stdint cimport int32_t, int64_t

from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    ANEW_MAX = 256              # queues that one look finds

cdef struct Anew:
    Queue *queue
    int64_t at                  # log offset of the record that is its first one
    int64_t next                # queue offset where the queue would have continued
    int64_t behind              # queue offset behind that record
    bint confirmed              # its next record was seen, too

cdef struct Kind:
    char[256] topic             # NUL-terminated
    bint batched                # what its queues are to be
    int64_t at                  # log offset of the record
    int32_t queue_id            # of the record

# Until dispatch waits, or anew_release: a control thread, without the GIL. True if it waits.
cdef bint anew_wait(Dispatcher *d, int64_t timeout_ns) noexcept nogil
# Queues that begin anew between the place where dispatch waits and the end of what may be dispatched, or the next 16 MiB. How
# many; -errno. Not among them: one whose next record continues where the queue was, as its number is rotten; if dispatch waits
# there, it continues.
cdef int anew_find(Dispatcher *d, Anew *found) noexcept nogil
# Whether dispatch waits at a record that begins a queue of the other kind. 1: in *found; 0: it does not; -errno.
cdef int anew_kind(Dispatcher *d, Kind *found) noexcept nogil
cdef void anew_pass(Dispatcher *d, int64_t at) noexcept nogil   # the record there cannot begin its queue anew
cdef void anew_release(Dispatcher *d) noexcept nogil        # lets dispatch continue, and anew_wait return
