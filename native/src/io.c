/* The real system calls behind the I/O table (rmq_io.h). Stateless but for the home that ctx may be (home.c); any thread. */
#define _GNU_SOURCE
#include "home.h"
#include "rmq_io.h"
#include <fcntl.h>
#include <liburing.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { XFS_MAGIC = 0x58465342 }; /* older headers do not name it */

static int result(int rc) { return rc < 0 ? -errno : rc; }

static int sys_open(void *ctx, const char *path, int flags, int mode) {
    struct stat st;
    int err = (flags & O_ACCMODE) == O_RDONLY ? 0 : rmq_home_check(ctx);
    if (err < 0) return err;
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, mode); /* a pipe would make it wait */
    if (fd < 0) return -errno;
    if (flags & O_DIRECTORY) return fd;
    if (fstat(fd, &st) < 0)
        err = errno;
    else if (!S_ISREG(st.st_mode))
        err = S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
    else if (fcntl(fd, F_SETFL, flags & (O_DIRECT | O_APPEND)) < 0) /* a ring takes O_NONBLOCK for its word, also of a file */
        err = errno;
    if (err == 0) return fd;
    close(fd);
    return -err;
}
static int sys_close(void *ctx, int fd) {
    (void)ctx;
    return result(close(fd));
}
static int64_t sys_size(void *ctx, int fd) {
    (void)ctx;
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}
static int64_t sys_modified_ms(void *ctx, int fd) {
    (void)ctx;
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}
static int sys_alone(void *ctx, int fd) {
    (void)ctx;
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) return -errno;
    if (st.st_nlink > 0) return 0;
    /* Where the inode that is asked is the one that everybody opens: below an overlay, or on a server, there is another one. */
    if (fs.f_type != EXT4_SUPER_MAGIC && fs.f_type != XFS_MAGIC && fs.f_type != BTRFS_SUPER_MAGIC
        && fs.f_type != F2FS_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC)
        return 0;
    /* The kernel grants a write lease only while no other open file is there; a map keeps its open file. Given back at once: it
     * is the answer that is wanted. Whoever opens /proc/PID/fd/N in between breaks the lease, and its signal is one that a
     * process ignores unless it asked for it (SIGIO, the usual one, ends it). */
    if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0) return 0;
    return fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ? -errno : 1;
}
static int64_t sys_next_data(void *ctx, int fd, int64_t offset) {
    off_t at = lseek(fd, offset, SEEK_DATA);
    if (at >= 0) return at;
    return errno == ENXIO ? sys_size(ctx, fd) : -errno;
}
static int64_t sys_pread(void *ctx, int fd, void *to, size_t n, int64_t offset) {
    (void)ctx;
    ssize_t r = pread(fd, to, n, offset);
    return r < 0 ? -errno : r;
}
static int64_t sys_pwrite(void *ctx, int fd, const void *from, size_t n, int64_t offset) {
    (void)ctx;
    ssize_t r = pwrite(fd, from, n, offset);
    return r < 0 ? -errno : r;
}
static int sys_mmap(void *ctx, int fd, int64_t offset, size_t n, int writable, void **out) {
    (void)ctx;
    void *at = mmap(NULL, n, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) return -errno;
    /* a child of fork must not write into the parent's store */
    if (writable && madvise(at, n, MADV_DONTFORK) < 0) {
        int err = errno;
        munmap(at, n);
        return -err;
    }
    *out = at;
    return 0;
}
static int sys_munmap(void *ctx, void *at, size_t n) {
    (void)ctx;
    return result(munmap(at, n));
}
static int sys_release(void *ctx, int fd, void *at, size_t n) {
    (void)ctx;
    /* of a shared map of a file only what this process has in its page tables goes; the kernel keeps what is not written yet */
    if (madvise(at, n, MADV_DONTNEED) < 0) return -errno;
    return -posix_fadvise(fd, 0, (off_t)n, POSIX_FADV_DONTNEED);
}
static int sys_msync(void *ctx, int fd, void *at, size_t n) {
    (void)ctx;
    (void)fd;
    return result(msync(at, n, MS_SYNC));
}
static int sys_fdatasync(void *ctx, int fd) {
    (void)ctx;
    return result(fdatasync(fd));
}
static int sys_fsync(void *ctx, int fd) {
    (void)ctx;
    return result(fsync(fd));
}
static int has_room(int fd, int64_t n) {
    /* What the file has already may lie elsewhere than in the range: then the kernel has the last word, as ever. */
    struct stat st;
    struct statvfs fs;
    int64_t more;
    if (fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0 || fs.f_frsize == 0) return 1; /* it does not tell */
    more = n - (int64_t)st.st_blocks * 512;
    return more <= 0 || (uint64_t)more / fs.f_frsize <= fs.f_bfree;
}

