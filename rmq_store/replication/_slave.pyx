"""The slave's side of replication: one native thread follows a master (RocketMQ: DefaultHAClient).

A frame has to lie where the last one ended. Where the logs differ, the thread says where, and tries again later. Before a
connection adds anything, the last bytes that are here are asked for once more, and compared (_mirror.pyx).
"""
import os
import weakref

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strncpy

from rmq_store.access.core._core cimport StoreCore
from rmq_store.base.io._sync cimport (ETIMEDOUT, rmq_count, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish,
                                      rmq_publish32, rmq_thread_join, rmq_thread_start)
from rmq_store.base.segment._allocator cimport allocator_forget
from rmq_store.base.segment._file cimport row_start
from rmq_store.codec._record cimport rmq_get32, rmq_get64, rmq_put64
from rmq_store.log.commitlog._log cimport Log, log_lock_begin, log_lock_end
from rmq_store.log.flush._flush cimport flush_all
from rmq_store.replication._ha cimport (RMQ_HA_ADDRESS, RMQ_HA_FAILED, RMQ_HA_FOLLOWS, RMQ_HA_LOST, RMQ_HA_PARTED, RMQ_HA_SELF,
                                        RMQ_HA_SHORT, RMQ_HA_WRONG, rmq_ha_heard, rmq_ha_note, rmq_ha_say)
from rmq_store.replication._mirror cimport (STATE_COMPARES, STATE_FAILED, STATE_FOLLOWS, STATE_REFUSED, STATE_STALLED,
                                            STATE_WAITS, Mirror, mirror_append, mirror_begin, mirror_publish, mirror_refuse,
                                            mirror_room, mirror_take, mirror_tell, mirror_wait, rmq_ha_close, rmq_ha_connect,
                                            rmq_ha_leads_to, rmq_ha_leave, rmq_ha_more, rmq_ha_pause, rmq_ha_receive,
                                            rmq_ha_send, rmq_ha_shut, rmq_ha_wake_new, rmq_ha_wake_signal)

cdef enum:
    HEAD = 12
    SIZE_AT = 8                 # of the head
    ROOM = 512 << 10            # for what comes with one call: as much as a processor's cache keeps until it is written
    # While a master sends without a pause, a report goes for so many bytes. Each report costs both sides a call and a wake-up,
    # and who waits for a slave that is so far behind waits for more than one of them.
    STREAM = 64 << 10           # of one receive: there may be more already
    REPORT = 1 << 20
    OVERLAP = 64 << 10          # bytes of the own log that a connection begins with, to compare
    WIDER = 32                  # times as many where a master ends the connection unheard: its log may end before them
    FRAME_MAX = 4 << 20         # of a frame; RocketMQ's slave reads no larger one either

cdef int64_t MS = 1_000_000
cdef int64_t BEGIN_MAX = <int64_t> 1 << 60      # of an empty log: sums of offsets and sizes fit in beyond it
cdef int64_t RETRY_FIRST_MS = 100, STEADY_MS = 1000
_slaves = weakref.WeakSet()
_locked = []
_STATES = ("waits", "compares", "follows", "refused", "stalled", "failed")      # as State of _mirror.pxd


cdef inline int64_t _now(Mirror *m) noexcept nogil:
    return m.log.io.mono_ns(m.log.io.ctx)


# ---- one connection

cdef int _report(Mirror *m) noexcept nogil:
    # What is here, and as durable as this store was asked to make it.
    cdef unsigned char[8] out
    cdef int64_t at = m.log.position
    cdef int rc
    if rmq_load32(&m.log.fence) != 0:       # what a failed log holds is acknowledged no more
        return mirror_refuse(m, RMQ_HA_FAILED, rmq_load32(&m.log.fence), at, 0)
    if m.received < at:
        at = m.received         # not compared yet
    elif m.sync_mode:
        rc = flush_all(m.log)
        if rc < 0:
            return mirror_refuse(m, RMQ_HA_FAILED, -rc, at, 0)
    rmq_put64(out, at)
    m.reported_ns = _now(m)
    m.reported_at = at
    m.owed = 0
    rc = rmq_ha_send(m.peer_socket.fd, out, 8)
    return 0 if rc == 0 else mirror_refuse(m, RMQ_HA_LOST, -rc, m.log.position, 0)


