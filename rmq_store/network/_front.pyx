"""The native front of a server: a network thread (native/net/rmq_net.h), and the requests that it passes on to Python."""
import collections
import logging
import os
import socket
import threading
import weakref
from types import GeneratorType

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.base.io._sync cimport rmq_load, rmq_publish

from rmq_store.network._access cimport access_grant, access_tell, access_trust
from rmq_store.network._consumers cimport consumers_forget, consumers_heard, consumers_remember
from rmq_store.network._net cimport (
    RMQ_ASKED, RMQ_CLOSED, RMQ_FRAME, RMQ_HTTP2, RMQ_OPENED, RMQ_REFUSED, RMQ_TLS, RMQ_TLS_ONLY, RMQ_TLS_TOO,
    RMQ_TLS_UNASKED, rmq_given, rmq_item, rmq_item_free, rmq_lane, rmq_lane_gone, rmq_net, rmq_net_adopt, rmq_net_child,
    rmq_net_drop, rmq_net_free, rmq_net_limits, rmq_net_listen, rmq_net_new, rmq_net_send, rmq_net_served, rmq_net_start,
    rmq_net_stop, rmq_net_stopped, rmq_net_take, rmq_net_tls, rmq_net_use, rmq_opened, rmq_service)
from rmq_store.network._service cimport (
    address_of, service_begin, service_free, service_net_counts, service_new, service_requests, service_serve, service_stop,
    service_work)
from rmq_store.network._state cimport Service
from rmq_store.network._tables cimport SHARDS, shard_new, shard_of, shards_of, tables_tell, tables_told

from rmq_store.base.machine.limits import refused_text
from rmq_store.network.strangers import stranger_text
from rmq_store.remoting.frame import ONEWAY as _ONEWAY, RESPONSE as _RESPONSE, BadFrame, decode, encode

CONNECTIONS_MAX = 10_000
BUFFERED_MAX = 64 << 20     # bytes of unfinished frames, of all connections, before the one that began first is closed
WAITING_MAX = 512 << 20     # bytes of whole frames for which there is no room yet, before the one that has most is closed
UNREAD_MAX = 1 << 20        # bytes of answers that a peer has not taken, before it is not read any more,
UNREAD_MOST = 48 << 20      # and before its connection is closed
UNREAD_ALL = 512 << 20      # bytes of answers that no peer has taken, before the one that leaves most unread is closed
PASSED_MAX = 4096           # requests that wait for Python,
PASSED_OF_ONE = 256         # and of one connection
PASSED_BYTES_MAX = 64 << 20     # and their bytes
IDLE_S = 120.0
SENDS, BUSY = (10, 310, 320), 2

cdef extern from "<time.h>" nogil:
    enum: CLOCK_MONOTONIC
    struct timespec:
        int64_t tv_sec, tv_nsec
    int clock_gettime(int clock, timespec *out)

cdef inline int64_t _now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef object _LATER = object()   # the answer of a request that is not done
cdef int64_t SLICE_NS = 100_000_000
_fronts = weakref.WeakSet()
_log = logging.getLogger("rmq_store.network")


