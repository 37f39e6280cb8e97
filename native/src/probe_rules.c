/* Rules of the probe (rmq_probe.h), and what they do to a call when it begins. Runs in the thread that makes the call. The lock
 * is held for moments only. */
#define _GNU_SOURCE
#include "probe.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum rule_effect { RULE_FAIL, RULE_SHORTEN, RULE_FREEZE };

struct probe_rule {
    probe_rule *next;
    enum rule_effect effect;
    uint64_t kinds;
    int64_t nth, seen;
    int error, sticky;
    char *path;
};

/* ---- rules */

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

/* The lock is held: from here on no store through a map reaches a file that has a name. */
static void freeze(rmq_probe *p) {
    if (p->frozen) return;
    p->frozen = 1;
    for (int i = 0; i < p->map_capacity; i++) {
        probe_map *m = &p->maps[i];
        int fd = m->at != NULL && m->writable && m->path != NULL ? open(m->path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0) continue;
        mmap(m->at, m->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, m->offset);
        close(fd);
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

int rmq_probe_mark(rmq_probe *p, int64_t number) {
    probe_step s;
    probe_begin(&s, p, RMQ_CALL_MARK, -1, NULL, 0);
    s.call.offset = number;
    probe_end(&s, 0, NULL, 0);
    return rmq_probe_length(p) < 0 ? -ENOMEM : 0;
}
