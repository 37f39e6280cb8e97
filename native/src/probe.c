/* Rules, trace and clock of the probe (rmq_probe.h). Runs in whatever thread makes a call. The lock is held for moments only;
 * memory is taken freely: this is a tool of tests. */
#define _GNU_SOURCE
#include "probe.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHUNK_SIZE = 1 << 20 };
enum rule_effect { RULE_FAIL, RULE_SHORTEN, RULE_FREEZE };

struct probe_chunk {
    probe_chunk *next;
    size_t used, size;
    unsigned char bytes[];
};

struct probe_rule {
    probe_rule *next;
    enum rule_effect effect;
    uint64_t kinds;
    int64_t nth, seen;
    int error, sticky;
    char *path;
};

static const char *const kind_names[RMQ_CALL_KINDS] = {
    "open", "close", "size", "modified_ms", "alone", "next_data", "pread", "pwrite", "mmap", "munmap", "msync", "fdatasync",
    "fsync", "fallocate", "ftruncate", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "lock", "direct_align", "ring_setup",
    "ring_buffers", "ring_files", "ring_file", "ring_submit", "ring_write", "ring_sync", "ring_reap", "map_store", "mono_ns",
    "mark",
};

const char *rmq_probe_kind_name(rmq_call_kind kind) { return kind_names[kind]; }

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

/* ---- life */

static int64_t probe_wall_ms(void *ctx) {
    rmq_probe *p = ctx;
    if (rmq_load32(&p->clock_injected) == 0) return p->below->wall_ms(p->below->ctx);
    int64_t step = rmq_load(&p->clock_step);
    return rmq_add(&p->clock_ms, step) - step;
}
static int64_t probe_mono_ns(void *ctx) {
    rmq_probe *p = ctx;
    if (rmq_load32(&p->clock_gates) != 0) {
        probe_lock(p);
        int gated = probe_gated(p, RMQ_CALLS(RMQ_CALL_MONO_NS), NULL);
        probe_unlock(p);
        if (gated) probe_stand(p, RMQ_CALL_MONO_NS, NULL);
    }
    return p->below->mono_ns(p->below->ctx);
}

rmq_probe *rmq_probe_new(const rmq_io *below, int keep_bytes) {
    rmq_probe *p = calloc(1, sizeof(rmq_probe));
    if (p == NULL) return NULL;
    p->below = below;
    p->keep_bytes = keep_bytes;
    probe_fill_calls(&p->table);
    probe_fill_ring(&p->table);
    p->table.wall_ms = probe_wall_ms;
    p->table.mono_ns = probe_mono_ns;
    p->table.ctx = p;
    return p;
}

