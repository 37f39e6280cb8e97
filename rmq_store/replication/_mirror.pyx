"""What a slave does with its master's bytes (RocketMQ: DefaultHAClient, CommitLog.appendData). Contract in _mirror.pxd.

Only whole records that say their own place in the log are appended, by position, under the put lock. Nothing is ever cut.
"""
from libc.errno cimport ENOSPC
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memmove

from rmq_store.base.io._io cimport rmq_lost_any, rmq_pwrite_all
from rmq_store.base.io._sync cimport (EIO, ENOMEM, ETIMEDOUT, rmq_count, rmq_event_wake, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32)
from rmq_store.base.io._want cimport rmq_is_want
from rmq_store.base.segment._allocator cimport allocator_follow, allocator_pass, allocator_take, allocator_wait
from rmq_store.base.segment._file cimport LogFile, log_file_hold, log_file_release, row_find, row_push, row_start
from rmq_store.codec._bad cimport BAD_NOT, BAD_RECORD_CRC, Bad, crc_bad
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_INNER_BATCH, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_AT_MAGIC,
                                      RECORD_HEAD_SIZE)
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, record_crc_check, record_parse,
                                      rmq_get32, topic_fits)
from rmq_store.log.commitlog._log cimport (FENCE_WRITE, Log, log_fence, log_lock_begin, log_lock_end, log_lock_leave,
                                           log_lock_left)
from rmq_store.queues.consumequeue._batches cimport topic_takes_batches
from rmq_store.queues.consumequeue._queue cimport QueueTable, queues_find, queues_of_topic
from rmq_store.replication._ha cimport (RMQ_HA_FAILED, RMQ_HA_FILE_END, RMQ_HA_FOLLOWS, RMQ_HA_LOST, RMQ_HA_NO_RECORD,
                                        RMQ_HA_PARTED, RMQ_HA_ROTTEN, rmq_ha_say)

cdef int64_t WAIT_FILE_NS = 100_000_000
cdef int64_t AGAIN_MS = 500     # between two attempts to make a file
cdef int64_t TOLD_MS = 5        # between two looks whether service.py has done it
cdef int64_t SPARE = 64 << 10   # behind a record that is larger than the room there is


cdef int mirror_refuse(Mirror *m, int what, int error, int64_t a, int64_t b) noexcept nogil:
    # Said once for each place: a connection is tried again and again.
    if what != m.last_what or a != m.last_a or b != m.last_b:
        rmq_ha_say(&m.notes, what, error, a, b, m.peer)
    m.last_what, m.last_a, m.last_b = what, a, b
    if what == RMQ_HA_FAILED:
        rmq_publish32(&m.state, STATE_STALLED if rmq_load32(&m.log.fence) == 0 else STATE_FAILED)
    elif what == RMQ_HA_ROTTEN:
        rmq_publish32(&m.state, STATE_STALLED)
    elif what != RMQ_HA_LOST:
        rmq_publish32(&m.state, STATE_REFUSED)
    return -1


cdef int _failed(Mirror *m) noexcept nogil:
    # Not of one that has to stop, or lost its master, while a write lacked something.
    if rmq_load32(&m.log.fence) == 0:
        return -1
    return mirror_refuse(m, RMQ_HA_FAILED, rmq_load32(&m.log.fence), m.log.position, 0)


# ---- appending what is whole and in its place

cdef int _next_file(Mirror *m) noexcept nogil:
    # The log continues in a file at its end. 0; -1: stopped or failed. Where none can be made, as on a full disk, it waits
    # until one can, and the master hears of it as of a slow slave.
    cdef Log *log = m.log
    cdef LogFile *next
    cdef int rc
    while rmq_load32(&m.stop) == 0 and rmq_load32(&log.fence) == 0:
        next = allocator_take(log.alloc, log.position)
        if next == NULL:
            if m.acknowledge(m) < 0:
                return -1
            mirror_tell(m)
            rc = allocator_wait(log.alloc, log.position, WAIT_FILE_NS)
            if rc < 0 and rc != -ETIMEDOUT:
                mirror_refuse(m, RMQ_HA_FAILED, -rc, log.position, 0)
            if m.beat(m, AGAIN_MS if rc < 0 and rc != -ETIMEDOUT else 0) < 0:
                return -1
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
        return 0 if rc >= 0 else mirror_refuse(m, RMQ_HA_FAILED, -rc, log.position, 0)
    return _failed(m) if rmq_load32(&log.fence) != 0 else -1


