"""The slave's side of replication: one native thread follows a master (RocketMQ: DefaultHAClient).

What a peer sends is believed piece by piece: a frame has to lie where the last one ended, and only whole records that say their
own place in the log are appended. Nothing that is here is ever cut: where the logs differ, the thread says where, and tries
again later. Before a connection adds anything, the last bytes that are here are asked for once more, and compared.
"""
import os
import weakref

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strncpy

from rmq_store.access.core._core cimport StoreCore
from rmq_store.base.io._io cimport rmq_lost_any
from rmq_store.base.io._sync cimport (EIO, ENOMEM, ETIMEDOUT, pthread_t, rmq_count, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish, rmq_publish32, rmq_thread_join, rmq_thread_start)
from rmq_store.base.segment._allocator cimport allocator_follow, allocator_pass, allocator_take, allocator_wait
from rmq_store.base.segment._file cimport LogFile, log_file_hold, log_file_release, row_find, row_push, row_start
from rmq_store.codec._layout cimport BLANK_SIZE
from rmq_store.codec._record cimport RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, record_parse
from rmq_store.log.commitlog._log cimport FENCE_WRITE, Log, log_fence, log_lock_begin, log_lock_end
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.log.flush._flush cimport flush_all
from rmq_store.replication._ha cimport (RMQ_HA_ADDRESS, RMQ_HA_FAILED, RMQ_HA_FOLLOWS, RMQ_HA_LOST, RMQ_HA_NO_RECORD,
                                        RMQ_HA_PARTED, RMQ_HA_SHORT, RMQ_HA_WRONG, rmq_ha_heard, rmq_ha_note, rmq_ha_notes,
                                        rmq_ha_say)

cdef extern from "rmq_ha_socket.h" nogil:
    int rmq_ha_connect(const char *host, const char *port, int wake, int64_t timeout_ms)
    int64_t rmq_ha_receive(int fd, void *to, size_t n, int wake, int64_t timeout_ms)
    int rmq_ha_send(int fd, const void *at, size_t n)
    int rmq_ha_pause(int wake, int64_t timeout_ms)
    int rmq_ha_wake_new()
    void rmq_ha_wake_signal(int wake)
    void rmq_ha_close(int fd)
    int64_t rmq_ha_get64(const unsigned char *at)
    void rmq_ha_put64(unsigned char *at, int64_t v)
    int32_t rmq_ha_get32(const unsigned char *at)

cdef enum:
    HEAD = 12
    IN_SIZE = 256 << 10
    OVERLAP = 64 << 10          # bytes of the own log that a connection begins with, to compare
    FRAME_MAX = 4 << 20         # of a frame; RocketMQ's slave reads no larger one either
    RECORD_START = 8            # its size and magic code

cdef int64_t MS = 1_000_000
cdef int64_t RETRY_FIRST_MS = 100
cdef int64_t WAIT_FILE_NS = 100_000_000
_slaves = weakref.WeakSet()

cdef enum State:
    STATE_WAITS = 0             # for a connection
    STATE_COMPARES = 1
    STATE_FOLLOWS = 2
    STATE_REFUSED = 3           # the logs differ


cdef struct Mirror:
    Log *log
    Dispatcher *dispatcher
    char[256] host
    char[8] port
    char[RMQ_HA_ADDRESS] peer
    int64_t heartbeat_ms, silence_ms, record_max
    bint sync_mode
    int wake, fd, stop
    pthread_t thread
    bint running
    # ---- one connection
    int64_t frame_at, frame_left    # log offset of the next byte of the frame, and how many are still to come
    int64_t received            # log offset of the next byte to come
    int64_t reported_ns
    int64_t heard_ns
    unsigned char *input        # IN_SIZE
    int64_t in_from, in_size
    unsigned char *part         # a record that is not whole yet
    int64_t part_size, part_room
    int64_t filler_left         # bytes behind an end-of-file record that are still to come
    # ---- told
    int state                   # atomic, a State
    int64_t master_end          # atomic: as far as the master is known to have its log; -1: not known
    int64_t received_bytes      # rmq_count
    int last_what               # of the last refusal, so that it is said once
    int64_t last_a
    rmq_ha_notes notes


