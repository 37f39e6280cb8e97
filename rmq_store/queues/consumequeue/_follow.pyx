"""Queues that another process writes (RocketMQ has no counterpart: its readers live in the broker). Contract in _follow.pxd.

The log says which queues to look at: a record names its queue. An entry that is there says in turn that the writer's dispatcher
has passed its record, so that this and all before it are whole. Of the fields that the dispatcher has in a queue, `dirty` means
here that it expects entries, `next_index` how far they have been read, `max_physical_offset` the end of the last one's record,
and `limit` how many looks in vain are left before the follower looks only now and then. Of a batch queue, whose units say
their queue offsets, `batch_read` is the place of the next unit.

A queue may have been deleted, and have begun anew in files of the same names, or of the other kind. What is known of it is
another life's where its first file begins with an entry of a later record than the last one that was read. That is looked for
when the log has a record that does not continue the queue, and when the entry before the next one is not the one that was
read.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

from rmq_store.base.io._sync cimport (ENOENT, ENOMEM, rmq_event_wake, rmq_load, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish,
                                      rmq_swap32)
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE, batch_base, batch_count, batch_valid
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._unit cimport unit_blank
from rmq_store.queues.consumequeue._arrivals cimport hubs_note, hubs_signal
from rmq_store.queues.consumequeue._begins cimport (FOLLOW_PATIENCE, FOLLOW_UNITS, LEADS_ON, LED, OTHER_KIND, EntryLeads, Unit,
                                                    follow_unit, follow_units, queue_begins, queue_change_kind, queue_forget,
                                                    queue_kept, queue_look_for, queue_may_be_anew)
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles, descriptor_forget
from rmq_store.queues.consumequeue._files cimport files_done, files_init, files_lowest, files_passed, files_there
from rmq_store.queues.consumequeue._state cimport QueueState, TableState, interests_of, links_of, state_of
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_at, table_find, table_of_topic
from rmq_store.queues.consumequeue._units cimport units_last_there

cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDONLY, O_NOFOLLOW, O_DIRECTORY


cdef enum:
    VAIN_MIN = 256              # of those that wait in vain, in one look: they may be of any number of deleted topics
    VAIN_TURNS = 8              # or a part of them, so that all have had their turn after so many
    NO_FILES = 8                # looks that one look for the first file of a queue counts as: it opens a directory


cdef inline TableState *_state(QueueTable *t) noexcept nogil:
    return <TableState *> t


# ---- which queues to look at

cdef int _in(TableState *t, const char *base, const char *topic, int32_t topic_size, int32_t queue_id) noexcept nogil:
    # Whether the queue has a directory there: 1, 0 or -errno.
    cdef UnitFiles f
    cdef int fd
    if files_init(&f, base, topic, topic_size, queue_id, 1) < 0:
        return -ENOMEM
    fd = t.io.open(t.io.ctx, f.dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0) if f.legal else -ENOENT
    files_done(&f)
    if fd >= 0:
        t.io.close(t.io.ctx, fd)
        return 1
    return 0 if fd == -ENOENT else fd


cdef void _rest_in_vain(TableState *t, Queue *q) noexcept nogil:
    state_of(q).next_dirty = NULL
    if t.vain == NULL:
        t.vain = q
    else:
        state_of(t.vain_last).next_dirty = q
    t.vain_last = q


cdef void _take_turn(TableState *t, Queue *q) noexcept nogil:
    state_of(q).limit = max(state_of(q).limit, 1)
    state_of(q).next_dirty = t.dirty
    t.dirty = q


cdef void _take_turns(TableState *t, bint some, bint whole) noexcept nogil:
    # some: of those that have waited in vain get one look; whole: all do. Those that have a reason by now get more.
    cdef Queue *q = t.vain
    cdef Queue *following
    cdef int64_t count = 0
    while q != NULL and some:
        q = state_of(q).next_dirty
        count += 1
    if not whole:
        count = min(count, max(count // VAIN_TURNS, VAIN_MIN))
    while t.vain != NULL and count > 0:
        q = t.vain
        t.vain = state_of(q).next_dirty
        _take_turn(t, q)
        count -= 1
    if not t.woken:
        return
    t.woken = False
    following, t.vain = t.vain, NULL
    while following != NULL:
        q, following = following, state_of(following).next_dirty
        if state_of(q).limit > 0:
            _take_turn(t, q)
        else:
            _rest_in_vain(t, q)


cdef int queue_expect(QueueTable *table, const char *topic, int32_t topic_size, int32_t queue_id, int64_t index, bint inner,
                      int64_t physical, bint whole) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef Queue *q = table_find(t, topic, topic_size, queue_id, False)
    cdef QueueState *s
    cdef int rc = 1
    if q == NULL and not whole:
        rc = _in(t, t.dir, topic, topic_size, queue_id)
        if rc == 0 and inner and t.batch_dir != NULL:
            rc = _in(t, t.batch_dir, topic, topic_size, queue_id)
        if rc <= 0:
            return rc
    if q == NULL:
        q = table_find(t, topic, topic_size, queue_id, True)
    s = queue_kept(t, q) if q != NULL else NULL
    if s == NULL:
        return -ENOMEM
    if physical < q.max_physical_offset:    # its entry was read, or was of another life
        return 1
    if (inner != s.batched or index < max(s.next_index, q.max_offset)) and s.anew_at == 0:
        s.anew_at = physical + 1
    queue_look_for(t, q, physical, FOLLOW_PATIENCE)
    return 1


cdef int queue_was_cleaned(QueueTable *table, const char *topic, int32_t topic_size, int32_t queue_id, bint inner,
                           int64_t physical) noexcept nogil:
    cdef Queue *q = table_find(<TableState *> table, topic, topic_size, queue_id, False)
    if q != NULL:                       # maybe by a directory of the other kind, which is empty
        if state_of(q) != NULL:
            queue_may_be_anew(q, state_of(q))
        return 1
    return queue_expect(table, topic, topic_size, queue_id, 0, inner, physical - 1, True)


# ---- entries

cdef inline int64_t _start_of(const UnitFiles *f, int64_t index) noexcept nogil:
    return index * UNIT_SIZE - index * UNIT_SIZE % f.file_size


cdef int64_t _units_at(TableState *t, UnitFiles *f, int64_t position, int64_t unit_size, unsigned char *out) noexcept nogil:
    # As follow_units; a next file is taken in, and none behind that one.
    cdef int64_t start = position - position % f.file_size, n
    if start > f.end or position < 0:
        return 0
    n = follow_units(t, f, position, unit_size, out)
    if n > 0 and start == f.end:
        rmq_publish(&f.end, start + f.file_size)
    return n


cdef int _read_on(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx, int64_t *furthest) noexcept nogil:
    # 0, OTHER_KIND or -errno.
    cdef QueueState *s = state_of(q)
    cdef unsigned char[(FOLLOW_UNITS + 1) * BATCH_UNIT_SIZE] units
    cdef int64_t size = BATCH_UNIT_SIZE if s.batched else UNIT_SIZE
    cdef int64_t n, i, at, before
    cdef bint other
    cdef Unit u
    cdef int rc = 1
    if rmq_load(&s.entries.first) == s.entries.end and rmq_load(&q.max_offset) == 0:
        rc = queue_begins(t, q, below, leads, ctx)
    while rc == 1:
        at = s.batch_read if s.batched else s.next_index * UNIT_SIZE
        before = size if at % s.entries.file_size > 0 and at > s.entries.first else 0
        n = _units_at(t, &s.entries, at - before, size, units)
        if n == 0:
            rc = _files_went(t, q)
            if rc != 0:
                continue
        if n < 0:
            return <int> n
        other = before > 0 and n > 0 and _is_other(q, s, units)
        if other or s.anew_at > 0:      # what was read may be of files that came meanwhile
            rc = queue_begins(t, q, below, leads, ctx)
            if rc != 0:
                continue
        i = before // size
        while i < n:
            if not s.batched and unit_blank(units + i * size):
                if rmq_load(&q.max_offset) == 0:
                    s.new_min = s.next_index + 1
                s.next_index += 1
                i += 1
                continue
            if not follow_unit(s.batched, units + i * size, s.next_index, &u):
                rc = _pass_damage(t, s, units + i * size, n - i, size)
                break
            if u.physical + u.size > below or (u.index < s.next_index and s.anew_at > 0):
                return 0
            if u.next_index <= s.next_index:        # one that was read before it was cut away
                s.batch_read += size
                i += 1
                continue
            rc = leads(ctx, q, u.index, u.physical, u.size)
            if rc == 0:
                rc = _pass_damage(t, s, units + i * size, n - i, size)
                break
            if rc < 0:
                return rc
            if rc == LED and u.physical >= q.max_physical_offset:       # so do those before it; else it is damaged
                s.new_min = u.next_index
            elif s.next_index == s.new_min:
                s.new_min = u.index if rc != LED else u.next_index
            s.next_index = u.next_index
            s.batch_read += size if s.batched else 0
            if rc == LEADS_ON and not s.batched:        # the queue still expects the last entry of that record
                s.expects = max(s.expects, u.physical + 1)
                rmq_publish(&q.max_physical_offset, u.physical)
            else:
                rmq_publish(&q.max_physical_offset, u.physical + u.size)
            furthest[0] = max(furthest[0], u.physical + u.size)
            if s.anew_at > 0 and u.physical >= s.anew_at - 1:
                s.anew_at = 0           # it was a record of this life, or of none that is there
            i += 1
        else:
            rc = n > before // size
    return rc


cdef int _pass_damage(TableState *t, QueueState *s, const unsigned char *units, int64_t n, int64_t size) noexcept nogil:
    # Where the queue went back, and a later entry is back, or the next one: whatever is no entry in front of it is damaged, if
    # it is the same when it is read once more. units: the n that were read from there on. 1: it was passed over, or another one
    # has come; 0; -errno.
    cdef unsigned char[FOLLOW_UNITS * BATCH_UNIT_SIZE] again
    cdef int64_t at = s.batch_read if s.batched else s.next_index * UNIT_SIZE, i = 1
    cdef Unit u
    cdef int rc = 0
    if at >= s.back_end:
        return 0
    while i < n and rc == 0:
        rc = follow_unit(s.batched, units + i * size, 0, &u)
        i += 1
    if rc == 0 and at < s.back_end - size:
        rc = units_last_there(t, s, s.back_end)
    if rc == 0:
        rc = units_last_there(t, s, s.back_end + size)
    if rc <= 0:
        return rc
    n = _units_at(t, &s.entries, at, size, again)
    if n <= 0 or memcmp(again, units, size) != 0:
        return <int> n if n < 0 else n > 0
    if s.batched:
        s.batch_read += size
    else:
        s.next_index += 1
    return 1


cdef bint _is_other(const Queue *q, const QueueState *s, const unsigned char *before) noexcept nogil:
    cdef Unit u
    return ((s.batched or not unit_blank(before)) and q.max_physical_offset >= 0
            and not (follow_unit(s.batched, before, 0, &u)
                     and q.max_physical_offset in (u.physical, u.physical + u.size)))       # LEADS_ON; else behind it


cdef int _has_units(TableState *t, QueueState *s, int64_t start) noexcept nogil:
    # Whether a file begins with a unit: 1, 0 or -errno.
    cdef unsigned char[FOLLOW_UNITS * BATCH_UNIT_SIZE] units
    cdef Unit u
    cdef int64_t n = follow_units(t, &s.entries, start, BATCH_UNIT_SIZE if s.batched else UNIT_SIZE, units)
    descriptor_forget(t.cache, &s.entries, start)
    return <int> n if n < 0 else n > 0 and follow_unit(s.batched, units, 0, &u)


cdef int _files_went(TableState *t, Queue *q) noexcept nogil:
    # 1: the writer has deleted the file of the next entry, and so all before it; the queue goes on in the first one that is
    # there. 0: that file is there, or is still to be made. -errno.
    cdef QueueState *s = state_of(q)
    cdef UnitFiles *f = &s.entries
    cdef int64_t position = s.batch_read if s.batched else s.next_index * UNIT_SIZE
    cdef int64_t start = position - position % f.file_size, at = files_lowest(t.cache, f, start)
    cdef int rc = 0
    if at > start:                      # files are made in order: the one before was there
        rc = files_there(t.cache, f, start)
        if rc == 0:
            rc = _has_units(t, s, at)   # else it has only the name of one
            if rc <= 0:
                return rc
            files_passed(t.cache, f, at)
            rmq_publish(&f.end, at)
            if s.batched:
                s.batch_read = at
                rmq_publish(&s.batch_end, at)
            else:
                s.next_index = at // UNIT_SIZE
            s.new_min = s.next_index
            return 1
    return <int> at if at < 0 and at != -ENOENT else min(rc, 0)


cdef Queue *_out_of(Queue **link, const char *topic, int32_t topic_size) noexcept nogil:
    # The states of its queues are about to change, in which rows are linked. Returns the last one of the row then.
    cdef Queue *last = NULL
    cdef QueueState *s
    while link[0] != NULL:
        s = state_of(link[0])
        if link[0].topic_size == topic_size and memcmp(link[0].topic, topic, topic_size) == 0:
            s.dirty = False
            link[0] = s.next_dirty
        else:
            last = link[0]
            link = &s.next_dirty
    return last


cdef int _change_kind(TableState *t, Queue *changed) noexcept nogil:
    cdef int64_t physical = state_of(changed).anew_at - 1, expects
    cdef QueueState *s
    cdef Queue *q
    cdef int rc
    _out_of(&t.dirty, changed.topic, changed.topic_size)
    t.vain_last = _out_of(&t.vain, changed.topic, changed.topic_size)
    rc = queue_change_kind(t, changed)
    q = table_of_topic(t, changed.topic, changed.topic_size)
    while q != NULL:
        s = state_of(q)
        expects = max(max(s.expects, physical + 1), s.other.expects if s.other != NULL else 0)
        s.expects = s.anew_at = 0
        queue_look_for(t, q, expects - 1, FOLLOW_PATIENCE)
        q = links_of(q).same_topic
    return rc


cdef int64_t _batches_left(TableState *t, Queue *q, int64_t index) noexcept nogil:
    # Of a batch queue: it is read on behind the last unit that has no message from `index` on; the queue offset there.
    cdef QueueState *s = state_of(q)
    cdef unsigned char[FOLLOW_UNITS * BATCH_UNIT_SIZE] units
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
    queue_look_for(t, q, max(q.max_physical_offset, s.expects) - 1, FOLLOW_PATIENCE)
    s.back_end = max(s.back_end, s.batch_end if s.batched else end * UNIT_SIZE)
    if index > 0:
        rmq_publish(&q.max_offset, index)       # batch_end stays: what is missing before it is not damaged
        s.next_index, s.new_min = _batches_left(t, q, index) if s.batched else index, -1
        rmq_publish(&q.max_physical_offset, -1)
    else:                               # it begins again, in this life or in another one
        queue_forget(t, q, q.max_physical_offset)
    t.woken = t.woken or s.limit == 0
    s.limit = FOLLOW_PATIENCE


cdef int queues_read_on(QueueTable *table, int64_t below, bint all, bint whole, EntryLeads leads, void *ctx,
                        int64_t *furthest) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef QueueState *s
    cdef Queue *q
    cdef Queue *changed = NULL
    cdef int64_t i, begin
    cdef int rc, error = 0
    furthest[0] = -1
    if rmq_swap32(&t.vanished, 0):
        for i in range(rmq_load(&t.count)):
            s = state_of(table_at(t, i))
            if s != NULL and rmq_load(&s.vanished) > 0:
                _go_back(t, table_at(t, i))
    _take_turns(t, all, whole)
    q = t.dirty
    while q != NULL:
        s = state_of(q)
        begin = s.next_index
        rc = _read_on(t, q, below, leads, ctx, furthest)
        s.failed = rc < 0
        if rc < 0:
            error = rc
        elif rc == OTHER_KIND:
            changed = q
        s.limit = max(s.limit - (1 if s.entries.end > s.entries.first else NO_FILES), 0)
        if s.next_index == begin and (s.limit == 0 or all):
            # The writer's recovery may have made another file of that name: nothing ever comes into the one that is open.
            begin = s.batch_read if s.batched else s.next_index * UNIT_SIZE
            descriptor_forget(t.cache, &s.entries, begin - begin % s.entries.file_size)
        q = s.next_dirty
    if changed != NULL:                 # one a look: the row of queues changes
        rc = _change_kind(t, changed)
        error = rc if rc < 0 else error
    return error


cdef void queues_show(QueueTable *table, int64_t begins) noexcept nogil:
    cdef TableState *t = _state(table)
    cdef Queue **link = &t.dirty
    cdef Queue *q = t.dirty
    cdef Queue *waits
    cdef QueueState *s
    cdef bint ended
    while q != NULL:
        s = state_of(q)
        # Fillers alone show nothing; entries whose records are deleted show where the queue begins, and ends.
        if (s.next_index > rmq_load(&q.max_offset)
                and (s.next_index > s.new_min or rmq_load(&q.max_physical_offset) >= 0)):
            if s.new_min >= 0:
                rmq_mutex_lock(&t.cache.begins_lock)
                rmq_publish(&q.min_offset, s.new_min)
                rmq_mutex_unlock(&t.cache.begins_lock)
                s.new_min = -1
            if s.batched:
                rmq_publish(&s.batch_end, s.batch_read)
            rmq_publish(&q.max_offset, s.next_index)
            rmq_event_wake(&q.arrived)
            if rmq_load(<const int64_t *> interests_of(q)) != 0 or rmq_load(&t.hubs_for_all) > 0:
                hubs_note(table, q)
            s.limit = FOLLOW_PATIENCE
        ended = q.max_physical_offset >= s.expects or (s.limit == 0 and s.expects <= begins and not s.failed)
        waits, q = q, s.next_dirty
        if s.expects > 0 and not ended and s.limit > 0:
            link = &s.next_dirty
            continue
        link[0] = q
        s.dirty = s.expects > 0 and not ended
        if s.dirty:
            _rest_in_vain(t, waits)
    if t.hubs_due:
        hubs_signal(table)
