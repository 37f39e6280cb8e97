# Records on their way into a log, one behind the other in memory: checked, then appended through the one loop of everything
# that puts (place_locked).
from libc.stdint cimport int32_t, int64_t

from cpython.object cimport PyObject
from rmq_store.access.writer._light cimport LightQueues
from rmq_store.access.writer._put cimport StorePut, Turn
from rmq_store.codec._record cimport RecordArgs, RecordView
from rmq_store.log.commitlog._log cimport Appended, Log
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

cdef enum:
    ROW_NO_RECORD = -1              # beside the codes of whoever fills
    ROW_LIGHT_NOT_NEXT = 100        # beside those of `continues`: it does not continue one of its light queues
    ROW_NOT_BATCHED = 101           # it is an inner batch, and its topic has no batch queues any more

# Arguments of a put that stores what the record holds; `a` comes as a plain put has it. 0, or why it cannot be stored.
ctypedef int (*Fill)(const RecordView *v, RecordArgs *a, bint crc) noexcept nogil
# Whether the record may be appended now, under the put lock: 0, or why not.
ctypedef int (*Continues)(Log *log, Queue *q, const RecordView *v) noexcept nogil

cdef struct Lit:
    # Of a record that names light queues, where the store has them.
    LightQueues *light              # NULL: it has none, and its properties are the ones here
    const char *properties
    int32_t properties_size
    int32_t inner                   # messages of an inner batch that gets a new place: `properties` lack INNER_BASE; else 0

cdef struct Rows:
    Turn turn
    QueueTable *table
    const unsigned char *p
    int64_t size
    Fill fill
    Continues continues             # NULL: whatever comes may be appended, with the clock's store time; else with the record's
    RecordArgs plain                # of a put without optional arguments
    RecordArgs args
    Appended out
    RecordView v                    # the record that was looked at last
    Queue **queues                  # of each record, in order
    int64_t count
    int64_t done                    # so many are appended
    int64_t at                      # where the next one begins
    int64_t first                   # log offset of the first one, -1: none yet
    int64_t end
    int refused                     # by `continues`
    Lit *lit                        # of each record; NULL: none names light queues or is an inner batch that gets a new place
    char inner[40]                  # INNER_BASE of the record that is appended
    PyObject *held                  # a list: what lit points into
    bint crc
    bint batches                    # set it behind rows_begin: inner batches may come, else they are refused
    bint lights                     # set it behind rows_begin: records get, or keep, their places in light queues


cdef int rows_begin(Rows *r, StorePut store, const unsigned char[::1] data, Fill fill, Continues continues) except -1
# Looks at all of them, before the first one is appended. 0; else the record at r.at, the r.count-th, cannot be stored:
# ROW_NO_RECORD, or what `fill` says. Raises StoreNotWriteable, MessageIllegal, MemoryError.
cdef int rows_check(Rows *r, StorePut store) except? -2
# Appends them, without the GIL; others may put in between. 0, or what `continues` says of r.v, the r.done-th: those before it
# are stored. Raises PutError.
cdef int rows_append(Rows *r, StorePut store) except? -2
cdef void rows_end(Rows *r) noexcept
