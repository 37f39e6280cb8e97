"""What the network thread answers by itself: which request goes where; begin and end. Contract in _service.pxd."""
import os
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.access.writer._ahead cimport ahead_add, ahead_start, ahead_stop
from rmq_store.access.writer._put cimport TELLS_NETWORK, WAIT_REPLICA
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.network._access cimport access_allows, access_begin, access_free, access_new
from rmq_store.network._consumers cimport consumers_alive, heartbeat_request, query_request, update_request
from rmq_store.network._held cimport held_begin, held_stop, held_tick
from rmq_store.network._net cimport (RMQ_PASS, rmq_address, rmq_connection, rmq_connection_asked, rmq_connection_listener,
                                     rmq_done, rmq_frame, rmq_net, rmq_net_counts, rmq_net_counts_of, rmq_service)
from rmq_store.network._pulls cimport pull_request, pulls_arrived, pulls_closed, pulls_more
from rmq_store.network._sends cimport batch_request, send_request
from rmq_store.network._settled cimport settled_ending, settled_look, settled_tick, settled_turn
from rmq_store.network._state cimport Beat, Service
from rmq_store.network._tables cimport tables_free, tables_take
from rmq_store.queues.consumequeue._arrivals cimport hub_free, hub_new
from rmq_store.services.consumer._offsets cimport OffsetRows

cdef extern from "<unistd.h>" nogil:
    int close(int fd)           # eventfds only: they are no part of a store

cdef enum:
    FLUSHED, ARRIVED            # eventfds of the network thread


cdef bint _is_hot(int32_t code) noexcept nogil:
    return (code == 310 or code == 11 or code == 320 or code == 10 or code == 361 or code == 15 or code == 14 or code == 34)


cdef rmq_done _request(void *ctx, rmq_connection *c, const rmq_frame *f) noexcept nogil:
    cdef Service *s = <Service *> ctx
    if f.code == 34:
        consumers_alive(s, c)       # when it came counts, not when Python gets to it
    if rmq_connection_listener(c) != 0 or not _is_hot(f.code):
        return RMQ_PASS
    if s.access != NULL and not rmq_connection_asked(c):    # else it was allowed, and waited for room
        if f.code == 34 or not access_allows(s.access, s.net, c, f):
            return RMQ_PASS     # a heartbeat names what it needs in its body: Python reads it
    if f.code == 310 or f.code == 10:
        return send_request(<Service *> ctx, c, f)
    if f.code == 320:
        return batch_request(<Service *> ctx, c, f)
    if f.code == 11 or f.code == 361:
        return pull_request(<Service *> ctx, c, f)
    if f.code == 15:
        return update_request(<Service *> ctx, c, f)
    if f.code == 14:
        return query_request(<Service *> ctx, c, f)
    if f.code == 34:
        return heartbeat_request(<Service *> ctx, c, f)
    return RMQ_PASS


cdef void _begin(void *ctx) noexcept nogil:
    cdef Service *s = <Service *> ctx
    tables_take(&s.tables)
    held_begin(s)
    if s.access != NULL:
        access_begin(s.access)


cdef void _turn(void *ctx) noexcept nogil:
    # While pulls are held a send is dispatched here, if the dispatcher sleeps, and its message goes out with the send's answer:
    # no other thread has to wake up in between.
    cdef Service *s = <Service *> ctx
    if settled_turn(s) and s.held_count > 0:
        pulls_arrived(s)


cdef void _woken(void *ctx, int which) noexcept nogil:
    if which == FLUSHED:
        settled_look(<Service *> ctx)
    else:
        pulls_arrived(<Service *> ctx)


cdef void _tick(void *ctx) noexcept nogil:
    settled_tick(<Service *> ctx)
    held_tick(<Service *> ctx)


cdef int _more(void *ctx) noexcept nogil:
    return pulls_more(<Service *> ctx)


cdef void _closed(void *ctx, rmq_connection *c) noexcept nogil:
    pulls_closed(<Service *> ctx, c)


cdef void _taken(void *ctx, rmq_connection *c) noexcept nogil:
    consumers_alive(<Service *> ctx, c)


cdef void _ending(void *ctx) noexcept nogil:
    settled_ending(<Service *> ctx)


cdef void service_serve(Service *s, rmq_service *out) noexcept nogil:
    out.ctx = s
    out.request, out.begin, out.turn, out.woken, out.tick, out.closed = _request, _begin, _turn, _woken, _tick, _closed
    out.taken, out.ending, out.more = _taken, _ending, _more
    out.fds[FLUSHED], out.fds[ARRIVED] = s.sink.fd, s.hub_fd
    out.message_most = s.body_size_max


cdef extern from "<sys/socket.h>" nogil:
    enum: AF_INET, AF_INET6

cdef extern from "<arpa/inet.h>" nogil:
    unsigned short ntohs(unsigned short n)


cdef str address_of(const rmq_address *a):
    # host:port, or [host]:port
    if a.any.sa_family == AF_INET6:
        host = socket.inet_ntop(socket.AF_INET6, PyBytes_FromStringAndSize(<const char *> &a.v6.sin6_addr, 16))
        return f"[{host}]:{ntohs(a.v6.sin6_port)}"
    if a.any.sa_family == AF_INET:
        host = socket.inet_ntop(socket.AF_INET, PyBytes_FromStringAndSize(<const char *> &a.v4.sin_addr, 4))
        return f"{host}:{ntohs(a.v4.sin_port)}"
    return ""


cdef bytes _plain(str name, value, int64_t most):
    # Goes into JSON and into properties as it is.
    text = str(value).encode()
    if not text or len(text) > most or any(c < 33 or c > 126 or c in b'"\\\\' for c in text):
        raise ValueError(f"{name} is {value!r}: the network thread takes 1 to {most} printable ASCII characters without "
                         "quotes, backslashes and blanks")
    return text


