# The durability of all queues: one thread at a time (the checkpoint thread, close).
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._state cimport TableState


cdef int entries_sync(TableState *t, int64_t pages_min) noexcept nogil      # 0 or -errno; what failed is not tried again
