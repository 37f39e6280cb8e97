# What the network thread answers by itself: the begin and end of it.
from libc.stdint cimport int64_t

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.network._net cimport rmq_address, rmq_net, rmq_service
from rmq_store.network._state cimport Service

# facts: as Front.use has them, which outlive the service. Raises ValueError, TypeError, OSError.
cdef Service *service_new(StoreWait store, int64_t connections_max, object facts) except NULL
cdef void service_serve(Service *s, rmq_service *out) noexcept nogil
cdef int service_begin(Service *s) noexcept nogil       # before the network thread: 0 or -errno
# Behind the network thread, and before the store goes: lets go of everything that is the store's.
cdef void service_stop(Service *s) noexcept nogil
cdef void service_free(Service *s) noexcept nogil
cdef str address_of(const rmq_address *a)               # host:port, or [host]:port
cdef dict service_net_counts(const rmq_net *net)        # what the network thread has done
cdef dict service_requests(Service *s)                  # what was answered without Python, by code
cdef dict service_work(Service *s)                      # tries of held pulls, and signatures that were checked
