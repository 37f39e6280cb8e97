"""The queues of a store that is being opened: how far their entries lead, and whether that is to be believed. Contract in
_queues.pxd (RocketMQ: DefaultMessageStore.recoverConsumeQueue, truncateDirtyLogicFiles)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memset

from rmq_store.base.io._sync cimport EIO, rmq_mutex, rmq_mutex_lock, rmq_mutex_unlock, rmq_sweep_all
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_release, row_absent, row_end, row_find, row_start
from rmq_store.codec._inner cimport inner_in_place
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport (RECORD_OK, RecordView, record_in_place, record_of_queue, record_parse, rmq_get32,
                                      topic_light)
from rmq_store.codec._unit cimport unit_blank, unit_bytes, unit_physical, unit_valid
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport (Queue, QueueTable, queue_back_to, queue_correct_min, queue_cut,
                                                   queue_destroy, queue_find_end, queue_first, queue_read, queue_truncate,
                                                   queues_at, queues_count, queues_log_begins)


cdef enum:
    MOVED = 1
    LOST = 2
    SECTOR = 512            # what a device writes whole or not at all


cdef inline bint _belongs(const Queue *q, int64_t index, const RecordView *v, bint exact) noexcept nogil:
    # Whether a record may have its entry there. A light queue leads to records of others. At a lower place than its entry's no
    # record is: dispatch would take those behind it for done. At a higher one it is where records between them are missing; in
    # a queue that is known to be damaged (exact) that is damage, too.
    if queue_batched(q):
        return inner_in_place(v, q.topic, q.topic_size, q.queue_id, index)
    return (record_in_place(v, q.topic, q.topic_size, q.queue_id, index)
            or (not exact and v.queue_offset > index and record_of_queue(v, q.topic, q.topic_size, q.queue_id)))


cdef LogFile *_record_at(FileRow *row, int64_t at, int32_t size, RecordView *v, int *error) noexcept nogil:
    # The file, held, that has a record of this size there; NULL: there is none, or an error, -errno.
    cdef LogFile *f = row_find(row, at, error) if row_start(row) <= at < row_end(row) else NULL
    if f == NULL:
        return NULL
    if (record_parse(f.map + (at - f.start), f.start + f.size - at, v) == RECORD_OK and v.physical_offset == at
            and v.size == size):
        return f
    log_file_release(f)
    return NULL


cdef int _leads_there(QueueTable *t, Queue *q, int64_t index, int64_t physical) noexcept nogil:
    # 1 where that entry leads to `physical` or beyond: 0 where it does not, or is not there; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t got = queue_read(t, q, index, u, 1) if index >= queue_first(q) else 0
    if got < 1:
        return <int> got
    return unit_valid(u) and not unit_blank(u) and unit_physical(u) >= physical


cdef int _believable(QueueTable *t, FileRow *row, Queue *q, int64_t index, bint exact, bint *misnamed) noexcept nogil:
    # 1: that entry leads to a record, of its size, that belongs there, or to what is deleted already; 0: it does not; -errno.
    # misnamed: it leads to a record of this queue, whose place is before all of its files.
    cdef unsigned char[UNIT_SIZE] u
    cdef RecordView v
    cdef LogFile *f
    cdef int64_t at, got = queue_read(t, q, index, u, 1)
    cdef int error = 0, there
    cdef bint right
    misnamed[0] = False
    if got < 1:
        return <int> got if got < 0 else -EIO
    if not unit_valid(u):
        return 0
    at = unit_physical(u)
    if unit_blank(u):
        return 1
    if at < row_start(row):
        there = _leads_there(t, q, index - 1, row_start(row))
        return there if there < 0 else not there        # what stands behind one of a message that is there is no older
    f = _record_at(row, at, unit_bytes(u), &v, &error)
    if f == NULL:
        return error if error < 0 else row_absent(row, at)      # what is on a disk that is gone is no damage of the queue
    right = _belongs(q, index, &v, exact)
    if not right:
        misnamed[0] = _belongs(q, v.queue_offset, &v, False) and v.queue_offset < queue_first(q)
    log_file_release(f)
    return right


cdef int _torn_high(QueueTable *t, FileRow *row, Queue *q) noexcept nogil:
    # 1 where its last entry lacks the sector with its first four bytes: they count the 4 GiB, so it leads to a place far in
    # front of its record. 0; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef RecordView v
    cdef LogFile *f
    cdef int64_t index = q.max_offset - 1, four_gib = <int64_t> 1 << 32, at, got
    cdef int error = 0
    cdef bint found = False
    if queue_batched(q) or index < q.min_offset or index * UNIT_SIZE % SECTOR != SECTOR - 4:
        return 0
    got = queue_read(t, q, index, u, 1)
    if got < 1 or rmq_get32(u) != 0 or not unit_valid(u) or unit_blank(u):
        return <int> got if got < 0 else 0
    at = unit_physical(u)
    while at < row_end(row) - four_gib and not found and error == 0:
        at += four_gib
        f = _record_at(row, at, unit_bytes(u), &v, &error) if at >= row_start(row) else NULL
        if f != NULL:
            found = record_in_place(&v, q.topic, q.topic_size, q.queue_id, index)
            log_file_release(f)
    return error if error < 0 else found


cdef int _begins_behind(QueueTable *t, FileRow *row, Queue *q, int64_t end, int64_t *physical) noexcept nogil:
    # Where the record lies that its entry 0 leads to, if it ends beyond `end` and can be believed. 0 or -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef bint misnamed = False
    cdef int64_t got
    cdef int rc
    if queue_first(q) > 0 or q.min_offset > 0 or q.max_offset == 0:
        return 0
    got = queue_read(t, q, 0, u, 1)
    if got < 1 or not unit_valid(u) or unit_blank(u) or unit_physical(u) + unit_bytes(u) <= end:
        return <int> got if got < 0 else 0          # as a rule: then its record is not looked at
    rc = _believable(t, row, q, 0, True, &misnamed)
    if rc == 1:
        physical[0] = unit_physical(u)
    return rc if rc < 0 else 0


cdef int _lost(QueueTable *t, FileRow *row, Queue *q, int64_t index, int64_t log_end) noexcept nogil:
    # 1: that entry leads behind the log's end, into a file that is there: to a record that a power cut took; 0; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t got = queue_read(t, q, index, u, 1)
    if got < 1:
        return <int> got if got < 0 else -EIO
    return log_end <= unit_physical(u) < row_end(row)


cdef int _settle(QueueTable *t, FileRow *row, Queue *q, bint exact, int64_t log_end) noexcept nogil:
    # Back to an entry that can be believed, by steps that double, as all may be bad, and forward to the last such one. 0: as it
    # was; MOVED: what is not believed is damage; LOST: it leads to records that are lost; -errno. log_end: -1 not known.
    cdef int64_t index = q.max_offset, step = 1
    cdef int rc = 0, moved = MOVED
    cdef bint misnamed = False
    while index > q.min_offset:
        rc = _believable(t, row, q, index - 1, exact, &misnamed)
        if rc != 0:
            break
        index = index - step if index - step > q.min_offset else q.min_offset
        step *= 2
    while rc >= 0 and index < q.max_offset:
        rc = _believable(t, row, q, index, exact, &misnamed)
        if rc <= 0:
            break
        index += 1
    if rc == 0 and misnamed and index == queue_first(q) > 0:
        index = 0               # nothing of it can be believed, and its file has the name of another place: it begins anew
    if rc < 0 or index == q.max_offset:
        return rc if rc < 0 else 0
    if log_end >= 0 and (index > 0 or queue_first(q) == 0):
        rc = _lost(t, row, q, index, log_end)
        moved = LOST if rc > 0 else MOVED
    if rc >= 0:
        rc = queue_back_to(t, q, index)
    return rc if rc < 0 else moved


cdef struct Each:
    QueueTable *table
    int (*step)(QueueTable *, Queue *) noexcept nogil


cdef int _one(void *ctx, int64_t i) noexcept nogil:
    cdef Each *e = <Each *> ctx
    return e.step(e.table, queues_at(e.table, i))


cdef int _each(QueueTableOwner owner, int threads, int (*step)(QueueTable *, Queue *) noexcept nogil) except -1:
    # Side by side where they are many: each step has syncs of its own to wait for.
    cdef Each each = Each(owner.table, step)
    cdef int64_t failed = 0
    cdef int rc
    with nogil:
        rc = rmq_sweep_all(queues_count(each.table), _one, &each, threads, &failed)
    return owner.check_queue(rc, queues_at(each.table, failed))


cdef struct Ends:
    QueueTable *table
    FileRow *row
    int64_t below
    int64_t spoilt          # under `lock`
    rmq_mutex lock


cdef int _find_end(void *ctx, int64_t i) noexcept nogil:
    # Of one queue, beside others.
    cdef Ends *e = <Ends *> ctx
    cdef Queue *q = queues_at(e.table, i)
    cdef int rc = queue_find_end(e.table, q, e.below)
    if rc == 0 and e.below >= 0:
        rc = _torn_high(e.table, e.row, q)
    if rc == 1:
        rc = _settle(e.table, e.row, q, True, -1)
        if rc >= 0:
            rmq_mutex_lock(&e.lock)
            if q.max_physical_offset < e.spoilt:
                e.spoilt = q.max_physical_offset
            rmq_mutex_unlock(&e.lock)
    return rc


cdef struct Shortening:
    QueueTable *table
    FileRow *row
    bint readonly
    int64_t end
    int64_t light_end
    int64_t low             # under `lock`
    rmq_mutex lock


cdef int _shorten(void *ctx, int64_t i) noexcept nogil:
    # QueueRecovery.truncate of one queue, beside others.
    cdef Shortening *x = <Shortening *> ctx
    cdef Queue *q = queues_at(x.table, i)
    cdef int64_t behind = x.light_end if x.light_end >= 0 and topic_light(q.topic, q.topic_size) else x.end
    cdef int64_t begins = -1
    cdef int rc
    if q.max_physical_offset <= behind:
        return 0
    rc = _begins_behind(x.table, x.row, q, behind, &begins)
    if rc >= 0:
        rc = queue_truncate(x.table, q, behind)
    if rc >= 0:
        rc = _torn_high(x.table, x.row, q)
    if rc == 1:
        rc = queue_back_to(x.table, q, q.max_offset - 1)
        if rc >= 0 and not x.readonly:
            rc = queue_cut(x.table, q)
    if rc < 0:
        return rc
    if q.max_offset == 0 and begins >= 0:       # not beyond the log's end, where the next message comes to lie
        q.removed_below = max(q.removed_below, min(begins, max(x.end, x.light_end)))
    rmq_mutex_lock(&x.lock)
    if q.max_physical_offset < x.low:
        x.low = q.max_physical_offset
    rmq_mutex_unlock(&x.lock)
    return 0


cdef class QueueRecovery:
    """The queues of a store that is being opened. Offsets are log offsets; errors are OSError with the queue's path.

    First all is found out (find_ends, settle_newest or settle_from), which changes nothing on the disk; then comes what
    does."""

    cdef void attach(self, QueueTableOwner owner, FileRow *row, int threads):
        self.threads = threads
        self.owner = owner
        self.row = row

    def find_ends(self, safe=None):
        """Finds the end of every queue. safe: None after a stop in order; else every entry that leads below it is known to be
        on the device.

        A damaged queue ends behind an entry that leads to a record. Returns the end of the last record that has an entry, -1:
        none; and from where on a damaged queue may lack entries, 2^63 - 1: none is damaged."""
        cdef Ends ends
        cdef int64_t i, count = queues_count(self.owner.table), failed = 0, last = -1
        cdef int rc
        memset(&ends, 0, sizeof(Ends))
        ends.table, ends.row, ends.spoilt = self.owner.table, self.row, INT64_MAX
        ends.below = -1 if safe is None else safe
        queues_log_begins(self.owner.table, row_start(self.row))
        with nogil:
            rc = rmq_sweep_all(count, _find_end, &ends, self.threads, &failed)
            for i in range(count):
                last = max(last, queues_at(self.owner.table, i).max_physical_offset)
        self.owner.check_queue(rc, queues_at(self.owner.table, failed))
        return last, ends.spoilt

    def lead_beyond(self, int64_t end):
        """How many entries lead to log offset `end` or beyond: of each queue its last two are looked at, light queues alone
        are not. Not more than 2."""
        cdef int64_t i
        cdef int n = 0, k, rc = 0
        cdef Queue *q = NULL
        with nogil:
            for i in range(queues_count(self.owner.table)):
                q = queues_at(self.owner.table, i)
                if q.max_physical_offset <= end or topic_light(q.topic, q.topic_size):
                    continue
                for k in range(1, 3):
                    rc = _leads_there(self.owner.table, q, q.max_offset - k, end)
                    if rc < 0:
                        break
                    n += rc
                if rc < 0 or n > 1:
                    break
        self.owner.check_queue(rc if rc < 0 else 0, q)
        return min(n, 2)

    def settle_newest(self):
        """Dispatch continues behind the newest entry: that it leads to a record is looked at, and where it does not its queue
        ends before it. Returns what find_ends does."""
        cdef int64_t i, spoilt = INT64_MAX
        cdef Queue *q = NULL
        cdef Queue *newest = NULL
        cdef int rc = 1
        with nogil:
            while rc > 0:
                newest = NULL
                for i in range(queues_count(self.owner.table)):
                    q = queues_at(self.owner.table, i)
                    if newest == NULL or q.max_physical_offset > newest.max_physical_offset:
                        newest = q
                if newest == NULL:
                    break
                rc = _settle(self.owner.table, self.row, newest, False, -1)
                if rc == MOVED and newest.max_physical_offset < spoilt:
                    spoilt = newest.max_physical_offset
        self.owner.check_queue(rc, newest)
        return (newest.max_physical_offset if newest != NULL else -1), spoilt

    def settle_from(self, int64_t offset, bint exact=False, int64_t log_end=-1):
        """The same for every queue that leads beyond `offset`, a log offset. exact: as where damage is known. log_end: where
        the log ends now; a queue that ends before records that are lost behind it is not damaged."""
        cdef int64_t i, last = -1, spoilt = INT64_MAX
        cdef Queue *q = NULL
        cdef int rc = 0
        with nogil:
            for i in range(queues_count(self.owner.table)):
                q = queues_at(self.owner.table, i)
                if q.max_physical_offset > offset:
                    rc = _settle(self.owner.table, self.row, q, exact, log_end)
                    if rc < 0:
                        break
                    if rc == MOVED and q.max_physical_offset < spoilt:
                        spoilt = q.max_physical_offset
                if q.max_physical_offset > last:
                    last = q.max_physical_offset
        self.owner.check_queue(rc, q)
        return last, spoilt

    def cut(self):
        """Takes away what stands behind the ends that were found, on the device."""
        _each(self.owner, self.threads, queue_cut)

    def truncate(self, int64_t end, int64_t light_end=-1):
        """Cuts off entries of records that end beyond `end`; beyond light_end, if not -1, in light queues, which nobody fills
        again. Returns from where on a queue may lack an entry now, -1: the log's start.

        A queue that begins with its number 0 and loses all has no record before that one: what the log has of it there is of a
        topic of that name that was deleted, and would take the places."""
        cdef Shortening x
        cdef int64_t failed = 0
        cdef int rc
        memset(&x, 0, sizeof(Shortening))
        x.table, x.row, x.readonly = self.owner.table, self.row, self.owner.readonly
        x.end, x.light_end, x.low = end, light_end, end
        with nogil:
            rc = rmq_sweep_all(queues_count(x.table), _shorten, &x, self.threads, &failed)
        self.owner.check_queue(rc, queues_at(x.table, failed))
        return x.low

    def destroy(self):
        """Deletes every queue: the log is gone, they lead nowhere."""
        _each(self.owner, self.threads, queue_destroy)

    def correct(self):
        """After dispatch has caught up: where the next message of each queue goes, and the first readable one."""
        cdef int64_t i, low = row_start(self.row)
        cdef Queue *q
        for i in range(queues_count(self.owner.table)):
            q = queues_at(self.owner.table, i)
            q.next_offset = q.max_offset
            q.records = q.bytes = 0         # what recovery dispatched is not counted
            if low > 0:
                self.owner.check_queue(queue_correct_min(self.owner.table, q, low), q)