void rmq_probe_free(rmq_probe *p) {
    if (p == NULL) return;
    rmq_probe_clear(p);
    rmq_probe_ungate(p);
    for (probe_chunk *c = p->memory, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    free(p->calls);
    free(p->files);
    free(p->maps);
    free(p->flights);
    free(p->slots);
    free(p->hold_path);
    free(p);
}

const rmq_io *rmq_probe_table(rmq_probe *p) { return &p->table; }

void rmq_probe_clock(rmq_probe *p, int real, int64_t ms, int64_t step) {
    rmq_publish(&p->clock_step, step);
    rmq_publish(&p->clock_ms, ms);
    rmq_publish32(&p->clock_injected, !real);
}

/* ---- rules */

int probe_matches(uint64_t kinds, const char *in_path, uint64_t bits, const char *path) {
    return (kinds & bits) != 0 && (in_path == NULL || (path != NULL && strstr(path, in_path) != NULL));
}

static int add_rule(rmq_probe *p, probe_rule rule, const char *path) {
    rule.kinds &= ~RMQ_CALLS(RMQ_CALL_MONO_NS);
    if (rule.kinds == 0 || rule.nth < 1) return -EINVAL;
    probe_rule *r = malloc(sizeof(probe_rule));
    char *copy = path == NULL ? NULL : strdup(path);
    if (r == NULL || (path != NULL && copy == NULL)) {
        free(r);
        free(copy);
        return -ENOMEM;
    }
    *r = rule;
    r->path = copy;
    rmq_mutex_lock(&p->lock);
    probe_rule **last = &p->rules; /* the oldest rule speaks first */
    while (*last != NULL) last = &(*last)->next;
    *last = r;
    rmq_mutex_unlock(&p->lock);
    return 0;
}

int rmq_probe_fail(rmq_probe *p, uint64_t kinds, int64_t nth, int error, const char *path, int sticky) {
    if (error <= 0) return -EINVAL;
    return add_rule(p, (probe_rule){.effect = RULE_FAIL, .kinds = kinds, .nth = nth, .error = error, .sticky = sticky}, path);
}

int rmq_probe_shorten(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path, int sticky) {
    kinds &= RMQ_CALLS(RMQ_CALL_PREAD) | RMQ_CALLS(RMQ_CALL_PWRITE) | RMQ_CALLS(RMQ_CALL_RING_WRITE);
    return add_rule(p, (probe_rule){.effect = RULE_SHORTEN, .kinds = kinds, .nth = nth, .sticky = sticky}, path);
}

void rmq_probe_clear(rmq_probe *p) {
    rmq_mutex_lock(&p->lock);
    probe_rule *r = p->rules;
    p->rules = NULL;
    rmq_mutex_unlock(&p->lock);
    for (probe_rule *next; r != NULL; r = next) {
        next = r->next;
        free(r->path);
        free(r);
    }
}

/* The lock is held: from here on no store through a map reaches a file. */
static void freeze(rmq_probe *p) {
    if (p->frozen) return;
    p->frozen = 1;
    for (int i = 0; i < p->map_capacity; i++) {
        probe_map *m = &p->maps[i];
        if (m->at != NULL && m->writable)
            mmap(m->at, m->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, m->fd, m->offset);
    }
}

int rmq_probe_freeze(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path) {
    if (nth > 0) return add_rule(p, (probe_rule){.effect = RULE_FREEZE, .kinds = kinds, .nth = nth}, path);
    rmq_mutex_lock(&p->lock);
    freeze(p);
    rmq_mutex_unlock(&p->lock);
    return 0;
}

int rmq_probe_frozen(rmq_probe *p) {
    rmq_mutex_lock(&p->lock);
    int frozen = p->frozen;
    rmq_mutex_unlock(&p->lock);
    return frozen;
}

int64_t rmq_probe_hits(rmq_probe *p) {
    rmq_mutex_lock(&p->lock);
    int64_t hits = p->hits;
    rmq_mutex_unlock(&p->lock);
    return hits;
}

/* The lock is held. */
static void apply_rules(probe_step *s, uint64_t bits) {
    rmq_probe *p = s->p;
    int fired = 0;
    for (probe_rule *r = p->rules; r != NULL; r = r->next) {
        if (!probe_matches(r->kinds, r->path, bits, s->call.path)) continue;
        r->seen++;
        if (fired || !(r->seen == r->nth || (r->sticky && r->seen > r->nth))) continue;
        if (r->effect == RULE_FAIL) s->error = r->error;
        if (r->effect == RULE_SHORTEN) s->shorten = 1;
        if (r->effect == RULE_FREEZE) s->freeze = 1;
        fired = 1;
        p->hits++;
    }
}

/* ---- holding */

int rmq_probe_hold(rmq_probe *p, uint64_t kinds, const char *path) {
    char *copy = path == NULL ? NULL : strdup(path);
    if (path != NULL && copy == NULL) return -ENOMEM;
    rmq_mutex_lock(&p->lock);
    free(p->hold_path);
    p->hold_path = copy;
    p->hold_kinds = kinds;
    rmq_mutex_unlock(&p->lock);
    rmq_event_wake(&p->released);
    return 0;
}

/* Counts only while it really waits: wait_held then means that a call stands still. */
static void wait_released(probe_step *s, uint64_t bits) {
    rmq_probe *p = s->p;
    int counted = 0;
    for (;;) {
        int ticket = rmq_event_ticket(&p->released);
        rmq_mutex_lock(&p->lock);
        int wait = probe_matches(p->hold_kinds, p->hold_path, bits, s->call.path);
        int change = wait != counted;
        if (change) p->held += wait ? 1 : -1;
        counted = wait;
        rmq_mutex_unlock(&p->lock);
        if (change) rmq_event_wake(&p->held_changed);
        if (!wait) return;
        rmq_event_wait(&p->released, ticket, -1);
    }
}

int rmq_probe_wait_held(rmq_probe *p, int n, int64_t timeout_ns) {
    int64_t deadline = p->below->mono_ns(p->below->ctx) + timeout_ns;
    for (;;) {
        int ticket = rmq_event_ticket(&p->held_changed);
        rmq_mutex_lock(&p->lock);
        int held = p->held;
        rmq_mutex_unlock(&p->lock);
        if (held >= n) return 0;
        int64_t now = p->below->mono_ns(p->below->ctx);
        if (now >= deadline) return -ETIMEDOUT;
        rmq_event_wait(&p->held_changed, ticket, deadline - now);
    }
}

/* ---- one call */

void probe_begin(probe_step *s, rmq_probe *p, rmq_call_kind kind, int fd, const char *path, int mutates) {
    *s = (probe_step){.p = p, .call = {.kind = kind, .fd = fd}};
    uint64_t bits = RMQ_CALLS(kind) | (mutates ? RMQ_CALLS_MUTATE : 0);
    int ghost = 0;
    rmq_mutex_lock(&p->lock);
    if (path != NULL) {
        s->call.path = probe_text(p, path);
    } else if (fd >= 0 && fd < p->file_capacity) {
        s->call.path = p->files[fd].path;
        ghost = p->files[fd].ghost;
    }
    s->call.begin = p->length;
    s->call.ignored = p->frozen;
    s->skip = p->frozen && !ghost;
    p->counts[kind]++;
    apply_rules(s, bits);
    if (s->freeze) freeze(p); /* this call is still made; stores through maps are cut off before it is */
    int hold = probe_matches(p->hold_kinds, p->hold_path, bits, s->call.path);
    int gated = kind != RMQ_CALL_RING_REAP && probe_gated(p, bits, s->call.path);
    rmq_mutex_unlock(&p->lock);
    if (hold) wait_released(s, bits);
    if (gated) probe_stand(p, kind, s->call.path);
}

void probe_lock(rmq_probe *p) { rmq_mutex_lock(&p->lock); }

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

void probe_unlock(rmq_probe *p) { rmq_mutex_unlock(&p->lock); }

int64_t probe_end(probe_step *s, int64_t result, const void *data, int64_t data_size) {
    probe_lock(s->p);
    probe_append(s, result, data, data_size);
    probe_unlock(s->p);
    return result;
}

/* ---- trace */

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

int rmq_probe_mark(rmq_probe *p, int64_t number) {
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MARK, -1, NULL, 0);
    s.call.offset = number;
    probe_end(&s, 0, NULL, 0);
    return rmq_probe_length(p) < 0 ? -ENOMEM : 0;
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
