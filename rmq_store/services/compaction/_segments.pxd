# The files of one queue of a compaction topic, as they are read: pairs of a log file and a file of entries (RocketMQ:
# kv.CompactionLog, queue.SparseConsumeQueue). Both have the name of the log offset at which the pair begins.
#
#   # field of an entry   bytes      # field of an entry   bytes
#   1 position in the log 8          5 queue offset        8
#   2 size of the record  4          6 messages (1)        2
#   3 tags code           8          7 compacted offset -1 4
#   4 store time          8          8 reserved 0          4
#
# Entries stand without gaps; the first that is none ends them. The last place of a full file has position -1: the end marker.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._look cimport StoreLook
from rmq_store.base.io._io cimport IoTable
from rmq_store.base.segment._file cimport FileRow, LogFile
from rmq_store.codec._record cimport RecordView

cdef enum:
    ENTRY_SIZE = 46
    ENTRY_AT_SIZE = 8
    ENTRY_AT_TAGS_CODE = 12
    ENTRY_AT_STORE_TIME = 20
    ENTRY_AT_QUEUE_OFFSET = 28
    ENTRY_AT_COUNT = 36
    ENTRY_AT_COMPACTED = 38
    ENTRY_AT_RESERVED = 42


cdef struct Pair:
    LogFile *log
    LogFile *entries
    int64_t count           # atomic: entries, each behind its record


# A record that an entry leads to.
cdef struct Hit:
    RecordView view
    LogFile *file
    bint held               # the first of its file: with a hold on that


# Writes the entry of a record that lies at this place of its log.
cdef void entry_write(unsigned char *entry, const RecordView *v, int64_t place) noexcept nogil


cdef class Segments:
    # Thread-safety: `add` before anybody reads; then `read` from any thread, and one thread that appends to the last pair.
    cdef IoTable io
    cdef FileRow *log_row
    cdef FileRow *entry_row
    cdef Pair *pairs
    cdef readonly int64_t pair_count
    cdef readonly int64_t log_size, entry_size

    cdef LogFile *_open(self, directory, start, int64_t size, bint log) except NULL
    # The record of an entry: 0, or -1 where there is none.
    cdef int record(self, int64_t pair, int64_t index, RecordView *v) noexcept nogil
    cdef int64_t offset_at(self, int64_t pair, int64_t index) noexcept nogil
    # The first entry at or beyond `offset`: 0, or -1 where there is none.
    cdef int find(self, int64_t offset, int64_t *pair, int64_t *index) noexcept nogil
    cdef int64_t _collect(self, const char *topic, int32_t topic_size, int32_t queue_id, int64_t *at, int64_t limit, Hit *hits,
                          int64_t most, int64_t left, int64_t *unreadable) noexcept nogil
    cdef bint _carries(self, const RecordView *v, const char *key, int32_t size) noexcept nogil
    cdef list _messages(self, StoreLook store, Hit *hits, int64_t count)
