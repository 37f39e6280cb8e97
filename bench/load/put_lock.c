/* What a kind of put lock is worth where threads really meet at it: put_lock ROUND_MS ROUNDS BYTES THREADS
 *
 * Each thread reads BYTES outside the lock and copies them under it, as a put does with a body. Rounds of the kinds take
 * turns; each prints "kind copies_per_s cpu_us_per_copy". `adaptive` is what RocketMQ's AdaptiveBackOffSpinLock is after: it
 * looks twice as often as it lately took, at most as often as `spin`, and less after each time that it slept all the same. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "rmq_wake.h"

enum { MUTEX, SPIN, ADAPTIVE, KINDS, MUTEX_LOOKS = 100, SPIN_LOOKS = 20000, RING = 4 << 20, MOST = 64 };
static const char *const names[KINDS] = {"mutex", "spin", "adaptive"};

static rmq_put_lock put_lock;
static int kind, lately;
static int64_t go, stop, position;
static size_t bytes;
static char *source, *ring;

static void lock(void) {
    int looks = 2 * rmq_load32(&lately) + MUTEX_LOOKS;
    if (kind != ADAPTIVE) {
        rmq_put_lock_acquire(&put_lock);
        return;
    }
    for (int i = 0; i < looks && i < SPIN_LOOKS; i++) {
        if (__atomic_load_n(&put_lock.mutex.state, __ATOMIC_RELAXED) == 0 && rmq_put_lock_try(&put_lock)) {
            rmq_publish32(&lately, lately + (i - lately) / 8);
            return;
        }
        rmq_pause();
    }
    rmq_mutex_lock(&put_lock.mutex);
    rmq_publish32(&lately, lately / 2);
}

static void *produce(void *arg) {
    int64_t count = 0, sum = 0;
    while (rmq_load(&go) == 0) rmq_pause();
    while (rmq_load(&stop) == 0) {
        for (size_t i = 0; i < bytes; i += 64) sum += ((volatile char *)source)[i];
        lock();
        memcpy(ring + position, source, bytes);
        position = position + 2 * (int64_t)bytes > RING ? 0 : position + (int64_t)bytes;
        rmq_put_lock_release(&put_lock);
        count++;
    }
    *(int64_t *)arg = count + (sum & 0);
    return NULL;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }
static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void one(int which, long ms, int threads) {
    pthread_t t[MOST];
    int64_t counts[MOST], all = 0;
    memset(&put_lock, 0, sizeof put_lock);
    kind = which;
    put_lock.spins = which == SPIN ? SPIN_LOOKS : MUTEX_LOOKS;
    lately = 0;
    go = stop = position = 0;
    for (int i = 0; i < threads; i++)
        if (rmq_thread_start(&t[i], produce, &counts[i], "producer") < 0) exit(1);
    double used = cpu(), begin = now();
    rmq_publish(&go, 1);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    rmq_publish(&stop, 1);
    double took = now() - begin;
    for (int i = 0; i < threads; i++) {
        rmq_thread_join(&t[i]);
        all += counts[i];
    }
    printf("%s %.0f %.4f\n", names[which], (double)all / took, (cpu() - used) * 1e6 / (double)all);
}

int main(int argc, char **argv) {
    if (argc != 5 || atol(argv[3]) < 1 || atol(argv[3]) > RING / 2 || atoi(argv[4]) < 1 || atoi(argv[4]) > MOST) {
        fprintf(stderr, "usage: put_lock ROUND_MS ROUNDS BYTES THREADS\n");
        return 64;
    }
    bytes = (size_t)atol(argv[3]);
    source = malloc(bytes);
    ring = malloc(RING);
    if (!source || !ring) return 1;
    memset(source, 1, bytes);
    memset(ring, 1, RING);
    for (int round = 0; round < atoi(argv[2]); round++)
        for (int k = 0; k < KINDS; k++) one(k, atol(argv[1]), atoi(argv[4]));
    return 0;
}
