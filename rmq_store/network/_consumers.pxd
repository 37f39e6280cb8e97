# What consumers ask and tell beside their pulls, as the network thread answers it: offsets of groups, 14 and 15, and heartbeats
# that say what the last one said, 34 (RocketMQ: ConsumerManageProcessor, ClientManageProcessor).
from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq_store.network._net cimport rmq_connection, rmq_done, rmq_frame, rmq_pull
from rmq_store.network._state cimport Service

# RMQ_PASS: a case that Python has to look at.
cdef rmq_done query_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
cdef rmq_done update_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
cdef rmq_done heartbeat_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
# A client whose heartbeats wait, because it reads its answers slowly, is heard as well.
cdef void consumers_alive(Service *s, rmq_connection *c) noexcept nogil
# Whether the group has an offset of the queue.
cdef bint consumers_know(Service *s, const rmq_pull *h) noexcept nogil
# What a pull commits; False: Python has to.
cdef bint consumers_note(Service *s, rmq_connection *c, const rmq_pull *h) noexcept nogil

# ---- any thread: Python has registered what this heartbeat of the connection says, when the tables had this generation
cdef void consumers_remember(Service *s, uint64_t connection, const unsigned char *body, int32_t size, int32_t version,
                             int64_t generation) noexcept
cdef void consumers_forget(Service *s, uint64_t connection) noexcept                # it is not registered any more
cdef int64_t consumers_heard(Service *s, uint64_t connection) noexcept              # monotonic ns, last; 0: never
