"""Queues that another process writes (RocketMQ has no counterpart: its readers live in the broker). Contract in _follow.pxd.

The log says which queues to look at: a record names its queue and its place there. An entry that is there says in turn that the
writer's dispatcher has passed its record, so that this and all before it are whole. Of the fields that the dispatcher has in a
queue, `dirty` means here that it expects entries, `blank_to` up to where, `next_index` how far they have been read, and `limit`
how many looks in vain are left before the follower looks only now and then. Of a batch queue, whose units say their queue
offsets, `batch_read` is the place of the next unit.
"""
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport EINVAL, ENOENT, ENOMEM, rmq_event_wake, rmq_load, rmq_publish, rmq_swap32
from rmq_store.codec._inner cimport (BATCH_UNIT_SIZE, batch_base, batch_bytes, batch_count, batch_physical,
                                     batch_valid)
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport topic_fits, topic_light
from rmq_store.codec._unit cimport unit_blank, unit_bytes, unit_physical, unit_valid
from rmq_store.queues.consumequeue._arrivals cimport hubs_note, hubs_signal
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._descriptors cimport (FILES_PATH_SIZE, UnitFiles, descriptor_acquire, descriptor_forget,
                                                         descriptor_release, files_path)
from rmq_store.queues.consumequeue._files cimport files_done, files_init, files_passed, files_there
from rmq_store.queues.consumequeue._kinds cimport CHANGE_ALL, topic_set_batched
from rmq_store.queues.consumequeue._state cimport BATCH_TAKE, QueueState, TableState, interests_of, state_of
from rmq_store.queues.consumequeue._rest cimport state_kept
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_at, table_batched, table_find

cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDONLY, O_NOFOLLOW

cdef enum:
    UNITS = 64
    PATIENCE = 64
    FILES_AHEAD = 64                # of a light queue that are looked for where its next one is not there


cdef inline TableState *_state(QueueTable *t) noexcept nogil:
    return <TableState *> t


cdef inline int64_t _start_of(const UnitFiles *f, int64_t index) noexcept nogil:
    return index * UNIT_SIZE - index * UNIT_SIZE % f.file_size


cdef int64_t _size_of(TableState *t, const char *dir, int64_t file_size, const char *topic, int32_t topic_size,
                      int32_t queue_id, int64_t index) noexcept nogil:
    # Of the queue's file for that index; -ENOENT: there is none; -errno.
    cdef char[FILES_PATH_SIZE] path
    cdef UnitFiles f
    cdef int64_t size
    cdef int fd
    if files_init(&f, dir, topic, topic_size, queue_id, file_size) < 0:
        return -ENOMEM
    fd = files_path(&f, _start_of(&f, index), path)
    if fd == 0:
        fd = t.io.open(t.io.ctx, path, O_RDONLY | O_NOFOLLOW, 0)
    files_done(&f)
    if fd < 0:
        return fd
    size = t.io.size(t.io.ctx, fd)
    t.io.close(t.io.ctx, fd)
    return size


cdef int _adopt_size(TableState *t, int64_t size) noexcept nogil:
    # Files of batch queues have this size: nothing told it before, if no batch queue has a file. 0; -EINVAL.
    cdef int64_t i
    cdef Queue *q
    for i in range(rmq_load(&t.count)):
        q = table_at(t, i)
        if queue_batched(q) and rmq_load(&state_of(q).entries.end) > rmq_load(&state_of(q).entries.first):
            return -EINVAL
    if size % BATCH_UNIT_SIZE != 0:
        return -EINVAL
    for i in range(rmq_load(&t.count)):
        if queue_batched(table_at(t, i)):
            state_of(table_at(t, i)).entries.file_size = size
    t.batch_file_size = size
    return 0


