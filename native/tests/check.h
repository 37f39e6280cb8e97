/* What the small test programs share: a check that names its line, and a limit on how long they may hang. */
#ifndef RMQ_TEST_CHECK_H
#define RMQ_TEST_CHECK_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* A lost wake-up is a hang: SIGALRM then ends the program with a failure. */
static inline void limit_seconds(unsigned n) { alarm(n); }
#endif
