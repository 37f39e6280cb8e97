"""What native threads of an open store have counted, as Python objects: copies, taken under the GIL. Any thread."""
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.core._core cimport StoreCore
from rmq_store.access.writer._put cimport StorePut
from rmq_store.base.histogram._histogram cimport Histogram, rmq_histogram_merge
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.queues.consumequeue._queue cimport Queue, queues_at, queues_count


def topic_counts(StoreCore store not None):
    """(messages, bytes) dispatched since the store was opened, by topic: prepared and rolled-back messages have none."""
    found = {}
    for (topic, _), (records, size) in queue_counts(store).items():
        before = found.get(topic, (0, 0))
        found[topic] = before[0] + records, before[1] + size
    return found


def queue_counts(StoreCore store not None):
    """The same queue by queue: {(topic, queue id): (messages, bytes)}."""
    found = {}
    begin = 0
    while begin >= 0:
        rows, begin = some_counts(store, begin, 4096)
        for topic, number, records, size in rows:
            found[topic, number] = records, size
    return found


def some_counts(StoreCore store not None, int64_t begin, int64_t count):
    """([(topic, queue id, messages, bytes)] of those of `count` queues that got messages, where to continue or -1).

    begin: 0, or where the call before said. One call keeps the GIL for some 100 microseconds for each 1,000 queues."""
    cdef int64_t i = begin, records, size
    cdef int32_t number
    cdef bytes name
    cdef Queue *q
    found = []
    store._enter()
    while i < begin + count and i < queues_count(store.queues):
        q = queues_at(store.queues, i)
        records, size, number = rmq_load(&q.records), rmq_load(&q.bytes), q.queue_id
        if records > 0:
            name = q.topic[:q.topic_size]
            found.append((name.decode("utf-8", "replace"), number, records, size))
            store._enter()      # making a tuple may begin a collection, and that close the store
        i += 1
    return found, i if i < queues_count(store.queues) else -1


def failed_puts(StorePut store not None):
    """Messages that the log did not take since the opening: int. RocketMQ: putMessageFailedTimes."""
    return store.failed_puts


def histograms(StoreCore store not None):
    """Durations of lock, append, commit and flush, and dispatch_lag: dict of str to Histogram."""
    cdef Histogram lock = Histogram(), append = Histogram(), commit = Histogram(), flush = Histogram(), lag = Histogram()
    store._enter()
    rmq_histogram_merge(lock.h, &store.log.lock_times)
    rmq_histogram_merge(append.h, &store.log.append_times)
    rmq_histogram_merge(commit.h, &store.log.commit_times)
    rmq_histogram_merge(flush.h, &store.log.flush_times)
    rmq_histogram_merge(lag.h, &store.dispatcher.lag_times)
    return {"lock": lock, "append": append, "commit": commit, "flush": flush, "dispatch_lag": lag}


def flush_times(StoreCore store not None):
    """Durations of flushes: Histogram. Also once the store takes no calls any more: the control thread looks then, too."""
    cdef Histogram flush = Histogram()
    if store.log != NULL:
        rmq_histogram_merge(flush.h, &store.log.flush_times)
    return flush


def pool_use(StoreCore store not None):
    """(bytes of the pool, how many of them are free, puts that waited for room): ints, 0 without a pool. As flush_times."""
    cdef int64_t size, free, waits
    if store.log == NULL or store.pool == NULL:
        return 0, 0, 0
    size, waits = store.pool.size, rmq_load(&store.log.room_waits)
    free = max(size - (rmq_load(&store.log.wrote) - rmq_load(&store.log.committed)), 0)
    return size, free, waits


def lock_ms(StoreCore store not None):
    """How long the present holder has had the put lock: int, 0 free. RocketMQ: lockTimeMills."""
    cdef int64_t since
    store._enter()
    since = rmq_load(&store.log.lock_since_ms)
    return max(store.io.wall_ms(store.io.ctx) - since, 0) if since else 0