cdef int _write(Mirror *m, int64_t at, const unsigned char *from_, int64_t n) noexcept nogil:
    # Into the file, at log offset `at`, which is the log's end or behind it. 0; -1.
    # By pwrite: the first touch of a mapped page costs many times the copy of its bytes. Without the put lock, as nobody else
    # appends to a slave, and a write may take as long as the device likes.
    cdef Log *log = m.log
    cdef LogFile *f = log.tail
    cdef int64_t end = at + n - f.start
    cdef int before = rmq_load32(&m.state), rc = -ENOSPC
    cdef bint stalled = False
    while rmq_is_want(rc):
        if rmq_load32(&log.fence) != 0 or rmq_load32(&m.stop) != 0:
            return -1
        if end > rmq_load(&f.zeroed_to):
            allocator_pass(log.alloc, f, end)
        rc = rmq_pwrite_all(log.io, f.fd, from_, n, at - f.start)
        if rmq_is_want(rc):     # the same bytes go to the same place again; the master hears of a slow slave
            mirror_refuse(m, RMQ_HA_FAILED, -rc, log.position, 0)
            stalled = True
            if m.beat(m, AGAIN_MS) < 0:
                return -1
    if stalled and rc >= 0:
        rmq_publish32(&m.state, before)
    if rc >= 0 and rmq_lost_any(&f.lost):       # a page of the map has zeros in place of what the device could not give
        rc = -EIO
    if rc < 0:
        log_fence(log, rc, FENCE_WRITE)
    return rc


cdef void mirror_publish(Log *log, int64_t end, int64_t timestamp) noexcept nogil:
    log.position = end
    if timestamp > log.last_timestamp:
        log.last_timestamp = timestamp
    rmq_publish(&log.wrote_timestamp, log.last_timestamp)
    rmq_publish(&log.wrote, end)
    rmq_publish(&log.committed, end)


cdef int _append(Mirror *m, const unsigned char *from_, int64_t n, int64_t records, int64_t timestamp) noexcept nogil:
    # Whole records, for the log's end, within one file.
    cdef Log *log = m.log
    cdef int rc = -1
    if log.tail == NULL and _next_file(m) < 0:
        return -1
    rc = _write(m, log.position, from_, n)
    if rc < 0:
        return _failed(m)
    log_lock_begin(log)
    if rmq_load32(&log.fence) != 0:     # asked under the lock, as by log_append: nothing is added to a log that has failed
        rc = -1
    else:
        mirror_publish(log, log.position + n, timestamp)
        rmq_count(&log.puts, records)
        rmq_count(&log.put_bytes, n)
        if log.position == log.tail.start + log.tail.size:      # no store of this format does it; a log may
            rmq_publish(&log.tail.data_end, log.position)
            log_file_release(log.tail)
            log.tail = NULL
    log_lock_leave(log)
    m.appended = True
    return rc if rc == 0 else _failed(m)


cdef void mirror_tell(Mirror *m) noexcept nogil:
    if m.appended:
        m.appended = False
        log_lock_left(m.log)


cdef int mirror_wait(Mirror *m) noexcept nogil:
    cdef int before = rmq_load32(&m.state), rc = 0
    cdef bint stalled = False
    while rmq_load(&m.told) < m.asked and rc == 0:
        if rmq_load(&m.undone) == m.asked:
            rmq_publish32(&m.state, STATE_STALLED)
            stalled = True
        rc = -1 if rmq_load32(&m.stop) != 0 else m.beat(m, TOLD_MS)
    if stalled and rmq_load32(&m.state) == STATE_STALLED:       # else the store has failed meanwhile
        rmq_publish32(&m.state, before)
        if rc == 0 and before == STATE_FOLLOWS:
            rmq_ha_say(&m.notes, RMQ_HA_FOLLOWS, 0, m.log.position, rmq_load(&m.master_end), m.peer)
    return rc


cdef inline bint _is_new(const Mirror *m, const RecordView *v) noexcept nogil:
    # Only topics with batch queues have inner batches. Which they are config/topics.json says, and the first message decides
    # for good what queues a topic has. The copy of the master's file comes later, or without a topic that is deleted by then.
    cdef QueueTable *t = m.dispatcher.queues
    return ((v.sys_flag & FLAG_INNER_BATCH) != 0 and not topic_takes_batches(t, v.topic, v.topic_size) and v.queue_id >= 0
            and queues_of_topic(t, v.topic, v.topic_size) == NULL and topic_fits(v.topic, v.topic_size)
            and v.topic_size < <int32_t> sizeof(m.topic))


cdef int _ask(Mirror *m, const RecordView *v) noexcept nogil:
    # For the entry of its topic, before the record is added: whoever opens this log later finds it. 0; -1: the connection ends.
    cdef int rc
    memcpy(m.topic, v.topic, v.topic_size)
    m.topic[v.topic_size] = 0
    rmq_publish(&m.asked, m.asked + 1)
    rmq_event_wake(&m.dispatcher.anew)
    rc = m.acknowledge(m)          # whoever waits for this slave waits for what it has, and not for this topic
    mirror_tell(m)
    if rc < 0 or mirror_wait(m) < 0:
        rmq_publish(&m.told, m.asked)       # nobody waits for it any more
        return -1
    if _is_new(m, v):           # it cannot be one: with queues of the usual type, it is asked for no more
        queues_find(m.dispatcher.queues, v.topic, v.topic_size, v.queue_id, True)
    return 0