cdef inline bint _worth(Mirror *m) noexcept nogil:
    # A device may be so slow that the master would take a whole MiB for silence.
    return (m.owed >= REPORT or _now(m) - m.reported_ns >= m.heartbeat_ms * MS
            or not rmq_ha_more(m.peer_socket.fd))


cdef int _beat(Mirror *m, int64_t pause_ms) noexcept nogil:
    cdef int64_t step = min(pause_ms, m.heartbeat_ms)
    if step > 0:
        rmq_ha_pause(m.wake, step)
    return _report(m) if _now(m) - m.reported_ns >= m.heartbeat_ms * MS else 0


cdef int _acknowledge(Mirror *m) noexcept nogil:
    return _report(m) if m.reported_at < m.log.position else 0


cdef int _start_at(Mirror *m, int64_t at) noexcept nogil:
    # An empty log begins where the master's last file does. What other threads go by moves in an order in which none of them
    # ever sees something to do in between: the log's end first where a connection before this one began further on.
    cdef Log *log = m.log
    cdef int rc
    if at % log.row.file_size != 0 or at > BEGIN_MAX:
        return mirror_refuse(m, RMQ_HA_WRONG, 0, at, min(at - at % log.row.file_size, BEGIN_MAX))
    rc = allocator_forget(log.alloc)        # a connection before this one may have begun elsewhere
    if rc < 0:
        return mirror_refuse(m, RMQ_HA_FAILED, -rc, at, 0)
    rmq_mutex_lock(&m.dispatcher.round_lock)
    if at < log.position:
        _end_at(log, at)
    rmq_publish(&log.dispatched, at)
    rmq_publish(&log.flushed, at)
    rmq_publish(&log.reusable, at)
    _end_at(log, at)
    rmq_mutex_unlock(&m.dispatcher.round_lock)
    m.received = at
    return 0


cdef inline void _end_at(Log *log, int64_t at) noexcept nogil:
    log_lock_begin(log)
    mirror_publish(log, at, 0)
    log_lock_end(log)


cdef int _frame(Mirror *m) noexcept nogil:
    # A head is whole: the frame has to lie where the last one ended.
    cdef const unsigned char *head = m.input + m.raw
    cdef int64_t at = rmq_get64(head)
    cdef int64_t size = rmq_get32(head + SIZE_AT)
    cdef Log *log = m.log
    if at < 0 or size < 0 or size > FRAME_MAX:
        return mirror_refuse(m, RMQ_HA_WRONG, 0, at, m.received)
    if m.received == 0 and row_start(log.row) < 0:      # this log has nothing yet, and begins where the master says
        if size == 0:
            m.raw += HEAD
            rmq_publish(&m.master_end, at)
            return _follows(m)          # the master has nothing to send either
        if at != log.position and _start_at(m, at) < 0:
            return -1
        m.received = at
    if at != m.received:
        return mirror_refuse(m, RMQ_HA_WRONG, 0, at, m.received)
    if size == 0 and m.received < log.position:
        return mirror_refuse(m, RMQ_HA_SHORT, 0, m.received, log.position)        # it has no more, and this log has
    m.raw += HEAD
    m.frame_left = size
    rmq_publish(&m.master_end, at + size)
    return _follows(m) if size == 0 and m.received >= log.position else 0


cdef int _compared(Mirror *m) noexcept nogil:
    # The logs agree as far as both go. Before anything is added, the directory becomes a slave's and has its master's topics
    # (service.py): nothing of a store changes for a master that is not its own. 0; -1: the connection ends.
    rmq_publish32(&m.compared, 1)
    return mirror_wait(m)