cdef Service *service_new(StoreWait store, int64_t connections_max, object facts) except NULL:
    cdef OffsetRows rows = facts.get("offsets")
    cdef Service *s = <Service *> calloc(1, sizeof(Service))
    if s == NULL:
        raise MemoryError("network thread")
    s.sink.fd = s.hub_fd = -1
    s.tag_seed = int.from_bytes(os.urandom(8)) | 1
    try:
        _know_store(s, store)
        _know_broker(s, facts)
        s.beats = <Beat *> calloc(connections_max, sizeof(Beat))
        if s.beats == NULL:
            raise MemoryError("network thread")
        if facts.get("signed"):
            s.access = access_new(connections_max)
        s.group_offsets = &rows.table if rows is not None else NULL
        s.sink.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        s.hub_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        s.hub = hub_new(s.queues, s.hub_fd, False)
        if s.hub == NULL:
            raise MemoryError("hub of arrivals")
        s.ahead.log = s.log
        ahead_add(&s.ahead, &s.sink)
    except BaseException:
        service_stop(s)
        service_free(s)
        raise
    return s


cdef int _know_store(Service *s, StoreWait store) except -1:
    if store.readonly:
        raise ValueError("the store is open read-only: a network thread serves a store that takes puts")
    s.log, s.queues, s.dispatcher = store.log, store.queues, store.dispatcher
    s.put_checks, s.flags = &store.put_checks, &store.flags
    s.body_size_max, s.record_size_max = &store.body_size_max, &store.record_size_max
    s.memory_bytes, s.scan_bytes_max = &store.memory_bytes, &store.scan_bytes_max
    s.bytes_max_memory, s.count_max_memory = &store.bytes_max_memory, &store.count_max_memory
    s.bytes_max_disk, s.count_max_disk = &store.bytes_max_disk, &store.count_max_disk
    s.gets = &store.native
    s.units_per_file, s.ext_enabled = store.units_per_file, store.ext_enabled
    s.plain = store.plain
    s.plain.trailing_separator = False      # the stored properties are whole
    s.compat5, s.sync_mode, s.lights = store.compat5, store.sync_mode, store.lights.on
    s.flush_deadline_ns = &store.flush_deadline_ns
    s.waits, s.replicas = store.waits, &store.replicas
    s.ahead.more, s.ahead.watched = &store.replicas.more[TELLS_NETWORK], &store.replicas.watched[TELLS_NETWORK]
    s.ahead.replicas = s.replicas if s.waits & WAIT_REPLICA else NULL
    return 0


cdef int _know_broker(Service *s, object facts) except -1:
    cdef bytes region = _plain("region", facts.get("region", "DefaultRegion"), 63)
    cdef bytes cluster = _plain("cluster", facts.get("cluster", "DefaultCluster"), 255)
    cdef bytes stamp
    s.version = facts.get("version", 479 if s.compat5 else 409)
    s.trace_on = facts.get("trace_on", True)
    s.patience_ns = facts.get("wait_in_send_queue_ms", 200) * 1_000_000
    s.long_polling = facts.get("long_polling", True)
    s.held_of_one = facts.get("held_of_one", 20_000)
    s.short_polling_ns = facts.get("short_polling_ms", 1000) * 1_000_000
    memcpy(s.region, PyBytes_AS_STRING(region), PyBytes_GET_SIZE(region))
    s.region_size = len(region)
    stamp = b"CLUSTER\x01" + cluster
    if s.compat5:
        stamp += b"\x02MSG_REGION\x01" + region + b"\x02TRACE_ON\x01" + (b"true" if s.trace_on else b"false")
    memcpy(s.stamp, PyBytes_AS_STRING(stamp), PyBytes_GET_SIZE(stamp))
    s.stamp_size = len(stamp)
    return 0


cdef int service_begin(Service *s) noexcept nogil:
    return ahead_start(&s.ahead) if s.waits else 0


cdef void service_stop(Service *s) noexcept nogil:
    if s.hub != NULL:
        held_stop(s)
        hub_free(s.hub)
        s.hub = NULL
    if s.ahead.running:
        ahead_stop(&s.ahead)


cdef void service_free(Service *s) noexcept nogil:
    tables_free(&s.tables)
    free(s.waiting)
    free(s.beats)
    access_free(s.access)
    if s.sink.fd >= 0:
        close(s.sink.fd)
    if s.hub_fd >= 0:
        close(s.hub_fd)
    free(s)


cdef dict service_net_counts(const rmq_net *net):
    cdef const rmq_net_counts *n = rmq_net_counts_of(net)
    return {"accepted": rmq_load(&n.accepted), "refused": rmq_load(&n.refused), "requests": rmq_load(&n.requests),
            "passed": rmq_load(&n.passed), "bad": rmq_load(&n.bad), "bytes_in": rmq_load(&n.bytes_in),
            "bytes_out": rmq_load(&n.bytes_out), "connections": rmq_load(&n.connections), "stalls": rmq_load(&n.stalls)}


cdef dict service_work(Service *s):
    return {"tries": rmq_load(&s.tries), "signatures": rmq_load(&s.access.checked) if s.access != NULL else 0}


cdef dict service_requests(Service *s):
    return {10: rmq_load(&s.sends_long), 310: rmq_load(&s.sends), 320: rmq_load(&s.batches), 11: rmq_load(&s.pulls),
            361: rmq_load(&s.pulls_lite), 14: rmq_load(&s.queries), 15: rmq_load(&s.updates), 34: rmq_load(&s.heartbeats)}