cdef int64_t _batches_come(TableState *t, const char *topic, int32_t topic_size, int32_t queue_id) noexcept nogil:
    # The writer has made the topic one with batch queues, if it has a file of one: a new queue begins in its first file.
    cdef int64_t size = _size_of(t, t.batch_dir, t.batch_file_size, topic, topic_size, queue_id, 0)
    cdef int rc = 0
    if size <= 0:
        return size if size < 0 else -ENOENT        # it is just being made
    if size != t.batch_file_size:
        rc = _adopt_size(t, size)
    return topic_set_batched(<QueueTable *> t, topic, topic_size, BATCH_TAKE, CHANGE_ALL) if rc == 0 else rc


cdef Queue *queue_that_is(QueueTable *table, const char *topic, int32_t topic_size, int32_t queue_id, int64_t index,
                          bint inner, int *error) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef Queue *q = table_find(t, topic, topic_size, queue_id, False)
    cdef int64_t there = -ENOENT
    cdef bint bare = (inner and q != NULL and not topic_light(topic, topic_size)
                      and state_of(q).entries.first == state_of(q).entries.end)
    error[0] = 0
    if q != NULL and not bare:          # bare: it was removed, or somebody waits for its first message
        return q
    if not topic_fits(topic, topic_size) or queue_id < 0 or index < 0:
        return NULL
    if inner and t.batch_dir != NULL:
        there = _batches_come(t, topic, topic_size, queue_id)
    if there == -ENOENT and not table_batched(t, topic, topic_size):
        there = _size_of(t, t.dir, t.file_size, topic, topic_size, queue_id, index)
    if there < 0:
        error[0] = 0 if there == -ENOENT else <int> there
        return NULL
    q = table_find(t, topic, topic_size, queue_id, True)
    if q == NULL:
        error[0] = -ENOMEM
    return q


cdef void _look_for(TableState *t, Queue *q, int64_t index) noexcept nogil:
    cdef QueueState *s = state_of(q)
    if index >= s.blank_to:
        s.blank_to = index + 1
        s.limit = PATIENCE
    if not s.dirty:
        s.dirty = True
        s.next_dirty = t.dirty
        t.dirty = q


cdef void _begin_at(Queue *q, int64_t index) noexcept nogil:
    # The queue begins in the file of that entry, still to be found, or in one before it.
    cdef QueueState *s = state_of(q)
    cdef int64_t start = 0 if s.batched else _start_of(&s.entries, index)
    s.batch_read = start
    rmq_publish(&s.batch_end, start)
    rmq_publish(&s.entries.first, start)
    rmq_publish(&s.entries.end, start)
    s.next_index = s.new_min = s.blank_to = 0 if s.batched else start // UNIT_SIZE


cdef int64_t _units_in(TableState *t, UnitFiles *f, int64_t position, int64_t unit_size, unsigned char *out) noexcept nogil:
    # Units from that place on, written or not, up to the end of their file. 0: no such file; -errno.
    cdef int64_t start = position - position % f.file_size, n = start + f.file_size - position, got
    cdef int i = descriptor_acquire(t.cache, f, start)
    if i < 0:
        return 0 if i == -ENOENT else i
    got = rmq_pread_all(t.io, t.cache.slots[i].fd, out, min(n, UNITS * unit_size), position - start)
    descriptor_release(t.cache, i)
    return got if got < 0 else got // unit_size


cdef int64_t _units_at(TableState *t, UnitFiles *f, int64_t position, int64_t unit_size, unsigned char *out) noexcept nogil:
    # As _units_in; a next file is taken in, and none behind that one.
    cdef int64_t start = position - position % f.file_size, n
    if start > f.end or position < 0:
        return 0
    n = _units_in(t, f, position, unit_size, out)
    if n > 0 and start == f.end:
        rmq_publish(&f.end, start + f.file_size)
    return n


