# Pulls, codes 11 and 361, as the network thread answers them: at once, or held until a message comes (RocketMQ:
# PullMessageProcessor, PullRequestHoldService).
from rmq_store.network._net cimport rmq_connection, rmq_done, rmq_frame
from rmq_store.network._state cimport Service

# RMQ_PASS: a case that Python has to look at.
cdef rmq_done pull_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
cdef void pulls_arrived(Service *s) noexcept nogil                      # queues have new messages
cdef void pulls_tick(Service *s) noexcept nogil
cdef void pulls_closed(Service *s, rmq_connection *c) noexcept nogil
cdef void pulls_stop(Service *s) noexcept nogil                         # no pull is held any more
