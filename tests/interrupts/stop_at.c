/* Stops one call of an I/O table: the n-th one writes a byte to a pipe and waits for an answer, a tenth of a second at most,
 * since whoever answers may need what the caller has. Then it is made. Every call is one step, also those no trace has. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "rmq_io.h"

static rmq_io below;
static int64_t calls, chosen;
static int tell = -1, answer = -1;
static pthread_t main_thread;
static int in_main;

static void step(void) {
    char byte = 'x';
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) != __atomic_load_n(&chosen, __ATOMIC_SEQ_CST)) return;
    in_main = pthread_equal(pthread_self(), main_thread);
    if (write(tell, &byte, 1) != 1) return;
    struct pollfd fd = {answer, POLLIN, 0};
    (void)poll(&fd, 1, 100);
}

#define WRAP(type, name, given, names) \
    static type name##_step given { step(); return below.name names; }
WRAP(int, open, (void *c, const char *p, int f, int m), (c, p, f, m))
WRAP(int, close, (void *c, int fd), (c, fd))
WRAP(int64_t, size, (void *c, int fd), (c, fd))
WRAP(int64_t, pread, (void *c, int fd, void *to, size_t n, int64_t o), (c, fd, to, n, o))
WRAP(int64_t, pwrite, (void *c, int fd, const void *from, size_t n, int64_t o), (c, fd, from, n, o))
WRAP(int, mmap, (void *c, int fd, int64_t o, size_t n, int w, void **out), (c, fd, o, n, w, out))
WRAP(int, munmap, (void *c, void *at, size_t n), (c, at, n))
WRAP(int, msync, (void *c, int fd, void *at, size_t n), (c, fd, at, n))
WRAP(int, fdatasync, (void *c, int fd), (c, fd))
WRAP(int, fsync, (void *c, int fd), (c, fd))
WRAP(int, fallocate, (void *c, int fd, int64_t o, int64_t n), (c, fd, o, n))
WRAP(int, ftruncate, (void *c, int fd, int64_t n), (c, fd, n))
WRAP(int, rename, (void *c, const char *a, const char *b), (c, a, b))
WRAP(int, unlink, (void *c, const char *p), (c, p))
WRAP(int, mkdir, (void *c, const char *p, int m), (c, p, m))
WRAP(int, rmdir, (void *c, const char *p), (c, p))
WRAP(int, sync_dir, (void *c, const char *p), (c, p))
WRAP(int, lock, (void *c, int fd, int take), (c, fd, take))
WRAP(int64_t, pwrite_durable, (void *c, int fd, const void *from, size_t n, int64_t o), (c, fd, from, n, o))
WRAP(int, ring_submit, (void *c, void *r, unsigned w), (c, r, w))

/* In the main thread. tell_fd: gets the byte; answer_fd: where the answer comes from. */
void stop_install(rmq_io *table, int tell_fd, int answer_fd) {
    below = *table;
    main_thread = pthread_self();
    tell = tell_fd;
    answer = answer_fd;
#define PUT(name) table->name = name##_step
    PUT(open); PUT(close); PUT(size); PUT(pread); PUT(pwrite); PUT(mmap); PUT(munmap); PUT(msync); PUT(fdatasync); PUT(fsync);
    PUT(fallocate); PUT(ftruncate); PUT(rename); PUT(unlink); PUT(mkdir); PUT(rmdir); PUT(sync_dir); PUT(lock);
    PUT(pwrite_durable); PUT(ring_submit);
}
/* Counts from now on; 0: nothing is stopped. */
void stop_at(int64_t n) {
    __atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&chosen, n, __ATOMIC_SEQ_CST);
}
int64_t stop_calls(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
int stop_in_main(void) { return in_main; }
