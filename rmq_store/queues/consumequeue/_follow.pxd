# Queues whose files another process writes, read on as they grow. One thread, the follower's; readers beside it see what is
# shown.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._begins cimport EntryLeads
from rmq_store.queues.consumequeue._structs cimport QueueTable

# The log has a record of that queue at `physical`, with that queue offset: its entry is looked for from now on. inner: the
# record is an inner batch. whole: an entry of a later record vouches for it; else it may be half written, and a queue that is
# not known becomes known only if it has a directory. 1; 0: it has none, so it is not looked for; -errno, whole: only -ENOMEM.
cdef int queue_expect(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, int64_t index, bint inner,
                      int64_t physical, bint whole) noexcept nogil
# Records before `physical` were deleted that nobody has walked over (queues_were_cleaned): a queue that has a directory may
# have entries of them. 1 or -errno. Under round_lock.
cdef int queue_was_cleaned(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, bint inner,
                           int64_t physical) noexcept nogil
# Reads on in every queue that expects entries, up to records that end at `below`. all: also in some of those that have been
# waiting in vain, in turns; whole: in all of them. *furthest becomes the end of the furthest record that has an
# entry, -1 none new. 0 or -errno: of one queue, the others were read. Nothing is shown before queues_show: the log's positions
# have to move first. Queues of which a reader has found the end cut away (queue_read) go back to there.
cdef int queues_read_on(QueueTable *t, int64_t below, bint all, bint whole, EntryLeads leads, void *ctx,
                        int64_t *furthest) noexcept nogil
# Moves every max_offset to what was read, and wakes who waits. Entries of records before `begins`, where the log begins, are
# expected no more.
cdef void queues_show(QueueTable *t, int64_t begins) noexcept nogil
