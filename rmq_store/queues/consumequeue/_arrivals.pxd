# Who is told when a queue gets messages. A hub is one listener with one eventfd; an interest is one queue it wants to hear of.
# The dispatcher notes queues while it publishes and then signals each hub once: one wake-up a round, however many messages.
# watch_lock (in TableState) guards all of it; publishing takes it only for queues that somebody is interested in.
from rmq_store.queues.consumequeue._structs cimport Hub, Queue, QueueTable

# The hub borrows fd. NULL: out of memory. Any thread; the table outlives the hub.
cdef Hub *hub_new(QueueTable *t, int fd, bint all) noexcept nogil
cdef void hub_free(Hub *h) noexcept nogil
cdef int hub_watch(Hub *h, Queue *q) noexcept nogil         # counted; 0 or -ENOMEM
cdef void hub_unwatch(Hub *h, Queue *q) noexcept nogil
# Up to `most` queues that got messages since the last call; fewer than `most`: all of them.
cdef int hub_take(Hub *h, Queue **out, int most) noexcept nogil
# ---- the dispatcher's thread, after max_offset of q moved; hubs_signal after all of a round
cdef void hubs_note(QueueTable *t, Queue *q) noexcept nogil
cdef void hubs_signal(QueueTable *t) noexcept nogil
