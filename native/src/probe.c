/* Life and clock of the probe (rmq_probe.h). Its files stand in a line, and each calls only those before it: probe_trace.c,
 * probe_gate.c, probe_rules.c, probe_calls.c and probe_ring.c, probe.c. */
#define _GNU_SOURCE
#include "probe.h"
#include <stdlib.h>

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
    probe_free_memory(p);
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