cdef int _follows(Mirror *m) noexcept nogil:
    # What came so far was taken. 0; -1: the connection ends.
    if _compared(m) < 0:
        return -1
    if rmq_load32(&m.state) != STATE_FOLLOWS:
        rmq_publish32(&m.state, STATE_FOLLOWS)
        m.last_what = -1
        m.overlap = OVERLAP
        rmq_ha_say(&m.notes, RMQ_HA_FOLLOWS, 0, m.log.position, rmq_load(&m.master_end), m.peer)
    return 0


cdef int _input(Mirror *m) noexcept nogil:
    # Everything that has come. What a frame refuses does not keep what came before it from the log.
    cdef int64_t n
    cdef int rc = 0
    while rc == 0:
        if m.frame_left == 0:
            if m.end - m.raw < HEAD:
                break
            rc = _frame(m)
            continue
        n = min(m.frame_left, m.end - m.raw)
        if n == 0:
            break
        rc = mirror_take(m, n)
        m.frame_left -= n
        rmq_count(&m.received_bytes, n)
    if rc < 0 and rmq_load(&m.told) < m.asked:
        return -1
    if m.from_ < m.to and _compared(m) < 0:     # bytes are kept only behind the end of the own log
        return -1
    return rc if mirror_append(m) == 0 else -1


