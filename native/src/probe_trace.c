/* Trace and memory of the probe (rmq_probe.h), which its other files use. Memory is taken freely: this is a tool of tests. */
#define _GNU_SOURCE
#include "probe.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK_SIZE = 1 << 20 };

struct probe_chunk {
    probe_chunk *next;
    size_t used, size;
    unsigned char bytes[];
};

static const char *const kind_names[RMQ_CALL_KINDS] = {
    "open", "close", "size", "modified_ms", "alone", "next_data", "pread", "pwrite", "mmap", "munmap", "release", "msync",
    "fdatasync", "fsync", "fallocate", "ftruncate", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "lock", "direct_align", "ring_setup",
    "ring_buffers", "ring_files", "ring_file", "ring_submit", "ring_write", "ring_sync", "ring_reap", "map_store", "mono_ns",
    "mark",
};

const char *rmq_probe_kind_name(rmq_call_kind kind) { return kind_names[kind]; }

void probe_lock(rmq_probe *p) { rmq_mutex_lock(&p->lock); }

void probe_unlock(rmq_probe *p) { rmq_mutex_unlock(&p->lock); }

int probe_matches(uint64_t kinds, const char *in_path, uint64_t bits, const char *path) {
    return (kinds & bits) != 0 && (in_path == NULL || (path != NULL && strstr(path, in_path) != NULL));
}

/* ---- memory */

static unsigned char *take(rmq_probe *p, size_t n) {
    probe_chunk *c = p->memory;
    if (c == NULL || c->size - c->used < n) {
        size_t size = n > CHUNK_SIZE ? n : CHUNK_SIZE;
        c = malloc(sizeof(probe_chunk) + size);
        if (c == NULL) {
            p->torn = 1;
            return NULL;
        }
        *c = (probe_chunk){.next = p->memory, .size = size};
        p->memory = c;
    }
    c->used += n;
    return c->bytes + c->used - n;
}

const char *probe_text(rmq_probe *p, const char *text) {
    size_t n = strlen(text) + 1;
    unsigned char *out = take(p, n);
    if (out != NULL) memcpy(out, text, n);
    return (const char *)out;
}

probe_file *probe_file_at(rmq_probe *p, int fd) {
    if (fd >= p->file_capacity) {
        int capacity = fd + 64;
        probe_file *more = realloc(p->files, (size_t)capacity * sizeof(probe_file));
        if (more == NULL) {
            p->torn = 1;
            return NULL;
        }
        memset(more + p->file_capacity, 0, (size_t)(capacity - p->file_capacity) * sizeof(probe_file));
        p->files = more;
        p->file_capacity = capacity;
    }
    return &p->files[fd];
}

void probe_free_memory(rmq_probe *p) {
    for (probe_chunk *c = p->memory, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
}

/* ---- trace */

int64_t probe_append(probe_step *s, int64_t result, const void *data, int64_t data_size) {
    rmq_probe *p = s->p;
    if ((p->length_max > 0 && p->length >= p->length_max) || (p->bytes_max > 0 && p->bytes + data_size > p->bytes_max))
        p->full = 1;
    if (p->full) return result;
    if (p->length == p->capacity) {
        int64_t capacity = p->capacity * 2 + 256;
        rmq_call *more = realloc(p->calls, (size_t)capacity * sizeof(rmq_call));
        if (more == NULL) {
            p->torn = 1;
            return result;
        }
        p->calls = more;
        p->capacity = capacity;
    }
    s->call.result = result;
    s->call.time_ns = p->below->mono_ns(p->below->ctx);
    if (p->keep_bytes && data_size > 0) {
        unsigned char *copy = take(p, (size_t)data_size);
        if (copy != NULL) {
            memcpy(copy, data, (size_t)data_size);
            p->bytes += data_size;
            s->call.data = copy;
            s->call.data_size = data_size;
        }
    }
    p->calls[p->length++] = s->call;
    return result;
}

int64_t probe_end(probe_step *s, int64_t result, const void *data, int64_t data_size) {
    probe_lock(s->p);
    probe_append(s, result, data, data_size);
    probe_unlock(s->p);
    return result;
}

void rmq_probe_limit(rmq_probe *p, int64_t calls, int64_t bytes) {
    rmq_mutex_lock(&p->lock);
    p->length_max = calls;
    p->bytes_max = bytes;
    rmq_mutex_unlock(&p->lock);
}

int rmq_probe_full(rmq_probe *p) {
    rmq_mutex_lock(&p->lock);
    int full = p->full;
    rmq_mutex_unlock(&p->lock);
    return full;
}

int64_t rmq_probe_length(rmq_probe *p) {
    rmq_mutex_lock(&p->lock);
    int64_t n = p->torn ? -ENOMEM : p->length;
    rmq_mutex_unlock(&p->lock);
    return n;
}

int rmq_probe_at(rmq_probe *p, int64_t i, rmq_call *out) {
    int rc = -EINVAL;
    rmq_mutex_lock(&p->lock);
    if (i >= 0 && i < p->length) {
        *out = p->calls[i];
        rc = 0;
    }
    rmq_mutex_unlock(&p->lock);
    return rc;
}

int64_t rmq_probe_count(rmq_probe *p, rmq_call_kind kind) {
    rmq_mutex_lock(&p->lock);
    int64_t n = p->counts[kind];
    rmq_mutex_unlock(&p->lock);
    return n;
}
