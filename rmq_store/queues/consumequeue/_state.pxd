# What is behind Queue.files and QueueTable (contract: _queue.pxd): state, shared by the files of this room. Whose is what:
# `dispatch` the dispatcher's thread (recovery before it starts), `sync` under sync_lock, the rest any thread.
from libc.stdint cimport int32_t, int64_t, uint32_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_load, rmq_mutex
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport unit_put
from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles
from rmq_store.queues.consumequeue._spares cimport Spares
from rmq_store.queues.consumequeue._structs cimport Hub, Interest, Queue

cdef enum:
    BUFFER_STRIDE = 4096
    BUFFER_COUNT = 1024                 # 4 MiB of address space; memory is touched as it is lent

cdef enum:
    IDLE_MAX = 128

cdef enum Filling:
    FILLING_NOT = 0                     # records come as they were put
    FILLING_BACK = 1                    # while it opens: a queue that lacks an entry is filled from further back
    FILLING_ALL = 2                     # while it opens: what the log does not have, nobody has

cdef enum BatchStep:
    BATCH_DROP = 0                      # the topic has batch queues no more
    BATCH_TAKE = 1                      # config/topics.json is about to say that it has them
    BATCH_OPEN = 2                      # it says so: where BATCH_TAKE or BATCH_CLOSE was the step before
    BATCH_CLOSE = 3                     # it is about to say so no more

cdef struct Waiting:
    int64_t physical
    int32_t size                        # 0: none waits
    int64_t tags_code
    int64_t store_timestamp
    int64_t cq_offset

cdef struct QueueState:
    UnitFiles entries
    UnitFiles ext
    # dispatch
    int64_t next_index                  # queue offset of the next entry, buffered ones counted
    int64_t blank_to                    # filler entries are due up to this queue offset
    int64_t new_min                     # min_offset to publish with the entries, -1: none
    int limit                           # bytes of the buffer that may be used (the file may end before)
    bint dirty
    Queue *next_dirty
    # following another process, _follow.pyx
    int64_t vanished                    # 1 + queue offset where a reader found its end cut away, 0: nowhere (atomic)
    int64_t expects                     # 1 + log offset of the last record that the log has of it; 0: none was seen
    int64_t anew_at                     # 1 + log offset of the first one that does not continue it, 0: none
    bint min_due                        # where it begins could not be told when the log began later
    bint failed                         # the last look ended with an error
    int64_t back_end                    # where it ended before it went back, as a place in its files; 0: it never did
    # a batch queue (_batches.pxd): next_index is the queue offset of the next message, `entries` has units of batches
    bint batched
    int batch_limit                     # dispatch: bytes of the buffer that may be used
    int64_t batch_end                   # byte offset behind the last unit that may be read (atomic)
    int64_t batch_read                  # following: behind the last unit that was read
    QueueState *other                   # while the queue is of the other kind, or once it was: its state then; NULL: never
    int deleting                        # atomic: it was removed, and its files are not gone yet; set under run_lock, round_lock
    # sync
    int unsynced
    Queue *next_unsynced
    # while it opens
    Waiting[2] waiting                  # a record that does not continue the queue, or its first ones
    # of a light queue, under Rest.lock
    int idle_at                         # 1 + its place among those that keep their state for a while, 0: none

cdef struct Marks:
    # At Queue.line_of_identity.
    uint32_t hash
    int held                            # 0: its state is always there; else a light queue: HELD and who uses its state
    # Not of a light queue with `held`: another row has this place (_rest.pyx). Atomic, set under insert_lock: puts of plain
    # messages keep the queue, and ask no more.
    int plain

cdef struct Links:
    # At Queue.line_of_append.
    Queue *same_topic                   # the queue of the topic that was added before this one; never changes
    TableState *table                   # of a light queue
    int first_file                      # of a light queue that nobody uses: its files, by number
    int files

cdef struct Directory:
    # All queues: replaced by a larger copy when full. Old ones stay until the table goes: a look-up may still be in one.
    int64_t mask
    Queue **slots                       # open addressing, by topic and queue id
    Queue **order                       # by creation
    int *topics                         # open addressing, by topic: 1 + place in `order` of its newest queue
    Directory *older

