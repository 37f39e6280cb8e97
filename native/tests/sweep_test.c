/* rmq_sweep.h: every number once, the error of the lowest one that fails whatever the threads do, few numbers in order. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_sweep.h"
#include <string.h>

enum { COUNT = 20000 };

typedef struct work {
    int64_t seen[COUNT]; /* atomic */
    int64_t fails_from;  /* and every seventh behind it, each with its own error */
    int64_t last;
    int in_order;
} work;

static work w;

static int step(void *ctx, int64_t i) {
    work *all = ctx;
    rmq_add(&all->seen[i], 1);
    if (i >= all->fails_from && (i - all->fails_from) % 7 == 0) return -(int)(1 + i - all->fails_from);
    return 0;
}

static int step_alone(void *ctx, int64_t i) {
    work *all = ctx;
    all->in_order = all->in_order && i == all->last + 1;
    all->last = i;
    return 0;
}

int main(void) {
    limit_seconds(60);
    int64_t failed = -7;
    w.fails_from = COUNT;
    CHECK(rmq_sweep_all(COUNT, step, &w, RMQ_SWEEP_THREADS, &failed) == 0 && failed == COUNT);
    for (int i = 0; i < COUNT; i++) CHECK(w.seen[i] == 1);
    for (int64_t from = 0; from < COUNT; from += 1999) {
        memset(&w, 0, sizeof w);
        w.fails_from = from;
        CHECK(rmq_sweep_all(COUNT, step, &w, RMQ_SWEEP_THREADS, &failed) == -1 && failed == from);
        for (int64_t i = 0; i <= from; i++) CHECK(w.seen[i] == 1);
        for (int i = 0; i < COUNT; i++) CHECK(w.seen[i] <= 1);
    }
    w.in_order = 1;
    w.last = -1;
    CHECK(rmq_sweep_all(RMQ_SWEEP_ALONE - 1, step_alone, &w, RMQ_SWEEP_THREADS, NULL) == 0);
    CHECK(w.in_order && w.last == RMQ_SWEEP_ALONE - 2);
    w.last = -1;
    CHECK(rmq_sweep_all(COUNT, step_alone, &w, 1, NULL) == 0 && w.in_order && w.last == COUNT - 1);
    CHECK(rmq_sweep_all(0, step, &w, RMQ_SWEEP_THREADS, NULL) == 0);
    return 0;
}
