# Pulls that wait for a message (RocketMQ: PullRequestHoldService), by queue and tag: a message wakes those it may be for, and
# no others. Everything is the network thread's, and has a budget of work for a round; held_begin gives it anew.
#
# Of a pull that is held under tags, and none of whose tags wakes: no entry from its offset up to `scanned` of its queue
# matches.
from rmq_store.network._net cimport rmq_connection
from rmq_store.network._state cimport Held, Pull, Service

# NULL: it cannot be held.
cdef Held *held_add(Service *s, rmq_connection *c, const Pull *p) noexcept nogil
cdef void held_drop(Service *s, rmq_connection *c, Held *h) noexcept nogil
cdef void held_begin(Service *s) noexcept nogil
cdef void held_look(Service *s) noexcept nogil              # at queues that got messages
# The next pull that is to be tried, its offset behind what is known not to match; and the next one whose time is over. NULL:
# there is none, or the budget is used up. It is either dropped, or stays as it is; held_later: nothing can be done with it now.
cdef Held *held_woken(Service *s) noexcept nogil
cdef Held *held_expired(Service *s) noexcept nogil
cdef void held_later(Service *s, Held *h) noexcept nogil
cdef void held_tick(Service *s) noexcept nogil
cdef bint held_left(const Service *s) noexcept nogil        # whether something of this is to be done at once
cdef void held_stop(Service *s) noexcept nogil              # no pull is held any more