cdef inline int64_t _now(Mirror *m) noexcept nogil:
    return m.log.io.mono_ns(m.log.io.ctx)


cdef int _refuse(Mirror *m, int what, int error, int64_t a, int64_t b) noexcept nogil:
    # Said once for each place: a connection is tried again and again.
    if what != m.last_what or a != m.last_a:
        rmq_ha_say(&m.notes, what, error, a, b, m.peer)
    m.last_what, m.last_a = what, a
    if what != RMQ_HA_LOST:
        rmq_publish32(&m.state, STATE_REFUSED)
    return -1


# ---- appending what is whole and in its place

cdef int _next_file(Mirror *m) noexcept nogil:
    # The log continues in a file at its end. 0; -1: stopped or failed.
    cdef Log *log = m.log
    cdef LogFile *next
    cdef int rc
    while rmq_load32(&m.stop) == 0 and rmq_load32(&log.fence) == 0:
        next = allocator_take(log.alloc, log.position)
        if next == NULL:
            rc = allocator_wait(log.alloc, log.position, WAIT_FILE_NS)
            if rc < 0 and rc != -ETIMEDOUT:
                _refuse(m, RMQ_HA_FAILED, -rc, log.position, 0)
                rmq_ha_pause(m.wake, 1000)
            continue
        log_lock_begin(log)
        rc = row_push(log.row, next)
        if rc >= 0:
            log_file_hold(next)
            log.tail = next
            allocator_follow(log.alloc, next)
        else:
            log_file_release(next)
        log_lock_end(log)
        return 0 if rc >= 0 else _refuse(m, RMQ_HA_FAILED, -rc, log.position, 0)
    return -1


cdef int _write(Mirror *m, int64_t at, const unsigned char *from_, int64_t n) noexcept nogil:
    # Into the file, at log offset `at`, which is the log's end or behind it. The put lock is held. 0; -1.
    cdef Log *log = m.log
    cdef LogFile *f = log.tail
    cdef int64_t end = at + n - f.start
    if end > rmq_load(&f.zeroed_to):
        allocator_pass(log.alloc, f, end)
    memcpy(f.map + (at - f.start), from_, n)
    if rmq_lost_any(&f.lost):
        log_fence(log, -EIO, FENCE_WRITE)
        return -1
    if log.io.map_store != NULL:
        log.io.map_store(log.io.ctx, f.fd, at - f.start, f.map + (at - f.start), n)
    return 0


cdef void _publish(Log *log, int64_t end, int64_t timestamp) noexcept nogil:
    log.position = end
    if timestamp > log.last_timestamp:
        log.last_timestamp = timestamp
    rmq_publish(&log.wrote_timestamp, log.last_timestamp)
    rmq_publish(&log.wrote, end)
    rmq_publish(&log.committed, end)


cdef int _append(Mirror *m, const unsigned char *from_, int64_t n, int64_t records, int64_t timestamp) noexcept nogil:
    # Whole records, for the log's end, within one file.
    cdef Log *log = m.log
    cdef int rc
    if rmq_load32(&log.fence) != 0:
        return _refuse(m, RMQ_HA_FAILED, rmq_load32(&log.fence), log.position, 0)
    if log.tail == NULL and _next_file(m) < 0:
        return -1
    log_lock_begin(log)
    rc = _write(m, log.position, from_, n)
    if rc == 0:
        _publish(log, log.position + n, timestamp)
        rmq_count(&log.puts, records)
        rmq_count(&log.put_bytes, n)
        if log.position == log.tail.start + log.tail.size:      # no store of this format does it; a log may
            rmq_publish(&log.tail.data_end, log.position)
            log_file_release(log.tail)
            log.tail = NULL
    log_lock_end(log)
    return rc


