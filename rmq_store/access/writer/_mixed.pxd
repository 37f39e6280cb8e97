# Messages of one put_many that differ in more than their body, or wait in another queue until they are delivered.
from libc.stdint cimport int64_t

from rmq_store.access.writer._light cimport LightQueues
from rmq_store.access.writer._put cimport StorePut, Turn
from rmq_store.codec._record cimport RecordArgs
from rmq_store.queues.consumequeue._queue cimport Queue

cdef struct Each:
    RecordArgs args
    Queue *queue
    LightQueues *light      # NULL: none
    int64_t offset          # once it is placed
    int64_t queue_offset

cdef struct MixedTurn:
    Turn turn
    Each *each
    int64_t n
    int64_t done
    int64_t store_timestamp     # of the last one

# What message i of a put_many has, of its own or of the keywords of all.
cdef dict own_of(dict common, object message, Py_ssize_t i)
cdef object names_of(object light_queues)


cdef class Mixed:
    cdef Each *each
    cdef list kept          # what the arguments point into
    cdef int64_t n
    cdef int64_t largest    # body
    cdef bint wants         # one of them asks for durability

    # Checks message `own` as put does, and makes it ready. Raises what put raises.
    cdef int add(self, StorePut store, object topic, object queue_id, dict own, object sys_flag, object born_timestamp,
                 object born_host) except -1
    cdef bytes _body(self, StorePut store, object body)
    # Places all under few turns of the put lock. `m` tells how far it came, also where this raises.
    cdef int place(self, StorePut store, MixedTurn *m, bint born_now) except -1
