# get of a batch queue. Any thread.
from libc.stdint cimport int64_t

from rmq_store.access.reader._request cimport GetRequest
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

# Records from the one on that holds r.offset; each counts as its messages. How many queue offsets it went over, or -errno.
cdef int64_t scan_batches(GetRequest *r, Log *log, QueueTable *queues, Queue *q) noexcept nogil
# The messages of these records, without those before the offset, beyond the count, and those that are not asked for: (messages,
# queue offset to continue at, unreadable ones).
cdef tuple unwrapped(list records, const GetRequest *r, set wanted)
