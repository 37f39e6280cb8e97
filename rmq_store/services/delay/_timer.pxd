# Delivery of delayed messages: one native thread, asleep until the earliest message is due, a new one waits, or somebody set
# the clock. Nothing here touches Python. Source: ScheduleMessageService.executeOnTimeup, messageTimeup (4.9.8).
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._queue cimport Queue
from rmq_store.services.delivery._deliverer cimport Deliverer, DeliveryThread

cdef enum:
    MARKS_MAX = 128

cdef struct Mark:
    # Messages below queue offset `end` that no earlier mark covers were there at `seen`.
    int64_t end
    int64_t seen                    # monotonic ns

cdef struct Level:
    Queue *queue
    int64_t delay_ms
    int64_t offset                  # atomic: the next message to deliver
    int64_t next_due                # atomic: when, wall ms; INT64_MAX nothing waits
    Mark *marks                     # MARKS_MAX, in use only while the clock is behind the log
    int32_t marks_used
    bint ext

cdef struct Timer:
    Deliverer d
    Level *levels
    int32_t count


cdef class DelayTimer(DeliveryThread):
    cdef Timer *timer
