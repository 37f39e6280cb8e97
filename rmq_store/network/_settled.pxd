# Sends that are stored, and whose answers wait for the device, or for slaves (RocketMQ: handlePutMessageResult).
from rmq_store.network._net cimport rmq_connection
from rmq_store.network._state cimport Service, Waiting

cdef enum:
    SENT = 0, FLUSH_DISK_TIMEOUT = 10, SLAVE_NOT_AVAILABLE = 11, FLUSH_SLAVE_TIMEOUT = 12, SERVICE_NOT_AVAILABLE = 14

cdef void settled_answer(Service *s, rmq_connection *c, const Waiting *w) noexcept nogil        # with w.code
cdef bint settled_room(Service *s) noexcept nogil           # before a message is stored: False: no more can wait
cdef void settled_later(Service *s, rmq_connection *c, Waiting *w) noexcept nogil               # it waits, for w.wants
# After the requests that one read brought. True: it may have dispatched, so that held pulls have something to be answered.
cdef bint settled_turn(Service *s) noexcept nogil
# The log is durable further than before, or failed; or slaves have acknowledged more.
cdef void settled_look(Service *s) noexcept nogil
cdef void settled_tick(Service *s) noexcept nogil
cdef void settled_ending(Service *s) noexcept nogil         # the last ones are answered
