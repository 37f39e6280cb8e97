# Reading: get by queue offset. Any thread; the scanning runs without the GIL.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._look cimport StoreLook
from rmq_store.access.reader._request cimport (FOUND, MESSAGE_WAS_REMOVING, NO_MATCHED_MESSAGE, NO_MESSAGE_IN_QUEUE,
                                               OFFSET_FOUND_NULL, OFFSET_OVERFLOW_BADLY, OFFSET_OVERFLOW_ONE,
                                               OFFSET_TOO_SMALL, Found, GetCounts, GetRequest)
from rmq_store.base.histogram._histogram cimport rmq_histogram
from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView
from rmq_store.filter._bitmap cimport GroupBits, GroupFilter
from rmq_store.filter._program cimport FilterProgram, SqlFilter
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport ExtWindow, Queue, QueueTable


# What get does; the request has the store's limits. follows: another process writes the queues.
cdef void get_found(GetRequest *r, Log *log, QueueTable *queues, bint follows) noexcept nogil
# Sets disk_count and disk_bytes.
cdef void get_count_disk(GetRequest *r) noexcept nogil
# Whether an entry, by its tags code, may be of a message with one of the tags asked for.
cdef bint entry_tagged(const GetRequest *r, QueueTable *queues, Queue *q, ExtWindow *window, int64_t code) noexcept nogil
# Whether the bit map of an entry says that its message does not fulfil the filter.
cdef bint entry_missed(const GroupBits *bits, QueueTable *queues, Queue *q, ExtWindow *window,
                       const unsigned char *unit) noexcept nogil


cdef class StoreGet(StoreLook):
    cdef int64_t machine_bytes          # memory this process may use
    # Under the GIL:
    cdef int64_t memory_bytes           # records within so much of the log's end count as recent
    cdef int64_t bytes_max_memory, count_max_memory, bytes_max_disk, count_max_disk, scan_bytes_max
    cdef int64_t units_per_file
    cdef bint ext_enabled
    cdef int64_t gets_found, gets_missed, got_messages, got_bytes, got_disk_messages, got_disk_bytes    # under the GIL
    cdef int64_t bit_map_skips
    cdef GetCounts native
    cdef rmq_histogram get_times

    cdef GroupFilter _registered(self, object topic, SqlFilter chosen)
    cdef void _get(self, GetRequest *r) noexcept nogil
    cdef list _views(self, GetRequest *r, set wanted)
