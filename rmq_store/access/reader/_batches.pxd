# get of a batch queue. Any thread.
from libc.stdint cimport int64_t

from rmq_store.access.reader._get cimport GetRequest
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

# Records from the one on that holds r.offset; each counts as its messages. The queue offset to continue at, or -errno.
cdef int64_t scan_batches(GetRequest *r, Log *log, QueueTable *queues, Queue *q) noexcept nogil
