/* rmq_waiters.h as group commit uses it: nobody is forgotten, who gives up is off the list, those covered continue in order. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_waiters.h"

enum { THREADS = 8, ROUNDS = 4000 };

static rmq_waiters waiters;
static rmq_mutex leading;
static int64_t wrote, passed, timeouts;

/* flush_wait in miniature: leads if nobody does, else waits; gives up after timeout_ns. Returns 1 when `end` is passed. */
static int wait_for(int64_t end, int64_t timeout_ns) {
    rmq_waiter w;
    int listed = 0, slept = 0;
    for (;;) {
        if (rmq_load(&passed) >= end) {
            if (listed) rmq_waiter_leave(&waiters, &w);
            return 1;
        }
        if (rmq_mutex_try(&leading)) {
            if (listed) rmq_waiter_leave(&waiters, &w);
            listed = 0;
            int64_t to = rmq_load(&wrote);
            for (int i = 0; i < 200; i++) rmq_pause();
            if (to > rmq_load(&passed)) rmq_publish(&passed, to);
            rmq_mutex_unlock(&leading);
            rmq_waiters_pass(&waiters, rmq_load(&passed));
        } else if (!listed) {
            if (slept && timeout_ns >= 0) return 0;
            rmq_waiter_enter(&waiters, &w, end);
            listed = 1;
        } else {
            rmq_waiter_sleep(&waiters, &w, timeout_ns); /* negative: for ever, so one forgotten waiter is a hang */
            listed = 0;
            slept = 1;
        }
    }
}

static void *produce(void *arg) {
    int hasty = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t end = rmq_add(&wrote, 1);
        while (!wait_for(end, hasty ? 1000 : -1)) rmq_add(&timeouts, 1);
        CHECK(rmq_load(&passed) >= end);
    }
    return NULL;
}

static void test_group_commit(void) {
    pthread_t t[THREADS];
    static int hasty[2] = {0, 1};
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_start(&t[i], produce, &hasty[i & 1], "produce") == 0);
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_join(&t[i]) == 0);
    CHECK(rmq_load(&passed) == (int64_t)THREADS * ROUNDS);
    CHECK(waiters.first == NULL && waiters.last == NULL);
}

static void test_who_is_called(void) {
    rmq_waiter w[5];
    for (int i = 0; i < 5; i++) rmq_waiter_enter(&waiters, &w[i], 10 * (i + 1));
    rmq_waiter_leave(&waiters, &w[1]);
    rmq_waiters_pass(&waiters, 30); /* covers 0 and 2, calls 0; and 3, the first that is not covered */
    CHECK(w[0].called && !w[2].called && w[3].called && !w[4].called);
    CHECK(waiters.first == &w[4] && waiters.last == &w[4]);
    rmq_waiter_sleep(&waiters, &w[0], -1); /* calls the next of those covered */
    CHECK(w[2].called);
    rmq_waiter_sleep(&waiters, &w[2], -1);
    rmq_waiter_sleep(&waiters, &w[3], -1);
    rmq_waiter_sleep(&waiters, &w[4], 1000); /* nobody calls: the time runs out */
    CHECK(!w[4].called && waiters.first == NULL && waiters.last == NULL);
}

/* ---- a fence: nobody's position is passed, and everybody sleeps without a time limit, so one who is not called is a hang */
static int64_t failed, asleep;

static void *wait_for_the_fence(void *arg) {
    int64_t end = *(int64_t *)arg;
    rmq_waiter w;
    while (rmq_load(&failed) == 0) {
        rmq_waiter_enter(&waiters, &w, end);
        rmq_add(&asleep, 1);
        if (rmq_load(&failed) == 0) rmq_waiter_sleep(&waiters, &w, -1);
        else rmq_waiter_leave(&waiters, &w);
    }
    return NULL;
}

static void test_a_fence_calls_everybody(void) {
    enum { MANY = 64 };
    pthread_t t[MANY];
    int64_t ends[MANY];
    for (int i = 0; i < MANY; i++) {
        ends[i] = INT64_MAX - 1 - i % 7;
        CHECK(rmq_thread_start(&t[i], wait_for_the_fence, &ends[i], "waiter") == 0);
    }
    while (rmq_load(&asleep) < MANY) rmq_pause();
    rmq_publish(&failed, 1);
    rmq_waiters_pass(&waiters, INT64_MAX);
    for (int i = 0; i < MANY; i++) CHECK(rmq_thread_join(&t[i]) == 0);
    CHECK(waiters.first == NULL && waiters.last == NULL && rmq_load(&asleep) == MANY);
}

int main(void) {
    limit_seconds(60);
    test_who_is_called();
    test_a_fence_calls_everybody();
    test_group_commit();
    return 0;
}
