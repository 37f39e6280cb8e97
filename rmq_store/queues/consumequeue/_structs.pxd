# What all files of this room speak of: one queue, and who waits for its messages. The functions: _queue.pxd, _arrivals.pxd.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._sync cimport rmq_event

cdef struct QueueFiles              # private to this room (_state.pxd)

cdef struct Queue:
    # Three threads write here for every message: each has its own cache line.
    const char *topic               # owned, NUL-terminated, lives as long as the table
    int32_t topic_size
    int32_t queue_id
    QueueFiles *files
    char[40] line_of_identity
    # Append side: guarded by the put lock.
    int64_t next_offset             # queue offset of the next message
    char[56] line_of_append
    # Published: read with rmq_load from any thread, stored with rmq_publish by the dispatch side.
    int64_t min_offset              # first valid queue offset (minLogicOffset / 20)
    int64_t max_offset              # one past the last readable entry
    rmq_event arrived               # woken after max_offset moved: who waits for a message of this queue
    char[40] line_of_readers
    # Dispatch side: the dispatcher's thread only (or recovery, before it starts); what is atomic others may look at.
    int64_t max_physical_offset     # atomic: end of the last record that has an entry; -1 none
    int64_t removed_below           # atomic: records that begin below get no entry: removed after them
    int64_t records                 # rmq_count: dispatched since the store was opened
    int64_t bytes                   # rmq_count

cdef struct QueueTable              # private to this room (_state.pxd)

cdef struct Hub:
    QueueTable *table
    Interest *interests             # all of this hub
    Interest *pending               # noted since the last hub_take
    Hub *next
    int fd                          # eventfd of the owner
    bint all                        # every queue, those to come included
    bint due                        # something pending that was not signalled yet

cdef struct Interest:
    Queue *queue
    Hub *hub
    Interest *next_of_queue
    Interest *next_of_hub
    Interest *next_pending
    int uses
    bint pending
