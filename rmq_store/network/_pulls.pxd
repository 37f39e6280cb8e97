# Pulls, codes 11 and 361, as the network thread answers them: at once, or held until a message comes (RocketMQ:
# PullMessageProcessor, PullRequestHoldService).
from rmq_store.network._net cimport rmq_connection, rmq_done, rmq_frame
from rmq_store.network._state cimport Service

# RMQ_PASS: a case that Python has to look at.
cdef rmq_done pull_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
cdef void pulls_arrived(Service *s) noexcept nogil                      # queues have new messages
cdef bint pulls_more(Service *s) noexcept nogil                         # whether something is left for the next round
cdef void pulls_closed(Service *s, rmq_connection *c) noexcept nogil
