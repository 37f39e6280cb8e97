# Reading: get by queue offset. Any thread; the scanning runs without the GIL.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._look cimport StoreLook
from rmq_store.base.histogram._histogram cimport rmq_histogram
from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView
from rmq_store.filter._bitmap cimport GroupBits, GroupFilter
from rmq_store.filter._program cimport FilterProgram, SqlFilter
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport ExtWindow, Queue, QueueTable


cdef struct Found:
    RecordView view
    LogFile *file
    bint held               # this entry brings the hold on the file for those behind it, too


cdef struct GetRequest:
    # in
    const char *topic
    const int32_t *codes    # hash codes of the tags asked for, NULL: all
    const FilterProgram *filter     # of the properties, NULL: all messages
    const GroupBits *bits   # where bit maps tell who does not fulfil it, NULL: they do not
    int64_t offset
    int64_t count_max
    int64_t bytes_max
    int32_t topic_size
    int32_t queue_id
    int32_t codes_count
    bint slave_rules
    bint unwraps            # of a batch queue: the caller looks at each message of a record by itself
    # The store's limits when the call began: reconfigure() changes those, and `found` has room for these.
    int64_t memory_bytes, bytes_max_memory, count_max_memory, bytes_max_disk, count_max_disk, scan_bytes_max
    int64_t units_per_file  # of a ConsumeQueue file
    bint ext_enabled
    # out
    Found *found
    int64_t found_count
    int64_t found_bytes
    int64_t log_end         # where something was found: of the log, as the get met it
    int64_t disk_count      # of what was found, what is not recent (memory_bytes): RocketMQ's guess that the device has it
    int64_t disk_bytes
    int64_t bit_map_skips   # entries whose bit map said that their message does not fulfil the filter
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int64_t unreadable      # entries whose record was not there or was another's
    int status
    int error
    bint batched            # what was found are records of a batch queue


cdef enum:
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 8


# What get does; the request has the store's limits. follows: another process writes the queues.
cdef void get_found(GetRequest *r, Log *log, QueueTable *queues, bint follows) noexcept nogil
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
    cdef rmq_histogram get_times

    cdef GroupFilter _registered(self, object topic, SqlFilter chosen)
    cdef void _get(self, GetRequest *r) noexcept nogil
    cdef list _views(self, GetRequest *r, set wanted)
