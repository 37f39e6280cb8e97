/* THE I/O TABLE: every system call that touches a store goes through one struct of function pointers, chosen at open.
 *
 * Production uses rmq_io_system(). Tests swap in rmq_probe (native/src/probe.c), which records each call and can make the n-th
 * call of a kind fail or fall short; every proof about faults and crashes therefore runs against the real code.
 *
 * All functions return >= 0 on success and -errno on failure; errno itself is never looked at by callers. None retries: what a
 * short write or EINTR means is the caller's business (rmq_pwrite_all below is the one shared answer for whole writes).
 * Thread-safety: every function may be called from any thread at any time. */
#ifndef RMQ_IO_H
#define RMQ_IO_H
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rmq_io {
    void *ctx; /* first argument of every function */
    /* Returns the descriptor of a regular file, or with O_DIRECTORY of a directory; O_CLOEXEC is added. What else is there
     * makes nobody wait: -EISDIR a directory, -ENXIO a pipe, socket or device; with O_NOFOLLOW -ELOOP a link. */
    int (*open)(void *ctx, const char *path, int flags, int mode);
    int (*close)(void *ctx, int fd);
    int64_t (*size)(void *ctx, int fd); /* fstat: length in bytes */
    int64_t (*modified_ms)(void *ctx, int fd); /* fstat: time of the last modification, ms since 1970 */
    /* 1: the file has no name, and nobody but the holders of this very descriptor has it open or mapped, in whatever process;
     * so nobody ever will. 0: somebody has, or this file system cannot tell. */
    int (*alone)(void *ctx, int fd);
    /* SEEK_DATA: start of the first data at or beyond offset; the file's length where only a hole follows (a file system
     * without holes says offset itself). Moves the descriptor's own position, which nobody uses. */
    int64_t (*next_data)(void *ctx, int fd, int64_t offset);
    int64_t (*pread)(void *ctx, int fd, void *to, size_t n, int64_t offset);
    int64_t (*pwrite)(void *ctx, int fd, const void *from, size_t n, int64_t offset);
    int (*mmap)(void *ctx, int fd, int64_t offset, size_t n, int writable, void **out); /* MAP_SHARED; writable: DONTFORK */
    int (*munmap)(void *ctx, void *at, size_t n);
    /* Gives back the memory of a whole map, and what the page cache keeps of its file (clean and mapped by nobody). The map
     * stays, and so do its bytes: who looks at them next reads them again. */
    int (*release)(void *ctx, int fd, void *at, size_t n);
    int (*msync)(void *ctx, int fd, void *at, size_t n); /* MS_SYNC; `at` page-aligned; fd is for the record, -1: none */
    int (*fdatasync)(void *ctx, int fd);
    int (*fsync)(void *ctx, int fd);
    int (*fallocate)(void *ctx, int fd, int64_t offset, int64_t n); /* really reserves (posix_fallocate) */
    int (*ftruncate)(void *ctx, int fd, int64_t n);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*unlink)(void *ctx, const char *path);
    int (*mkdir)(void *ctx, const char *path, int mode);
    int (*rmdir)(void *ctx, const char *path);
    int (*sync_dir)(void *ctx, const char *path); /* open, fsync, close of a directory */
    /* take: F_OFD_SETLK write lock on byte 0 of a file, flock of a directory; -EAGAIN if somebody else holds it. Else: gives it
     * up, also for copies of the descriptor that a child of fork has not closed yet. */
    int (*lock)(void *ctx, int fd, int take);
    /* statx STATX_DIOALIGN: what addresses, lengths and offsets of direct I/O on this file must be multiples of; 0: the kernel
     * does not say. -EOPNOTSUPP: no direct I/O here, or none that deserves the name (a file system in memory). */
    int (*direct_align)(void *ctx, int fd);
    int64_t (*pwrite_durable)(void *ctx, int fd, const void *from, size_t n, int64_t offset); /* pwritev2 with RWF_DSYNC */
    /* io_uring: `ring` is a struct io_uring, `params` a struct io_uring_params, `buffers` n struct iovec. */
    int (*ring_setup)(void *ctx, unsigned entries, void *ring, void *params);
    int (*ring_buffers)(void *ctx, void *ring, const void *buffers, unsigned n); /* IORING_REGISTER_BUFFERS */
    int (*ring_files)(void *ctx, void *ring, unsigned slots);                    /* IORING_REGISTER_FILES, all empty */
    int (*ring_file)(void *ctx, void *ring, unsigned slot, int fd);              /* IORING_REGISTER_FILES_UPDATE */
    int (*ring_submit)(void *ctx, void *ring, unsigned wait); /* io_uring_submit_and_wait */
    int (*ring_reap)(void *ctx, void *ring, uint64_t *tag, int *result); /* 1 one completion, 0 none */
    int64_t (*wall_ms)(void *ctx); /* store timestamps: ms since 1970 */
    int64_t (*mono_ns)(void *ctx); /* durations and deadlines */
    /* NULL in production. Told after bytes [offset, offset+n) of the file behind fd were stored through a map. fd -1: `bytes`
     * lie in the map, which says which file it is. */
    void (*map_store)(void *ctx, int fd, int64_t offset, const void *bytes, size_t n);
} rmq_io;

/* The real system calls. The struct is constant and lives as long as the process. */
const rmq_io *rmq_io_system(void);

/* The system's table of one store, and the directories that the store holds on to. While it watches some, every call that
 * makes, opens for writing, renames or removes something by its name first asks whether each path still leads to the directory
 * that it led to then, and fails with -ESTALE where one does not: somebody renamed it, and another store may have its name now.
 * watch and forget: one thread at a time; the calls of the table: any thread, meanwhile too. */
typedef struct rmq_home rmq_home;
rmq_home *rmq_home_new(void); /* NULL: no memory. It watches nothing */
void rmq_home_free(rmq_home *h);
const rmq_io *rmq_home_table(rmq_home *h);
int rmq_home_watch(rmq_home *h, const char *path); /* 0, or -errno of the look at it, or -ENOMEM */
void rmq_home_forget(rmq_home *h);

/* Writes all n bytes or fails: continues short writes from the count and retries EINTR (an entry error: nothing was
 * written). A write of 0 bytes counts as -EIO. Returns 0 or -errno; how much was written before an error is unknown. */
static inline int rmq_pwrite_all(const rmq_io *io, int fd, const void *from, size_t n, int64_t offset) {
    const char *p = (const char *)from;
    while (n > 0) {
        int64_t r = io->pwrite(io->ctx, fd, p, n, offset);
        if (r == -EINTR) continue;
        if (r < 0) return (int)r;
        if (r == 0) return -EIO;
        p += r;
        offset += r;
        n -= (size_t)r;
    }
    return 0;
}

/* Reads up to n bytes, fewer only at the end of the file. Returns the count or -errno. */
static inline int64_t rmq_pread_all(const rmq_io *io, int fd, void *to, size_t n, int64_t offset) {
    char *p = (char *)to;
    size_t left = n;
    while (left > 0) {
        int64_t r = io->pread(io->ctx, fd, p, left, offset);
        if (r == -EINTR) continue;
        if (r < 0) return r;
        if (r == 0) break;
        p += r;
        offset += r;
        left -= (size_t)r;
    }
    return (int64_t)(n - left);
}
#endif