cdef bint _unit_says(TableState *t, Queue *q, int64_t index, int64_t physical, int32_t *size) noexcept nogil:
    # Whether the unit that is there now is the one of that record, which begins the queue anew.
    cdef QueueState *s = state_of(q)
    cdef unsigned char[UNITS * BATCH_UNIT_SIZE] units
    cdef unsigned char *u
    cdef int64_t position = 0, n = 1, i
    while s.batched and n > 0:          # which unit it is, the queue offset does not say; the first ones are of the same queue
        n = _units_in(t, &s.entries, position, BATCH_UNIT_SIZE, units)
        position += n * BATCH_UNIT_SIZE
        for i in range(n):
            u = units + i * BATCH_UNIT_SIZE
            if not batch_valid(u) or batch_base(u) >= index:
                size[0] = batch_bytes(u)
                return batch_valid(u) and batch_physical(u) == physical and batch_base(u) == index
    if s.batched or _units_in(t, &s.entries, index * UNIT_SIZE, UNIT_SIZE, units) < 1 or not unit_valid(units):
        return False
    size[0] = unit_bytes(units)
    return unit_physical(units) == physical


cdef int _begins_anew(TableState *t, Queue *q, int64_t index, int64_t physical, EntryLeads leads, void *ctx) noexcept nogil:
    # What is known of the files may be of deleted ones.
    cdef QueueState *s = state_of(q)
    cdef UnitFiles *f = &s.entries
    cdef int64_t begin = 0 if s.batched else _start_of(f, index)
    cdef int64_t start = rmq_load(&f.first), end = f.end
    cdef int32_t size = 0
    cdef int rc = 0
    while start < end:
        descriptor_forget(t.cache, f, start)
        start += f.file_size
    descriptor_forget(t.cache, f, begin)
    if _unit_says(t, q, index, physical, &size):
        rc = leads(ctx, q, index, physical, size)
    if rc <= 0:
        return rc
    rmq_publish(&q.max_offset, 0)
    rmq_publish(&q.min_offset, 0)
    rmq_publish(&q.removed_below, physical)         # whoever reads its files now sees why they are others
    _begin_at(q, index)
    return 0


cdef int queue_expect(QueueTable *table, Queue *q, int64_t index, int64_t physical, bint fresh, EntryLeads leads,
                      void *ctx) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef QueueState *s = state_kept(t, q)
    cdef int rc = 0
    if s == NULL:
        return -ENOMEM
    if s.next_index < rmq_load(&q.max_offset):
        s.next_index = q.max_offset                 # as it was found when the store was opened
    if s.batched and s.batch_read < s.batch_end:
        s.batch_read = s.batch_end
    if rmq_load(&s.entries.first) == s.entries.end and s.blank_to == 0 and not topic_light(q.topic, q.topic_size):
        _begin_at(q, index)
    elif index < s.next_index and fresh:
        rc = _begins_anew(t, q, index, physical, leads, ctx)
    _look_for(t, q, index)
    return rc


cdef int _files_went(TableState *t, Queue *q) noexcept nogil:
    # 1: the writer has deleted the file of the next entry, and so all before it; the queue goes on in the first one that is
    # there. 0: that file is there, or is still to be made: none of what is expected behind it is there. -errno.
    cdef QueueState *s = state_of(q)
    cdef UnitFiles *f = &s.entries
    cdef int64_t unit_size = BATCH_UNIT_SIZE if s.batched else UNIT_SIZE
    cdef int64_t position = s.batch_read if s.batched else s.next_index * UNIT_SIZE
    cdef int64_t start = position - position % f.file_size, at = start + f.file_size
    cdef int64_t end = position + (s.blank_to - s.next_index) * unit_size       # a unit has at least one message
    cdef int rc = 0
    if topic_light(q.topic, q.topic_size):
        end = at + FILES_AHEAD * f.file_size        # nobody knows which of its records are to come
    while at < end:
        rc = files_there(t.cache, f, at)
        if rc != 0:
            break
        at += f.file_size
    if rc > 0:                          # files are made in order: the one before was there
        rc = files_there(t.cache, f, start)
        if rc == 0:
            files_passed(t.cache, f, at)
            rmq_publish(&f.end, at)
            if s.batched:
                s.batch_read = at
                rmq_publish(&s.batch_end, at)
            else:
                s.next_index = at // UNIT_SIZE
            s.new_min = s.next_index
            return 1
    return min(rc, 0)