cdef int _fill(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # Bytes behind the end-of-file record, which the master's file has too; the record itself, in `part`, is written last.
    cdef Log *log = m.log
    cdef LogFile *f = log.tail
    cdef int64_t end
    cdef int rc = 0
    if f == NULL:
        return -1
    end = f.start + f.size
    log_lock_begin(log)
    if n > 0:
        rc = _write(m, end - m.filler_left, from_, n)
    m.filler_left -= n
    if rc == 0 and m.filler_left == 0:
        rc = _write(m, log.position, m.part, BLANK_SIZE)
        if rc == 0:
            rmq_publish(&f.data_end, log.position + BLANK_SIZE)
            log.tail = NULL
            _publish(log, end, 0)
            log_file_release(f)
        m.part_size = 0
        m.filler_left = -1
    log_lock_end(log)
    return rc


cdef int64_t _file_end(Mirror *m, int64_t at) noexcept nogil:
    return at - at % m.log.row.file_size + m.log.row.file_size


cdef int64_t _run_of(Mirror *m, const unsigned char *from_, int64_t n, int64_t *records, int64_t *timestamp) noexcept nogil:
    # Bytes of whole records at the beginning of [from_, from_ + n), for the log's end. -1: what is there is no such record.
    cdef int64_t at = m.log.position, done = 0, left
    cdef RecordView v
    cdef RecordStatus status
    records[0] = 0
    while n - done >= RECORD_START:
        left = _file_end(m, at) - at
        status = record_parse(from_ + done, min(n - done, left), &v)
        if status == RECORD_BLANK:
            break
        if status == RECORD_OK:
            if v.physical_offset != at:
                _refuse(m, RMQ_HA_PARTED, 0, at, at)
                return -1
            records[0] += 1
            timestamp[0] = v.store_timestamp
            done += v.size
            at += v.size
            if v.size == left:
                break
            continue
        v.size = rmq_ha_get32(from_ + done)
        if v.size > n - done and v.size <= left and v.size <= m.record_max and _magic(from_ + done):
            break           # it is not whole yet
        _refuse(m, RMQ_HA_NO_RECORD, 0, at, v.size)
        return -1
    return done


cdef inline bint _magic(const unsigned char *at) noexcept nogil:
    # record_parse needs more than these bytes.
    cdef RecordView v
    cdef unsigned int magic = <unsigned int> rmq_ha_get32(at + 4)
    return magic == 0xDAA320A7u or magic == 0xDAA320ABu


cdef int _begin_blank(Mirror *m, const unsigned char *at) noexcept nogil:
    # An end-of-file record says how long the rest of the file is.
    cdef Log *log = m.log
    cdef int64_t rest = _file_end(m, log.position) - log.position
    if rmq_ha_get32(at) != rest:
        return _refuse(m, RMQ_HA_NO_RECORD, 0, log.position, rmq_ha_get32(at))
    if log.tail == NULL and _next_file(m) < 0:
        return -1
    memmove(m.part, at, RECORD_START)
    m.part_size = RECORD_START
    m.filler_left = rest - BLANK_SIZE
    return _fill(m, NULL, 0) if m.filler_left == 0 else 0


cdef inline bint _is_blank(const unsigned char *at) noexcept nogil:
    return <unsigned int> rmq_ha_get32(at + 4) == 0xCBD43194u


cdef int _need(Mirror *m, int64_t room) noexcept nogil:
    cdef unsigned char *more
    if room > m.part_room:
        more = <unsigned char *> realloc(m.part, room)
        if more == NULL:
            return _refuse(m, RMQ_HA_FAILED, ENOMEM, m.log.position, 0)
        m.part, m.part_room = more, room
    return 0


cdef int64_t _take_part(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # Completes the record that has begun. Bytes taken, -1.
    cdef int64_t want = RECORD_START, take, records = 0, timestamp = 0, run
    if m.part_size >= RECORD_START:
        want = rmq_ha_get32(m.part)
    take = min(want - m.part_size, n)
    if _need(m, want) < 0:
        return -1
    memcpy(m.part + m.part_size, from_, take)
    m.part_size += take
    if m.part_size < want:
        return take
    if want == RECORD_START:
        if _is_blank(m.part):
            return take if _begin_blank(m, m.part) == 0 else -1
    run = _run_of(m, m.part, m.part_size, &records, &timestamp)
    if run < 0:
        return -1
    if run > 0:
        m.part_size = 0
        return take if _append(m, m.part, run, records, timestamp) == 0 else -1
    return take         # its size is known now, and believed


cdef int _take(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # Bytes of the log from m.received on.
    cdef int64_t done, run, records = 0, timestamp = 0
    while n > 0:
        if m.received < m.log.position:
            done = _compare(m, from_, n)
        elif m.filler_left > 0:
            done = min(n, m.filler_left)
            if _fill(m, from_, done) < 0:
                return -1
        elif m.part_size > 0 or n < RECORD_START:
            done = _take_part(m, from_, n)
        elif _is_blank(from_):
            done = RECORD_START
            if _begin_blank(m, from_) < 0:
                return -1
        else:
            done = run = _run_of(m, from_, n, &records, &timestamp)
            if run > 0 and _append(m, from_, run, records, timestamp) < 0:
                return -1
            if run == 0:
                done = _take_part(m, from_, RECORD_START)
        if done < 0:
            return -1
        from_ += done
        n -= done
        m.received += done
    return 0


cdef int64_t _compare(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # What is here already, with what the master has. Bytes compared, -1.
    cdef int error = 0
    cdef int64_t i = 0, size
    cdef LogFile *f = row_find(m.log.row, m.received, &error)
    cdef const unsigned char *own
    if f == NULL:
        return _refuse(m, RMQ_HA_FAILED, -error if error < 0 else EIO, m.received, 0)
    size = min(n, m.log.position - m.received, f.start + f.size - m.received)
    own = f.map + (m.received - f.start)
    if memcmp(own, from_, size) != 0:
        while own[i] == from_[i]:
            i += 1
        log_file_release(f)
        return _refuse(m, RMQ_HA_PARTED, 0, m.received + i, m.log.position)
    log_file_release(f)
    return size


# ---- one connection

cdef int _report(Mirror *m) noexcept nogil:
    # What is here, and as durable as this store was asked to make it.
    cdef unsigned char[8] out
    cdef int64_t at = m.log.position
    if m.received < at:
        at = m.received         # not compared yet
    elif m.sync_mode and flush_all(m.log) < 0:
        return _refuse(m, RMQ_HA_FAILED, rmq_load32(&m.log.fence), at, 0)
    rmq_ha_put64(out, at)
    m.reported_ns = _now(m)
    return 0 if rmq_ha_send(m.fd, out, 8) == 0 else -1


cdef int _start_at(Mirror *m, int64_t at) noexcept nogil:
    # An empty log begins where the master's last file does. What other threads go by moves in an order in which none of them
    # ever sees something to do in between.
    cdef Log *log = m.log
    if at % log.row.file_size != 0:
        return _refuse(m, RMQ_HA_WRONG, 0, at, at - at % log.row.file_size)
    rmq_mutex_lock(&m.dispatcher.round_lock)
    rmq_publish(&log.dispatched, at)
    rmq_publish(&log.flushed, at)
    rmq_publish(&log.reusable, at)
    log_lock_begin(log)
    _publish(log, at, 0)
    log_lock_end(log)
    rmq_mutex_unlock(&m.dispatcher.round_lock)
    m.received = at
    return 0


cdef int _frame(Mirror *m) noexcept nogil:
    # A head is whole: the frame has to lie where the last one ended.
    cdef const unsigned char *head = m.input + m.in_from
    cdef int64_t at = rmq_ha_get64(head)
    cdef int64_t size = rmq_ha_get32(head + 8)
    cdef Log *log = m.log
    if at < 0 or size < 0 or size > FRAME_MAX:
        return _refuse(m, RMQ_HA_WRONG, 0, at, m.received)
    if at != m.received and log.position == 0 and log.tail == NULL and m.received == 0:
        if size == 0:           # nothing to begin with
            m.in_from += HEAD
            return 0
        if _start_at(m, at) < 0:
            return -1
    if at != m.received:
        return _refuse(m, RMQ_HA_WRONG, 0, at, m.received)
    if size == 0 and m.received < log.position:
        return _refuse(m, RMQ_HA_SHORT, 0, m.received, log.position)        # it has no more, and this log has
    m.in_from += HEAD
    m.frame_left = size
    rmq_publish(&m.master_end, at + size)
    if rmq_load32(&m.state) != STATE_FOLLOWS and m.received >= log.position:
        _follows(m)
    return 0


cdef void _follows(Mirror *m) noexcept nogil:
    rmq_publish32(&m.state, STATE_FOLLOWS)
    m.last_what = -1
    rmq_ha_say(&m.notes, RMQ_HA_FOLLOWS, 0, m.log.position, rmq_load(&m.master_end), m.peer)


cdef int _input(Mirror *m) noexcept nogil:
    # Everything that has come.
    cdef int64_t n
    while True:
        if m.frame_left == 0:
            if m.in_size - m.in_from < HEAD:
                break
            if _frame(m) < 0:
                return -1
            continue
        n = min(m.frame_left, m.in_size - m.in_from)
        if n == 0:
            break
        if _take(m, m.input + m.in_from, n) < 0:
            return -1
        m.in_from += n
        m.frame_left -= n
        rmq_count(&m.received_bytes, n)
    memmove(m.input, m.input + m.in_from, m.in_size - m.in_from)
    m.in_size -= m.in_from
    m.in_from = 0
    return 0


cdef int _session(Mirror *m) noexcept nogil:
    # Until the connection ends, for whatever reason.
    cdef int64_t now, due, got, end = m.log.position, first = row_start(m.log.row)
    m.in_from = m.in_size = m.frame_left = m.part_size = 0
    m.filler_left = -1
    m.received = end
    if end > 0 and first >= 0 and first < end:      # within the last file, so that a master which cleans has it as well
        m.received = max(end - OVERLAP, first, (end - 1) - (end - 1) % m.log.row.file_size, 1)
    rmq_publish(&m.master_end, -1)
    rmq_publish32(&m.state, STATE_COMPARES)
    m.heard_ns = _now(m)
    if _report(m) < 0:
        return -1
    while rmq_load32(&m.stop) == 0:
        now = _now(m)
        due = m.reported_ns + m.heartbeat_ms * MS - now
        if m.heard_ns + m.silence_ms * MS - now < due:
            due = m.heard_ns + m.silence_ms * MS - now
        got = rmq_ha_receive(m.fd, m.input + m.in_size, IN_SIZE - m.in_size, m.wake, due // MS + 1 if due > 0 else 0)
        if got == -ETIMEDOUT:
            if _now(m) - m.heard_ns >= m.silence_ms * MS:
                return _refuse(m, RMQ_HA_LOST, ETIMEDOUT, m.log.position, 0)
            if _now(m) - m.reported_ns >= m.heartbeat_ms * MS and _report(m) < 0:
                return -1
            continue
        if rmq_load32(&m.stop) != 0:
            return 0
        if got <= 0:
            return _refuse(m, RMQ_HA_LOST, <int> -got, m.log.position, 0)
        m.heard_ns = _now(m)
        m.in_size += got
        now = m.received
        if _input(m) < 0:
            return -1
        if m.received != now and m.received >= m.log.position and rmq_load32(&m.state) != STATE_FOLLOWS:
            _follows(m)
        if m.received != now and _report(m) < 0:
            return -1
    return 0


cdef void *_run(void *arg) noexcept nogil:
    cdef Mirror *m = <Mirror *> arg
    cdef int64_t pause = RETRY_FIRST_MS
    cdef int rc
    while rmq_load32(&m.stop) == 0:
        rc = rmq_ha_connect(m.host, m.port, m.wake, m.silence_ms)
        if rc >= 0:
            m.fd = rc
            _session(m)
            if rmq_load32(&m.state) == STATE_FOLLOWS:
                pause = RETRY_FIRST_MS
            rmq_ha_close(m.fd)
            m.fd = -1
        elif rmq_load32(&m.stop) == 0:
            _refuse(m, RMQ_HA_LOST, -rc, m.log.position, 0)
        if rmq_load32(&m.state) != STATE_REFUSED:
            rmq_publish32(&m.state, STATE_WAITS)
        rmq_ha_pause(m.wake, pause)
        pause = min(2 * pause, m.heartbeat_ms if m.heartbeat_ms > RETRY_FIRST_MS else RETRY_FIRST_MS)
    return NULL


cdef class Slave:
    """Follows a master from the construction on, until stop(), which the store calls before it closes. Any thread."""

    cdef Mirror *mirror
    cdef readonly str master
    cdef object __weakref__

    def __init__(self, StoreCore store not None, options):
        cdef int rc
        cdef Mirror *m
        store._enter()
        self.master = options.ha_master
        host, _, port = self.master.rpartition(":")
        self.mirror = m = <Mirror *> calloc(1, sizeof(Mirror))
        if m == NULL:
            raise MemoryError("replication")
        m.log, m.dispatcher = store.log, store.dispatcher
        strncpy(m.host, host.strip("[]").encode(), 255)
        strncpy(m.port, port.encode(), 7)
        strncpy(m.peer, self.master.encode()[:RMQ_HA_ADDRESS - 1], RMQ_HA_ADDRESS - 1)
        m.heartbeat_ms, m.silence_ms = options.ha_send_heartbeat_interval_ms, options.ha_housekeeping_interval_ms
        m.record_max = min(options.message_size_max_bytes + 65536, options.segment_size_bytes)
        m.sync_mode = store.sync_mode
        m.fd, m.last_what, m.master_end = -1, -1, -1
        m.part_room = 64 << 10
        m.input, m.part = <unsigned char *> malloc(IN_SIZE), <unsigned char *> malloc(m.part_room)
        m.wake = rmq_ha_wake_new()
        if m.input == NULL or m.part == NULL or m.wake < 0:
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
            rmq_ha_close(self.mirror.wake)
            free(self.mirror.input)
            free(self.mirror.part)
            free(self.mirror)

    def stop(self):
        """Ends the connection and the thread. Idempotent."""
        if self.mirror != NULL:
            with nogil:
                _end_thread(self.mirror)

    def state(self):
        """dict: state, "waits", "compares", "follows" or "refused"; master_offset, where the master's log ends as far as is
        known (None: it is not); received_bytes."""
        if self.mirror == NULL:
            return {"state": "waits", "master_offset": None, "received_bytes": 0}
        end = rmq_load(&self.mirror.master_end)
        return {"state": ("waits", "compares", "follows", "refused")[rmq_load32(&self.mirror.state)],
                "master_offset": end if end >= 0 else None, "received_bytes": rmq_load(&self.mirror.received_bytes)}

    def notes(self):
        """What happened since the last call: list of (what, error, a, b, peer)."""
        cdef rmq_ha_note note
        found = []
        while self.mirror != NULL and rmq_ha_heard(&self.mirror.notes, &note):
            found.append((note.what, note.error, note.a, note.b, (<bytes> note.peer).decode()))
        return found

    def _forked(self):
        if self.mirror != NULL:
            rmq_ha_close(self.mirror.fd)
            self.mirror = NULL


cdef void _end_thread(Mirror *m) noexcept nogil:
    rmq_publish32(&m.stop, 1)
    if m.running:
        rmq_ha_wake_signal(m.wake)
        rmq_thread_join(&m.thread)
        m.running = False


def _in_child():
    for slave in list(_slaves):
        (<Slave> slave)._forked()


os.register_at_fork(after_in_child=_in_child)
