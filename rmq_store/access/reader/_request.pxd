# A get of a queue, without Python: what is asked for, and what was found.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView
from rmq_store.filter._bitmap cimport GroupBits
from rmq_store.filter._program cimport FILTER_TRUE, FilterProgram, filter_evaluate


cdef struct Found:
    RecordView view
    LogFile *file
    int64_t queue_offset    # of the entry: of a light queue not that of the record; of a batch not before its first message
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
    int64_t passed_disk_bytes   # of what is not recent: what the filter had to read, and left out
    int64_t bit_map_skips   # entries whose bit map said that their message does not fulfil the filter
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int64_t unreadable      # entries whose record was not there or was another's
    int status
    int error
    bint batched            # what was found are records of a batch queue


cdef struct GetCounts:
    # Of gets by threads without the GIL: rmq_add.
    int64_t found, missed, messages, bytes, disk_messages, disk_bytes


cdef enum:
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 8


cdef inline bint request_full(const GetRequest *r, int64_t taken, int64_t count, int64_t physical,
                              int64_t size) noexcept nogil:
    # isTheBatchFull: whether a record of `count` messages, behind `taken` that were found, is one too many.
    cdef bint in_disk = physical < r.log_end - r.memory_bytes       # whatever an entry says: no overflow
    return r.found_count > 0 and (
        taken + count > r.count_max or r.found_bytes + size > r.bytes_max
        or r.found_bytes + size > (r.bytes_max_disk if in_disk else r.bytes_max_memory)
        or taken > (r.count_max_disk if in_disk else r.count_max_memory) - 1)


cdef inline bint request_coded(const GetRequest *r, int64_t code) noexcept nogil:
    # Whether a hash code is that of one of the tags asked for.
    cdef int32_t i
    for i in range(r.codes_count):
        if r.codes[i] == <int32_t> code:
            return True
    return False


cdef inline bint request_passes(const GetRequest *r, const RecordView *v) noexcept nogil:
    # Of a request with a filter of the properties.
    return filter_evaluate(r.filter, v.properties, v.properties_size) == FILTER_TRUE


cdef inline void request_passed(GetRequest *r, int64_t physical, int64_t size) noexcept nogil:
    # The filter read this record, and left it out.
    if physical < r.log_end - r.memory_bytes:
        r.passed_disk_bytes += size


cdef inline void request_unmatched(GetRequest *r) noexcept nogil:
    # Something was left out: what the answer says where nothing else is found.
    if r.found_count == 0:
        r.status = NO_MATCHED_MESSAGE
