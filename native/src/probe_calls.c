/* The calls of the probe's table but those on rings (rmq_probe.h). Runs in the thread of whoever calls. Each function asks the
 * rules, makes the call below unless they forbid it, and traces the outcome; none retries. */
#define _GNU_SOURCE
#include "probe.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a call on a frozen directory finds where it would make or empty a file: memory, so that the caller runs on. */
static int open_ghost(const char *path, int flags) {
    int exists = access(path, F_OK) == 0;
    if (!exists && !(flags & O_CREAT)) return -ENOENT;
    if (exists && (flags & O_CREAT) && (flags & O_EXCL)) return -EEXIST;
    if (exists && !(flags & O_TRUNC)) return 0; /* only opens: may be done */
    int fd = memfd_create("after the freeze", MFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int probe_open(void *ctx, const char *path, int flags, int mode) {
    rmq_probe *p = ctx;
    probe_step s;
    int rc = 0, ghost = 0;
    probe_begin(&s, p, RMQ_CALL_OPEN, -1, path, (flags & (O_CREAT | O_TRUNC)) != 0);
    s.call.flags = flags;
    s.call.length = mode;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    if (s.skip) {
        rc = open_ghost(path, flags);
        ghost = rc > 0;
        flags &= ~(O_CREAT | O_TRUNC | O_EXCL);
    }
    if (rc == 0) rc = p->below->open(p->below->ctx, path, flags, mode);
    probe_lock(p);
    if (rc >= 0) {
        probe_file *f = probe_file_at(p, rc);
        if (f != NULL) *f = (probe_file){.path = s.call.path, .ghost = ghost};
        s.call.fd = rc;
    }
    probe_append(&s, rc, NULL, 0);
    probe_unlock(p);
    return rc;
}

static int probe_close(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_CLOSE, fd, NULL, 0);
    /* A failed close has closed all the same, as in Linux. Traced before it is done: right after it another thread may get the
     * same number from open. */
    probe_lock(p);
    if (fd >= 0 && fd < p->file_capacity) p->files[fd] = (probe_file){0};
    int64_t at = p->length;
    probe_append(&s, 0, NULL, 0);
    probe_unlock(p);
    int rc = p->below->close(p->below->ctx, fd);
    if (s.error) rc = -s.error;
    if (rc < 0) {
        probe_lock(p);
        if (at < p->length) p->calls[at].result = rc;
        probe_unlock(p);
    }
    return rc;
}

static int64_t probe_size(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_SIZE, fd, NULL, 0);
    return probe_end(&s, s.error ? -s.error : p->below->size(p->below->ctx, fd), NULL, 0);
}

static int64_t probe_modified_ms(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MODIFIED_MS, fd, NULL, 0);
    return probe_end(&s, s.error ? -s.error : p->below->modified_ms(p->below->ctx, fd), NULL, 0);
}

static int probe_alone(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_ALONE, fd, NULL, 0);
    return (int)probe_end(&s, s.error ? -s.error : p->below->alone(p->below->ctx, fd), NULL, 0);
}

static int64_t probe_next_data(void *ctx, int fd, int64_t offset) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_NEXT_DATA, fd, NULL, 0);
    s.call.offset = offset;
    return probe_end(&s, s.error ? -s.error : p->below->next_data(p->below->ctx, fd, offset), NULL, 0);
}

static int64_t probe_pread(void *ctx, int fd, void *to, size_t n, int64_t offset) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_PREAD, fd, NULL, 0);
    s.call.offset = offset;
    s.call.length = (int64_t)n;
    if (s.error) return probe_end(&s, -s.error, NULL, 0);
    if (s.shorten && n > 1) n /= 2;
    return probe_end(&s, p->below->pread(p->below->ctx, fd, to, n, offset), NULL, 0);
}

static int64_t write_some(rmq_probe *p, int fd, const void *from, size_t n, int64_t offset, int durable) {
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_PWRITE, fd, NULL, 1);
    s.call.flags = durable ? RMQ_CALL_DSYNC : 0;
    s.call.offset = offset;
    s.call.length = (int64_t)n;
    if (s.error) return probe_end(&s, -s.error, NULL, 0);
    if (s.shorten && n > 1) n /= 2;
    int64_t rc = s.skip    ? (int64_t)n
                 : durable ? p->below->pwrite_durable(p->below->ctx, fd, from, n, offset)
                           : p->below->pwrite(p->below->ctx, fd, from, n, offset);
    return probe_end(&s, rc, from, rc);
}

static int64_t probe_pwrite(void *ctx, int fd, const void *from, size_t n, int64_t offset) {
    return write_some(ctx, fd, from, n, offset, 0);
}

