/* Log-linear histogram of 64-bit durations: 64 steps for each doubling, so a quantile is at most 0.8 % off; below 64 exact.
 *
 * Values above 2^40 (18 minutes in nanoseconds) share the last bucket; the maximum, the minimum and the sum are exact all the
 * same. rmq_histogram_add: one writer at a time (a lock's holder, or one thread), any number of readers: they see each counter
 * whole, and the counters of a moment ago. rmq_histogram_add_shared: any number of writers. Neither sleeps nor allocates.
 * A histogram that is all zero bytes is empty. */
#ifndef RMQ_HISTOGRAM_H
#define RMQ_HISTOGRAM_H
#include <stdint.h>

enum {
    RMQ_HISTOGRAM_BITS = 6,
    RMQ_HISTOGRAM_STEPS = 1 << RMQ_HISTOGRAM_BITS,
    RMQ_HISTOGRAM_TOP = 40,
    RMQ_HISTOGRAM_SLOTS = (RMQ_HISTOGRAM_TOP - RMQ_HISTOGRAM_BITS + 1) * RMQ_HISTOGRAM_STEPS
};

typedef struct rmq_histogram {
    int64_t count, total;
    int64_t highest;      /* 0 while empty */
    int64_t below;        /* INT64_MAX - lowest; 0 while empty */
    int64_t counts[RMQ_HISTOGRAM_SLOTS];
} rmq_histogram;

static inline int rmq_histogram_slot(int64_t value) {
    if (value < RMQ_HISTOGRAM_STEPS) return value < 0 ? 0 : (int)value;
    int exponent = 63 - __builtin_clzll((uint64_t)value);
    if (exponent >= RMQ_HISTOGRAM_TOP) return RMQ_HISTOGRAM_SLOTS - 1;
    int step = (int)(value >> (exponent - RMQ_HISTOGRAM_BITS)) & (RMQ_HISTOGRAM_STEPS - 1);
    return (exponent - RMQ_HISTOGRAM_BITS + 1) * RMQ_HISTOGRAM_STEPS + step;
}

/* Smallest value of a bucket; that of the bucket behind the last one is 2^40. */
static inline int64_t rmq_histogram_low(int slot) {
    if (slot < RMQ_HISTOGRAM_STEPS) return slot;
    int shift = slot / RMQ_HISTOGRAM_STEPS - 1;
    return ((int64_t)RMQ_HISTOGRAM_STEPS + slot % RMQ_HISTOGRAM_STEPS) << shift;
}

static inline void rmq_histogram_bump_(int64_t *p, int64_t by) {
    __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + by, __ATOMIC_RELAXED);
}

static inline void rmq_histogram_add(rmq_histogram *h, int64_t value) {
    int64_t v = value < 0 ? 0 : value;
    rmq_histogram_bump_(&h->counts[rmq_histogram_slot(v)], 1);
    rmq_histogram_bump_(&h->total, v);
    if (v > h->highest) __atomic_store_n(&h->highest, v, __ATOMIC_RELAXED);
    if (INT64_MAX - v > h->below) __atomic_store_n(&h->below, INT64_MAX - v, __ATOMIC_RELAXED);
    rmq_histogram_bump_(&h->count, 1);
}

static inline void rmq_histogram_raise_(int64_t *p, int64_t v) {
    int64_t seen = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v > seen && !__atomic_compare_exchange_n(p, &seen, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static inline void rmq_histogram_add_shared(rmq_histogram *h, int64_t value) {
    int64_t v = value < 0 ? 0 : value;
    __atomic_fetch_add(&h->counts[rmq_histogram_slot(v)], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&h->total, v, __ATOMIC_RELAXED);
    rmq_histogram_raise_(&h->highest, v);
    rmq_histogram_raise_(&h->below, INT64_MAX - v);
    __atomic_fetch_add(&h->count, 1, __ATOMIC_RELAXED);
}

/* `to` has one writer, this call; `from` may have any. */
static inline void rmq_histogram_merge(rmq_histogram *to, const rmq_histogram *from) {
    int64_t count = 0;
    for (int i = 0; i < RMQ_HISTOGRAM_SLOTS; i++) {
        int64_t n = __atomic_load_n(&from->counts[i], __ATOMIC_RELAXED);
        to->counts[i] += n;
        count += n;
    }
    to->count += count;
    to->total += __atomic_load_n(&from->total, __ATOMIC_RELAXED);
    rmq_histogram_raise_(&to->highest, __atomic_load_n(&from->highest, __ATOMIC_RELAXED));
    rmq_histogram_raise_(&to->below, __atomic_load_n(&from->below, __ATOMIC_RELAXED));
}

static inline int64_t rmq_histogram_highest(const rmq_histogram *h) { return __atomic_load_n(&h->highest, __ATOMIC_RELAXED); }

static inline int64_t rmq_histogram_lowest(const rmq_histogram *h) {
    int64_t below = __atomic_load_n(&h->below, __ATOMIC_RELAXED);
    return below ? INT64_MAX - below : 0;
}

/* The value that a share `q` of all values does not exceed: the middle of its bucket, never beyond the exact extremes. */
static inline int64_t rmq_histogram_quantile(const rmq_histogram *h, double q) {
    int64_t highest = rmq_histogram_highest(h), lowest = rmq_histogram_lowest(h), seen = 0;
    double want = q * (double)__atomic_load_n(&h->count, __ATOMIC_RELAXED);
    for (int i = 0; i < RMQ_HISTOGRAM_SLOTS - 1; i++) {
        int64_t n = __atomic_load_n(&h->counts[i], __ATOMIC_RELAXED);
        seen += n;
        if (n == 0 || (double)seen < want) continue;
        int64_t low = rmq_histogram_low(i), middle = low + (rmq_histogram_low(i + 1) - 1 - low) / 2;
        return middle > highest ? highest : middle < lowest ? lowest : middle;
    }
    return highest;
}
#endif
