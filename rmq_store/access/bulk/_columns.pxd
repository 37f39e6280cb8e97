# A part of a CommitLog file as columns: which rows, and where they are gathered before they are copied out.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.bulk._walk cimport Walk
from rmq_store.base.io._io cimport IoTable
from rmq_store.codec._record cimport PropertyView, RecordView
from rmq_store.codec._text cimport Property
from rmq_store.filter._program cimport FilterProgram

cdef struct Selector:
    # Rows of one topic (size -1: any) and queue (-1: any) with low <= queueOffset < high.
    const char *topic
    int64_t low
    int64_t high
    int32_t topic_size
    int32_t queue_id

cdef struct Row:
    RecordView v
    PropertyView p
    int64_t segment             # index of its first property
    int32_t segments

cdef struct BadRegion:
    int64_t begin
    int64_t end
    int kind


cdef class Split:
    cdef Walk walk
    cdef IoTable _owner
    cdef readonly str path
    cdef readonly int64_t records       # whole records walked over, chosen or not
    cdef readonly int64_t record_bytes
    cdef bint opened
    cdef bint ended
    cdef object _kept                   # what the selectors, tags and program point into
    cdef Selector *selectors
    cdef int64_t selector_count
    cdef Property *tags                  # wanted tags, as values
    cdef int64_t tag_count
    cdef const FilterProgram *program   # of a SqlFilter in _kept, NULL: none
    cdef int64_t time_low
    cdef int64_t time_high
    cdef bint transactional
    cdef Row *rows
    cdef int64_t row_capacity
    cdef Property *segments
    cdef int64_t segment_count
    cdef int64_t segment_capacity
    cdef BadRegion *bad_regions
    cdef int64_t bad_count
    cdef int64_t bad_capacity

    cdef bint _wanted(self, const RecordView *v, const PropertyView *p) noexcept nogil
    cdef int _note_bad(self) noexcept nogil
    cdef int _gather(self, bint want_map, bint need_properties, int64_t max_rows, int64_t max_bytes,
                     int64_t *count) noexcept nogil
    cdef int _split_properties(self, Row *row) noexcept nogil
    cdef object _column(self, str name, int64_t n)
    cdef bytes _int32(self, const int32_t *first, int64_t n)
    cdef bytes _int64(self, const int64_t *first, int64_t n, bint milliseconds)
    cdef object _pieces(self, const void *first, const int32_t *first_size, size_t step, int64_t n, bint text)
    cdef object _hosts(self, bint born, int64_t n)
    cdef object _map(self, int64_t n)
