/* rmq_wake.h and rmq_atomic.h under threads: exclusion, no lost wake-up, bounded waits, threads without signals. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_wake.h"
#include <string.h>

enum { THREADS = 4, ROUNDS = 20000 };

/* ---- exclusion: plain variables that only the lock protects, so that the thread sanitizer sees a lock that does not */
static rmq_mutex mutex;
static rmq_put_lock put_lock;
static int64_t guarded[2];

static void *count_under_mutex(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        rmq_mutex_lock(&mutex);
        guarded[0]++;
        guarded[1] = guarded[0];
        rmq_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *count_under_put_lock(void *arg) {
    int tries = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (!tries || !rmq_put_lock_try(&put_lock)) rmq_put_lock_acquire(&put_lock);
        guarded[0]++;
        guarded[1] = guarded[0];
        rmq_put_lock_release(&put_lock);
    }
    return NULL;
}

static void run(void *(*body)(void *), void *arg) {
    pthread_t t[THREADS];
    guarded[0] = guarded[1] = 0;
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_start(&t[i], body, arg, "test") == 0);
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_join(&t[i]) == 0);
    CHECK(guarded[0] == (int64_t)THREADS * ROUNDS && guarded[1] == guarded[0]);
}

static void test_exclusion(void) {
    run(count_under_mutex, NULL);
    for (int tries = 0; tries < 2; tries++) {
        int spins[] = {0, 100, 20000}; /* sleeps at once; RocketMQ's reentrant and spin lock */
        for (int k = 0; k < 3; k++) {
            put_lock.spins = spins[k];
            run(count_under_put_lock, &tries);
        }
    }
    CHECK(rmq_mutex_try(&mutex) && !rmq_mutex_try(&mutex));
    rmq_mutex_unlock(&mutex);
}

/* ---- events: each side waits for ever for the other, so one lost wake-up is a hang */
static rmq_event ping, pong;
static int64_t asked, answered, payload;

static void *answer(void *arg) {
    (void)arg;
    for (int64_t i = 1; i <= ROUNDS; i++) {
        for (;;) {
            int ticket = rmq_event_ticket(&ping);
            if (rmq_load(&asked) >= i) break;
            rmq_event_wait(&ping, ticket, -1);
        }
        CHECK(payload == i); /* published by the release of `asked` */
        rmq_publish(&answered, i);
        rmq_event_wake(&pong);
    }
    return NULL;
}

static void test_ping_pong(void) {
    pthread_t t;
    CHECK(rmq_thread_start(&t, answer, NULL, "answer") == 0);
    for (int64_t i = 1; i <= ROUNDS; i++) {
        payload = i;
        rmq_publish(&asked, i);
        rmq_event_wake(&ping);
        for (;;) {
            int ticket = rmq_event_ticket(&pong);
            if (rmq_load(&answered) >= i) break;
            rmq_event_wait(&pong, ticket, -1);
        }
    }
    CHECK(rmq_thread_join(&t) == 0);
}

static rmq_event start;
static int64_t go, woken;

static void *wait_for_go(void *arg) {
    (void)arg;
    for (;;) {
        int ticket = rmq_event_ticket(&start);
        if (rmq_load(&go)) break;
        rmq_event_wait(&start, ticket, -1);
    }
    rmq_add(&woken, 1);
    return NULL;
}

static void test_one_wake_reaches_all(void) {
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_start(&t[i], wait_for_go, NULL, "go") == 0);
    while (rmq_load32(&start.sleepers) < THREADS) rmq_pause();
    rmq_publish(&go, 1);
    rmq_event_wake(&start);
    for (int i = 0; i < THREADS; i++) CHECK(rmq_thread_join(&t[i]) == 0);
    CHECK(rmq_load(&woken) == THREADS && start.sleepers == 0);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void test_waits_are_bounded(void) {
    rmq_event e = {0, 0};
    int64_t begin = now_ns();
    rmq_event_wait(&e, rmq_event_ticket(&e), 2000000);
    CHECK(now_ns() - begin >= 2000000);
    int ticket = rmq_event_ticket(&e);
    rmq_event_wake(&e);
    rmq_event_wait(&e, ticket, -1); /* the wake-up came after the ticket: no sleep */
    rmq_event_wait(&e, rmq_event_ticket(&e), 0);
    CHECK(e.sleepers == 0);
}

/* ---- threads */
static void *look_at_myself(void *arg) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) CHECK(sigismember(&mask, s) == (s != SIGBUS)); /* rmq_guard.h needs it */
    while (rmq_load((int64_t *)arg) == 0) rmq_pause();
    return NULL;
}

static void test_thread_has_a_name_and_no_signals(void) {
    pthread_t t;
    int64_t end = 0;
    char name[32];
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK(rmq_thread_start(&t, look_at_myself, &end, "rmq-test") == 0);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int s = 1; s < 65; s++) CHECK(sigismember(&before, s) == sigismember(&after, s));
    CHECK(pthread_getname_np(t, name, sizeof name) == 0 && strcmp(name, "rmq-test") == 0);
    rmq_publish(&end, 1);
    CHECK(rmq_thread_join(&t) == 0);
}

int main(void) {
    limit_seconds(120);
    test_exclusion();
    test_ping_pong();
    test_one_wake_reaches_all();
    test_waits_are_bounded();
    test_thread_has_a_name_and_no_signals();
    return 0;
}
