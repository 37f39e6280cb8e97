/* A flush back end that another package offers: what stands here is what it fills in. Its functions are called without the GIL,
 * by threads that Python does not know: none of them may touch Python. See docs/choosing-a-backend.md.
 *
 * Each returns 0 or -errno. An error is final: the store raises its fence, and nothing is written or synced again. */
#ifndef RMQ_BACKEND_H
#define RMQ_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#define RMQ_BACKEND_VERSION 1
/* Name of the PyCapsule that holds the address of an rmq_backend. */
#define RMQ_BACKEND_CAPSULE "rmq_store.flush_backend"

typedef struct rmq_backend {
    uint32_t version;       /* RMQ_BACKEND_VERSION */
    uint32_t reserved;      /* 0 */
    /* For each store that is opened with it: *state comes back in every call. May be NULL. */
    int (*open)(const char *directory, void **state);
    /* All of `size` bytes of the pool at `offset` of the file. One thread at a time. NULL: pwrite. With write_path mmap it is
     * not called: the bytes are in the mapped file. */
    int (*write)(void *state, int fd, const void *from, size_t size, int64_t offset);
    /* When it returns 0, what was written or stored into [begin, end) of the file is on the device, and so is what is needed to
     * read it. map: the whole file, mapped. One thread at a time. */
    int (*sync)(void *state, int fd, void *map, int64_t begin, int64_t end);
    /* When the store is closed. May be NULL. */
    void (*close)(void *state);
} rmq_backend;

#endif