@cython.final
cdef class FrontConnection:
    """One peer of a Front. Any thread may send and close."""

    cdef readonly Front front
    cdef readonly object id         # int: no other connection of this front has it
    cdef readonly str peer          # host:port
    cdef readonly str local
    cdef readonly bint closed
    cdef readonly object on_request
    cdef rmq_lane *lane             # of the request at hand
    cdef object __weakref__

    def send(self, bytes data not None):
        """Sends a whole frame when the peer takes it. Returns False if the connection is known to have ended, or ends because
        too much waits for peers that do not read."""
        cdef uint64_t number = self.id
        cdef int rc
        if self.closed or self.front._ended():
            return False
        rc = rmq_net_send(self.front.net, number, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if rc < 0:
            raise MemoryError("frame")
        return rc == 0

    def close(self):
        """Ends the connection when everything that was sent before has been written."""
        cdef uint64_t number = self.id
        if not self.closed and not self.front._ended() and rmq_net_drop(self.front.net, number) < 0:
            raise MemoryError("frame")


@cython.no_gc_clear         # __dealloc__ needs the store
cdef class Front:
    """Serves listening sockets: frames are read and written by a thread of its own, without the GIL. `serve` gives the requests
    to Python, in one thread, as a second one could overtake the first. on_request(connection, frame) returns the answer,
    None if it is sent later, or a generator: it returns the answer, and where it yields, other connections are served. Of each
    connection the next request comes when the one before is done. on_close(connection) is called
    once for each connection of which on_request was called, or would have been."""

    cdef rmq_net *net
    cdef Service *service           # NULL: everything goes to Python
    cdef StoreWait _store
    cdef object _offsets            # whose table the service reads
    cdef int64_t _connections_max
    cdef object _on_close, _on_tls, _on_stale, __weakref__
    cdef list _on_request
    cdef object _turns              # deque of (connection, frame, generator): requests that are not done yet
    cdef dict _connections          # id -> FrontConnection: of those that were passed on
    cdef object _stopping           # Lock
    cdef readonly object address    # (host, port)
    cdef bint _started

    def __init__(self, str host, int port, on_request, on_close, *, connections_max=None, of_one=None):
        """Listens at once. of_one: how many requests of one connection may wait for Python; the connection is not read until
        there are fewer. Raises OSError if the address cannot be had."""
        cdef rmq_net_limits limits
        cdef int rc
        self._on_close, self._on_request, self._connections = on_close, [], {}
        self._stopping, self._turns = threading.Lock(), collections.deque()
        limits.connections = self._connections_max = connections_max or CONNECTIONS_MAX
        limits.buffered, limits.waiting, limits.unread = BUFFERED_MAX, WAITING_MAX, UNREAD_MAX
        limits.unread_most, limits.unread_all, limits.passed_of_one = UNREAD_MOST, UNREAD_ALL, of_one or PASSED_OF_ONE
        limits.passed, limits.passed_bytes, limits.idle_ns = PASSED_MAX, PASSED_BYTES_MAX, <int64_t> (IDLE_S * 1e9)
        rc = rmq_net_new(&limits, &self.net)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), "the network thread")
        self.address = self.listen(host, port, on_request)
        _fronts.add(self)

    def __dealloc__(self):
        if self.net != NULL:
            rmq_net_stop(self.net)
            rmq_net_free(self.net)
            self._free_service()

    cdef void _free_service(self):
        if self.service != NULL:
            service_stop(self.service)
            service_free(self.service)
        self.service = NULL

    cdef bint _ended(self) except -1:
        return self.net == NULL or rmq_net_stopped(self.net)

    def listen(self, str host, int port, on_request):
        """Listens on one address more, whose requests go to `on_request`. Before `serve`. Returns (host, port)."""
        cdef int rc
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
        listener.setblocking(False)
        address = listener.getsockname()[:2]
        rc = rmq_net_listen(self.net, listener.fileno())
        if rc < 0:
            listener.close()
            raise OSError(-rc, os.strerror(-rc), f"{host}:{port}")
        listener.detach()
        self._on_request.append(on_request)
        return address

    def use(self, StoreWait store not None, **facts):
        """Before `serve`: sends and pulls on the first address that need nothing but this store, and what `publish` tells, are
        answered without Python. facts: `offsets`, the rows of the store's ConsumerOffsets, without which offsets are Python's;
        `version`, `region`, `trace_on` of answers, `cluster` in stored properties,
        `long_polling`, `short_polling_ms`; `held_of_one`, pulls that are held for one connection; `wait_in_send_queue_ms`, how
        long a send may wait for room, or for Python, before it is answered "busy"; `signed`: requests need a signature, and
        Python answers those that `accounts`, `fresh`, `grant` and `trust` do not tell of; `on_stale`: see `fresh`. The
        end of the store ends the front. Raises ValueError, StoreClosed, OSError."""
        cdef rmq_service service
        cdef int rc
        if self._started or self.service != NULL or self._ended():
            raise ValueError("a front takes one store, before it serves")
        store._hubs.add(self)           # a close() that begins from here on finds this front; what began before is seen
        store._check_open()
        self._store, self._offsets, self._on_stale = store, facts.get("offsets"), facts.get("on_stale")
        self.service = service_new(store, self._connections_max, facts)
        self.service.net = self.net
        service_serve(self.service, &service)
        rc = rmq_net_use(self.net, &service)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), "the network thread")

    def tls(self, on_tls, *, only=False):
        """Before `serve`: a connection that begins with a TLS handshake is given to on_tls(fd, origin), with all its bytes
        unread and in a thread that serves; the descriptor is on_tls's from then on. `adopt` takes what becomes of it. only:
        other connections are closed."""
        if self._started or self._ended():
            raise ValueError("a front takes TLS before it serves")
        self._on_tls = on_tls
        rmq_net_tls(self.net, RMQ_TLS_ONLY if only else RMQ_TLS_TOO)

    def adopt(self, int fd, bytes origin not None):
        """Serves the frames of a non-blocking socket as those of the connection that `origin` came with. The descriptor is the
        front's from now on. Any thread. Raises ValueError when the front has ended, MemoryError; then it is the caller's."""
        if PyBytes_GET_SIZE(origin) != sizeof(rmq_opened):
            raise ValueError("origin is that of a call of on_tls")
        if self._ended():
            raise ValueError("the front has ended")
        if rmq_net_adopt(self.net, fd, <const rmq_opened *> PyBytes_AS_STRING(origin)) < 0:
            raise MemoryError("connection")

    def start(self):
        """Begins to accept. `serve` does it too."""
        cdef int rc
        if not self._started and not self._ended():
            self._started = True
            rc = service_begin(self.service) if self.service != NULL else 0
            if rc == 0:
                rc = rmq_net_start(self.net)
            if rc < 0:
                raise OSError(-rc, os.strerror(-rc), "the network thread")

    def stop(self):
        """Closes every socket, and lets `serve` return. Idempotent. Any thread."""
        with self._stopping:
            if self.net != NULL:
                with nogil:
                    rmq_net_stop(self.net)
                    if self.service != NULL:
                        service_stop(self.service)
        self._on_tls = None         # which adopts, and so holds this front

    def _detach(self):
        """The store closes: what it has is about to go."""
        self.stop()

    def publish(self, topics, subscriptions):
        """Makes known what the network thread may answer by itself; the requests for anything else go to Python.
        topics: (name, perm, read queues, write queues) of topics that clients may use as they like. subscriptions: (group,
        topic, version, hash codes of its tags, none for all messages) of groups that may consume, and (group, "", 0, ()) for
        each of these groups. Takes effect before the next request. Any thread.
        """
        self.change(enumerate(shards_of(topics, subscriptions)))

    def change(self, shards):
        """As `publish`, of some shards: (shard, (its topics, its subscriptions)). All others stay as they are."""
        cdef int shard
        if self.service == NULL or self._ended():
            return
        for shard, (topics, subscriptions) in shards:
            if not 0 <= shard < SHARDS:
                raise ValueError(f"shard {shard}: there are {SHARDS}")
            tables_tell(&self.service.tables, shard, shard_new(topics, subscriptions))
        tables_told(&self.service.tables)

    @staticmethod
    def shard(str name not None):
        """In which shard, from 0 to 255, a topic or a group stands: int."""
        return shard_of(name.encode())

    @property
    def generation(self):
        """The number of what `publish` or `change` told last: int."""
        return rmq_load(&self.service.tables.made) if self.service != NULL else 0

    def remember(self, uint64_t connection, bytes body not None, int32_t version, int64_t generation):
        """A heartbeat of the connection with this id is registered, and was read when `generation` was that. The same again is
        answered without Python until something else is published."""
        if self.service != NULL and <uint32_t> connection < self._connections_max:
            consumers_remember(self.service, connection, <const unsigned char *> PyBytes_AS_STRING(body),
                               <int32_t> PyBytes_GET_SIZE(body), version, generation)

    def forget(self, uint64_t connection):
        """What `remember` told of this connection does not hold any more."""
        if self.service != NULL and <uint32_t> connection < self._connections_max:
            consumers_forget(self.service, connection)

    def heard(self, uint64_t connection):
        """When a heartbeat of this connection last came, or answers were taken while its heartbeats had to wait for that:
        float, time.monotonic; 0.0: neither was."""
        if self.service == NULL or <uint32_t> connection >= self._connections_max:
            return 0.0
        return consumers_heard(self.service, connection) / 1e9

    def accounts(self, int64_t generation, rows):
        """The accounts by which requests are signed, from the next round on: (accessKey, secretKey), both bytes. generation: of
        the rules; no others have it. What was granted by other rules does not hold any more. Any thread, as the next ones."""
        if self.service != NULL and self.service.access != NULL:
            access_tell(self.service.access, rows, generation)

    def fresh(self, int64_t until_ns):
        """The rules were compared with their file, and count until then (monotonic). The first request behind that lets a
        thread that serves call `on_stale()` of `use`; where that tells nothing for a second, requests go to Python."""
        if self.service != NULL and self.service.access != NULL:
            rmq_publish(&self.service.access.fresh_until, until_ns)

    def grant(self, int64_t generation, str key, str topic, group):
        """By these rules the account may read the topic as the group (str), or send to it (None)."""
        if self.service != NULL and self.service.access != NULL:
            access_grant(self.service.access, generation, key.encode(), topic.encode(),
                         None if group is None else group.encode())

    def trust(self, int64_t generation, uint64_t connection):
        """By these rules the address of the connection with this id needs no signature."""
        if self.service != NULL and self.service.access != NULL:
            access_trust(self.service.access, generation, connection)

    def serve(self):
        """Gives requests to Python until `stop`."""
        cdef rmq_item *item
        cdef bint sliced = threading.current_thread() is threading.main_thread()
        cdef bint last
        cdef int64_t timeout_ns, begun, owed = 0    # owed: ns that a step took, for which requests that wait are served
        self.start()
        while self.net != NULL:
            last = rmq_net_stopped(self.net)        # before the look: what comes until then is taken
            timeout_ns = 0 if self._turns else SLICE_NS if sliced else -1
            with nogil:
                item = rmq_net_take(self.net, timeout_ns)
            if item == NULL and last and not self._turns:
                return
            begun = _now_ns() if self._turns else 0
            if item != NULL:
                self._serve_item(item)
            if self._turns and (item == NULL or begun == 0 or _now_ns() - begun >= owed):
                begun = _now_ns()
                self._serve_turn()
                owed = _now_ns() - begun
            elif self._turns:
                owed -= _now_ns() - begun
            if sliced:
                PyErr_CheckSignals()

    cdef int _serve_item(self, rmq_item *item) except -1:
        cdef int kind = item.kind
        cdef uint64_t number = item.connection
        cdef rmq_lane *lane = item.lane
        cdef object answer = None
        try:
            answer = self._serve_one(item)
        except Exception:           # for want of memory: it costs this connection, and no other
            _log.exception("a connection failed")
            if kind == RMQ_OPENED or kind == RMQ_FRAME:
                rmq_net_drop(self.net, number)
        finally:                    # before the peer has the answer and asks again
            if answer is not _LATER and self.net != NULL:
                rmq_net_served(self.net, lane)
        if answer is not None and answer is not _LATER:
            self._send_one(answer[0], answer[1])
        return 0

    cdef int _serve_turn(self) except -1:
        # A step of the request that has waited longest among those that are not done. What a peer asked that has gone ends.
        cdef FrontConnection c
        cdef object answer = None
        c, frame, steps = self._turns.popleft()
        try:
            if rmq_net_stopped(self.net) or rmq_lane_gone(c.lane):
                steps.close()
            else:
                next(steps)
                self._turns.append((c, frame, steps))
                return 0
        except StopIteration as end:
            if end.value is not None and not frame.flag & (_ONEWAY | _RESPONSE):
                answer = encode(end.value)
        except Exception:
            _log.exception("a request of %s failed", c.peer)
            c.close()
        if self.net != NULL:
            rmq_net_served(self.net, c.lane)
        if answer is not None:
            self._send_one(c, answer)
        return 0

    cdef object _serve_one(self, rmq_item *item):
        # None, a connection and what it is to be sent, or _LATER.
        cdef FrontConnection c
        cdef rmq_lane *lane = item.lane
        cdef const rmq_opened *opened
        cdef rmq_given given
        cdef int kind = item.kind
        cdef int64_t came_ns = item.came_ns
        cdef object number = item.connection
        try:
            if kind == RMQ_OPENED:
                opened = <const rmq_opened *> item.data
                c = FrontConnection.__new__(FrontConnection)
                c.front, c.id, c.peer, c.local = self, number, address_of(&opened.peer), address_of(&opened.local)
                c.on_request = self._on_request[opened.listener]
                self._connections[number] = c
                return None
            if kind == RMQ_ASKED:
                return self._ask()
            if kind == RMQ_REFUSED:
                return _log.warning("%s", refused_text(self.counts(), self._connections_max))
            if kind == RMQ_HTTP2 or kind == RMQ_TLS_UNASKED:
                return _log.warning("%s", stranger_text(kind == RMQ_HTTP2))
            if kind == RMQ_TLS:
                memcpy(&given, item.data, sizeof(rmq_given))
                self._give(given.fd, PyBytes_FromStringAndSize(<const char *> &given.from_, sizeof(rmq_opened)))
                return None
            data = PyBytes_FromStringAndSize(<const char *> item.data, item.size) if kind == RMQ_FRAME else None
        finally:
            rmq_item_free(item)
        if kind == RMQ_CLOSED:
            c = self._connections.pop(number)
            c.closed = True
        elif rmq_net_stopped(self.net):
            return None
        else:
            c = self._connections[number]
        c.lane = lane
        try:
            if kind == RMQ_CLOSED:
                self._on_close(c)
                return None
            answer = self._answer(c, data, came_ns)
            return answer if answer is None or answer is _LATER else (c, answer)
        except Exception:               # of a handler: it costs this connection, and no other
            _log.exception("a request of %s failed", c.peer)
            c.close()
            return None

    cdef int _send_one(self, FrontConnection c, bytes answer) except -1:
        try:
            c.send(answer)
        except Exception:
            _log.exception("an answer to %s failed", c.peer)
            c.close()
        return 0

    def _ask(self):
        try:
            if self._on_stale is not None:
                self._on_stale()
        except Exception:
            _log.exception("looking at the accounts failed")

    def _give(self, fd, origin):
        on_tls = self._on_tls
        try:
            if on_tls is not None and not rmq_net_stopped(self.net):
                on_tls(fd, origin)
                return
        except Exception:
            _log.exception("a TLS connection failed")
        os.close(fd)

    cdef object _busy(self, frame, int64_t came_ns):
        # The answer to a send that has waited here longer than its client should be kept; None for all others.
        if self.service == NULL or frame.code not in SENDS:
            return None
        came_ns = _now_ns() - came_ns
        if came_ns < self.service.patience_ns:
            return None
        answer = frame.answer(BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
                              f"{came_ns // 1_000_000}ms")
        answer.language, answer.version = "JAVA", self.service.version
        return answer

    cdef object _answer(self, FrontConnection connection, bytes data, int64_t came_ns):
        try:
            frame = decode(data)
        except BadFrame:                # as RocketMQ does: no answer, the connection is closed
            connection.close()
            return None
        busy = None if frame.flag & _RESPONSE else self._busy(frame, came_ns)
        answer = busy or connection.on_request(connection, frame)       # an answer of a client goes there, too
        if type(answer) is GeneratorType:
            self._turns.append((connection, frame, answer))
            return _LATER
        return None if answer is None or frame.flag & (_ONEWAY | _RESPONSE) else encode(answer)

    def counts(self):
        """What the network thread has done: dict of str to int."""
        work = service_work(self.service) if self.service != NULL else {}
        return {} if self.net == NULL else service_net_counts(self.net) | work

    def requests(self):
        """Requests that were answered without Python, by code: dict of int to int."""
        return {} if self.service == NULL else service_requests(self.service)

    def held(self):
        """Pulls that are held: int."""
        return rmq_load(&self.service.held_count) if self.service != NULL else 0

    def _forked(self):
        # The thread and its locks did not come along; the sockets did, and a peer must see them closed by its parent.
        self._stopping = threading.Lock()       # a thread of the parent may have had it
        if self.net != NULL:
            rmq_net_child(self.net)
            self.net = NULL


def _in_child():
    for front in list(_fronts):
        (<Front> front)._forked()


os.register_at_fork(after_in_child=_in_child)
