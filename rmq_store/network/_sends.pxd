# Sends, codes 310, 10 and 320, as the network thread answers them (RocketMQ: SendMessageProcessor).
from rmq_store.network._net cimport rmq_connection, rmq_done, rmq_frame
from rmq_store.network._state cimport Service

# RMQ_PASS, and nothing is stored: a case that Python has to look at.
cdef rmq_done send_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil
cdef rmq_done batch_request(Service *s, rmq_connection *c, const rmq_frame *f) noexcept nogil       # the same for 320