static int64_t probe_pwrite_durable(void *ctx, int fd, const void *from, size_t n, int64_t offset) {
    return write_some(ctx, fd, from, n, offset, 1);
}

static int probe_direct_align(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_DIRECT_ALIGN, fd, NULL, 0);
    return (int)probe_end(&s, s.error ? -s.error : p->below->direct_align(p->below->ctx, fd), NULL, 0);
}

/* The lock is held. */
static probe_map *free_map(rmq_probe *p) {
    for (int i = 0; i < p->map_capacity; i++)
        if (p->maps[i].at == NULL) return &p->maps[i];
    int capacity = p->map_capacity + 32;
    probe_map *more = realloc(p->maps, (size_t)capacity * sizeof(probe_map));
    if (more == NULL) {
        p->torn = 1;
        return NULL;
    }
    memset(more + p->map_capacity, 0, 32 * sizeof(probe_map));
    p->maps = more;
    p->map_capacity = capacity;
    return &p->maps[capacity - 32];
}

/* The lock is held. The map that holds `at`, or NULL. */
static probe_map *find_map(rmq_probe *p, const void *at) {
    for (int i = 0; i < p->map_capacity; i++) {
        probe_map *m = &p->maps[i];
        if (m->at != NULL && (const char *)at >= (char *)m->at && (const char *)at < (char *)m->at + m->n) return m;
    }
    return NULL;
}

static const char *map_path(rmq_probe *p, const void *at) {
    probe_lock(p);
    probe_map *m = find_map(p, at);
    const char *path = m == NULL ? NULL : m->path;
    probe_unlock(p);
    return path;
}

static size_t whole_pages(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page;
}

/* Moves a map before a page that nobody may touch: who reads behind the end of a file dies there, whatever lies around. */
static int guard_map(void **at, size_t n) {
    size_t size = whole_pages(n), page = whole_pages(1);
    char *to = mmap(NULL, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to == MAP_FAILED) return -errno;
    if (mremap(*at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
        int error = errno;
        munmap(to, size + page);
        return -error;
    }
    *at = to;
    return 0;
}

static int probe_mmap(void *ctx, int fd, int64_t offset, size_t n, int writable, void **out) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MMAP, fd, NULL, 0);
    s.call.offset = offset;
    s.call.length = (int64_t)n;
    s.call.flags = writable;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    /* After a freeze the file may lack what the caller believes it has reserved: an error, not a SIGBUS later. */
    if (s.skip && p->below->size(p->below->ctx, fd) < offset + (int64_t)n) return (int)probe_end(&s, -EIO, NULL, 0);
    int rc = p->below->mmap(p->below->ctx, fd, offset, n, writable, out);
    if (rc >= 0 && (rc = guard_map(out, n)) < 0) p->below->munmap(p->below->ctx, *out, n);
    probe_lock(p);
    if (rc >= 0) {
        probe_map *m = free_map(p);
        if (m != NULL) *m = (probe_map){.at = *out, .n = n, .path = s.call.path, .writable = writable, .offset = offset};
        if (writable && (s.skip || (p->frozen && !s.call.ignored))) /* the freeze did not know of this map */
            mmap(*out, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, offset);
    }
    probe_append(&s, rc, NULL, 0);
    probe_unlock(p);
    return rc;
}

static int probe_munmap(void *ctx, void *at, size_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_lock(p);
    probe_map *m = find_map(p, at);
    const char *path = m == NULL ? NULL : m->path;
    int64_t offset = m == NULL ? 0 : m->offset;
    probe_unlock(p);
    probe_begin(&s, p, RMQ_CALL_MUNMAP, -1, path, 0);
    s.call.offset = offset;
    s.call.length = (int64_t)n;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    /* Forgotten first: right after the call another thread may get the same address. */
    probe_lock(p);
    m = find_map(p, at);
    if (m != NULL) m->at = NULL;
    probe_unlock(p);
    munmap((char *)at + whole_pages(n), whole_pages(1));
    return (int)probe_end(&s, p->below->munmap(p->below->ctx, at, n), NULL, 0);
}

static int probe_release(void *ctx, int fd, void *at, size_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RELEASE, fd, NULL, 0);
    s.call.length = (int64_t)n;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    /* After a freeze the map is a copy, which would be lost. */
    return (int)probe_end(&s, s.skip ? 0 : p->below->release(p->below->ctx, fd, at, n), NULL, 0);
}

