# Batch queues (RocketMQ: BatchConsumeQueue): queues of topics with the attribute queue.type=BatchCQ. A unit of 46 bytes leads
# to a record that holds several messages (codec/_inner.pxd). Units are in a row without gaps, but a queue offset is no place
# in it: it is searched for. The files lie under batchconsumequeue/.
#
# The functions of _queue.pxd do for such a queue what they do for any; they call these. Threads, results: as there.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable


# ---- for other rooms. Whether it is one; any thread, never changes while the queue has messages, or files.
cdef bint queue_batched(const Queue *q) noexcept nogil
# Whether new queues of this topic are batch queues; any thread.
cdef bint topic_batched(QueueTable *t, const char *topic, int32_t topic_size) noexcept nogil
# And config/topics.json says so: it is not just about to, or not to.
cdef bint topic_takes_batches(QueueTable *t, const char *topic, int32_t topic_size) noexcept nogil
# Where batch queues lie; once, before a topic has them. 0 or -ENOMEM.
cdef int queues_batch_dir(QueueTable *t, const char *dir, int64_t file_size) noexcept nogil
# The record at log offset `physical` is a batch: of the queue_put that follows.
cdef void queues_batch(QueueTable *t, int64_t physical, int64_t base, int32_t count) noexcept nogil
# Copies up to `count` units of 46 bytes, from the one on that holds queue offset `from_offset`, or is the next behind it; never
# across the end of a file. Damaged units are left out; mend: not those that lie about their count alone, which ends where the
# next one begins. The number of units, 0 if there are none, or -errno. Following, -EAGAIN: a recovery of the writer has cut
# them off, and brings them back.
cdef int64_t queue_read_batches(QueueTable *t, Queue *q, int64_t from_offset, unsigned char *out, int64_t count,
                                bint mend) noexcept nogil

# ---- for this room
cdef int batches_find(TableState *t, Queue *q, QueueState *s, int64_t safe) noexcept nogil          # queue_find_end
cdef int batches_back(TableState *t, Queue *q, QueueState *s, int64_t index) noexcept nogil         # queue_back_to
cdef int batches_truncate(TableState *t, Queue *q, QueueState *s, int64_t physical) noexcept nogil  # queue_truncate
cdef int batches_min(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil   # queue_correct_min
cdef int batches_drop(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil  # queue_drop_before
# queue_read: each message of a batch has an entry of 20 bytes there. A queue offset that no unit holds has a filler.
cdef int64_t batches_read(TableState *t, Queue *q, QueueState *s, int64_t from_offset, unsigned char *out,
                          int64_t count) noexcept nogil
# The queue offset of the batch that RocketMQ's search gives for a store time. upper: the last batch at or before it.
cdef int64_t batches_by_time(TableState *t, Queue *q, QueueState *s, int64_t timestamp, bint upper) noexcept nogil
