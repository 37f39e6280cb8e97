# Accounts, for the network thread: which requests it may answer while each one needs a signature (broker/access.py).
#
# The rules are Python's. This thread checks signatures, which costs the most, and knows what Python has allowed before: it says
# yes to the same again, and never no. Whatever it does not know, and every refusal, is Python's.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from rmq_store.base.io._sync cimport rmq_mutex
from rmq_store.network._net cimport rmq_connection, rmq_frame, rmq_hmac_key, rmq_net

cdef struct Account:
    char *key                   # the accessKey; NULL: free
    int32_t size
    rmq_hmac_key secret

cdef struct Accounts:
    # One reading of the rules. Open addressing.
    Account *rows
    uint32_t mask
    int64_t generation

cdef struct Grant:
    # A permission that Python has found: an account sends to a topic, or reads it as a group.
    int64_t generation          # of the rules by which; 0: none
    char *text                  # key, topic, group, without a byte between
    int32_t key_size
    int32_t topic_size
    int32_t group_size          # -1: it sends

cdef struct Trusted:
    # A connection from an address that needs no signature.
    uint64_t connection
    int64_t generation

cdef struct Access:
    Accounts *accounts          # the network thread's; NULL: Python checks all requests
    Accounts *next_accounts     # atomic: what Python has read since
    int64_t fresh_until         # atomic: monotonic ns, behind which Python is asked whether the rules changed
    int64_t asked_at            # the network thread's: the value of fresh_until at which it asked
    rmq_mutex lock              # of the rest
    Grant *grants
    Trusted *trusted            # by the slots of connections
    int64_t connections
    int64_t checked             # rmq_count: signatures

cdef Access *access_new(int64_t connections) except NULL
cdef void access_free(Access *a) noexcept nogil
# ---- the network thread
cdef void access_begin(Access *a) noexcept nogil        # before the requests of a round
cdef bint access_allows(Access *a, rmq_net *net, rmq_connection *c, const rmq_frame *f) noexcept nogil
# ---- Python. rows: (accessKey, secretKey) as bytes.
cdef int access_tell(Access *a, object rows, int64_t generation) except -1
cdef int access_grant(Access *a, int64_t generation, bytes key, bytes topic, object group) except -1
cdef void access_trust(Access *a, int64_t generation, uint64_t connection) noexcept