cdef int _fill(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # Bytes behind the end-of-file record, which the master's file has too; the record itself is written last.
    cdef Log *log = m.log
    cdef LogFile *f = log.tail
    cdef int64_t end
    cdef int rc
    if f == NULL:
        return -1
    end = f.start + f.size
    rc = _write(m, end - m.filler_left, from_, n) if n > 0 else 0
    m.filler_left -= n
    if rc == 0 and m.filler_left == 0:
        rc = _write(m, log.position, m.blank, BLANK_SIZE)
        m.filler_left = -1
        if rc == 0:
            rc = _roll(log, end)
    return rc if rc == 0 else _failed(m)


cdef int _roll(Log *log, int64_t end) noexcept nogil:
    # The file is full. 0; -1: the log has failed meanwhile.
    cdef LogFile *f = log.tail
    log_lock_begin(log)
    if rmq_load32(&log.fence) != 0:
        log_lock_end(log)
        return -1
    rmq_publish(&f.data_end, log.position + BLANK_SIZE)
    log.tail = NULL
    mirror_publish(log, end, 0)
    log_file_release(f)
    log_lock_end(log)
    return 0


cdef inline Bad _checked(const Mirror *m, const RecordView *v) noexcept nogil:
    # As recovery decides.
    if m.check_crc:
        return crc_bad(v, m.crc_required)
    return BAD_RECORD_CRC if m.crc_required and record_crc_check(v) != 1 else BAD_NOT


cdef int64_t _file_end(Mirror *m, int64_t at) noexcept nogil:
    return at - at % m.log.row.file_size + m.log.row.file_size


cdef int64_t _run_of(Mirror *m, const unsigned char *from_, int64_t n, int64_t *records, int64_t *timestamp) noexcept nogil:
    # Bytes of whole, good records at the beginning of [from_, from_ + n), for the log's end. -1: what is there is none.
    cdef int64_t at = m.log.position, done = 0, left
    cdef RecordView v
    cdef RecordStatus status
    records[0] = 0
    while n - done >= RECORD_HEAD_SIZE:
        left = _file_end(m, at) - at
        status = record_parse(from_ + done, min(n - done, left), &v)
        if status == RECORD_BLANK:
            break
        if status == RECORD_OK:
            if v.physical_offset != at or _checked(m, &v) != BAD_NOT:
                if done > 0:
                    break           # what is before it is good
                mirror_refuse(m, RMQ_HA_PARTED if v.physical_offset != at else RMQ_HA_ROTTEN, 0, at, at)
                return -1
            if _is_new(m, &v):
                if done > 0:
                    break
                if _ask(m, &v) < 0:
                    return -1
            records[0] += 1
            timestamp[0] = v.store_timestamp
            done += v.size
            at += v.size
            if v.size == left:
                break
            continue
        v.size = rmq_get32(from_ + done)
        if v.size > n - done and v.size <= left and v.size <= m.record_max and _magic(from_ + done):
            break           # it is not whole yet
        if done > 0:
            break
        mirror_refuse(m, RMQ_HA_NO_RECORD, 0, at, v.size)
        return -1
    return done


cdef inline bint _magic(const unsigned char *at) noexcept nogil:
    # record_parse needs more than these bytes.
    cdef int32_t magic = rmq_get32(at + RECORD_AT_MAGIC)
    return magic == MAGIC_V1 or magic == MAGIC_V2


cdef int _begin_blank(Mirror *m, const unsigned char *at) noexcept nogil:
    # An end-of-file record says how long the rest of the file is.
    cdef Log *log = m.log
    cdef int64_t rest = _file_end(m, log.position) - log.position
    if rmq_get32(at) != rest:
        return mirror_refuse(m, RMQ_HA_FILE_END, 0, log.position + rmq_get32(at), log.position + rest)
    if log.tail == NULL and _next_file(m) < 0:
        return -1
    memcpy(m.blank, at, BLANK_SIZE)
    m.filler_left = rest - BLANK_SIZE
    return _fill(m, NULL, 0) if m.filler_left == 0 else 0


cdef inline bint _is_blank(const unsigned char *at) noexcept nogil:
    return rmq_get32(at + RECORD_AT_MAGIC) == MAGIC_BLANK


# ---- what came, on its way to the file

cdef int mirror_room(Mirror *m) noexcept nogil:
    # What is kept moves to the beginning, and a record that has begun fits in behind it.
    cdef int64_t kept = m.to - m.from_, came = m.end - m.raw, need
    cdef unsigned char *more
    if m.from_ > 0 or m.raw > m.to:
        memmove(m.input, m.input + m.from_, kept)
        memmove(m.input + kept, m.input + m.raw, came)
        m.from_, m.to, m.raw, m.end = 0, kept, kept, kept + came
    need = rmq_get32(m.input) + SPARE if kept >= RECORD_HEAD_SIZE else 0      # mirror_append has believed this size
    if need > m.room:
        more = <unsigned char *> realloc(m.input, need)
        if more == NULL:
            return mirror_refuse(m, RMQ_HA_FAILED, ENOMEM, m.log.position, 0)
        m.input, m.room = more, need
    return 0


cdef void _keep(Mirror *m, int64_t n) noexcept nogil:
    # The next n bytes join those of the log that came before them. Without such they stay where they are.
    if m.from_ == m.to:
        m.from_ = m.to = m.raw
    elif m.to < m.raw:
        memmove(m.input + m.to, m.input + m.raw, n)
    m.to += n


cdef int mirror_take(Mirror *m, int64_t n) noexcept nogil:
    cdef int64_t done
    while n > 0:
        done = n
        if m.received < m.log.position:
            done = _compare(m, m.input + m.raw, n)
            if done < 0:
                return -1
        else:
            _keep(m, n)
        m.raw += done
        m.received += done
        n -= done
    return 0


cdef int mirror_append(Mirror *m) noexcept nogil:
    cdef int64_t done, n, records = 0, timestamp = 0
    cdef const unsigned char *at
    while m.from_ < m.to:
        at = m.input + m.from_
        n = m.to - m.from_
        if m.filler_left > 0:
            done = min(n, m.filler_left)
            if _fill(m, at, done) < 0:
                return -1
        elif n < RECORD_HEAD_SIZE:
            break
        elif _is_blank(at):
            done = BLANK_SIZE
            if _begin_blank(m, at) < 0:
                return -1
        else:
            done = _run_of(m, at, n, &records, &timestamp)
            if done <= 0:
                return <int> done
            if _append(m, at, done, records, timestamp) < 0:
                return -1
        m.from_ += done
    return 0


cdef int64_t _real_end(Mirror *m, int64_t end, int64_t *filler_from) noexcept nogil:
    # Behind the last record, where the log ends at the end of a file. -errno.
    cdef int error = 0
    cdef LogFile *f = row_find(m.log.row, end - 1, &error)
    cdef int64_t at
    cdef RecordView v
    cdef RecordStatus status
    if f == NULL:
        return error if error < 0 else -EIO
    at = f.start
    while end - at >= RECORD_HEAD_SIZE:
        status = record_parse(f.map + (at - f.start), end - at, &v)
        if status != RECORD_OK:
            break
        at += v.size
    if at < end:
        filler_from[0] = at + BLANK_SIZE
    log_file_release(f)
    return at


cdef int64_t mirror_begin(Mirror *m, int64_t bytes, int64_t *filler_from) noexcept nogil:
    cdef int64_t end = m.log.position, first = row_start(m.log.row), size = m.log.row.file_size
    filler_from[0] = -1
    if first < 0:
        return 0 if rmq_load(&m.log.alloc.want) < 0 else end       # the first file is being made already: it begins there
    if end > first and end % size == 0:
        end = _real_end(m, end, filler_from)
        if end < 0:
            return end
    if end <= first:
        return m.log.position
    return max(end - bytes, first, (end - 1) - (end - 1) % size, 1)     # 1: 0 would be the word of a slave that has nothing


cdef int64_t _compare(Mirror *m, const unsigned char *from_, int64_t n) noexcept nogil:
    # What is here already, with what the master has. Bytes compared, -1.
    cdef int error = 0
    cdef int64_t i = 0, size
    cdef LogFile *f = row_find(m.log.row, m.received, &error)
    cdef const unsigned char *own
    if f == NULL:
        return mirror_refuse(m, RMQ_HA_FAILED, -error if error < 0 else EIO, m.received, 0)
    size = min(n, m.log.position - m.received, f.start + f.size - m.received)
    if m.filler_from >= 0:
        if m.received >= m.filler_from:         # no reader ever sees it
            log_file_release(f)
            return size
        size = min(size, m.filler_from - m.received)
    own = f.map + (m.received - f.start)
    if rmq_lost_any(&f.lost):
        log_file_release(f)
        return mirror_refuse(m, RMQ_HA_FAILED, EIO, m.received, 0)
    if memcmp(own, from_, size) != 0:
        while own[i] == from_[i]:
            i += 1
        log_file_release(f)
        return mirror_refuse(m, RMQ_HA_PARTED, 0, m.received + i, m.log.position)
    log_file_release(f)
    return size
