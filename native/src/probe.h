/* Inside of the probe (rmq_probe.h). Its files stand in a line, and each calls only those before it: probe_trace.c,
 * probe_gate.c, probe_rules.c, probe_calls.c and probe_ring.c, probe.c. tests/native holds the order. */
#ifndef RMQ_PROBE_INSIDE_H
#define RMQ_PROBE_INSIDE_H
#include "rmq_probe.h"
#include "rmq_wake.h"

typedef struct probe_file { /* by descriptor */
    const char *path; /* NULL: not open, or not through this table */
    int ghost;        /* made after the freeze: memory, not in the directory, so calls on it are really made */
} probe_file;

typedef struct probe_map {
    void *at; /* NULL: free entry */
    size_t n;
    const char *path; /* of its file, which may be closed; NULL: opened elsewhere */
    int writable;
    int64_t offset;
} probe_map;

typedef struct probe_flight { /* one submitted ring entry */
    uint64_t tag;
    int64_t call; /* its number in the trace */
    int forced;   /* 1: `result` replaces what the kernel answers, unless the chain before it broke */
    int result;
    int expected; /* what the kernel answers to the entry put in its place */
    int64_t length;
    int kind;
} probe_flight;

typedef struct probe_slot { /* one registered file of one ring */
    const void *ring;
    unsigned slot;
    int fd;
} probe_slot;

typedef struct probe_gate {
    struct probe_gate *next;
    uint64_t kinds;
    int thread;
    char *path;
} probe_gate;

typedef struct probe_standing { /* on the stack of the thread that stands */
    struct probe_standing *next;
    rmq_standing what;
    int go;
} probe_standing;

typedef struct probe_rule probe_rule;
typedef struct probe_chunk probe_chunk;

struct rmq_probe {
    rmq_io table;
    const rmq_io *below;
    int keep_bytes;
    rmq_mutex lock; /* guards everything below but the clock and the events */
    rmq_call *calls;
    int64_t length, capacity;
    int64_t length_max, bytes_max, bytes; /* of the trace; a maximum of 0: none */
    int full; /* a maximum was reached: nothing is traced any more */
    int torn; /* memory ran out: the trace has a hole */
    int64_t counts[RMQ_CALL_KINDS];
    probe_chunk *memory;
    probe_rule *rules;
    int64_t hits;
    int frozen; /* calls that begin from now on are ignored, maps are private */
    probe_file *files;
    int file_capacity;
    probe_map *maps;
    int map_capacity;
    probe_flight *flights;
    int flight_count, flight_capacity;
    probe_slot *slots;
    int slot_count;
    uint64_t hold_kinds;
    char *hold_path;
    int held;
    rmq_event held_changed, released;
    probe_gate *gates;
    probe_standing *standing; /* oldest first */
    int64_t tickets;
    int clock_gates; /* atomic: gates for RMQ_CALL_MONO_NS */
    int clock_injected;
    int64_t clock_ms, clock_step;
};

/* One call on its way through the probe. */
typedef struct probe_step {
    rmq_probe *p;
    rmq_call call;
    int error;   /* not 0: return -error, make no call */
    int shorten; /* transfer half */
    int skip;    /* pretend success, make no call */
    int freeze;  /* the last call that the directory sees */
} probe_step;

/* ---- probe_trace.c */
void probe_lock(rmq_probe *p);
void probe_unlock(rmq_probe *p);
int probe_matches(uint64_t kinds, const char *in_path, uint64_t bits, const char *path);
/* Memory that lives as long as the probe; the lock is held. NULL marks the trace as torn. */
const char *probe_text(rmq_probe *p, const char *text);
void probe_free_memory(rmq_probe *p);
/* The lock is held. NULL: out of memory. */
probe_file *probe_file_at(rmq_probe *p, int fd);
/* Traces the call; returns result. `data` is copied where bytes are kept. */
int64_t probe_end(probe_step *s, int64_t result, const void *data, int64_t data_size);
/* The same in parts, for a step that also changes the tables: probe_lock, change, probe_append, probe_unlock. */
int64_t probe_append(probe_step *s, int64_t result, const void *data, int64_t data_size);

/* ---- probe_gate.c */
/* Whether a gate stops this thread at such a call; the lock is held. Then probe_stand, without it, returns when it may go. */
int probe_gated(rmq_probe *p, uint64_t bits, const char *path);
void probe_stand(rmq_probe *p, rmq_call_kind kind, const char *path);

/* ---- probe_rules.c */
/* path: of the call; NULL: that of fd. */
void probe_begin(probe_step *s, rmq_probe *p, rmq_call_kind kind, int fd, const char *path, int mutates);

/* ---- probe_calls.c, probe_ring.c */
void probe_fill_calls(rmq_io *table);
void probe_fill_ring(rmq_io *table);
#endif
