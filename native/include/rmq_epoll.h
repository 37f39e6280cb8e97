/* What threads share that wait in epoll: their clock, and an eventfd that wakes them. */
#ifndef RMQ_EPOLL_H
#define RMQ_EPOLL_H
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static inline int64_t rmq_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}
static inline void rmq_eventfd_signal(int fd) {
    uint64_t one = 1;
    ssize_t n = write(fd, &one, 8);     /* fails only by a full counter, which is readable already */
    (void)n;
}
#endif
