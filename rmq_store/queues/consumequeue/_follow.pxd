# Queues whose files another process writes, read on as they grow. One thread, the follower's; readers beside it see what is
# shown.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable

cdef enum:
    LEADS = 1
    LED = 2

# LEADS: the record that an entry leads to is there, whole, and has its entry at that queue offset. LED: it was deleted with its
# file of the log. 0: neither; -errno.
ctypedef int (*EntryLeads)(void *ctx, const Queue *q, int64_t index, int64_t physical, int32_t size) noexcept nogil

# The queue of a record that the log has; one that is not known yet becomes known if its file for that queue offset is there.
# inner: the record is an inner batch, so it may be a batch queue. NULL: it is not, or there is no memory; *error is 0 or
# -errno; -EINVAL: a batch queue's files have another size than this store's.
cdef Queue *queue_that_is(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, int64_t index,
                          bint inner, int *error) noexcept nogil
# The log has a record of that queue offset at `physical`: its entry is looked for from now on. fresh: it was not known before;
# then a number below the queue's end is of a queue that was deleted and has begun anew, if its entry says so too. 0 or -errno.
cdef int queue_expect(QueueTable *t, Queue *q, int64_t index, int64_t physical, bint fresh, EntryLeads leads,
                      void *ctx) noexcept nogil
# Reads on in every queue that expects entries, up to records that end at `below`. all: also in those that have been waiting in
# vain, and in light queues, whose records are of other topics. *furthest becomes the end of the furthest record that has an
# entry, -1 none new. 0 or -errno: of one queue, the others were read. Nothing is shown before queues_show: the log's positions
# have to move first. Queues of which a reader has found the end cut away (queue_read) go back to there.
cdef int queues_read_on(QueueTable *t, int64_t below, bint all, EntryLeads leads, void *ctx, int64_t *furthest) noexcept nogil
# Moves every max_offset to what was read, and wakes who waits.
cdef void queues_show(QueueTable *t) noexcept nogil
