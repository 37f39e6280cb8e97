# Light queues at rest: a store may have a hundred thousand, of which few are used at a time. Such a queue keeps a row of 128
# bytes and its name; its state (QueueState) is made when a call needs it, and goes when nobody needs it and it says no more
# than the row.
#
# Whoever looks at the state of a queue that may be light holds it meanwhile. Of other queues that costs one test. The
# dispatcher holds a light queue from its first buffered entry until that is published. Any thread.
from rmq_store.base.io._sync cimport rmq_load32
from rmq_store.queues.consumequeue._state cimport QueueState, TableState, marks_of, state_of
from rmq_store.queues.consumequeue._structs cimport Queue

cdef enum:
    HELD = 1                        # Marks.held of a light queue that nobody uses; each user adds one
    HELD_BY_DISPATCH = 0x40000000   # one of them is the dispatcher

# `t` is zeroed. -ENOMEM: rest_done is still due.
cdef int rest_init(TableState *t) noexcept nogil
cdef void rest_done(TableState *t) noexcept nogil
# A new light queue at rest, all its fields but `hash` set; NULL: out of memory. Under insert_lock.
cdef Queue *rest_new(TableState *t, const char *topic, int topic_size, int queue_id) noexcept nogil

cdef QueueState *rest_hold(TableState *t, Queue *q) noexcept nogil
cdef void rest_let(TableState *t, Queue *q) noexcept nogil
# The same for the dispatcher, until rest_published.
cdef QueueState *rest_hold_dispatch(TableState *t, Queue *q) noexcept nogil
cdef void rest_published(TableState *t, Queue *q) noexcept nogil
# How many light queues have a state now.
cdef int rest_states(TableState *t) noexcept nogil


# NULL: out of memory.
cdef inline QueueState *state_hold(TableState *t, Queue *q) noexcept nogil:
    return state_of(q) if rmq_load32(&marks_of(q).held) == 0 else rest_hold(t, q)


cdef inline void state_let(TableState *t, Queue *q) noexcept nogil:
    if rmq_load32(&marks_of(q).held) != 0:
        rest_let(t, q)


# Where states stay once they are there: beside a writer in another process.
cdef inline QueueState *state_kept(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s = state_hold(t, q)
    if s != NULL:
        state_let(t, q)
    return s
