"""Signatures of requests, checked by the network thread. Contract in _access.pxd.

A signature is Base64 of HMAC-SHA1 over the values of all fields but itself, in the order of their names, and the body. Each
field that the network thread reads stands in the same list, once, so nothing that counts is unsigned.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from rmq_store.base.io._sync cimport rmq_count, rmq_load, rmq_mutex_lock, rmq_mutex_try, rmq_mutex_unlock
from rmq_store.network._net cimport (RMQ_SHA1_BASE64, RMQ_SHA1_SIZE, rmq_bytes_same, rmq_connection, rmq_connection_id,
                                     rmq_field, rmq_frame, rmq_hmac_begin, rmq_hmac_end, rmq_hmac_key_make, rmq_net,
                                     rmq_net_ask, rmq_net_now, rmq_sha1, rmq_sha1_add, rmq_sha1_base64, rmq_sha1_fast, rmq_text,
                                     rmq_text_is)
from rmq_store.network._tables cimport text_hash

cdef extern from *:
    """
    static inline void *access_swap(void **at, void *value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
    static inline void *access_look(void **at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
    """
    void *access_swap(void **at, void *value) noexcept nogil
    void *access_look(void **at) noexcept nogil

cdef enum:
    FIELDS_MAX = 40             # of a request that this thread checks; clients send up to 17
    GRANTS = 1 << 12            # by hash; of two that meet, the later one stays
    SENDS = -1                  # the group of a send
    TEXT_MAX = 1024

cdef uint32_t SEED = 2166136261u
cdef int64_t PATIENCE_NS = 1_000_000_000


# ---- what Python tells

cdef Access *access_new(int64_t connections) except NULL:
    cdef Access *a = <Access *> calloc(1, sizeof(Access))
    if a == NULL:
        raise MemoryError("accounts")
    a.connections = connections
    a.grants = <Grant *> calloc(GRANTS, sizeof(Grant))
    a.trusted = <Trusted *> calloc(connections, sizeof(Trusted))
    if a.grants == NULL or a.trusted == NULL:
        access_free(a)
        raise MemoryError("accounts")
    return a


cdef void _free_accounts(Accounts *all) noexcept nogil:
    cdef uint32_t i
    if all == NULL:
        return
    if all.rows != NULL:
        for i in range(all.mask + 1):
            free(all.rows[i].key)
    free(all.rows)
    free(all)


cdef void access_free(Access *a) noexcept nogil:
    cdef int i
    if a == NULL:
        return
    _free_accounts(a.accounts)
    _free_accounts(a.next_accounts)
    if a.grants != NULL:
        for i in range(GRANTS):
            free(a.grants[i].text)
    free(a.grants)
    free(a.trusted)
    free(a)


cdef int access_tell(Access *a, object rows, int64_t generation) except -1:
    cdef Accounts *all = <Accounts *> calloc(1, sizeof(Accounts))
    cdef bint fast = rmq_sha1_fast()
    if all == NULL:
        raise MemoryError("accounts")
    rows = list(rows)
    all.generation, all.mask = generation, 7
    while all.mask < 2 * len(rows):
        all.mask = 2 * all.mask + 1
    try:
        all.rows = <Account *> calloc(all.mask + 1, sizeof(Account))
        if all.rows == NULL:
            raise MemoryError("accounts")
        for key, secret in rows:
            _add_account(all, key, secret, fast)
    except BaseException:
        _free_accounts(all)
        raise
    _free_accounts(<Accounts *> access_swap(<void **> &a.next_accounts, all))
    return 0


cdef int _add_account(Accounts *all, bytes key, bytes secret, bint fast) except -1:
    cdef rmq_text text
    cdef uint32_t at
    cdef char *copy = <char *> malloc(PyBytes_GET_SIZE(key) + 1)
    if copy == NULL:
        raise MemoryError("accounts")
    memcpy(copy, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key) + 1)
    text.at, text.size = copy, <int32_t> PyBytes_GET_SIZE(key)
    at = text_hash(text, SEED) & all.mask
    while all.rows[at].key != NULL:
        at = (at + 1) & all.mask
    all.rows[at].key, all.rows[at].size = copy, text.size
    rmq_hmac_key_make(&all.rows[at].secret, PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret), fast)
    return 0


cdef void _lock(Access *a) noexcept:
    if not rmq_mutex_try(&a.lock):
        with nogil:
            rmq_mutex_lock(&a.lock)


cdef int access_grant(Access *a, int64_t generation, bytes key, bytes topic, object group) except -1:
    # group: bytes, or None where the account sends to the topic
    cdef Grant made
    cdef Grant *place
    cdef char *before
    cdef rmq_text k, t, g
    cdef bytes text = key + topic + (group or b"")
    if len(text) > TEXT_MAX:
        return 0
    made.generation = generation
    made.key_size, made.topic_size = <int32_t> len(key), <int32_t> len(topic)
    made.group_size = SENDS if group is None else <int32_t> len(group)
    made.text = <char *> malloc(len(text) + 1)
    if made.text == NULL:
        raise MemoryError("grant")
    memcpy(made.text, PyBytes_AS_STRING(text), len(text) + 1)
    k.at, k.size = made.text, made.key_size
    t.at, t.size = k.at + k.size, made.topic_size
    g.at, g.size = t.at + t.size, made.group_size
    place = &a.grants[_grant_hash(k, t, g) % GRANTS]
    _lock(a)
    before = place.text
    place[0] = made
    rmq_mutex_unlock(&a.lock)
    free(before)
    return 0


cdef void access_trust(Access *a, int64_t generation, uint64_t connection) noexcept:
    cdef Trusted *t
    if <uint32_t> connection < a.connections:
        t = &a.trusted[<uint32_t> connection]
        _lock(a)
        t.connection, t.generation = connection, generation
        rmq_mutex_unlock(&a.lock)


# ---- the network thread

cdef void access_begin(Access *a) noexcept nogil:
    if access_look(<void **> &a.next_accounts) != NULL:
        _free_accounts(a.accounts)
        a.accounts = <Accounts *> access_swap(<void **> &a.next_accounts, NULL)


cdef uint32_t _grant_hash(rmq_text key, rmq_text topic, rmq_text group) noexcept nogil:
    cdef uint32_t h = text_hash(topic, text_hash(key, SEED))
    return h if group.size == SENDS else text_hash(group, h * 31)


cdef bint _granted(Access *a, rmq_text key, rmq_text topic, rmq_text group) noexcept nogil:
    cdef Grant *g = &a.grants[_grant_hash(key, topic, group) % GRANTS]
    cdef bint found
    if not rmq_mutex_try(&a.lock):
        return False
    found = (g.generation == a.accounts.generation and g.key_size == key.size and g.topic_size == topic.size
             and g.group_size == group.size and memcmp(g.text, key.at, key.size) == 0
             and memcmp(g.text + key.size, topic.at, topic.size) == 0
             and (group.size == SENDS or memcmp(g.text + key.size + topic.size, group.at, group.size) == 0))
    rmq_mutex_unlock(&a.lock)
    return found


cdef bint _trusted(Access *a, uint64_t connection) noexcept nogil:
    cdef Trusted *t = &a.trusted[<uint32_t> connection]
    cdef bint found
    if not rmq_mutex_try(&a.lock):
        return False
    found = t.connection == connection and t.generation == a.accounts.generation
    rmq_mutex_unlock(&a.lock)
    return found


cdef int _compared(rmq_text a, rmq_text b) noexcept nogil:
    # By bytes of UTF-8, which is the order of characters.
    cdef int32_t both = min(a.size, b.size)
    cdef int order = memcmp(a.at, b.at, both) if both > 0 else 0
    return order if order != 0 else (a.size > b.size) - (a.size < b.size)


cdef int32_t _sorted(const rmq_frame *f, const rmq_field **out) noexcept nogil:
    # The fields in the order of their names. -1: too many, or two of one name.
    cdef int32_t i, at
    cdef int order
    if f.fields > FIELDS_MAX:
        return -1
    for i in range(f.fields):
        at = i
        while at > 0:
            order = _compared(out[at - 1].name, f.field[i].name)
            if order == 0:
                return -1
            if order < 0:
                break
            out[at] = out[at - 1]
            at -= 1
        out[at] = &f.field[i]
    return f.fields


cdef const Account *_account(const Accounts *all, rmq_text key) noexcept nogil:
    cdef uint32_t at = text_hash(key, SEED) & all.mask
    cdef const Account *row
    while all.rows[at].key != NULL:
        row = &all.rows[at]
        if row.size == key.size and memcmp(row.key, key.at, key.size) == 0:
            return row
        at = (at + 1) & all.mask
    return NULL


cdef bint _signed(const Accounts *all, const rmq_frame *f, rmq_text *key, rmq_text *topic, rmq_text *group) noexcept nogil:
    # Whether an account that is known has signed it, and what it asks for.
    cdef const rmq_field *fields[FIELDS_MAX]
    cdef rmq_sha1 s
    cdef unsigned char[RMQ_SHA1_SIZE] digest
    cdef char[RMQ_SHA1_BASE64] text
    cdef const Account *account
    cdef rmq_text signature, name
    cdef int32_t i, signature_at = -1, n = _sorted(f, fields)
    cdef bint short = f.code == 310 or f.code == 320        # names of one letter
    signature.at = key.at = topic.at = group.at = NULL
    signature.size = key.size = topic.size = group.size = 0
    for i in range(n):
        name = fields[i].name
        if rmq_text_is(name, b"AccessKey", 9):
            key[0] = fields[i].value
        elif rmq_text_is(name, b"Signature", 9):
            signature, signature_at = fields[i].value, i
        elif rmq_text_is(name, b"b", 1) if short else rmq_text_is(name, b"topic", 5):
            topic[0] = fields[i].value
        elif rmq_text_is(name, b"consumerGroup", 13):
            group[0] = fields[i].value
        elif rmq_text_is(name, b"_UNIQUE_KEY_QUERY", 17):       # which some clients sign, and some do not
            return False
    if n < 0 or key.at == NULL or topic.at == NULL or signature.size != RMQ_SHA1_BASE64:
        return False
    account = _account(all, key[0])
    if account == NULL:
        return False
    rmq_hmac_begin(&s, &account.secret)
    for i in range(n):
        if i != signature_at:
            rmq_sha1_add(&s, fields[i].value.at, fields[i].value.size)
    rmq_sha1_add(&s, f.body, f.body_size)
    rmq_hmac_end(&s, &account.secret, digest)
    rmq_sha1_base64(digest, text)
    return rmq_bytes_same(text, signature.at, RMQ_SHA1_BASE64)


cdef bint _is_fresh(Access *a, rmq_net *net) noexcept nogil:
    # Requests do not wait while Python looks, unless Python does not come to it.
    cdef int64_t until = rmq_load(&a.fresh_until), now = rmq_net_now(net)
    if now < until:
        return True
    if a.asked_at != until and rmq_net_ask(net) == 0:
        a.asked_at = until
    return now < until + PATIENCE_NS


cdef bint access_allows(Access *a, rmq_net *net, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef rmq_text key, topic, group
    if a.accounts == NULL or not _is_fresh(a, net):
        return False
    if _trusted(a, rmq_connection_id(c)):
        return True
    rmq_count(&a.checked, 1)
    if not _signed(a.accounts, f, &key, &topic, &group):
        return False
    if f.code == 14:            # needs no permission
        return True
    if f.code == 11 or f.code == 361 or f.code == 15:
        return group.at != NULL and _granted(a, key, topic, group)
    group.size = SENDS
    return _granted(a, key, topic, group)
