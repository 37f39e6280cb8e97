/* One step for each of many things, shared among a few threads that end with the call: what an open does for each of a hundred
 * thousand queues. Few things are done by the caller alone, in their order, so that nothing changes for a small store.
 *
 * An error is what it would be if one thread did all in order: that of the lowest number. What comes before it was done; of
 * what comes behind it some may have been. Steps run in parallel and must stand that. */
#ifndef RMQ_SWEEP_H
#define RMQ_SWEEP_H
#include "rmq_wake.h"

enum { RMQ_SWEEP_ALONE = 512, RMQ_SWEEP_THREADS = 8, RMQ_SWEEP_CHUNK = 16 };

typedef int (*rmq_sweep_step)(void *ctx, int64_t i); /* < 0: an error, which ends the sweep */

typedef struct rmq_sweep {
    rmq_sweep_step step;
    void *ctx;
    int64_t count;
    int64_t next;   /* atomic: the first number nobody has taken */
    int64_t failed; /* atomic: the lowest number whose step failed; count: none */
    int error;      /* its error; under `lock` */
    rmq_mutex lock;
} rmq_sweep;

static inline void *rmq_sweep_share(void *arg) {
    rmq_sweep *s = (rmq_sweep *)arg;
    for (;;) {
        int64_t i = rmq_add(&s->next, RMQ_SWEEP_CHUNK) - RMQ_SWEEP_CHUNK;
        int64_t end = i + RMQ_SWEEP_CHUNK < s->count ? i + RMQ_SWEEP_CHUNK : s->count;
        if (i >= s->count) return NULL;
        for (; i < end && i < rmq_load(&s->failed); i++) {
            int rc = s->step(s->ctx, i);
            if (rc >= 0) continue;
            rmq_mutex_lock(&s->lock);
            if (i < rmq_load(&s->failed)) {
                rmq_publish(&s->failed, i);
                s->error = rc;
            }
            rmq_mutex_unlock(&s->lock);
        }
    }
}

/* Calls step(ctx, i) for each i below `count`, in so many threads at most, the caller's counted. 0, or the error of the lowest
 * number that failed, that number in *failed (NULL: nobody asks). Threads that cannot be started are done without. */
static inline int rmq_sweep_all(int64_t count, rmq_sweep_step step, void *ctx, int threads, int64_t *failed) {
    rmq_sweep s = {.step = step, .ctx = ctx, .count = count, .failed = count};
    pthread_t others[RMQ_SWEEP_THREADS];
    int started = 0;
    if (threads > RMQ_SWEEP_THREADS) threads = RMQ_SWEEP_THREADS;
    if (count >= RMQ_SWEEP_ALONE)
        while (started < threads - 1 && rmq_thread_start(&others[started], rmq_sweep_share, &s, "rmq-sweep") == 0) started++;
    rmq_sweep_share(&s);
    while (started > 0) rmq_thread_join(&others[--started]);
    if (failed != NULL) *failed = s.failed;
    return s.error;
}
#endif