cdef int _begins_before(TableState *t, Queue *q) noexcept nogil:
    # 1: the file in which the queue was to begin is there, and one before it is, too: the record that was met first is a later
    # one. Files are made in order, so all before are there by now; it begins in the first of them. 0; -errno.
    cdef QueueState *s = state_of(q)
    cdef UnitFiles *f = &s.entries
    cdef int64_t start = f.first
    cdef int rc = 0
    while start > 0:
        rc = files_there(t.cache, f, start - f.file_size)
        if rc <= 0:
            break
        start -= f.file_size
    if rc < 0 or start == f.first:
        return min(rc, 0)
    rmq_publish(&f.first, start)
    s.next_index = s.new_min = start // UNIT_SIZE
    return 1


cdef int _read_batches_on(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx,
                          int64_t *furthest) noexcept nogil:
    cdef QueueState *s = state_of(q)
    cdef unsigned char[UNITS * BATCH_UNIT_SIZE] units
    cdef unsigned char *u
    cdef int64_t n, i, behind
    cdef int rc
    while True:
        n = _units_at(t, &s.entries, s.batch_read, BATCH_UNIT_SIZE, units)
        if n == 0:
            n = _files_went(t, q)
            if n > 0:
                continue
        if n <= 0:
            return <int> n
        for i in range(n):
            u = units + i * BATCH_UNIT_SIZE
            if not batch_valid(u) or batch_base(u) < s.next_index:
                return 0
            behind = batch_physical(u) + batch_bytes(u)
            if behind > below:
                return 0
            rc = leads(ctx, q, batch_base(u), batch_physical(u), batch_bytes(u))
            if rc <= 0:
                return rc
            if s.next_index == s.new_min:
                s.new_min = batch_base(u) if rc == LEADS else batch_base(u) + batch_count(u)
            s.next_index = batch_base(u) + batch_count(u)
            s.batch_read += BATCH_UNIT_SIZE
            furthest[0] = max(furthest[0], behind)


cdef int _read_on(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx, int64_t *furthest) noexcept nogil:
    cdef QueueState *s = state_of(q)
    cdef unsigned char[UNITS * UNIT_SIZE] units
    cdef unsigned char *u
    cdef int64_t n, i, physical
    cdef int32_t size
    cdef int rc
    if s.batched:
        return _read_batches_on(t, q, below, leads, ctx, furthest)
    while True:
        n = _units_at(t, &s.entries, s.next_index * UNIT_SIZE, UNIT_SIZE, units)
        if n == 0:
            n = _files_went(t, q)
            if n > 0:
                continue
        elif n > 0 and s.next_index == s.new_min and s.next_index * UNIT_SIZE == s.entries.first:
            rc = _begins_before(t, q)
            if rc > 0:
                continue
            n = rc if rc < 0 else n
        if n <= 0:
            return <int> n
        for i in range(n):
            u = units + i * UNIT_SIZE
            if unit_blank(u):
                if rmq_load(&q.max_offset) == 0:
                    s.new_min = s.next_index + 1
                s.next_index += 1
                continue
            physical, size = unit_physical(u), unit_bytes(u)
            if not unit_valid(u) or physical + size > below:
                return 0
            rc = leads(ctx, q, s.next_index, physical, size)
            if rc <= 0:
                return rc
            if rc == LED and s.new_min == s.next_index:
                s.new_min += 1
            s.next_index += 1
            furthest[0] = max(furthest[0], physical + size)


cdef int64_t _batches_left(TableState *t, Queue *q, int64_t index) noexcept nogil:
    # Of a batch queue: behind which unit it ends that has no message from `index` on; the queue offset there.
    cdef QueueState *s = state_of(q)
    cdef unsigned char[UNITS * BATCH_UNIT_SIZE] units
    cdef unsigned char *u
    cdef int64_t position = s.entries.first, last = rmq_load(&q.min_offset), n = 1, i
    while n > 0:
        n = _units_at(t, &s.entries, position, BATCH_UNIT_SIZE, units)
        for i in range(n):
            u = units + i * BATCH_UNIT_SIZE
            if not batch_valid(u) or batch_base(u) + batch_count(u) > index:
                n = 0
                break
            last = max(last, batch_base(u) + batch_count(u))
            position += BATCH_UNIT_SIZE
    s.batch_read = position
    rmq_publish(&s.batch_end, position)
    return last


cdef void _go_back(TableState *t, Queue *q) noexcept nogil:
    # To where a reader found that the entries are cut away, by a recovery of the writer, which brings them back.
    cdef QueueState *s = state_of(q)
    cdef int64_t end = rmq_load(&q.max_offset), index = rmq_load(&s.vanished) - 1
    cdef int64_t start = s.entries.first if s.batched else _start_of(&s.entries, max(index, 0))
    rmq_publish(&s.vanished, 0)
    if not rmq_load(&q.min_offset) <= index < end:
        return
    while start < s.entries.end:
        descriptor_forget(t.cache, &s.entries, start)
        start += s.entries.file_size
    if s.batched:
        index = _batches_left(t, q, index)
    rmq_publish(&q.max_offset, index)
    s.next_index = index
    _look_for(t, q, max(end, s.blank_to) - 1)
    s.limit = PATIENCE


cdef int queues_read_on(QueueTable *table, int64_t below, bint all, EntryLeads leads, void *ctx,
                        int64_t *furthest) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef QueueState *s
    cdef Queue *q
    cdef int64_t i, begin
    cdef int rc, error = 0
    furthest[0] = -1
    if rmq_swap32(&t.vanished, 0):
        for i in range(rmq_load(&t.count)):
            s = state_of(table_at(t, i))
            if s != NULL and rmq_load(&s.vanished) > 0:
                _go_back(t, table_at(t, i))
    if all:
        for i in range(rmq_load(&t.count)):
            q = table_at(t, i)
            if topic_light(q.topic, q.topic_size):
                s = state_kept(t, q)
                if s == NULL:
                    return -ENOMEM
                if s.next_index < rmq_load(&q.max_offset):
                    s.next_index = q.max_offset
                _look_for(t, q, -1)
    q = t.dirty
    while q != NULL:
        s = state_of(q)
        if s.limit > 0 or all:
            begin = s.next_index
            rc = _read_on(t, q, below, leads, ctx, furthest)
            if rc < 0:
                error = rc
            if s.limit > 0:
                s.limit -= 1
            if s.next_index == begin and s.limit == 0:
                # The writer's recovery may have made another file of that name: nothing ever comes into the one that is open.
                begin = s.batch_read if s.batched else s.next_index * UNIT_SIZE
                descriptor_forget(t.cache, &s.entries, begin - begin % s.entries.file_size)
        q = s.next_dirty
    return error


cdef void queues_show(QueueTable *table) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef Queue **link = &t.dirty
    cdef Queue *q = t.dirty
    cdef QueueState *s
    while q != NULL:
        s = state_of(q)
        if s.next_index > rmq_load(&q.max_offset) and s.next_index > s.new_min:
            if s.new_min >= 0:
                rmq_publish(&q.min_offset, s.new_min)
                s.new_min = -1
            if s.batched:
                rmq_publish(&s.batch_end, s.batch_read)
            rmq_publish(&q.max_offset, s.next_index)
            rmq_event_wake(&q.arrived)
            if rmq_load(<const int64_t *> interests_of(q)) != 0 or rmq_load(&t.hubs_for_all) > 0:
                hubs_note(table, q)
            s.limit = PATIENCE
        q = s.next_dirty
        if s.next_index >= s.blank_to:
            s.dirty = False
            link[0] = q
        else:
            link = &s.next_dirty
    if t.hubs_due:
        hubs_signal(table)
