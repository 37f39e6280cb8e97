/* Gates of the probe (rmq_probe.h): calls that stand still one by one, and are let go one by one. A thread that stands sleeps
 * on the probe's event, its note is on its own stack; whoever lets it go takes the note out of the list first. */
#define _GNU_SOURCE
#include "probe.h"
#include <stdlib.h>
#include <string.h>

static int my_thread(void) { return (int)syscall(SYS_gettid); }

int rmq_probe_gate(rmq_probe *p, uint64_t kinds, const char *path, int thread) {
    probe_gate *g = malloc(sizeof(probe_gate));
    char *copy = path == NULL ? NULL : strdup(path);
    if (g == NULL || (path != NULL && copy == NULL)) {
        free(g);
        free(copy);
        return -ENOMEM;
    }
    probe_lock(p);
    *g = (probe_gate){.next = p->gates, .kinds = kinds, .thread = thread, .path = copy};
    p->gates = g;
    if (kinds & RMQ_CALLS(RMQ_CALL_MONO_NS)) rmq_add32(&p->clock_gates, 1);
    probe_unlock(p);
    return 0;
}

int probe_gated(rmq_probe *p, uint64_t bits, const char *path) {
    int thread = p->gates == NULL ? 0 : my_thread();
    for (probe_gate *g = p->gates; g != NULL; g = g->next)
        if ((g->thread == 0 || g->thread == thread) && probe_matches(g->kinds, g->path, bits, path)) return 1;
    return 0;
}

void probe_stand(rmq_probe *p, rmq_call_kind kind, const char *path) {
    probe_standing me = {.what = {.kind = kind, .thread = my_thread(), .path = path}};
    probe_lock(p);
    if (p->gates == NULL) { /* taken away in between */
        probe_unlock(p);
        return;
    }
    me.what.ticket = ++p->tickets;
    probe_standing **last = &p->standing;
    while (*last != NULL) last = &(*last)->next;
    *last = &me;
    probe_unlock(p);
    rmq_event_wake(&p->held_changed);
    for (;;) {
        int ticket = rmq_event_ticket(&p->released);
        probe_lock(p);
        int go = me.go;
        probe_unlock(p);
        if (go) return;
        rmq_event_wait(&p->released, ticket, -1);
    }
}

int rmq_probe_let(rmq_probe *p, int64_t ticket) {
    int rc = -EINVAL;
    probe_lock(p);
    for (probe_standing **at = &p->standing; *at != NULL; at = &(*at)->next)
        if ((*at)->what.ticket == ticket) {
            (*at)->go = 1;
            *at = (*at)->next;
            rc = 0;
            break;
        }
    probe_unlock(p);
    if (rc == 0) rmq_event_wake(&p->released);
    return rc;
}

void rmq_probe_ungate(rmq_probe *p) {
    probe_lock(p);
    probe_gate *g = p->gates;
    p->gates = NULL;
    rmq_publish32(&p->clock_gates, 0);
    for (probe_standing *s = p->standing; s != NULL; s = s->next) s->go = 1;
    p->standing = NULL;
    probe_unlock(p);
    rmq_event_wake(&p->released);
    for (probe_gate *next; g != NULL; g = next) {
        next = g->next;
        free(g->path);
        free(g);
    }
}

int rmq_probe_standing(rmq_probe *p, int i, rmq_standing *out) {
    int rc = -EINVAL;
    probe_lock(p);
    probe_standing *s = p->standing;
    while (s != NULL && i-- > 0) s = s->next;
    if (s != NULL) {
        *out = s->what;
        rc = 0;
    }
    probe_unlock(p);
    return rc;
}

int rmq_probe_wait_standing(rmq_probe *p, int n, int64_t timeout_ns) {
    int64_t deadline = p->below->mono_ns(p->below->ctx) + timeout_ns;
    for (;;) {
        int ticket = rmq_event_ticket(&p->held_changed);
        int standing = 0;
        probe_lock(p);
        for (probe_standing *s = p->standing; s != NULL; s = s->next) standing++;
        probe_unlock(p);
        if (standing >= n) return 0;
        int64_t now = p->below->mono_ns(p->below->ctx);
        if (now >= deadline) return -ETIMEDOUT;
        rmq_event_wait(&p->held_changed, ticket, deadline - now);
    }
}
