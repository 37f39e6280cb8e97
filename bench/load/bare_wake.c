/* How long a thread takes to wake another one by a futex when both cores are idle: what no store can be faster than.
 * bare_wake ROUNDS PAUSE_US: sleeps PAUSE_US, wakes, ROUNDS times; prints the median and the 99th percentile in ns. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int32_t word, taken;
static int rounds;
static int64_t *begun, *woken;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *sleeper(void *arg) {
    for (int i = 0; i < rounds; i++) {
        while (atomic_load(&word) <= i) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, i, NULL, NULL, 0);
        woken[i] = now();
        atomic_store(&taken, i + 1);
    }
    return arg;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    pthread_t t;
    if (argc != 3 || (rounds = atoi(argv[1])) < 1) return 64;
    begun = calloc((size_t)rounds, sizeof *begun);
    woken = calloc((size_t)rounds, sizeof *woken);
    if (begun == NULL || woken == NULL || pthread_create(&t, NULL, sleeper, NULL) != 0) return 1;
    for (int i = 0; i < rounds; i++) {
        do usleep((useconds_t)atoi(argv[2]));
        while (atomic_load(&taken) < i); /* it sleeps again, or is about to */
        begun[i] = now();
        atomic_store(&word, i + 1);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    pthread_join(t, NULL);
    for (int i = 0; i < rounds; i++) woken[i] -= begun[i];
    qsort(woken, (size_t)rounds, sizeof *woken, by_size);
    printf("%lld %lld\n", (long long)woken[rounds / 2], (long long)woken[rounds * 99LL / 100]);
    return 0;
}
