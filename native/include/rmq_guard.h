/* An answer to SIGBUS for maps of files that lose pages while they are mapped: somebody cuts the file, or the device cannot
 * give a page of it. In the place of what is gone the handler maps zeros, notes which part of the map that is, and lets the
 * instruction run again; whoever reads or stores through the map looks at the note afterwards and makes an error of it.
 *
 * Process-wide and for good: the handler is installed once, on request, and hands on every SIGBUS that is not in a guarded map
 * to the one that was there before. A handler installed later stands in front of it. Any thread; a child of fork starts with
 * an empty table, since the maps are not inherited. */
#ifndef RMQ_GUARD_H
#define RMQ_GUARD_H
#include <stddef.h>
#include <stdint.h>
#include "rmq_atomic.h"
#include "rmq_identity.h"

/* The part of a map that is zeros of the handler, as positions in the file; several parts are one, with all between them. */
typedef struct rmq_lost {
    int64_t begin;
    int64_t end; /* 0: nothing is lost. Stored last */
} rmq_lost;

int rmq_guard_install(void); /* 0 or -errno; again: nothing happens */
/* Guards [at, at + n), a map of `file` from its beginning; *lost is set to nothing. Returns a number above 0, or -ENOMEM.
 * Needs no descriptor: the handler asks the name of the file how long it is, where that still leads to it. */
int rmq_guard_add(void *at, size_t n, const rmq_identity *file, int writable, rmq_lost *lost);
void rmq_guard_remove(int number); /* call it before munmap; *lost and *file are unused from then on */

static inline int rmq_lost_any(const rmq_lost *l) { return rmq_load(&l->end) != 0; }
static inline int rmq_lost_in(const rmq_lost *l, int64_t begin, int64_t end) {
    int64_t lost_end = rmq_load(&l->end);
    return lost_end != 0 && begin < lost_end && end > rmq_load(&l->begin);
}
/* Reads a byte of every page of [at, at + n), so that what is gone is noted before the bytes are believed. */
static inline void rmq_guard_touch(const unsigned char *at, int64_t n) {
    for (int64_t i = 0; i < n; i += 4096) (void)*(const volatile unsigned char *)(at + i);
    if (n > 0) (void)*(const volatile unsigned char *)(at + n - 1);
}
#endif
