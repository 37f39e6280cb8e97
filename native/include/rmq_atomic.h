/* The few atomics the data plane uses, with the ordering in the name. Plain loads are acquire, plain stores release:
 * a position published with rmq_store makes every byte before it visible to whoever reads it with rmq_load. */
#ifndef RMQ_ATOMIC_H
#define RMQ_ATOMIC_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline int64_t rmq_load(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline int64_t rmq_load_relaxed(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void rmq_publish(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int64_t rmq_add(int64_t *p, int64_t v) { return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL); }

/* A counter that one thread at a time adds to, its owner or who holds its lock, while any thread reads it with rmq_load. */
static inline void rmq_count(int64_t *p, int64_t v) { __atomic_store_n(p, *p + v, __ATOMIC_RELAXED); }

static inline int rmq_load32(const int *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void rmq_publish32(int *p, int v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int rmq_add32(int *p, int v) { return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL); }
/* A fence as well: what comes after it is not done before it, so that whoever gives a lock up may then look, with a plain load,
 * whether somebody sleeps. The exchange alone is that on x86; elsewhere a later load may overtake its store. */
static inline int rmq_swap32(int *p, int v) {
    int before = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
#if !defined(__x86_64__)
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    return before;
}
static inline int rmq_cas32(int *p, int expected, int v) {
    return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
/* Orders "publish, then look whether anybody sleeps" against "say that I sleep, then look once more". */
static inline void rmq_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

enum { RMQ_CACHE_LINE = 64 };

/* Zeroed memory in cache lines of its own, so that fields can be grouped by who writes them; NULL where there is none. */
static inline void *rmq_new_lines(size_t n) {
    size_t size = (n + RMQ_CACHE_LINE - 1) / RMQ_CACHE_LINE * RMQ_CACHE_LINE;
    void *at = aligned_alloc(RMQ_CACHE_LINE, size);
    return at == NULL ? NULL : memset(at, 0, size);
}

/* Begin to fetch the cache line of p, for reading, and those of [p, p + n), for writing. Any address will do: none faults.
 * Instructions of their own: of a function that does nothing but __builtin_prefetch the compiler removes every call. */
static inline void rmq_prefetch(const void *p) {
#if defined(__x86_64__)
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p));
#elif defined(__aarch64__)
    __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*(const char *)p));
#else
    __builtin_prefetch(p);
#endif
}
static inline void rmq_prefetch_to_write(const void *p, size_t n) {
    const char *at = (const char *) p;
    for (const char *end = at + n; at < end; at += RMQ_CACHE_LINE)
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(*at));     /* no operation where a processor does not know it */
#else
        __builtin_prefetch(at, 1);
#endif
}

static inline void rmq_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif
