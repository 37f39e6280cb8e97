/* On which processor a thread runs, and how one gets out of another's way.
 *
 * Linux leaves a thread that a timer wakes on the processor where it slept. On few cores it does not look for an idle one while
 * those that share a cache are busy on average (kernel/sched/fair.c, SIS_UTIL), so a thread of the store takes turns with the
 * one that puts, 100 us at a time, beside a core that has nothing to do.
 * sched_getcpu is no system call on x86, and elsewhere none since glibc 2.35 (rseq). */
#ifndef RMQ_CPU_H
#define RMQ_CPU_H
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RMQ_CPU_WORDS = 128, RMQ_CPU_BITS = 8 * sizeof(unsigned long) };   /* 8,192 processors: a kernel has no more */

static inline int rmq_cpu(void) { return sched_getcpu(); }

/* The calling thread continues elsewhere, if it may run elsewhere; afterwards it may run where it might before. A wish: a
 * refusal (one processor, a sandbox) changes nothing. An affinity that somebody gives this thread in between is lost. */
static inline void rmq_cpu_leave(int cpu) {
    unsigned long allowed[RMQ_CPU_WORDS], others[RMQ_CPU_WORDS];
    long size = syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
    if (size <= 0 || cpu < 0 || cpu >= size * 8) return;
    for (long i = 0; i < size / (long) sizeof *allowed; i++) others[i] = allowed[i];
    others[cpu / RMQ_CPU_BITS] &= ~(1ul << (cpu % RMQ_CPU_BITS));
    if (syscall(SYS_sched_setaffinity, 0, size, others) == 0) syscall(SYS_sched_setaffinity, 0, size, allowed);
}
#endif
