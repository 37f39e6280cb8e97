/* rmq_cpu.h: a thread that leaves a processor runs on another one, may run where it might before, and stays where it must;
 * one that asks for short turns gets them, and nothing else. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_cpu.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static unsigned long before[RMQ_CPU_WORDS], after[RMQ_CPU_WORDS];

static long allowed(unsigned long *mask) {
    memset(mask, 0, sizeof before);
    return syscall(SYS_sched_getaffinity, 0, sizeof before, mask);
}

static int leaves(int cpu) {
    rmq_cpu_leave(cpu);
    int now = rmq_cpu();
    CHECK(allowed(after) > 0 && memcmp(before, after, sizeof before) == 0);
    return now != cpu;
}

static rmq_turns turns(void) {
    rmq_turns t = {0};
    CHECK(syscall(SYS_sched_getattr, 0, &t, sizeof t, 0) == 0);
    return t;
}

/* Nothing but the length of a turn changes, under the usual policy alone, and where the kernel knows it. Where the test itself
 * runs under another policy, or in a sandbox that refuses the calls, there is nothing to see. */
static void test_short_turns(void) {
    struct utsname kernel;
    struct sched_param none = {0};
    rmq_turns was, now;
    int major = 0, minor = 0;
    CHECK(uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2);
    if (syscall(SYS_sched_getattr, 0, &was, sizeof was, 0) < 0 || was.policy != SCHED_OTHER
        || sched_setscheduler(0, SCHED_BATCH, &none) < 0) {
        return;
    }
    was = turns();
    CHECK(was.runtime != RMQ_TURN_NS);
    rmq_cpu_short_turns();
    now = turns();
    CHECK(now.policy == SCHED_BATCH && now.runtime == was.runtime);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
    errno = 0;
    CHECK(nice(1) != -1 || errno == 0);
    was = turns();
    rmq_cpu_short_turns();
    now = turns();
    CHECK(now.policy == SCHED_OTHER && now.nice == was.nice);
    CHECK(now.runtime == (major > 6 || (major == 6 && minor >= 12) ? RMQ_TURN_NS : was.runtime));
}

int main(void) {
    limit_seconds(60);
    test_short_turns();
    cpu_set_t one;
    int count = 0, left = 0, cpu = rmq_cpu();
    CHECK(cpu >= 0 && allowed(before) > 0);
    for (int i = 0; i < RMQ_CPU_WORDS; i++) count += __builtin_popcountl(before[i]);
    if (count > 1) {
        /* Between the move and the look the kernel may move it back: seldom, and not a hundred times. */
        for (int i = 0; i < 100 && !left; i++) left = leaves(rmq_cpu());
        CHECK(left);
    }
    /* Nowhere else to go, and processors that are none: all stays as it is. */
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && allowed(before) > 0);
    CHECK(!leaves(cpu));
    int none[] = {-1, RMQ_CPU_WORDS * RMQ_CPU_BITS, 1 << 30};
    for (int i = 0; i < 3; i++) {
        CHECK(leaves(none[i]));
        CHECK(rmq_cpu() == cpu);
    }
    return 0;
}