cdef int _session(Mirror *m) noexcept nogil:
    # Until the connection ends, for whatever reason.
    cdef int64_t now, due, got
    cdef bint heard = False
    m.from_ = m.to = m.raw = m.end = m.frame_left = m.owed = 0
    m.filler_left = -1
    m.received = mirror_begin(m, m.overlap, &m.filler_from)
    if m.received < 0:
        return mirror_refuse(m, RMQ_HA_FAILED, <int> -m.received, m.log.position, 0)
    rmq_publish(&m.master_end, -1)
    if rmq_load32(&m.state) != STATE_REFUSED:       # whoever looks between two attempts shall see what came of the last one
        rmq_publish32(&m.state, STATE_COMPARES)
    m.heard_ns = _now(m)
    if _report(m) < 0:
        return -1
    while rmq_load32(&m.stop) == 0:
        now = _now(m)
        due = m.reported_ns + m.heartbeat_ms * MS - now
        if m.heard_ns + m.silence_ms * MS - now < due:
            due = m.heard_ns + m.silence_ms * MS - now
        if mirror_room(m) < 0:
            return -1
        got = rmq_ha_receive(m.peer_socket.fd, m.input + m.end, m.room - m.end, m.wake, due // MS + 1 if due > 0 else 0)
        if got == -ETIMEDOUT:
            if _now(m) - m.heard_ns >= m.silence_ms * MS:
                return mirror_refuse(m, RMQ_HA_LOST, ETIMEDOUT, m.log.position, 0)
            if _now(m) - m.reported_ns >= m.heartbeat_ms * MS and _report(m) < 0:
                return -1
            continue
        if rmq_load32(&m.stop) != 0:
            return 0
        if got == 0 and not heard and m.overlap < m.log.row.file_size:
            m.overlap *= WIDER
        if got <= 0:
            return mirror_refuse(m, RMQ_HA_LOST, <int> -got, m.log.position, not heard)
        heard = True
        m.heard_ns = _now(m)
        m.end += got
        now = m.received
        if _input(m) < 0:
            return -1
        if m.received != now and m.received >= m.log.position and _follows(m) < 0:
            return -1
        m.owed += m.received - now
        if m.owed > 0 and (got < STREAM or _worth(m)) and _report(m) < 0:
            return -1
        mirror_tell(m)
    return 0


cdef void *_run(void *arg) noexcept nogil:
    cdef Mirror *m = <Mirror *> arg
    cdef int64_t pause = RETRY_FIRST_MS, before, begun
    cdef int rc
    while rmq_load32(&m.stop) == 0:
        if rmq_load32(&m.log.fence) != 0:       # also while no master answers
            mirror_refuse(m, RMQ_HA_FAILED, rmq_load32(&m.log.fence), m.log.position, 0)
            return NULL
        rc = rmq_ha_connect(&m.peer_socket, m.host, m.port, m.wake, m.silence_ms)
        if rc >= 0 and m.own_port != 0 and rmq_ha_leads_to(&m.peer_socket, m.own_ip, m.own_port):
            rmq_ha_shut(&m.peer_socket)
            mirror_refuse(m, RMQ_HA_SELF, 0, 0, 0)
        elif rc >= 0:
            before, begun = m.log.position, _now(m)
            _session(m)
            mirror_tell(m)
            if rmq_load32(&m.state) == STATE_REFUSED and (m.last_what == RMQ_HA_PARTED or m.last_what == RMQ_HA_SHORT):
                m.overlap = m.log.position - m.last_a + OVERLAP         # the place is known: no more is compared each time
            # A master that ends each connection at once, as one with an unreadable page, is asked less and less often.
            if m.log.position != before or _now(m) - begun >= min(m.heartbeat_ms, STEADY_MS) * MS:
                pause = RETRY_FIRST_MS
            rmq_publish32(&m.compared, 0)
            rmq_ha_shut(&m.peer_socket)
        elif rmq_load32(&m.stop) == 0:
            mirror_refuse(m, RMQ_HA_LOST, -rc, m.log.position, 0)
        if rmq_load32(&m.state) == STATE_FAILED:        # for good: only an open recovers it
            return NULL
        if rmq_load32(&m.state) != STATE_REFUSED and rmq_load32(&m.state) != STATE_STALLED:
            rmq_publish32(&m.state, STATE_WAITS)
        rmq_ha_pause(m.wake, pause)
        pause = min(2 * pause, m.heartbeat_ms if m.heartbeat_ms > RETRY_FIRST_MS else RETRY_FIRST_MS)
    return NULL


cdef class Slave:
    """Follows a master from the construction on, until stop(), which the store calls before it closes. Any thread."""

    cdef Mirror *mirror
    cdef readonly str master
    cdef object __weakref__

    def __init__(self, StoreCore store not None, options, listens=None, gate=False):
        """listens: "ip:port" on which this store has slaves itself. gate: nothing is added to the log before proceed(1)."""
        cdef int rc
        cdef Mirror *m
        store._enter()
        self.master = options.ha_master
        host, _, port = self.master.rpartition(":")
        self.mirror = m = <Mirror *> calloc(1, sizeof(Mirror))
        if m == NULL:
            raise MemoryError("replication")
        m.wake = -1
        m.log, m.dispatcher = store.log, store.dispatcher
        strncpy(m.host, host.strip("[]").encode(), 255)
        strncpy(m.port, port.encode(), 7)
        strncpy(m.peer, self.master.encode()[:RMQ_HA_ADDRESS - 1], RMQ_HA_ADDRESS - 1)
        if listens is not None:
            host, _, port = listens.rpartition(":")
            own = host.strip("[]").encode()[:RMQ_HA_ADDRESS - 1]
            strncpy(m.own_ip, own, RMQ_HA_ADDRESS - 1)
            m.own_port = int(port)
        m.asked, m.told, m.overlap = 1, not gate, OVERLAP
        m.heartbeat_ms, m.silence_ms = options.ha_send_heartbeat_interval_ms, options.ha_housekeeping_interval_ms
        m.record_max = options.segment_size_bytes      # the limit of a put may be lower here than it was there
        m.sync_mode = store.sync_mode
        m.peer_socket.fd, m.last_what, m.master_end = -1, -1, -1
        m.check_crc, m.crc_required = options.recover_check_crc, options.record_crc_required
        m.beat, m.acknowledge = _beat, _acknowledge
        m.room = ROOM
        m.input = <unsigned char *> malloc(m.room)
        m.wake = rmq_ha_wake_new()
        if m.input == NULL or m.wake < 0:
            raise MemoryError("replication")
        rc = rmq_thread_start(&m.thread, _run, m, b"rmq-ha-slave")
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), "the HA thread")
        m.running = True
        _slaves.add(self)

    def __dealloc__(self):
        if self.mirror != NULL:
            with nogil:
                _end_thread(self.mirror)
            rmq_ha_leave(&self.mirror.peer_socket)
            rmq_ha_close(self.mirror.wake)
            free(self.mirror.input)
            free(self.mirror)

    def stop(self):
        """Ends the connection and the thread. Idempotent."""
        if self.mirror != NULL:
            with nogil:
                _end_thread(self.mirror)

    def compared(self):
        """Whether the logs agree, as far as both go, in the connection that there is: bool."""
        return self.mirror != NULL and rmq_load32(&self.mirror.compared) != 0

    def topic(self):
        """The topic whose entry the slave waits for: (what to give to proceed(), its name); None where it waits for none."""
        cdef int64_t asked
        cdef bytes name
        if self.mirror == NULL:
            return None
        asked = rmq_load(&self.mirror.asked)
        if not 1 <= rmq_load(&self.mirror.told) < asked:
            return None
        name = <bytes> self.mirror.topic
        if rmq_load(&self.mirror.told) >= asked:        # the connection has ended meanwhile, and another may ask
            return None
        return asked, name.decode("utf-8", "surrogateescape")

    def proceed(self, int64_t asked):
        """What was asked up to this number was done. Callers take turns."""
        if self.mirror != NULL and asked > rmq_load(&self.mirror.told):
            rmq_publish(&self.mirror.told, asked)

    def stall(self, int64_t asked):
        """What was asked, this number, cannot be done now, and is tried again: the slave is stalled until it is done. Returns
        where its log ends."""
        if self.mirror == NULL:
            return 0
        rmq_publish(&self.mirror.undone, asked)
        return rmq_load(&self.mirror.log.wrote)

    def state(self):
        """dict: state, one of _STATES; master_offset, where the master's log ends as far as is
        known (None: it is not); received_bytes."""
        if self.mirror == NULL:
            return {"state": "waits", "master_offset": None, "received_bytes": 0}
        end = rmq_load(&self.mirror.master_end)
        return {"state": _STATES[rmq_load32(&self.mirror.state)],
                "master_offset": end if end >= 0 else None, "received_bytes": rmq_load(&self.mirror.received_bytes)}

    def notes(self):
        """What happened since the last call: list of (what, error, a, b, peer)."""
        cdef rmq_ha_note note
        found = []
        while self.mirror != NULL and rmq_ha_heard(&self.mirror.notes, &note):
            found.append((note.what, note.error, note.a, note.b, (<bytes> note.peer).decode()))
        return found

    def _lock_for_fork(self):
        if self.mirror == NULL:
            return False
        rmq_mutex_lock(&self.mirror.peer_socket.fork_lock)      # for as long as a close takes
        return True

    def _unlock_after_fork(self):
        rmq_mutex_unlock(&self.mirror.peer_socket.fork_lock)

    def _forked(self):
        if self.mirror != NULL:
            rmq_ha_close(self.mirror.peer_socket.fd)
            self.mirror = NULL


cdef void _end_thread(Mirror *m) noexcept nogil:
    rmq_publish32(&m.stop, 1)
    if m.running:
        rmq_ha_wake_signal(m.wake)
        rmq_thread_join(&m.thread)
        m.running = False


def _before_fork():
    _locked[:] = [slave for slave in list(_slaves) if (<Slave> slave)._lock_for_fork()]


def _in_parent():
    while _locked:
        (<Slave> _locked.pop())._unlock_after_fork()


def _in_child():
    _locked.clear()
    for slave in list(_slaves):
        (<Slave> slave)._forked()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
