# A get of messages that no queue has, as the log is stuck (log/commitlog/_unwritten.pxd): they are found by a walk. Any thread.
from rmq_store.access.reader._request cimport GetRequest
from rmq_store.log.commitlog._log cimport Log


# Messages from r.offset on; the queue's entries end there. False: there are none, and r is as it was. Not of light queues.
cdef bint get_unwritten(GetRequest *r, Log *log) noexcept nogil