static int sys_fallocate(void *ctx, int fd, int64_t offset, int64_t n) {
    (void)ctx;
    /* ext4 takes all blocks there are before it says that they are too few, and nobody on that disk could write meanwhile. */
    if (offset >= 0 && n > 0 && !has_room(fd, n)) return -ENOSPC;
    return -posix_fallocate(fd, offset, n);
}
static int sys_ftruncate(void *ctx, int fd, int64_t n) {
    (void)ctx;
    return result(ftruncate(fd, n));
}
static int sys_rename(void *ctx, const char *from, const char *to) {
    int rc = rmq_home_check(ctx);
    return rc < 0 ? rc : result(rename(from, to));
}
static int sys_unlink(void *ctx, const char *path) {
    int rc = rmq_home_check(ctx);
    return rc < 0 ? rc : result(unlink(path));
}
static int sys_mkdir(void *ctx, const char *path, int mode) {
    int rc = rmq_home_check(ctx);
    return rc < 0 ? rc : result(mkdir(path, (mode_t)mode));
}
static int sys_rmdir(void *ctx, const char *path) {
    int rc = rmq_home_check(ctx);
    return rc < 0 ? rc : result(rmdir(path));
}
static int sys_sync_dir(void *ctx, const char *path) {
    (void)ctx;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    int rc = result(fsync(fd));
    close(fd);
    return rc;
}
static int sys_lock(void *ctx, int fd, int take) {
    (void)ctx;
    struct flock l = {.l_type = take ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    struct stat st;
    if (fstat(fd, &st) < 0) return -errno;
    if (S_ISDIR(st.st_mode)) return result(flock(fd, take ? LOCK_EX | LOCK_NB : LOCK_UN));
    int rc = result(fcntl(fd, F_OFD_SETLK, &l));
    return rc == -EACCES ? -EAGAIN : rc;
}
static int sys_direct_align(void *ctx, int fd) {
    (void)ctx;
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0) return -errno;
    if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) return -EOPNOTSUPP;
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0) return -errno;
    if (st.stx_mask & STATX_DIOALIGN) {
        unsigned align = st.stx_dio_mem_align > st.stx_dio_offset_align ? st.stx_dio_mem_align : st.stx_dio_offset_align;
        return align == 0 ? -EOPNOTSUPP : (int)align;
    }
#endif
    return 0;
}
static int64_t sys_pwrite_durable(void *ctx, int fd, const void *from, size_t n, int64_t offset) {
    (void)ctx;
    struct iovec v = {(void *)(uintptr_t)from, n};
    ssize_t r = pwritev2(fd, &v, 1, offset, RWF_DSYNC);
    return r < 0 ? -errno : r;
}
static int sys_ring_setup(void *ctx, unsigned entries, void *ring, void *params) {
    (void)ctx;
    return io_uring_queue_init_params(entries, (struct io_uring *)ring, (struct io_uring_params *)params);
}
static int sys_ring_buffers(void *ctx, void *ring, const void *buffers, unsigned n) {
    (void)ctx;
    return io_uring_register_buffers((struct io_uring *)ring, (const struct iovec *)buffers, n);
}
static int sys_ring_files(void *ctx, void *ring, unsigned slots) {
    (void)ctx;
    int none[64];
    if (slots > 64) return -EINVAL;
    for (unsigned i = 0; i < slots; i++) none[i] = -1;
    return io_uring_register_files((struct io_uring *)ring, none, slots);
}
static int sys_ring_file(void *ctx, void *ring, unsigned slot, int fd) {
    (void)ctx;
    int rc = io_uring_register_files_update((struct io_uring *)ring, slot, &fd, 1);
    return rc < 0 ? rc : 0;
}
static int sys_ring_submit(void *ctx, void *ring, unsigned wait) {
    (void)ctx;
    return io_uring_submit_and_wait((struct io_uring *)ring, wait);
}
static int sys_ring_reap(void *ctx, void *ring, uint64_t *tag, int *res) {
    (void)ctx;
    struct io_uring_cqe *cqe;
    int rc = io_uring_peek_cqe((struct io_uring *)ring, &cqe);
    if (rc == -EAGAIN) return 0;
    if (rc < 0) return rc;
    *tag = cqe->user_data;
    *res = cqe->res;
    io_uring_cqe_seen((struct io_uring *)ring, cqe);
    return 1;
}
static int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static int64_t sys_wall_ms(void *ctx) {
    (void)ctx;
    return clock_ns(CLOCK_REALTIME) / 1000000;
}
static int64_t sys_mono_ns(void *ctx) {
    (void)ctx;
    return clock_ns(CLOCK_MONOTONIC);
}

static const rmq_io system_io = {
    .open = sys_open, .close = sys_close, .size = sys_size,
    .modified_ms = sys_modified_ms, .alone = sys_alone, .next_data = sys_next_data, .pread = sys_pread, .pwrite = sys_pwrite,
    .mmap = sys_mmap, .munmap = sys_munmap, .release = sys_release, .msync = sys_msync, .fdatasync = sys_fdatasync,
    .fsync = sys_fsync,
    .fallocate = sys_fallocate, .ftruncate = sys_ftruncate, .rename = sys_rename, .unlink = sys_unlink,
    .mkdir = sys_mkdir, .rmdir = sys_rmdir, .sync_dir = sys_sync_dir, .lock = sys_lock,
    .direct_align = sys_direct_align, .pwrite_durable = sys_pwrite_durable, .ring_setup = sys_ring_setup,
    .ring_buffers = sys_ring_buffers, .ring_files = sys_ring_files, .ring_file = sys_ring_file,
    .ring_submit = sys_ring_submit, .ring_reap = sys_ring_reap, .wall_ms = sys_wall_ms, .mono_ns = sys_mono_ns,
};

const rmq_io *rmq_io_system(void) { return &system_io; }
