/* rmq_cpu.h: a thread that leaves a processor runs on another one, may run where it might before, and stays where it must. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_cpu.h"
#include <string.h>

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

int main(void) {
    limit_seconds(60);
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