cdef struct BatchTopic:
    # One that has batch queues, or had them: it lives as long as the table.
    int32_t size
    int has                             # atomic: 2 where config/topics.json says so, 1 where it is about to, or not to
    char *name                          # behind it

cdef struct BatchTopics:
    # All of them by name. Replaced by a larger copy when full. Old ones stay until the table goes, as in Directory.
    int64_t mask
    int64_t count
    BatchTopic **slots                  # open addressing
    BatchTopics *older

cdef struct Piece:
    # Memory of light queues, which lives as long as the table: their rows and names.
    Piece *older
    int64_t used

cdef struct Chunk:
    # Memory of states, for some of them.
    Chunk *next                         # those with room come first
    Chunk *previous
    void *free                          # given back: each leads to the next
    int used
    int fresh                           # so many places were used before

cdef struct Rest:
    rmq_mutex lock                      # guards everything here, and Marks.held
    Piece *pieces
    char *row                           # half a row is left there; NULL: none
    char *names
    int64_t names_left
    Chunk *chunks
    Chunk *last
    int64_t state_size
    int states                          # that there are
    Queue *idle[IDLE_MAX]               # those that keep their state for a while, though nobody uses it
    int idle_next

cdef struct TableState:
    const rmq_io *io
    FileCache *cache
    Spares *spares                      # NULL: read-only
    char *dir
    char *ext_dir
    int64_t file_size
    int64_t ext_file_size               # 0: no ConsumeQueueExt
    char *batch_dir                     # of batch queues; NULL: there are none
    int64_t batch_file_size
    BatchTopics *batch_topics           # atomic; NULL: none yet. Changed under insert_lock
    bint readonly
    Directory *directory                # atomic
    int64_t count                       # atomic
    int64_t log_begin                   # where the log began when it was opened: entries that lead below it are of no use
    Filling filling
    int64_t filled_from                 # where this dispatch began
    int64_t places_left                 # how many records may be lost in all queues: what its part of the log had room for
    int64_t lacking_from                # from where on entries are lacking, log offset; INT64_MAX: none are
    rmq_mutex insert_lock
    Rest *rest                          # of light queues
    # dispatch
    unsigned char *memory
    unsigned char **free_buffers
    int free_count
    Queue *dirty
    const unsigned char *bit_map        # of the record at log offset `bit_map_of`, for its ext unit
    int bit_map_size                    # 0: none
    int64_t bit_map_of
    int64_t batch_of                    # log offset of the record whose batch the next put is of; -1: of none
    int64_t batch_base
    int32_t batch_count
    int64_t gaps                        # atomic
    int64_t placeless                   # records whose queue offset no queue can have
    int64_t placeless_at                # log offset of the last one
    # sync
    rmq_mutex run_lock                  # queues_sync is at work, or kept off
    rmq_mutex sync_lock
    Queue *unsynced
    int sync_error                      # the first one; final
    int64_t deletions                   # atomic: of so many queues `deleting` is set
    # following
    int vanished                        # some queue's is not 0: atomic
    Queue *vain                         # those that expect entries and have waited in vain: a row as `dirty` is
    Queue *vain_last
    bint woken                          # one of them has a reason to be looked at now
    # listeners
    rmq_mutex watch_lock
    Hub *hubs
    int64_t hubs_for_all                # atomic
    bint hubs_due                       # dispatch


cdef inline QueueState *state_of(const Queue *q) noexcept nogil:
    # Of a light queue only while it is held (_rest.pxd). Whoever asks keeps what he got: the queue may change its kind.
    return <QueueState *> rmq_load(<int64_t *> &q.files)


cdef inline Marks *marks_of(const Queue *q) noexcept nogil:
    return <Marks *> q.line_of_identity


cdef inline Links *links_of(const Queue *q) noexcept nogil:
    return <Links *> q.line_of_append


cdef inline Interest **interests_of(const Queue *q) noexcept nogil:
    # Who waits for its messages: under watch_lock; atomic for the look whether there are any.
    return <Interest **> q.line_of_readers


cdef inline void entry_append(QueueState *s, int64_t physical, int32_t size, int64_t tags_code) noexcept nogil:
    # Room was made before.
    unit_put(s.entries.buffer + s.entries.used, physical, size, tags_code)
    s.entries.used += UNIT_SIZE
    s.next_index += 1