static int probe_msync(void *ctx, int fd, void *at, size_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MSYNC, fd, fd < 0 ? map_path(p, at) : NULL, 0);
    probe_lock(p);
    probe_map *m = find_map(p, at);
    s.call.offset = m == NULL ? -1 : m->offset + ((char *)at - (char *)m->at);
    probe_unlock(p);
    s.call.length = (int64_t)n;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->msync(p->below->ctx, fd, at, n), NULL, 0);
}

static int probe_fdatasync(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_FDATASYNC, fd, NULL, 0);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->fdatasync(p->below->ctx, fd), NULL, 0);
}

static int probe_fsync(void *ctx, int fd) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_FSYNC, fd, NULL, 0);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->fsync(p->below->ctx, fd), NULL, 0);
}

static int probe_fallocate(void *ctx, int fd, int64_t offset, int64_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_FALLOCATE, fd, NULL, 1);
    s.call.offset = offset;
    s.call.length = n;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->fallocate(p->below->ctx, fd, offset, n), NULL, 0);
}

static int probe_ftruncate(void *ctx, int fd, int64_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_FTRUNCATE, fd, NULL, 1);
    s.call.length = n;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->ftruncate(p->below->ctx, fd, n), NULL, 0);
}

static int probe_rename(void *ctx, const char *from, const char *to) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RENAME, -1, from, 1);
    if (s.error == 0 && !s.skip) {
        int rc = p->below->rename(p->below->ctx, from, to);
        if (rc < 0) s.error = -rc;
    }
    probe_lock(p);
    s.call.target = probe_text(p, to);
    for (int fd = 0; s.error == 0 && fd < p->file_capacity; fd++)
        if (p->files[fd].path != NULL && strcmp(p->files[fd].path, from) == 0) p->files[fd].path = s.call.target;
    for (int i = 0; s.error == 0 && i < p->map_capacity; i++)
        if (p->maps[i].path != NULL && strcmp(p->maps[i].path, from) == 0) p->maps[i].path = s.call.target;
    probe_append(&s, -s.error, NULL, 0);
    probe_unlock(p);
    return -s.error;
}

static int probe_unlink(void *ctx, const char *path) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_UNLINK, -1, path, 1);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->unlink(p->below->ctx, path), NULL, 0);
}

static int probe_mkdir(void *ctx, const char *path, int mode) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MKDIR, -1, path, 1);
    s.call.length = mode;
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->mkdir(p->below->ctx, path, mode), NULL, 0);
}

static int probe_rmdir(void *ctx, const char *path) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_RMDIR, -1, path, 1);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->rmdir(p->below->ctx, path), NULL, 0);
}

static int probe_sync_dir(void *ctx, const char *path) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_SYNC_DIR, -1, path, 0);
    if (s.error) return (int)probe_end(&s, -s.error, NULL, 0);
    return (int)probe_end(&s, s.skip ? 0 : p->below->sync_dir(p->below->ctx, path), NULL, 0);
}

static int probe_lock_file(void *ctx, int fd, int take) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_LOCK, fd, NULL, 0);
    s.call.flags = take;
    return (int)probe_end(&s, s.error ? -s.error : p->below->lock(p->below->ctx, fd, take), NULL, 0);
}

/* The store has happened: rules cannot fail it, but a freeze can follow it. */
static void probe_map_store(void *ctx, int fd, int64_t offset, const void *bytes, size_t n) {
    rmq_probe *p = ctx;
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MAP_STORE, fd, fd < 0 ? map_path(p, bytes) : NULL, 1);
    s.call.offset = offset;
    s.call.length = (int64_t)n;
    probe_end(&s, (int64_t)n, bytes, (int64_t)n);
}

void probe_fill_calls(rmq_io *table) {
    table->open = probe_open;
    table->close = probe_close;
    table->size = probe_size;
    table->modified_ms = probe_modified_ms;
    table->alone = probe_alone;
    table->next_data = probe_next_data;
    table->pread = probe_pread;
    table->pwrite = probe_pwrite;
    table->pwrite_durable = probe_pwrite_durable;
    table->direct_align = probe_direct_align;
    table->mmap = probe_mmap;
    table->munmap = probe_munmap;
    table->release = probe_release;
    table->msync = probe_msync;
    table->fdatasync = probe_fdatasync;
    table->fsync = probe_fsync;
    table->fallocate = probe_fallocate;
    table->ftruncate = probe_ftruncate;
    table->rename = probe_rename;
    table->unlink = probe_unlink;
    table->mkdir = probe_mkdir;
    table->rmdir = probe_rmdir;
    table->sync_dir = probe_sync_dir;
    table->lock = probe_lock_file;
    table->map_store = probe_map_store;
}
